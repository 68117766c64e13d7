//! Copies of a directory: by a backup, by a restore, or under a wrong mount. What is missing in one
//! may be in the original, whose joiner may live.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use photon_format::output::{
    DataCheck, FenceOutcome, IncarnationDirectory, LockPolicy, LockState, OutputWriter, Place, ScanState, fence,
    list_incarnations, scan_directory,
};

use crate::story::{House, INCARNATION, Written, write};

/// A joiner with two blocks in its first segment and one in its second.
fn joiner(house: &House) -> OutputWriter {
    let mut writer = house.create().unwrap();
    let mut written = Written::default();
    (0..3).for_each(|number| assert!(write(&mut writer, number, &mut written)));
    writer
}

fn all_clicks() -> BTreeSet<u64> {
    (1..=6).collect()
}

fn in_root(root: &Path, place: &str) -> PathBuf {
    root.join(place).join(INCARNATION.to_string())
}

/// What a copying tool makes of a directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A copy in an output of its own: the output, and the copy in it.
fn backup(house: &House) -> (PathBuf, PathBuf) {
    let root = house.output().with_file_name("backup");
    let to = in_root(&root, "live");
    copy(&house.path(), &to);
    (root, to)
}

/// Every file with its inode and content.
fn picture(directory: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), (fs::metadata(&path).unwrap().ino(), fs::read(&path).unwrap()))).collect()
}

fn found(root: &Path) -> IncarnationDirectory {
    let [found] = &list_incarnations(root).unwrap()[..] else { panic!("not one") };
    found.clone()
}

fn counted(root: &Path) -> (ScanState, BTreeSet<u64>) {
    let scan = scan_directory(&found(root), DataCheck::Lengths).unwrap();
    let clicks = scan.clicks().map(|(sequence, _)| sequence).collect();
    (scan.state, clicks)
}

/// Nobody concludes anything from it, and nobody changes it.
#[track_caller]
fn check_held(root: &Path, directory: &Path, want: &str) {
    let before = picture(directory);
    let (state, clicks) = counted(root);
    assert!(matches!(&state, ScanState::Held { reason } if reason.contains(want)), "{state:?}");
    assert!(matches!(&state, ScanState::Held { reason } if reason.contains("is a copy")), "{state:?}");
    assert_eq!(clicks, BTreeSet::new());
    assert_eq!(found(root).lock_state().unwrap(), LockState::Missing);
    for policy in [LockPolicy::TakeLock, LockPolicy::NamedDead] {
        let outcome = fence(root, INCARNATION, policy).unwrap();
        assert!(matches!(&outcome, FenceOutcome::Held { reason } if reason.contains(want)), "{outcome:?}");
    }
    assert_eq!(picture(directory), before);
}

#[test]
fn a_copy_is_held_while_its_joiner_lives_and_after() {
    let house = House::new();
    let mut writer = joiner(&house);
    let (root, directory) = backup(&house);
    // The breaking history: a line of this block is missing in the copy for ever.
    assert!(write(&mut writer, 3, &mut Written::default()));
    check_held(&root, &directory, "its manifest names");
    assert_eq!(house.directory().unwrap().lock_state().unwrap(), LockState::Busy);
    assert!(write(&mut writer, 4, &mut Written::default()));
    drop(writer);
    check_held(&root, &directory, "its manifest names");
    house.check_fenced(&(1..=10).collect());
    check_held(&root, &directory, "its manifest names");
}

#[test]
fn a_copy_in_the_place_of_the_original_is_held() {
    for (lives, place) in [(true, "live"), (false, "live"), (false, "sealed")] {
        let house = House::new();
        let mut writer = Some(joiner(&house));
        let aside = house.output().with_file_name("aside");
        fs::rename(house.path(), &aside).unwrap();
        let to = in_root(&house.output(), place);
        copy(&aside, &to);
        if !lives {
            writer = None;
        }
        check_held(&house.output(), &to, "its manifest names");
        // The operator undoes it.
        fs::remove_dir_all(&to).unwrap();
        fs::rename(&aside, in_root(&house.output(), "live")).unwrap();
        drop(writer);
        house.check_fenced(&all_clicks());
    }
}

#[test]
fn a_name_that_leads_to_the_original_is_not_the_original() {
    let house = House::new();
    let writer = joiner(&house);
    let root = house.output().with_file_name("linked");
    fs::create_dir_all(root.join("live")).unwrap();
    std::os::unix::fs::symlink(house.path(), in_root(&root, "live")).unwrap();
    // To rename the link would not stop the joiner.
    check_held(&root, &house.path(), "its manifest names");
    drop(writer);
    house.check_fenced(&all_clicks());
}

#[test]
fn a_rename_within_the_file_system_is_no_copy() {
    let house = House::new();
    drop(joiner(&house));
    let moved = house.output().with_file_name("moved");
    fs::rename(house.output(), &moved).unwrap();
    assert_eq!(counted(&moved), (ScanState::Unsealed, all_clicks()));
    assert_eq!(found(&moved).lock_state().unwrap(), LockState::Free);
    let other = house.output().with_file_name("other");
    fs::create_dir_all(other.join("live")).unwrap();
    fs::rename(in_root(&moved, "live"), in_root(&other, "live")).unwrap();
    assert_eq!(fence(&other, INCARNATION, LockPolicy::TakeLock).unwrap(), FenceOutcome::Sealed);
    assert_eq!(counted(&other), (ScanState::Sealed, all_clicks()));
    assert_eq!(found(&other).place, Place::Sealed);
}

#[test]
fn a_whole_copy_of_a_sealed_directory_is_as_good_as_sealed() {
    for ends_clean in [true, false] {
        let house = House::new();
        let writer = joiner(&house);
        if ends_clean {
            writer.seal().unwrap();
        } else {
            drop(writer);
            house.check_fenced(&all_clicks());
        }
        let (root, directory) = backup(&house);
        // A stray file of a later step is nothing to finish and nothing to remove.
        fs::write(directory.join("0000000003.open"), b"late").unwrap();
        let before = picture(&directory);
        assert_eq!(counted(&root), (ScanState::Sealed, all_clicks()));
        for policy in [LockPolicy::TakeLock, LockPolicy::NamedDead] {
            assert_eq!(fence(&root, INCARNATION, policy).unwrap(), FenceOutcome::Sealed);
        }
        assert_eq!(picture(&directory), before);
        assert_eq!(found(&root).place, Place::Live);
    }
}

#[test]
fn a_sealed_copy_with_a_part_missing_or_changed_is_held() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 6] = [
        // Copied when the record was there, but perhaps not durable yet.
        ("0000000002.jsonl is missing", |path| {
            fs::rename(path.join("0000000002.jsonl"), path.join("0000000002.open")).unwrap();
        }),
        ("0000000001.jsonl is missing", |path| fs::remove_file(path.join("0000000001.jsonl")).unwrap()),
        ("does not hold what the seal record lists", |path| {
            fs::remove_file(path.join("0000000001.index")).unwrap();
        }),
        ("does not match its checksum", |path| flip(&path.join("0000000002.jsonl"))),
        // It was sealed anew after a power cut took the first record.
        ("the seal record lists", |path| {
            let data = path.join("0000000002.jsonl");
            let more = [fs::read(&data).unwrap(), b"{}\n".to_vec()].concat();
            fs::write(data, more).unwrap();
        }),
        ("does not match its checksum", |path| flip(&path.join("SEALED"))),
    ];
    for (want, harm) in harms {
        let house = House::new();
        joiner(&house).seal().unwrap();
        let (root, directory) = backup(&house);
        harm(&directory);
        let before = picture(&directory);
        let (state, clicks) = counted(&root);
        assert!(matches!(&state, ScanState::Held { reason } if reason.contains(want)), "{state:?}");
        assert_eq!(clicks, BTreeSet::new());
        for policy in [LockPolicy::TakeLock, LockPolicy::NamedDead] {
            let outcome = fence(&root, INCARNATION, policy).unwrap();
            assert!(matches!(&outcome, FenceOutcome::Held { reason } if reason.contains(want)), "{outcome:?}");
        }
        assert_eq!(picture(&directory), before);
    }
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[30] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Whatever the fence was doing: what it renamed decides, not what lay there before.
#[test]
fn a_copy_that_takes_the_place_before_any_step_of_a_fence_is_never_sealed() {
    let mut step = 0;
    while replaced_at(step) {
        step += 1;
    }
    // At least: sealed/ is made, its name is synced, the directory is renamed.
    assert!(3 <= step, "{step}");
}

/// Whether the fence had such a step before its rename was done.
fn replaced_at(step: u64) -> bool {
    let house = House::new();
    drop(joiner(&house));
    let replaced = Arc::new(Mutex::new(false));
    let aside = house.output().with_file_name("aside");
    let hook = {
        let (live, aside, replaced) = (in_root(&house.output(), "live"), aside.clone(), replaced.clone());
        move || {
            if live.exists() {
                fs::rename(&live, &aside).unwrap();
                copy(&aside, &live);
                *replaced.lock().unwrap() = true;
            }
        }
    };
    house.disk.hook_at(step, Box::new(hook));
    let outcome = house.fence(LockPolicy::TakeLock).unwrap();
    house.disk.stop_at(None);
    let replaced = *replaced.lock().unwrap();
    if replaced {
        assert!(matches!(&outcome, FenceOutcome::Held { reason } if reason.contains("is a copy")), "{outcome:?}");
        assert!(house.seal_record().is_none(), "step {step}");
        assert!(matches!(house.counted().0, ScanState::Held { .. }), "step {step}");
        assert!(!aside.join("SEALED").exists());
    } else {
        assert_eq!(outcome, FenceOutcome::Sealed);
    }
    replaced
}
