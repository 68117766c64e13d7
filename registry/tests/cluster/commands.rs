//! What commands answer, through the whole path of one insert.

use std::sync::Arc;

use photon_proto::registry::submit_reply::Reply;
use photon_types::{Command, DeleteReason, Holder, Outcome};
use tokio::task::JoinSet;

use crate::harness::{Cluster, RULES, insert, key, lookup, token};

#[tokio::test(flavor = "multi_thread")]
async fn the_first_token_wins_and_may_ask_again() {
    let mut cluster = Cluster::start(3).await;
    let winner = Holder::Token(token(1));
    let delete = |sequence| Command::Delete { key: key(1), token: token(sequence), reason: DeleteReason::LineMissing };
    let forget = |n, sequence| Command::ForgetToken { key: key(n), token: token(sequence) };
    assert_eq!(
        cluster.submit(&[insert(1, 1), insert(1, 2), insert(1, 1), lookup(1), lookup(2)]).await,
        [
            Outcome::Inserted,
            Outcome::Duplicate { winner },
            Outcome::Inserted,
            Outcome::Present { winner },
            Outcome::Absent
        ]
    );
    assert_eq!(
        cluster.submit(&[delete(2), delete(1), delete(1), insert(1, 3)]).await,
        [Outcome::Mismatch { winner }, Outcome::Deleted, Outcome::Absent, Outcome::Inserted]
    );
    assert_eq!(
        cluster.submit(&[forget(1, 3), insert(1, 3), lookup(1), forget(2, 1)]).await,
        [
            Outcome::Forgotten,
            Outcome::Duplicate { winner: Holder::Forgotten },
            Outcome::Present { winner: Holder::Forgotten },
            Outcome::Absent
        ]
    );
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_is_a_cluster() {
    let mut cluster = Cluster::start(1).await;
    cluster.insert_all(0..2_000).await;
    cluster.stop_all().await;
    cluster.start_all().await;
    assert_eq!(
        cluster.submit(&[insert(7, 7), insert(7, 8)]).await,
        [Outcome::Inserted, Outcome::Duplicate { winner: Holder::Token(token(7)) }]
    );
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_where_each_node_stands() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..1_500).await;
    cluster.all_applied().await;
    let leader = cluster.leader().await;
    let mut clusters = Vec::new();
    for id in cluster.ids() {
        cluster.connected_to_all(id).await;
        let status = cluster.status(id).await;
        assert_eq!(status.node_id, id.0);
        assert_eq!(status.boot, 1);
        assert_eq!(status.incarnation.len(), 16);
        assert_eq!(status.leader_node_id, leader.0);
        assert_eq!(status.role, if id == leader { "leader" } else { "follower" });
        assert_eq!(status.key_rules, RULES);
        assert!(status.applied_end <= status.commit_end && status.commit_end <= status.accepted_end);
        assert!(0 < status.fsyncs_total && 0 < status.journal_bytes);
        assert_eq!(status.commands_total, 1_501, "the statement of the rules, and 1,500 inserts");
        assert!(3 <= status.batches_total && status.batches_total <= status.commands_total);
        clusters.push(status.cluster_id);
    }
    assert_eq!(clusters[0].len(), 16);
    assert!(clusters.iter().all(|id| *id == clusters[0]));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_names_the_leader() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..1).await;
    let leader = cluster.leader().await;
    let expected = cluster.status(leader).await.members[leader.0 as usize - 1].client_address.clone();
    for follower in cluster.ids().into_iter().filter(|id| *id != leader) {
        match cluster.submit_to(follower, &[insert(1, 1)]).await {
            Reply::NotLeader(not_leader) => assert_eq!(not_leader.hint, expected),
            other => panic!("{other:?}"),
        }
    }
    cluster.stop_all().await;
}

/// Many callers at once, with every lane and call delayed at random: each id has one winner, and
/// each winner knows it.
#[tokio::test(flavor = "multi_thread")]
async fn one_winner_per_id_under_shuffled_scheduling() {
    let cluster = Arc::new(Cluster::start_with_chaos(3, 42).await);
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let cluster = Arc::clone(&cluster);
        callers.spawn(async move {
            let mut won = Vec::new();
            for round in 0..5_u64 {
                let ids = round * 40..round * 40 + 40;
                let commands: Vec<Command> = ids.clone().map(|n| insert(n, caller * 1_000 + n)).collect();
                let outcomes = cluster.submit(&commands).await;
                won.extend(ids.zip(outcomes).filter(|(_, o)| *o == Outcome::Inserted).map(|(n, _)| n));
            }
            won
        });
    }
    let mut won: Vec<u64> = callers.join_all().await.into_iter().flatten().collect();
    won.sort_unstable();
    assert_eq!(won, (0..200).collect::<Vec<u64>>());
    Arc::into_inner(cluster).expect("no caller is left").stop_all().await;
}
