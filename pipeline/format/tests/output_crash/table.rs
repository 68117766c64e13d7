//! The rows of the crash table by name, and what is held.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use photon_format::output::{
    FenceOutcome, LockPolicy, LockState, OutputError, OutputWriter, Place, ScanState, list_incarnations,
};
use photon_types::Incarnation;

use crate::disk::Cut;
use crate::story::{House, INCARNATION, Written, block, write};

/// A joiner that wrote so many blocks.
fn joiner(house: &House, blocks: u64) -> OutputWriter {
    let mut writer = house.create().unwrap();
    let mut written = Written::default();
    (0..blocks).for_each(|number| assert!(write(&mut writer, number, &mut written)));
    writer
}

fn clicks(blocks: u64) -> BTreeSet<u64> {
    (1..=2 * blocks).collect()
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn bytes_behind_the_last_entry_are_not_counted_and_not_copied() {
    let house = House::new();
    drop(joiner(&house, 1));
    append(&house.path().join("0000000001.open"), b"a block without its entry\n");
    house.check_fenced(&clicks(1));
}

#[test]
fn a_torn_last_entry_is_cut() {
    let house = House::new();
    drop(joiner(&house, 2));
    let index = house.path().join("0000000001.index");
    let bytes = fs::read(&index).unwrap();
    fs::write(&index, &bytes[..bytes.len() - 1]).unwrap();
    house.check_fenced(&clicks(1));
}

#[test]
fn a_link_without_its_unlink_is_finished() {
    let house = House::new();
    drop(joiner(&house, 3));
    let path = house.path();
    fs::hard_link(path.join("0000000001.jsonl"), path.join("0000000001.open")).unwrap();
    assert_eq!(house.counted(), (ScanState::Unsealed, clicks(3)));
    house.check_fenced(&clicks(3));
}

#[test]
fn two_open_segments_are_both_sealed() {
    let house = House::new();
    drop(joiner(&house, 3));
    let path = house.path();
    fs::rename(path.join("0000000001.jsonl"), path.join("0000000001.open")).unwrap();
    assert_eq!(house.counted(), (ScanState::Unsealed, clicks(3)));
    house.check_fenced(&clicks(3));
}

#[test]
fn a_directory_in_sealed_without_a_record_counts_for_nothing_until_it_is_fenced() {
    let house = House::new();
    drop(joiner(&house, 3));
    let to = house.output().join("sealed").join(INCARNATION.to_string());
    fs::rename(house.path(), to).unwrap();
    assert_eq!(house.counted(), (ScanState::Fencing, BTreeSet::new()));
    house.check_fenced(&clicks(3));
}

#[test]
fn a_record_rules_in_live_too() {
    let house = House::new();
    drop(joiner(&house, 2));
    house.check_fenced(&clicks(2));
    // A power cut undoes the rename, or an operator moves it back.
    let live = house.output().join("live").join(INCARNATION.to_string());
    fs::rename(house.path(), &live).unwrap();
    append(&live.join("0000000001.index"), b"later entries do not exist");
    assert_eq!(house.counted(), (ScanState::Sealed, clicks(2)));
    house.check_fenced(&clicks(2));
    assert_eq!(house.directory().unwrap().place, Place::Live);
}

#[test]
fn a_clean_end_needs_no_fence() {
    let house = House::new();
    joiner(&house, 3).seal().unwrap();
    assert_eq!(house.counted(), (ScanState::Sealed, clicks(3)));
    house.disk.cut(Cut::PowerAll);
    assert_eq!(house.counted(), (ScanState::Sealed, clicks(3)));
    house.check_fenced(&clicks(3));
    assert_eq!(house.directory().unwrap().place, Place::Live);
}

#[test]
fn a_joiner_without_clicks_has_an_empty_segment() {
    let house = House::new();
    drop(joiner(&house, 0));
    house.check_fenced(&clicks(0));
}

#[test]
fn a_restored_copy_is_held() {
    let house = House::new();
    drop(joiner(&house, 1));
    let copy = house.output().join("sealed").join(INCARNATION.to_string());
    fs::create_dir(&copy).unwrap();
    let listed = list_incarnations(&house.output()).unwrap();
    assert_eq!(listed.iter().map(|found| found.place).collect::<Vec<_>>(), [Place::Both]);
    house.check_held("both there");
    fs::remove_dir(copy).unwrap();
    house.check_fenced(&clicks(1));
}

#[test]
fn nothing_is_concluded_from_an_incarnation_that_is_nowhere() {
    let house = House::new();
    let outcome = house.fence(LockPolicy::NamedDead).unwrap();
    assert!(matches!(outcome, FenceOutcome::Held { reason } if reason.contains("has no directory")));
}

#[test]
fn damage_is_held() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 12] = [
        ("a good entry follows", |path| flip(&path.join("0000000001.index"), 30)),
        ("its segment was complete", |path| {
            let index = path.join("0000000001.index");
            let end = fs::metadata(&index).unwrap().len();
            flip(&index, usize::try_from(end).unwrap() - 1);
        }),
        ("segment 1 of", |path| {
            for kind in ["jsonl", "index"] {
                fs::remove_file(path.join(format!("0000000001.{kind}"))).unwrap();
            }
        }),
        ("0000000001.index is missing", |path| fs::remove_file(path.join("0000000001.index")).unwrap()),
        ("has no data", |path| fs::remove_file(path.join("0000000001.jsonl")).unwrap()),
        ("but there is no data", |path| fs::remove_file(path.join("0000000002.open")).unwrap()),
        ("neither an open segment", |path| {
            for kind in ["open", "index"] {
                fs::remove_file(path.join(format!("0000000002.{kind}"))).unwrap();
            }
        }),
        ("its index covers", |path| append(&path.join("0000000001.jsonl"), b"more")),
        ("0000000002.open has 3 bytes", |path| fs::write(path.join("0000000002.open"), b"cut").unwrap()),
        ("does not match its checksum", |path| flip(&path.join("0000000002.open"), 20)),
        ("are two files", |path| {
            fs::copy(path.join("0000000001.jsonl"), path.join("0000000001.open")).map(drop).unwrap();
        }),
        ("of a later version", |path| fs::write(path.join("PRUNED"), b"?").unwrap()),
    ];
    for (want, harm) in harms {
        let house = House::new();
        drop(joiner(&house, 3));
        harm(&house.path());
        house.check_held(want);
    }
}

#[test]
fn a_directory_that_is_not_what_its_name_says_is_held() {
    for (want, from, to) in [("belongs to", "abab", "cdcd"), ("format 7", "\"format\":1", "\"format\":7")] {
        let house = House::new();
        drop(joiner(&house, 1));
        let manifest = house.path().join("manifest.json");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, text.replacen(from, to, 1)).unwrap();
        house.check_held(want);
    }
}

#[test]
fn damage_behind_a_record_is_held_and_the_record_stays() {
    let house = House::new();
    drop(joiner(&house, 3));
    house.check_fenced(&clicks(3));
    let record = house.seal_record();
    for (name, want) in [
        ("0000000001.index", "does not hold what the seal record lists"),
        ("0000000002.jsonl", "does not match its checksum"),
        ("SEALED", "does not match its checksum"),
    ] {
        let path = house.path().join(name);
        flip(&path, 30);
        let (state, _) = house.counted();
        assert!(matches!(&state, ScanState::Held { reason } if reason.contains(want)), "{state:?}");
        let outcome = house.fence(LockPolicy::TakeLock).unwrap();
        assert!(matches!(&outcome, FenceOutcome::Held { reason } if reason.contains(want)), "{outcome:?}");
        flip(&path, 30);
    }
    assert_eq!(house.seal_record(), record);
    house.check_fenced(&clicks(3));
}

#[test]
fn the_lock_says_who_lives() {
    let house = House::new();
    let writer = joiner(&house, 1);
    let directory = house.directory().unwrap();
    assert_eq!(directory.lock_state().unwrap(), LockState::Busy);
    assert_eq!(house.counted(), (ScanState::Unsealed, clicks(1)));
    assert_eq!(house.fence(LockPolicy::TakeLock).unwrap(), FenceOutcome::Busy);
    assert_eq!(house.directory().unwrap().place, Place::Live);
    drop(writer);
    assert_eq!(directory.lock_state().unwrap(), LockState::Free);
    fs::remove_file(directory.path().join("lock")).unwrap();
    assert_eq!(directory.lock_state().unwrap(), LockState::Missing);
    let outcome = house.fence(LockPolicy::TakeLock).unwrap();
    assert!(matches!(outcome, FenceOutcome::Held { reason } if reason.contains("has no lock")));
    assert_eq!(house.fence(LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
}

#[test]
fn an_incarnation_begins_once() {
    let house = House::new();
    drop(joiner(&house, 1));
    assert!(matches!(house.create(), Err(OutputError::Exists { .. })));
    house.check_fenced(&clicks(1));
    assert!(matches!(house.create(), Err(OutputError::Exists { .. })));
}

#[test]
fn only_what_nobody_is_making_is_cleaned_away() {
    let house = House::new();
    fs::create_dir_all(house.output().join("live")).unwrap();
    let hidden = |name: &str| house.output().join("live").join(name);
    for name in [".dead.new", ".living.new"] {
        fs::create_dir(hidden(name)).unwrap();
        fs::write(hidden(name).join("manifest.json"), b"half").unwrap();
    }
    let living = fs::File::create(hidden(".living.new").join("lock")).unwrap();
    living.try_lock().unwrap();
    let writer = house.create_as(Incarnation([2; 16]), house.disk.files()).unwrap();
    assert!(!hidden(".dead.new").exists());
    assert!(hidden(".living.new").join("manifest.json").exists());
    drop(living);
    drop(house.create_as(Incarnation([3; 16]), house.disk.files()).unwrap());
    assert!(!hidden(".living.new").exists());
    assert_eq!(list_incarnations(&house.output()).unwrap().len(), 2);
    drop(writer);
}

#[test]
fn a_block_beyond_the_limits_is_refused_before_anything_is_written() {
    let house = House::new();
    let mut writer = joiner(&house, 1);
    let too_many = vec![block(1)[0].clone(); photon_format::output::BLOCK_CLICKS_MAX + 1];
    let error = writer.write_block(&too_many).unwrap_err();
    assert!(matches!(error, OutputError::Limit { .. }), "{error}");
    let position = writer.write_block(&block(1)).unwrap();
    assert_eq!((position.segment, position.block), (1, 1));
    let position = writer.write_block(&block(2)).unwrap();
    assert_eq!((position.segment, position.block), (2, 0));
}
