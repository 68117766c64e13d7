//! Nodes that stop and come back.

use photon_types::{Command, Holder, NodeId, Outcome};

use crate::harness::{Cluster, insert, lookup, token};

#[tokio::test(flavor = "multi_thread")]
async fn one_node_restarts_while_the_others_go_on() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..1_000).await;
    let leader = cluster.leader().await;
    let follower = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    cluster.stop_node(follower).await;
    cluster.insert_all(1_000..2_000).await;
    cluster.start_node(follower).await;
    cluster.all_applied().await;
    let status = cluster.status(follower).await;
    assert_eq!(status.boot, 2);
    assert!(status.commands_total < 2_001, "what it had applied before is not applied again: {status:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_restart_and_nothing_is_forgotten() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..3_000).await;
    let id = cluster.status(NodeId(1)).await.cluster_id;
    cluster.stop_all().await;
    cluster.start_all().await;
    let again: Vec<Command> = (0..3_000).map(|n| insert(n, n)).collect();
    assert!(cluster.submit(&again).await.iter().all(|outcome| *outcome == Outcome::Inserted));
    let others: Vec<Command> = (0..3_000).map(|n| insert(n, n + 1_000_000)).collect();
    for (n, outcome) in (0..).zip(cluster.submit(&others).await) {
        assert_eq!(outcome, Outcome::Duplicate { winner: Holder::Token(token(n)) });
    }
    assert_eq!(cluster.status(NodeId(1)).await.cluster_id, id);
    cluster.stop_all().await;
}

/// Ended without a clean exit: no cover, no flush of its own.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_dropped_recover() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..500).await;
    for id in cluster.ids() {
        cluster.drop_node(id);
    }
    // Its threads end behind it, and the lock with them.
    for id in cluster.ids() {
        crate::disks::start_when_free(&mut cluster, id).await;
    }
    let lookups: Vec<Command> = (0..500).map(lookup).collect();
    for (n, outcome) in (0..).zip(cluster.submit(&lookups).await) {
        assert_eq!(outcome, Outcome::Present { winner: Holder::Token(token(n)) });
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_down_for_long_catches_up_from_journals() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..100).await;
    let leader = cluster.leader().await;
    let late = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    cluster.stop_node(late).await;
    // More slots than anybody keeps in memory.
    for n in 100..1_400 {
        cluster.insert_all(n..n + 1).await;
    }
    cluster.insert_all(10_000..60_000).await;
    cluster.start_node(late).await;
    cluster.all_applied().await;
    // And it is a full member: with it alone, the other follower may go.
    let other = cluster.ids().into_iter().find(|id| *id != late && *id != leader).unwrap();
    cluster.stop_node(other).await;
    cluster.insert_all(60_000..61_000).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_token_is_answered_by_a_new_leader() {
    let mut cluster = Cluster::start(3).await;
    let commands: Vec<Command> = (0..1_000).map(|n| insert(n, n)).collect();
    let first = cluster.submit(&commands).await;
    for _ in 0..2 {
        let leader = cluster.leader().await;
        cluster.stop_node(leader).await;
        let next = cluster.leader().await;
        assert_ne!(next, leader);
        assert_eq!(cluster.submit(&commands).await, first);
        cluster.start_node(leader).await;
        cluster.all_applied().await;
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_down_is_no_quorum_and_no_answer_is_made_up() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    let leader = cluster.leader().await;
    for follower in cluster.ids().into_iter().filter(|id| *id != leader) {
        cluster.stop_node(follower).await;
    }
    // Whatever it says, it is not an outcome; and a later try with the same token is answered.
    let reply = cluster.submit_to(leader, &[insert(10, 10)]).await;
    assert!(!matches!(reply, photon_proto::registry::submit_reply::Reply::Done(_)), "{reply:?}");
    cluster.start_all().await;
    assert_eq!(cluster.submit(&[insert(10, 10)]).await, [Outcome::Inserted]);
    cluster.stop_all().await;
}
