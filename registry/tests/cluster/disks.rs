//! Disks that are lost, copied, taken or damaged.

use std::path::PathBuf;

use photon_registry::{ErrorKind, Listen, Server};
use photon_types::{Command, Holder, NodeId, Outcome};

use crate::harness::{Cluster, copy_dir, insert, lookup, soon, token};

/// Starts a node whose former life may still hold the lock for a moment.
pub async fn start_when_free(cluster: &mut Cluster, id: NodeId) {
    soon("a free data directory", async {
        loop {
            match cluster.try_start_node(id).await {
                Ok(()) => return,
                Err(error) => assert!(
                    error.kind() == ErrorKind::DataDirRefused || error.to_string().contains("can not listen"),
                    "{error}"
                ),
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn follower(leader: NodeId, cluster: &Cluster) -> NodeId {
    cluster.ids().into_iter().find(|id| *id != leader).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_table_is_rebuilt_from_the_journal() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..2_000).await;
    cluster.stop_all().await;
    for id in cluster.ids() {
        std::fs::remove_dir_all(cluster.data_dir(id).join("table")).unwrap();
    }
    cluster.start_all().await;
    let lookups: Vec<Command> = (0..2_000).map(lookup).collect();
    for (n, outcome) in (0..).zip(cluster.submit(&lookups).await) {
        assert_eq!(outcome, Outcome::Present { winner: Holder::Token(token(n)) });
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_disk_is_refused() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    cluster.stop_all().await;
    let table = |id: u32| cluster.data_dir(NodeId(id)).join("table");
    std::fs::remove_dir_all(table(1)).unwrap();
    copy_dir(&table(2), &table(1));
    let error = cluster.try_start_node(NodeId(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataDirRefused, "{error}");
    assert!(error.to_string().contains("will be rebuilt from the journal"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_disk_is_refused_by_name_and_ends() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    let leader = cluster.leader().await;
    let wiped = follower(leader, &cluster);
    cluster.stop_node(wiped).await;
    std::fs::remove_dir_all(cluster.data_dir(wiped)).unwrap();
    cluster.start_node(wiped).await;
    let error = soon("the refusal", cluster.node(wiped).failed()).await;
    assert_eq!(error.kind(), ErrorKind::DataDirRefused, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("node {wiped}")), "{text}");
    assert!(text.contains("wiped") && text.contains("can not vote"), "{text}");
    // The others go on without it.
    cluster.insert_all(10..20).await;
    let node = cluster.node(wiped).status();
    assert_eq!(node.role, "waiting");
    // And it keeps that it was refused.
    cluster.try_stop_node(wiped).await.unwrap_err();
    let error = cluster.try_start_node(wiped).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataDirRefused, "{error}");
    assert!(error.to_string().contains("can never vote again"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_has_one_user() {
    let mut cluster = Cluster::start(3).await;
    let mut config = cluster.config(NodeId(1));
    (config.client_listen, config.peer_listen) = (any_port(), any_port());
    let error = Server::start(config).await.err().expect("it is in use");
    assert_eq!(error.kind(), ErrorKind::DataDirRefused, "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    // And belongs to one node.
    let mut config = cluster.config(NodeId(2));
    config.data_dir = cluster.data_dir(NodeId(3));
    (config.client_listen, config.peer_listen) = (any_port(), any_port());
    cluster.stop_node(NodeId(3)).await;
    let error = Server::start(config).await.err().expect("it is another's");
    assert_eq!(error.kind(), ErrorKind::DataDirRefused, "{error}");
    assert!(error.to_string().contains("belongs to node 3, this is node 2"), "{error}");
    cluster.stop_all().await;
}

/// A copy made before more was promised: the copy and the original say different things, and the
/// peers have heard more than the copy knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_disk_is_refused() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    let leader = cluster.leader().await;
    let old = follower(leader, &cluster);
    cluster.stop_node(old).await;
    let copy = cluster.dir.path().join("copy");
    copy_dir(&cluster.data_dir(old), &copy);
    cluster.start_node(old).await;
    cluster.insert_all(10..500).await;
    cluster.all_applied().await;
    cluster.stop_node(old).await;
    // The operator restores the backup.
    std::fs::remove_dir_all(cluster.data_dir(old)).unwrap();
    std::fs::rename(&copy, cluster.data_dir(old)).unwrap();
    cluster.start_node(old).await;
    let error = soon("the refusal", cluster.node(old).failed()).await;
    assert_eq!(error.kind(), ErrorKind::DataDirRefused, "{error}");
    assert!(error.to_string().contains("rolled back"), "{error}");
    cluster.insert_all(500..510).await;
}

/// Each start raises the numbers of a disk. However often a rolled-back one is started, it has no
/// vote: the peers hold its history against it, and the disk keeps the refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_disk_is_refused_at_each_start_and_the_original_comes_back() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    let leader = cluster.leader().await;
    let node = follower(leader, &cluster);
    cluster.stop_node(node).await;
    let (backup, original) = (cluster.dir.path().join("backup"), cluster.dir.path().join("original"));
    copy_dir(&cluster.data_dir(node), &backup);
    cluster.start_node(node).await;
    cluster.connected_to_all(node).await;
    cluster.insert_all(10..500).await;
    cluster.all_applied().await;
    cluster.stop_node(node).await;
    std::fs::rename(cluster.data_dir(node), &original).unwrap();
    copy_dir(&backup, &cluster.data_dir(node));
    for start in 0..5 {
        cluster.start_node(node).await;
        let error = soon("the refusal", cluster.node(node).failed()).await;
        assert_eq!(error.kind(), ErrorKind::DataDirRefused, "start {start}: {error}");
        assert!(error.to_string().contains("this disk can never vote again"), "start {start}: {error}");
        cluster.try_stop_node(node).await.unwrap_err();
        // It does not even open its doors.
        let error = cluster.try_start_node(node).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataDirRefused, "start {start}: {error}");
        assert!(error.to_string().contains("refused for ever: node"), "start {start}: {error}");
        // An operator who removes the mark gets no further: the peers remember.
        std::fs::remove_file(cluster.data_dir(node).join("refused")).unwrap();
    }
    let counted = std::fs::read_to_string(cluster.data_dir(node).join("boot")).unwrap();
    let of_original = std::fs::read_to_string(original.join("boot")).unwrap();
    let boot =
        |text: &str| -> u64 { text.lines().find_map(|line| line.strip_prefix("boot ")).unwrap().parse().unwrap() };
    assert!(boot(&of_original) < boot(&counted), "its numbers have passed those of the original");
    // The original is believed, and has a vote.
    std::fs::remove_dir_all(cluster.data_dir(node)).unwrap();
    std::fs::rename(&original, cluster.data_dir(node)).unwrap();
    cluster.start_node(node).await;
    cluster.connected_to_all(node).await;
    let third = cluster.ids().into_iter().find(|id| *id != node && *id != leader).unwrap();
    cluster.stop_node(third).await;
    cluster.insert_all(500..600).await;
    let lookups: Vec<Command> = (0..600).map(lookup).collect();
    for (n, outcome) in (0..).zip(cluster.submit(&lookups).await) {
        assert_eq!(outcome, Outcome::Present { winner: Holder::Token(token(n)) });
    }
    cluster.stop_all().await;
}

/// Who is killed and started again and again, met or unmet, keeps his vote.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_may_be_started_many_times() {
    let mut cluster = Cluster::start(3).await;
    let node = follower(cluster.leader().await, &cluster);
    for round in 0..6 {
        cluster.insert_all(round * 100..round * 100 + 100).await;
        cluster.drop_node(node);
        start_when_free(&mut cluster, node).await;
        if round % 2 == 0 {
            cluster.connected_to_all(node).await;
        }
    }
    cluster.connected_to_all(node).await;
    cluster.all_applied().await;
    assert_eq!(cluster.node(node).status().unhealthy, None);
    cluster.stop_all().await;
}

/// A configuration that lists fewer members would make a minority a quorum, and two winners of one
/// id.
#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_list_of_members_makes_no_smaller_cluster() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    cluster.stop_node(NodeId(1)).await;
    for kept in [&[1][..], &[1, 2], &[1, 2, 3, 4]] {
        let mut config = cluster.config(NodeId(1));
        let mut fourth = config.members[2].clone();
        fourth.id = NodeId(4);
        config.members.push(fourth);
        config.members.retain(|member| kept.contains(&member.id.0));
        let error = Server::start(config).await.err().expect("it was born with three members");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        let list = kept.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let text = error.to_string();
        assert!(
            text.contains(&format!("born with the members 1, 2, 3, but the configuration lists {list}: ")),
            "{text}"
        );
        assert!(text.contains(&cluster.data_dir(NodeId(1)).display().to_string()), "{text}");
    }
    // The disk has taken no harm.
    cluster.start_node(NodeId(1)).await;
    cluster.connected_to_all(NodeId(1)).await;
    cluster.insert_all(10..20).await;
    cluster.stop_all().await;
}

/// A copy of a disk runs beside the original: two processes of one boot.
#[tokio::test(flavor = "multi_thread")]
async fn the_copy_of_a_running_disk_is_refused() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    let leader = cluster.leader().await;
    let original = follower(leader, &cluster);
    cluster.stop_node(original).await;
    let copy = cluster.dir.path().join("copy");
    copy_dir(&cluster.data_dir(original), &copy);
    cluster.start_node(original).await;
    cluster.connected_to_all(original).await;
    cluster.insert_all(10..500).await;
    let mut config = cluster.config(original);
    config.data_dir = copy;
    (config.client_listen, config.peer_listen) = (any_port(), any_port());
    let clone = Server::start(config).await.unwrap();
    let error = soon("the refusal of the copy", clone.failed()).await;
    assert_eq!(error.kind(), ErrorKind::DataDirRefused, "{error}");
    assert!(error.to_string().contains("copied or rolled back"), "{error}");
    soon("the end of the copy", clone.shutdown()).await.unwrap_err();
    // The original goes on.
    cluster.insert_all(500..600).await;
    cluster.all_applied().await;
    cluster.stop_all().await;
}

fn any_port() -> Listen {
    Listen::Address("127.0.0.1:0".parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_is_named_and_the_node_does_not_start() {
    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..1_000).await;
    cluster.stop_all().await;
    let mut segments: Vec<PathBuf> = std::fs::read_dir(cluster.data_dir(NodeId(1)).join("journal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| 16_384 < path.metadata().unwrap().len())
        .collect();
    segments.sort();
    let segment = segments.first().expect("a segment with records").clone();
    // One bit in the middle of what was synced long ago.
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.len() / 2 / 4096 * 4096 + 100;
    bytes[at] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    let error = cluster.try_start_node(NodeId(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damage, "{error}");
    let text = error.to_string();
    assert!(text.contains(&segment.display().to_string()), "{text}");
    assert!(text.contains("at offset"), "{text}");
    // Two undamaged nodes are a quorum.
    cluster.start_node(NodeId(2)).await;
    cluster.start_node(NodeId(3)).await;
    assert_eq!(cluster.submit(&[insert(5, 5)]).await, [Outcome::Inserted]);
    cluster.stop_all().await;
}

/// The next segment can not be made: the node says why and ends; nobody is told that something is
/// durable which is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_can_not_be_written_ends_its_node() {
    let cluster = Cluster::start(3).await;
    cluster.insert_all(0..10).await;
    let leader = cluster.leader().await;
    let failing = follower(leader, &cluster);
    std::fs::remove_dir_all(cluster.data_dir(failing).join("journal")).unwrap();
    let mut next = 10;
    let error = soon("the failure", async {
        loop {
            tokio::select! {
                biased;
                error = cluster.node(failing).failed() => return error,
                () = cluster.insert_all(next..next + 5_000) => next += 5_000,
            }
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Failure, "{error}");
    assert!(error.to_string().contains("journal"), "{error}");
    let unhealthy = cluster.node(failing).status().unhealthy;
    assert_eq!(unhealthy, Some(error.to_string()));
    assert_eq!(cluster.submit(&[insert(5, 5)]).await, [Outcome::Inserted]);
}

/// The table can not be flushed at the end: that is said, and the journal brings all of it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_can_not_be_written_is_said_and_rebuilt() {
    let mut cluster = Cluster::start(1).await;
    cluster.insert_all(0..2_000).await;
    let table = cluster.data_dir(NodeId(1)).join("table");
    std::fs::remove_dir_all(&table).unwrap();
    let error = cluster.try_stop_node(NodeId(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failure, "{error}");
    assert!(error.to_string().contains("flushing in the table at"), "{error}");
    // What the failed flush may have left behind is not a table.
    let _ = std::fs::remove_dir_all(&table);
    cluster.start_all().await;
    let lookups: Vec<Command> = (0..2_000).map(lookup).collect();
    for (n, outcome) in (0..).zip(cluster.submit(&lookups).await) {
        assert_eq!(outcome, Outcome::Present { winner: Holder::Token(token(n)) });
    }
    cluster.stop_all().await;
}
