//! Hellos between nodes, good and bad.

use super::*;

const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

fn identity(node: u32, disk: u8, boot: u64) -> Identity {
    Identity {
        node: NodeId(node),
        incarnation: Incarnation([disk; 16]),
        boot,
        nonce: nonce_of(disk, boot),
        recovered_end: JournalPosition { segment: boot, byte: 0 },
        past_lives: (1..boot).map(|boot| past_life(disk, boot)).collect(),
        mark: RefusalMark::nowhere(format!("data/{node}").into()),
    }
}

fn nonce_of(disk: u8, boot: u64) -> u64 {
    boot * 100 + u64::from(disk)
}

/// The journal of these disks grows by a segment with each boot.
fn past_life(disk: u8, boot: u64) -> PastLife {
    PastLife { boot, nonce: nonce_of(disk, boot), recovered_end: JournalPosition { segment: boot, byte: 0 } }
}

fn handshake(identity: Identity, birth: Option<Birth>) -> Handshake {
    let failure = Failure::new(identity.node);
    Handshake::new(identity, MEMBERS.to_vec(), "members = 1,2,3".into(), birth, failure)
}

fn unborn(node: u32) -> Handshake {
    handshake(identity(node, u8::try_from(node).unwrap(), 1), None)
}

/// Both sides of a call from one to the other.
fn call(from: &Handshake, to: &Handshake) -> Result<(), HandshakeError> {
    let reply = match to.on_hello(from.hello(to.me.node)) {
        Ok(life) => wire::HelloReply { reply: Some(wire::hello_reply::Reply::Welcome(to.hello(life.node))) },
        Err(refused) => refused.to_wire(),
    };
    from.on_reply(to.me.node, reply).map(|_| ())
}

fn birth() -> Birth {
    Birth::new(MEMBERS.map(|node| (node, Incarnation([u8::try_from(node.0).unwrap(); 16])))).unwrap()
}

#[tokio::test]
async fn all_members_agree_on_one_birth() {
    let nodes = [unborn(1), unborn(2), unborn(3)];
    call(&nodes[0], &nodes[1]).unwrap();
    call(&nodes[2], &nodes[0]).unwrap();
    assert_eq!(nodes[0].agreed_birth().await, birth());
    assert_eq!(nodes[2].unmet(), [NodeId(2)]);
    // Node 3 has met only node 1, but that one is born now, and its record holds.
    nodes[0].on_born(birth());
    call(&nodes[2], &nodes[0]).unwrap();
    assert_eq!(nodes[2].agreed_birth().await, birth());
    assert_eq!(nodes[0].cluster_id(), Some(birth().cluster_id()));
}

#[test]
fn a_new_disk_under_a_known_id_is_refused_on_both_sides() {
    let born = handshake(identity(1, 1, 1), Some(birth()));
    let wiped = handshake(identity(2, 77, 1), None);
    let error = call(&wiped, &born).unwrap_err().to_string();
    assert!(error.contains("wiped disk"), "{error}");
    let own = wiped.failure.get().expect("its disk can never vote").to_string();
    assert!(own.contains("data directory data/2 is refused: node 1 says"), "{own}");
    // The other way round it finds out by itself.
    let wiped = handshake(identity(2, 77, 1), None);
    assert!(call(&born, &wiped).is_err());
    let own = wiped.failure.get().expect("its disk can never vote").to_string();
    assert!(own.contains("can not vote under its old id"), "{own}");
    assert!(born.failure.get().is_none());
}

/// Two peers whose disks were wiped, one after the other, are no other cluster: the last good disk
/// of this one must not end for it.
#[test]
fn wiped_peers_do_not_end_the_last_good_node() {
    let born = handshake(identity(1, 1, 1), Some(birth()));
    for (node, disk) in [(2, 77), (3, 78), (2, 79)] {
        let wiped = handshake(identity(node, disk, 1), None);
        call(&born, &wiped).unwrap_err();
        call(&wiped, &born).unwrap_err();
        assert!(wiped.failure.get().is_some());
    }
    assert!(born.failure.get().is_none());
    // Two that have another cluster's birth record are.
    let elsewhere = Birth::new(MEMBERS.map(|node| (node, Incarnation([90 + u8::try_from(node.0).unwrap(); 16]))));
    let elsewhere = elsewhere.unwrap();
    for (node, disk) in [(2, 92), (3, 93)] {
        assert!(born.failure.get().is_none());
        call(&born, &handshake(identity(node, disk, 1), Some(elsewhere.clone()))).unwrap_err();
    }
    let own = born.failure.get().expect("no quorum can be at the addresses").to_string();
    assert!(own.contains("only 1 of 3 members"), "{own}");
}

/// The quorum is that of the birth: a shorter list in the configuration is no smaller cluster.
#[test]
fn a_birth_of_other_members_is_refused() {
    let two = Birth::new([(NodeId(1), Incarnation([1; 16])), (NodeId(2), Incarnation([2; 16]))]).unwrap();
    let other = handshake(identity(2, 2, 1), Some(two));
    let node = unborn(1);
    let refused = node.on_hello(other.hello(NodeId(1))).unwrap_err();
    assert_eq!(refused.refusal, wire::Refusal::Config);
    let own = node.failure.get().expect("one of the lists is wrong");
    assert_eq!(own.kind(), crate::error::ErrorKind::Config);
    let own = own.to_string();
    assert!(own.contains("with the members 1, 2, but the configuration lists 1, 2, 3"), "{own}");
    assert!(node.agreed.borrow().is_none());
}

#[test]
fn what_must_agree_is_compared_and_named() {
    let other = Handshake::new(
        identity(2, 2, 1),
        vec![NodeId(1), NodeId(2)],
        "members = 1,2".into(),
        None,
        Failure::new(NodeId(2)),
    );
    let error = call(&other, &unborn(1)).unwrap_err().to_string();
    assert_eq!(
        error,
        "node 1 refuses this node: the configurations of nodes 1 (here) and 2 (there) differ: \
         members is 1,2,3 here and 1,2 there"
    );
    let mut hello = unborn(2).hello(NodeId(3));
    let refused = unborn(1).on_hello(hello.clone()).unwrap_err();
    assert_eq!(refused.refusal, wire::Refusal::NotMember);
    assert_eq!(refused.reason, "node 3 was called, but this is node 1: check the addresses");
    (hello.to_node_id, hello.protocol) = (1, 9);
    assert_eq!(unborn(1).on_hello(hello).unwrap_err().refusal, wire::Refusal::Protocol);
}

#[test]
fn bytes_of_a_hello_are_not_trusted() {
    let born = handshake(identity(2, 2, 1), Some(birth()));
    let good = born.hello(NodeId(1));
    let refused = |change: fn(&mut wire::Hello), part: &str| {
        let mut hello = good.clone();
        change(&mut hello);
        let refused = unborn(1).on_hello(hello).unwrap_err();
        assert_eq!(refused.refusal, wire::Refusal::Protocol, "{refused:?}");
        assert!(refused.reason.contains(part), "{refused:?}");
    };
    refused(|hello| hello.incarnation = vec![1].into(), "incarnation has 1 bytes");
    refused(|hello| hello.cluster_id = vec![1; 16].into(), "not the hash of its birth record");
    refused(|hello| hello.cluster_id = Vec::new().into(), "not the hash of its birth record");
    refused(|hello| hello.birth.push(hello.birth[0].clone()), "is named twice");
    refused(|hello| hello.past_lives = vec![past_life_to_wire(&past_life(2, 1)); 2_000], "has 2000 starts");
    refused(|hello| hello.past_lives = vec![past_life_to_wire(&past_life(2, 1))], "not one story");
    assert!(unborn(1).on_hello(good).is_ok());
}

#[test]
fn of_two_lives_only_the_later_one_is_heard() {
    let node = handshake(identity(1, 1, 1), Some(birth()));
    let first = handshake(identity(2, 2, 5), Some(birth()));
    let second = handshake(identity(2, 2, 6), Some(birth()));
    let early = node.on_hello(first.hello(NodeId(1))).unwrap();
    assert!(node.on_envelope(&early, JournalPosition { segment: 5, byte: 4096 }));
    let late = node.on_hello(second.hello(NodeId(1))).unwrap();
    assert!(!node.on_envelope(&early, JournalPosition { segment: 9, byte: 0 }), "its process is gone, or a copy");
    assert!(node.on_envelope(&late, JournalPosition { segment: 6, byte: 0 }));
    assert_eq!(node.on_hello(first.hello(NodeId(1))).unwrap_err().refusal, wire::Refusal::RolledBack);
}

/// Started again and again, a copy gets higher numbers than its original; its history stays another.
#[test]
fn the_copy_of_a_disk_is_refused_at_each_start() {
    let node = handshake(identity(1, 1, 1), Some(birth()));
    let original = handshake(identity(2, 2, 5), Some(birth()));
    call(&original, &node).unwrap();
    for boot in 5..20 {
        let mut copied = identity(2, 2, boot);
        copied.nonce += 50_000;
        copied.past_lives.iter_mut().filter(|life| 5 <= life.boot).for_each(|life| life.nonce += 50_000);
        let copied = handshake(copied, Some(birth()));
        assert!(call(&copied, &node).unwrap_err().to_string().contains("copied or rolled back"));
        assert!(copied.failure.get().is_some(), "its disk can never vote");
        call(&original, &node).unwrap();
    }
    call(&handshake(identity(2, 2, 6), Some(birth())), &node).unwrap();
    assert!(node.failure.get().is_none() && original.failure.get().is_none());
}

/// A hello from before the birth that is overtaken by one from after it is no rolled-back disk.
#[test]
fn a_late_hello_is_not_a_forgotten_birth() {
    let node = handshake(identity(1, 1, 1), Some(birth()));
    let other = unborn(2);
    let late = other.hello(NodeId(1));
    other.on_born(birth());
    node.on_hello(other.hello(NodeId(1))).unwrap();
    assert_eq!(node.on_hello(late).unwrap_err().refusal, wire::Refusal::NotBorn);
    // In another boot it is.
    let forgotten = handshake(identity(2, 2, 2), None);
    assert_eq!(node.on_hello(forgotten.hello(NodeId(1))).unwrap_err().refusal, wire::Refusal::RolledBack);
}
