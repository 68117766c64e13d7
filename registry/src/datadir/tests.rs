//! The data directory of a node, made, opened and refused.

use std::fs;

use super::*;

const HOUR: CreationFacts = CreationFacts { bucket_micros: 3_600_000_000 };

fn open(path: &Path) -> Result<DataDir, DataDirError> {
    DataDir::open(path, NodeId(1), HOUR)
}

#[track_caller]
fn refused(result: Result<DataDir, DataDirError>, words: &str) {
    let error = result.map(|dir| dir.boot()).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn each_start_raises_the_boot_and_keeps_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry/1");
    let first = open(&path).unwrap();
    assert_eq!((first.node(), first.boot(), first.cluster()), (NodeId(1), 1, None));
    let (incarnation, nonce) = (first.incarnation(), first.nonce());
    drop(first);
    let second = open(&path).unwrap();
    assert_eq!((second.incarnation(), second.boot()), (incarnation, 2));
    assert_ne!(second.nonce(), nonce);
    assert!(second.journal_dir().join("0000000001.journal").is_file());
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    let first = open(&path).unwrap();
    refused(open(&path), "in use");
    drop(first);
    assert_eq!(open(&path).unwrap().boot(), 2);
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    drop(open(&path).unwrap());
    refused(DataDir::open(&path, NodeId(2), HOUR), "belongs to node 1, this is node 2");
    refused(DataDir::open(&path, NodeId(1), CreationFacts { bucket_micros: 1 }), "bucket_micros = 3600000000");
    fs::write(
        path.join("identity"),
        fs::read_to_string(path.join("identity")).unwrap().replace("\nnode 1\n", "\nnode 2\n"),
    )
    .unwrap();
    assert!(open(&path).unwrap_err().is_damage(), "a changed identity does not have its crc");
    fs::write(path.join("identity"), "photon registry-node 9\nnode 1\n").unwrap();
    refused(open(&path), "format registry-node 9");
    fs::remove_file(path.join("identity")).unwrap();
    refused(open(&path), "no file \"identity\"");

    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("holiday.jpg"), b"x").unwrap();
    refused(open(&foreign), "is not the data directory of a registry node");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);
    refused(open(&foreign.join("holiday.jpg")), "is not the data directory of a registry node");
}

#[test]
fn a_lost_boot_file_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    drop(open(&path).unwrap());
    fs::remove_file(path.join("boot")).unwrap();
    assert!(open(&path).unwrap_err().is_damage());
    // A file that is cut or altered anywhere is never believed.
    let good = encode(BOOT, &[("boot", "7".to_owned())]);
    for end in 0..good.len() {
        fs::write(path.join("boot"), &good[..end]).unwrap();
        assert!(!matches!(open(&path).unwrap_err(), DataDirError::Disk(_)), "cut at {end}");
    }
    fs::write(path.join("boot"), &good).unwrap();
    assert_eq!(open(&path).unwrap().boot(), 8);
}

fn position(segment: u64, byte: u64) -> JournalPosition {
    JournalPosition { segment, byte }
}

#[test]
fn the_history_has_a_line_for_each_start_that_could_speak() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    let mut nonces = Vec::new();
    for boot in 1..=3 {
        let opened = open(&path).unwrap();
        assert_eq!(opened.past_lives().len(), nonces.len());
        // Killed before it knew its journal.
        if boot != 2 {
            opened.record_life(position(boot, 4096)).unwrap();
            nonces.push((boot, opened.nonce()));
        }
    }
    let kept: Vec<(u64, u64)> = open(&path).unwrap().past_lives().iter().map(|life| (life.boot, life.nonce)).collect();
    assert_eq!(kept, nonces);
    fs::remove_file(path.join("history")).unwrap();
    assert!(open(&path).unwrap_err().is_damage());
}

#[test]
fn a_long_history_keeps_its_last_lines() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("history");
    let count = PAST_LIVES_MAX as u64 + 5;
    // As long as lines can be.
    let base = u64::MAX - count;
    let life = |n| PastLife { boot: base + n, nonce: u64::MAX, recovered_end: position(base + n, u64::MAX) };
    let lives: Vec<PastLife> = (0..count).map(life).collect();
    history::write(&file, &lives).unwrap();
    assert_eq!(history::read(&file).unwrap(), lives[5..]);
    // Two lines in the wrong order of their ends are no disk's.
    let back = [life(0), PastLife { recovered_end: position(1, 0), ..life(1) }];
    history::write(&file, &back).unwrap();
    assert!(history::read(&file).unwrap_err().is_damage());
}

#[test]
fn a_journal_that_went_back_is_seen_by_its_own_node() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    open(&path).unwrap().record_life(position(3, 4096)).unwrap();
    let error = open(&path).unwrap().record_life(position(3, 0)).unwrap_err();
    assert!(error.is_refusal());
    assert!(error.to_string().contains("rolled back: boot 2 finds the end of its journal at 3:0"), "{error}");
    // Of two that fit each other no rollback can be told here; peers can.
    open(&path).unwrap().record_life(position(3, 4096)).unwrap();
    // A counter that was rolled back alone.
    fs::write(path.join("boot"), encode(BOOT, &[("boot", "0".to_owned())])).unwrap();
    assert!(open(&path).unwrap().record_life(position(9, 0)).is_err());
}

#[test]
fn a_marked_directory_is_never_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    let opened = open(&path).unwrap();
    let mark = opened.refusal_mark();
    mark.write("node 2 says:\nit was rolled back").unwrap();
    mark.write("another reason").unwrap();
    drop(opened);
    for _ in 0..3 {
        refused(open(&path), "refused for ever: node 2 says: it was rolled back; this disk can never vote again");
    }
    // A cut mark is a mark.
    fs::write(path.join("refused"), b"photon regis").unwrap();
    assert!(open(&path).unwrap_err().is_damage());
    // Whoever is late does not write into what may be another process's by now.
    fs::remove_file(path.join("refused")).unwrap();
    mark.write("late").unwrap();
    assert_eq!(open(&path).unwrap().boot(), 2);
    let long = open(&path).unwrap();
    long.refusal_mark().write(&"é".repeat(10_000)).unwrap();
    drop(long);
    refused(open(&path), "éé");
}

#[test]
fn the_cluster_is_kept_once_and_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    let (ours, other) = (ClusterId([1; 16]), ClusterId([2; 16]));
    let mut opened = open(&path).unwrap();
    opened.set_cluster(ours).unwrap();
    opened.set_cluster(ours).unwrap();
    drop(opened);
    let mut opened = open(&path).unwrap();
    assert_eq!(opened.cluster(), Some(ours));
    assert!(matches!(opened.set_cluster(other), Err(DataDirError::WrongCluster { .. })));
}

#[test]
fn a_table_of_another_disk_is_refused_and_a_missing_one_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("table");
    let ours = TableIdentity { cluster: ClusterId([1; 16]), incarnation: Incarnation([2; 16]), table_format: 1 };
    assert_eq!(check_table(&table, &ours).unwrap(), TableState::Missing);
    fs::create_dir(&table).unwrap();
    assert_eq!(check_table(&table, &ours).unwrap(), TableState::Missing);
    begin_table(&table, &ours).unwrap();
    assert_eq!(check_table(&table, &ours).unwrap(), TableState::Ours);
    for other in [
        TableIdentity { cluster: ClusterId([9; 16]), ..ours },
        TableIdentity { incarnation: Incarnation([9; 16]), ..ours },
        TableIdentity { table_format: 2, ..ours },
    ] {
        assert!(check_table(&table, &other).unwrap_err().is_refusal());
    }
    fs::write(table.join("CURRENT"), b"x").unwrap();
    fs::remove_file(table.join("PHOTON")).unwrap();
    let unnamed = check_table(&table, &ours).unwrap_err();
    assert!(unnamed.is_refusal());
    // On the disk of a voter "name an empty directory" would cost the vote.
    assert!(unnamed.to_string().contains("remove this table directory, and only this one"), "{unnamed}");
    assert!(!unnamed.to_string().contains("empty"), "{unnamed}");
}
