//! What does not get in, and what is said about it.

use photon_proto::registry as wire;
use photon_proto::registry::submit_reply::Reply;
use photon_registry::{ErrorKind, Listen, Server};
use photon_types::{CHUNK_COMMANDS_MAX, Chunk, Command, NodeId};
use tonic::Code;

use crate::harness::{Cluster, RULES, insert, lookup, rules_hash, soon, submit_request};

#[tokio::test(flavor = "multi_thread")]
async fn bad_chunks_are_refused_with_a_reason() {
    let mut cluster = Cluster::start(1).await;
    cluster.insert_all(0..1).await;
    let mut client = cluster.client(NodeId(1)).await;
    let good = submit_request(&[insert(1, 1)], RULES);
    let too_many: Vec<Command> = (0..=CHUNK_COMMANDS_MAX as u64).map(lookup).collect();
    let cut = good.commands.slice(..good.commands.len() - 1);
    let cases = [
        (wire::SubmitRequest { count: 2, ..good.clone() }, "2 commands stated, 1 found"),
        (wire::SubmitRequest { count: 0, commands: Vec::new().into(), ..good.clone() }, "0 commands stated, 0 found"),
        (wire::SubmitRequest { commands: cut, ..good.clone() }, "the bytes end inside a value"),
        (submit_request(&too_many, RULES), "4001 is more than the limit of 4000"),
        (wire::SubmitRequest { key_rules_hash: vec![1; 3].into(), ..good.clone() }, "key_rules_hash has 3 bytes"),
        (wire::SubmitRequest { cluster_id: vec![1; 3].into(), ..good.clone() }, "cluster_id has 3 bytes"),
    ];
    for (request, part) in cases {
        let status = client.submit(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(part), "{status}");
    }
    // What nobody can read never gets a slot, nor do key rules among other commands: four thousand
    // of them would be answered with four thousand copies of the cluster's.
    let Chunk { count, bytes } = Chunk::of(&[insert(5, 5)]);
    let unreadable = wire::SubmitRequest {
        count: u32::try_from(count).unwrap() + 1,
        commands: [vec![1, 99, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0], bytes].concat().into(),
        ..good
    };
    let rules = submit_request(&[Command::StateKeyRules { text: "other".into() }], RULES);
    for (request, part) in [(unreadable, "kind 99 is not known"), (rules, "a call of their own")] {
        let status = client.submit(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(part), "{status}");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_rules_are_stated_once_and_compared() {
    let mut cluster = Cluster::start(1).await;
    let mut client = cluster.client(NodeId(1)).await;
    let reply = cluster.submit_to(NodeId(1), &[insert(1, 1)]).await;
    assert!(matches!(reply, Reply::KeyRulesMissing(_)), "{reply:?}");
    let state = |text: &str| wire::StateKeyRulesRequest { text: text.to_owned(), cluster_id: Vec::new().into() };
    let too_long = client.state_key_rules(state(&"x".repeat(16 * 1024 + 1))).await.unwrap_err();
    assert_eq!(too_long.code(), Code::InvalidArgument, "{too_long}");
    client.state_key_rules(state(RULES)).await.unwrap();
    cluster.submit(&[insert(1, 1)]).await;
    // Another datacenter comes with other rules: its ids would be others, and each would bill.
    let other = "events.id = _id\nevents.time = received_at";
    let request =
        wire::SubmitRequest { key_rules_hash: rules_hash(other).into(), ..submit_request(&[insert(1, 2)], RULES) };
    match client.submit(request).await.unwrap().into_inner().reply.unwrap() {
        Reply::KeyRulesDiffer(differ) => assert_eq!(differ.kept, RULES),
        reply => panic!("{reply:?}"),
    }
    // Refused at the door, without a slot: rules never change once they are applied.
    match client.state_key_rules(state(other)).await.unwrap().into_inner().reply.unwrap() {
        Reply::KeyRulesDiffer(differ) => assert_eq!(differ.kept, RULES),
        reply => panic!("{reply:?}"),
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_is_not_this_one() {
    let mut cluster = Cluster::start(1).await;
    cluster.insert_all(0..1).await;
    let mut client = cluster.client(NodeId(1)).await;
    let ours = cluster.status(NodeId(1)).await.cluster_id;
    for (cluster_id, is_ours) in [(ours.clone(), true), (vec![7; 16].into(), false)] {
        let request = wire::SubmitRequest { cluster_id, ..submit_request(&[lookup(0)], RULES) };
        let reply = client.submit(request).await.unwrap().into_inner();
        assert_eq!(reply.cluster_id, ours);
        assert_eq!(matches!(reply.reply, Some(Reply::Done(_))), is_ours, "{:?}", reply.reply);
        assert_eq!(matches!(reply.reply, Some(Reply::WrongCluster(_))), !is_ours, "{:?}", reply.reply);
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named() {
    let mut cluster = Cluster::new(1);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut config = cluster.config(NodeId(1));
    config.client_listen = Listen::Address(address);
    let error = Server::start(config).await.err().expect("the port is taken");
    let text = error.to_string();
    assert!(text.contains(&format!("can not listen for clients on {address}")), "{text}");
    assert_eq!(error.kind(), ErrorKind::Failure);
    assert!(!cluster.data_dir(NodeId(1)).exists(), "nothing was made yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_others_waits_and_says_for_whom() {
    let mut cluster = Cluster::new(3);
    cluster.start_node(NodeId(1)).await;
    let status = cluster.status(NodeId(1)).await;
    assert_eq!(status.role, "waiting");
    assert!(status.cluster_id.is_empty());
    match cluster.submit_to(NodeId(1), &[insert(1, 1)]).await {
        Reply::Unhealthy(unhealthy) => {
            assert!(unhealthy.reason.contains("waits for all members"), "{}", unhealthy.reason);
            assert!(unhealthy.reason.contains("node 2 at 127.0.0.1:"), "{}", unhealthy.reason);
        }
        other => panic!("{other:?}"),
    }
    // It can be ended before its birth, and is born when the others come.
    cluster.stop_node(NodeId(1)).await;
    cluster.start_all().await;
    cluster.insert_all(0..10).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_the_node() {
    let mut cluster = Cluster::new(3);
    let mut config = cluster.config(NodeId(1));
    config.http_listen = Some(Listen::Address("127.0.0.1:0".parse().unwrap()));
    let node = Server::start(config).await.unwrap();
    let address = node.http_address().unwrap();
    let (code, body) = get(address, "/healthz").await;
    assert_eq!(code, 503);
    assert!(body.contains("waits for all members"), "{body}");
    cluster.start_node(NodeId(2)).await;
    cluster.start_node(NodeId(3)).await;
    soon("a leader", node.wait_until(|status| status.leader.is_some())).await;
    assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
    let (code, body) = get(address, "/status").await;
    assert_eq!(code, 200);
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["node_id"], 1);
    assert_eq!(status["members"].as_array().unwrap().len(), 3);
    soon("the end", node.shutdown()).await.unwrap();
    cluster.stop_all().await;
}

/// A plain GET, as a probe does it.
async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}
