//! Finding the leader, the cluster's name, and the key rules.

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{CLUSTER, Node, RULES, Step, config, far, key, near, nowhere, token};
use photon_client::{Client, ClientError};
use photon_types::{ClusterId, Outcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_leads_to_a_leader_outside_the_list() {
    let leader = Node::start().await;
    let follower = Node::start_with(leader.table.clone(), CLUSTER).await;
    follower.follow(&leader.address);
    let client = Client::connect(config(&[&follower])).await.unwrap();
    assert_eq!(client.cluster_id(), ClusterId(CLUSTER));
    let answer = client.insert(key(1), token(1), far()).await.unwrap();
    assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Inserted, false));
    assert_eq!(follower.chunks().len(), 0, "no command goes to a follower");
    assert_eq!(*leader.statements.lock().unwrap(), 1, "the rules are stated once for a connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_endpoints_and_followers_that_know_nobody_are_passed_over() {
    let leader = Node::start().await;
    let follower = Node::start_with(leader.table.clone(), CLUSTER).await;
    follower.follow("");
    let mut config = config(&[&follower, &leader]);
    config.endpoints.insert(0, nowhere().await);
    let client = Client::connect(config).await.unwrap();
    assert_eq!(client.insert(key(1), token(1), far()).await.unwrap().outcome, Outcome::Inserted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_hints_ends_when_one_begins_to_lead() {
    let a = Node::start().await;
    let b = Node::start_with(a.table.clone(), CLUSTER).await;
    a.follow(&b.address);
    b.follow(&a.address);
    let connecting = tokio::spawn(Client::connect(config(&[&a, &b])));
    while *a.statements.lock().unwrap() < 3 {
        tokio::task::yield_now().await;
    }
    b.lead();
    assert!(connecting.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_leader_is_followed_and_nothing_counts_as_ambiguous() {
    let a = Node::start().await;
    let b = Node::start_with(a.table.clone(), CLUSTER).await;
    b.follow(&a.address);
    let client = Client::connect(config(&[&a, &b])).await.unwrap();
    client.insert(key(1), token(1), far()).await.unwrap();
    a.follow(&b.address);
    b.lead();
    let answer = client.insert(key(2), token(2), far()).await.unwrap();
    assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Inserted, false));
    assert_eq!(b.chunks().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_leader_is_unreachable_with_the_cause() {
    let mut config = config(&[]);
    config.endpoints = vec![nowhere().await];
    config.timings.connect_within = Duration::from_millis(200);
    match Client::connect(config.clone()).await {
        Err(ClientError::Unreachable { cause }) => {
            assert!(cause.contains(&config.endpoints[0]) && cause.contains("refused"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_a_leader_has_certainly_done_nothing() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    node.follow("");
    match client.insert(key(1), token(1), near()).await {
        Err(ClientError::Unreachable { cause }) => assert!(cause.contains("does not lead"), "{cause}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_key_rules_are_kept_and_others_are_told_the_difference() {
    let node = Node::start().await;
    Client::connect(config(&[&node])).await.unwrap();
    assert_eq!(node.table.lock().unwrap().key_rules.as_deref(), Some(RULES));
    Client::connect(config(&[&node])).await.unwrap();
    let mut other = config(&[&node]);
    other.key_rules = RULES.replace("timestamp", "time");
    let error = Client::connect(other).await.unwrap_err();
    assert!(matches!(error, ClientError::KeyRulesDiffer { .. }), "{error}");
    assert!(error.to_string().contains("clicks.time: here `time`, registry `timestamp`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_rules_that_differ_later_end_the_call_at_once() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    node.script([Step::KeyRulesDiffer]);
    let error = client.insert(key(1), token(1), far()).await.unwrap_err();
    assert!(error.to_string().contains("clicks.id: here `action_id`, registry `other`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_key_rules_are_stated_again() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    node.table.lock().unwrap().key_rules = None;
    let answer = client.insert(key(1), token(1), far()).await.unwrap();
    assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Inserted, false));
    assert_eq!(*node.statements.lock().unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_is_refused_and_both_are_named() {
    let node = Node::start().await;
    let mut config = config(&[&node]);
    config.cluster_id = Some(ClusterId([8; 16]));
    let error = Client::connect(config).await.unwrap_err().to_string();
    assert!(error.contains(&ClusterId([8; 16]).to_string()), "{error}");
    assert!(error.contains(&ClusterId(CLUSTER).to_string()) && error.contains(&node.address), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_in_the_list_is_passed_over_while_our_cluster_answers() {
    let ours = Node::start().await;
    let stranger = Node::start_with(Arc::default(), [8; 16]).await;
    let mut config = config(&[&stranger, &ours]);
    config.cluster_id = Some(ClusterId(CLUSTER));
    let client = Client::connect(config).await.unwrap();
    assert_eq!(client.insert(key(1), token(1), far()).await.unwrap().outcome, Outcome::Inserted);
    assert_eq!(stranger.chunks().len(), 0);
    assert!(stranger.table.lock().unwrap().key_rules.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_changes_under_a_client_is_an_error() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    node.script([Step::WrongCluster]);
    let error = client.insert(key(1), token(1), far()).await.unwrap_err();
    assert!(matches!(error, ClientError::WrongCluster { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_show_who_answers_and_why_others_do_not() {
    let node = Node::start().await;
    let mut config = config(&[&node]);
    config.endpoints.push(nowhere().await);
    let client = Client::connect(config.clone()).await.unwrap();
    let statuses = client.statuses().await;
    assert_eq!(statuses[0].1.as_ref().unwrap().role, "leader");
    assert_eq!(statuses[0].1.as_ref().unwrap().cluster_id, Some(ClusterId(CLUSTER)));
    assert_eq!(statuses[1].0, config.endpoints[1]);
    assert!(statuses[1].1.as_ref().unwrap_err().to_string().contains("refused"));
}
