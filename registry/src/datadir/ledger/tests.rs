//! Stories of disks, as a peer hears them.

use super::*;

const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const NODE: NodeId = NodeId(2);

fn incarnation(number: u8) -> Incarnation {
    Incarnation([number; 16])
}

fn birth() -> Birth {
    Birth::new([(NodeId(1), incarnation(1)), (NODE, incarnation(2)), (NodeId(3), incarnation(3))]).unwrap()
}

fn at(segment: u64, byte: u64) -> JournalPosition {
    JournalPosition { segment, byte }
}

/// The disk of node 2. A clone of the value is a copy of the disk.
#[derive(Clone)]
struct Disk {
    boot: u64,
    past_lives: Vec<PastLife>,
    end: JournalPosition,
}

/// What a start of it says, and how far its journal is durable after the start.
struct Started {
    statement: Statement,
    synced_end: JournalPosition,
}

impl Disk {
    fn new() -> Disk {
        Disk { boot: 0, past_lives: Vec::new(), end: at(1, 0) }
    }

    /// A process starts, and draws `nonce`. Its journal goes on in a new segment.
    fn start(&mut self, nonce: u64) -> Started {
        self.raise();
        let life = PastLife { boot: self.boot, nonce, recovered_end: self.end };
        let past_lives = self.past_lives.clone();
        self.past_lives.push(life);
        let kept = self.past_lives.len().saturating_sub(PAST_LIVES_MAX);
        self.past_lives.drain(..kept);
        self.end = at(self.end.segment + 1, 4096);
        let statement = Statement {
            node: NODE,
            incarnation: incarnation(2),
            boot: self.boot,
            nonce,
            recovered_end: life.recovered_end,
            past_lives,
            cluster: Some(birth().cluster_id()),
        };
        assert!(crate::datadir::is_one_story(statement.past_lives.iter().chain([&life])));
        Started { statement, synced_end: self.end }
    }

    /// A start that ends before its line of the history is durable.
    fn raise(&mut self) {
        self.boot += 1;
    }

    fn write(&mut self, bytes: u64) -> JournalPosition {
        self.end.byte += bytes;
        self.end
    }
}

fn admit(ledger: &mut PeerLedger, statement: &Statement) -> Result<(), PeerRefusal> {
    ledger.admit(&MEMBERS, Some(&birth()), statement)
}

/// It says hello, and how far it is.
#[track_caller]
fn meets(ledger: &mut PeerLedger, started: &Started) {
    assert_eq!(admit(ledger, &started.statement), Ok(()));
    ledger.hear(NODE, started.statement.nonce, started.synced_end);
}

/// The disk writes, and the peer hears of it.
fn writes(ledger: &mut PeerLedger, disk: &mut Disk, nonce: u64) {
    let end = disk.write(8192);
    ledger.hear(NODE, nonce, end);
}

#[test]
fn a_disk_may_be_started_any_number_of_times() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    for nonce in 0..2 * PAST_LIVES_MAX as u64 + 10 {
        let started = disk.start(nonce);
        meets(&mut ledger, &started);
        // The same process dials again.
        meets(&mut ledger, &started);
        writes(&mut ledger, &mut disk, nonce);
    }
}

#[test]
fn starts_that_met_nobody_do_not_matter() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    meets(&mut ledger, &disk.start(1));
    writes(&mut ledger, &mut disk, 1);
    for nonce in 2..200 {
        // Killed before it knew its journal; killed before it met this peer.
        disk.raise();
        disk.start(nonce);
        disk.write(4096);
    }
    meets(&mut ledger, &disk.start(200));
    // One that has met another peer only, and one that this peer missed.
    disk.start(201);
    meets(&mut PeerLedger::default(), &disk.start(202));
    meets(&mut ledger, &disk.start(203));
}

#[test]
fn a_disk_that_was_rolled_back_is_refused_at_each_start() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    for nonce in 1..5 {
        meets(&mut ledger, &disk.start(nonce));
        writes(&mut ledger, &mut disk, nonce);
    }
    let backup = disk.clone();
    meets(&mut ledger, &disk.start(5));
    writes(&mut ledger, &mut disk, 5);
    let mut restored = backup;
    let first = restored.start(100).statement;
    assert_eq!(admit(&mut ledger, &first), Err(PeerRefusal::SecondProcess { node: NODE, boot: 5 }));
    for nonce in 101..150 {
        let again = restored.start(nonce).statement;
        assert!(5 < again.boot && disk.end < restored.end, "all its numbers are higher by now");
        assert_eq!(admit(&mut ledger, &again), Err(PeerRefusal::SecondProcess { node: NODE, boot: 5 }));
        restored.write(1 << 20);
    }
    // What was heard survives all that: the original goes on.
    meets(&mut ledger, &disk.start(6));
}

#[test]
fn a_disk_that_was_rolled_back_within_a_boot_is_refused_at_each_start() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    meets(&mut ledger, &disk.start(1));
    writes(&mut ledger, &mut disk, 1);
    let mut restored = disk.clone();
    let stated = disk.end;
    writes(&mut ledger, &mut disk, 1);
    let heard = disk.end;
    for nonce in 100..150 {
        let again = restored.start(nonce).statement;
        assert_eq!(admit(&mut ledger, &again), Err(PeerRefusal::JournalWentBack { node: NODE, heard, stated }));
        restored.write(1 << 20);
    }
    meets(&mut ledger, &disk.start(2));
}

#[test]
fn a_disk_rolled_back_far_is_refused_at_each_start() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    let mut restored = disk.clone();
    for nonce in 1..6 {
        meets(&mut ledger, &disk.start(nonce));
    }
    for nonce in 100..104 {
        let (heard, again) = (5, restored.start(nonce).statement);
        let stated = again.boot;
        assert_eq!(admit(&mut ledger, &again), Err(PeerRefusal::BootWentBack { node: NODE, heard, stated }));
    }
    // Starts that left no line behind: the boot that was heard is not there.
    restored.raise();
    let again = restored.start(104).statement;
    assert_eq!(admit(&mut ledger, &again), Err(PeerRefusal::BootUnknown { node: NODE, heard: 5 }));
}

#[test]
fn a_clone_beside_the_original_is_refused_and_the_original_goes_on() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    meets(&mut ledger, &disk.start(1));
    let mut clone = disk.clone();
    let original = disk.start(2);
    meets(&mut ledger, &original);
    for nonce in 100..110 {
        let copied = clone.start(nonce).statement;
        assert_eq!(admit(&mut ledger, &copied), Err(PeerRefusal::SecondProcess { node: NODE, boot: 2 }));
        ledger.hear(NODE, nonce, at(99, 0));
        meets(&mut ledger, &original);
        writes(&mut ledger, &mut disk, 2);
    }
    meets(&mut ledger, &disk.start(3));
    // A copy of the disk as the process of boot 3 left it, which starts first, is the disk now.
    let mut moved = disk.clone();
    meets(&mut ledger, &moved.start(200));
    let late = disk.start(4).statement;
    assert_eq!(admit(&mut ledger, &late), Err(PeerRefusal::SecondProcess { node: NODE, boot: 4 }));
}

#[test]
fn the_old_process_of_a_restarted_disk_is_not_heard() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    let first = disk.start(1);
    meets(&mut ledger, &first);
    meets(&mut ledger, &disk.start(2));
    ledger.hear(NODE, 1, at(99, 0));
    ledger.hear(NodeId(3), 1, at(99, 0));
    let refused = admit(&mut ledger, &first.statement);
    assert_eq!(refused, Err(PeerRefusal::BootWentBack { node: NODE, heard: 2, stated: 1 }));
    meets(&mut ledger, &disk.start(3));
}

/// That is no proof of anything: the disk is not condemned for it.
#[test]
fn a_boot_older_than_the_history_can_not_be_told() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    meets(&mut ledger, &disk.start(1));
    for nonce in 2..2 + PAST_LIVES_MAX as u64 {
        disk.start(nonce);
    }
    let late = disk.start(9_999).statement;
    assert_eq!(admit(&mut ledger, &late), Err(PeerRefusal::HistoryTooShort { node: NODE, heard: 1 }));
}

#[test]
fn a_disk_that_has_forgotten_its_birth_is_refused() {
    let (mut ledger, mut disk) = (PeerLedger::default(), Disk::new());
    meets(&mut ledger, &disk.start(1));
    let forgotten = Statement { cluster: None, ..disk.start(2).statement };
    assert_eq!(admit(&mut ledger, &forgotten), Err(PeerRefusal::BirthForgotten { node: NODE }));
}

#[test]
fn other_disks_under_a_member_s_id_are_refused() {
    let mut ledger = PeerLedger::default();
    let good = Disk::new().start(1).statement;
    let (born, stated) = (incarnation(2), incarnation(9));
    let other = Statement { incarnation: stated, ..good.clone() };
    assert_eq!(admit(&mut ledger, &other), Err(PeerRefusal::Wiped { node: NODE, born, stated }));
    let empty = Statement { cluster: None, ..other.clone() };
    assert_eq!(admit(&mut ledger, &empty), Err(PeerRefusal::Empty { node: NODE, born, stated }));
    let (ours, theirs) = (birth().cluster_id(), ClusterId([8; 16]));
    let foreign = Statement { cluster: Some(theirs), ..other };
    assert_eq!(admit(&mut ledger, &foreign), Err(PeerRefusal::WrongCluster { node: NODE, ours, theirs }));
    let stranger = Statement { node: NodeId(4), ..good.clone() };
    assert_eq!(admit(&mut ledger, &stranger), Err(PeerRefusal::NotMember { node: NodeId(4) }));
    // The right disk, which has met us but not yet written its birth record.
    assert_eq!(admit(&mut ledger, &Statement { cluster: None, ..good }), Ok(()));
}

#[test]
fn before_birth_a_disk_may_be_replaced() {
    let mut ledger = PeerLedger::default();
    let unborn = Statement { cluster: None, ..Disk::new().start(1).statement };
    ledger.admit(&MEMBERS, None, &unborn).unwrap();
    let replaced = Statement { incarnation: incarnation(9), nonce: 2, ..unborn };
    ledger.admit(&MEMBERS, None, &replaced).unwrap();
    // But one disk still has one story.
    let second = Statement { nonce: 3, ..replaced };
    assert!(ledger.judge(&MEMBERS, None, &second).is_err());
}
