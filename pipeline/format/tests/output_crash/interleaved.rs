//! A joiner that was named dead and lives: it goes on at any step of a fence, and a fence comes at
//! any of its steps. And two fences at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use photon_format::output::{DataCheck, FenceOutcome, Files, LockPolicy, OutputError, ScanState, fence, scan_with};

use crate::story::{BLOCKS, House, INCARNATION, Written, write};

#[track_caller]
fn check_end(house: &House, written: &Written) {
    let (state, counted) = house.counted();
    assert_eq!(state, ScanState::Sealed);
    assert!(written.answered.is_subset(&counted), "lost: {written:?}, counted {counted:?}");
    assert!(counted.is_subset(&written.attempted));
    let record = house.seal_record();
    assert_eq!(house.fence(LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
    assert_eq!(house.counted(), (ScanState::Sealed, counted));
    assert_eq!(house.seal_record(), record);
}

#[test]
fn a_fence_comes_before_any_step_of_a_living_writer() {
    let steps = {
        let house = House::new();
        house.live();
        house.disk.steps()
    };
    let mut fenced_lives = 0;
    for step in 0..steps {
        let house = House::new();
        let sealed_as = Arc::new(Mutex::new(None));
        let hook = {
            let (output, sealed_as) = (house.output(), sealed_as.clone());
            move || *sealed_as.lock().unwrap() = Some(fence(&output, INCARNATION, LockPolicy::NamedDead).unwrap())
        };
        house.disk.hook_at(step, Box::new(hook));
        let written = house.live();
        let outcome = sealed_as.lock().unwrap().clone().expect("the step was reached");
        match outcome {
            // It was not there yet, and was not touched.
            FenceOutcome::Held { reason } => {
                assert!(reason.contains("has no directory"), "{reason}");
                assert!(written.ended_clean);
            }
            FenceOutcome::Busy => panic!("a named joiner's lock is not asked"),
            FenceOutcome::Sealed => {
                fenced_lives += 1;
                check_end(&house, &written);
            }
        }
    }
    assert!(10 < fenced_lives, "{fenced_lives} of {steps}");
}

#[test]
fn a_writer_named_dead_goes_on_before_any_step_of_its_fence() {
    for then in [Then::Nothing, Then::SecondFence] {
        for blocks_before in 0..BLOCKS {
            let mut step = 0;
            while writer_goes_on_at(blocks_before, step, then) {
                step += 1;
            }
            assert!(5 < step);
        }
    }
}

/// What follows the writer's last act, before the fence goes on. A second fence may find an entry
/// that the first one has not seen: then the first one's record is not the one that stands.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    SecondFence,
}

/// Whether the fence had such a step.
fn writer_goes_on_at(blocks_before: u64, step: u64, then: Then) -> bool {
    let house = House::new();
    // Its steps are not those that are counted.
    let mut writer = house.create_as(INCARNATION, Files::default()).unwrap();
    let mut written = Written::default();
    (0..blocks_before).for_each(|number| assert!(write(&mut writer, number, &mut written)));
    let written = Arc::new(Mutex::new(written));
    let ran = Arc::new(Mutex::new(false));
    let hook = {
        let (written, ran, output) = (written.clone(), ran.clone(), house.output());
        move || {
            let mut written = written.lock().unwrap();
            *ran.lock().unwrap() = true;
            if (blocks_before..BLOCKS).all(|number| write(&mut writer, number, &mut written)) {
                written.ended_clean = writer.seal().is_ok();
            }
            match then {
                Then::Nothing => (),
                Then::SecondFence => {
                    assert_eq!(fence(&output, INCARNATION, LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
                }
            }
        }
    };
    house.disk.hook_at(step, Box::new(hook));
    assert_eq!(house.fence(LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
    house.disk.stop_at(None);
    let ran = *ran.lock().unwrap();
    check_end(&house, &written.lock().unwrap());
    ran
}

#[test]
fn a_writer_learns_that_it_was_fenced_at_its_next_block_or_at_its_end() {
    for ends in [false, true] {
        let house = House::new();
        let mut writer = house.create().unwrap();
        let mut written = Written::default();
        assert!(write(&mut writer, 0, &mut written));
        assert_eq!(house.fence(LockPolicy::TakeLock).unwrap(), FenceOutcome::Busy);
        assert_eq!(house.fence(LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
        let error = match ends {
            true => writer.seal().unwrap_err(),
            false => {
                let error = writer.write_block(&crate::story::block(1)).unwrap_err();
                let again = writer.write_block(&crate::story::block(2)).unwrap_err();
                assert!(matches!(again, OutputError::Stopped { .. }), "{again}");
                error
            }
        };
        assert!(matches!(error, OutputError::Fenced { .. }), "{error}");
        assert_eq!(house.counted(), (ScanState::Sealed, BTreeSet::from([1, 2])));
    }
}

#[test]
fn a_scan_that_a_fence_overtakes_counts_nothing() {
    let mut step = 0;
    loop {
        let house = House::new();
        let mut writer = house.create_as(INCARNATION, Files::default()).unwrap();
        let mut written = Written::default();
        (0..BLOCKS).for_each(|number| assert!(write(&mut writer, number, &mut written)));
        let directory = house.directory().unwrap();
        let ran = Arc::new(Mutex::new(false));
        let hook = {
            let (output, ran) = (house.output(), ran.clone());
            move || {
                *ran.lock().unwrap() = true;
                assert_eq!(fence(&output, INCARNATION, LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
            }
        };
        house.disk.hook_at(step, Box::new(hook));
        let scan = scan_with(&house.disk.files(), &directory, DataCheck::Checksums);
        if !*ran.lock().unwrap() {
            assert!(scan.is_ok());
            break;
        }
        assert!(matches!(scan, Err(OutputError::Moved { .. })), "step {step}: {scan:?}");
        step += 1;
    }
    // An index and a data file for each of two segments.
    assert_eq!(step, 4);
}

/// An operation whose path was resolved before the rename lands after it.
#[test]
fn names_that_land_late_change_nothing() {
    let house = House::new();
    let mut writer = house.create().unwrap();
    let mut written = Written::default();
    assert!(write(&mut writer, 0, &mut written) && write(&mut writer, 1, &mut written));
    assert_eq!(house.fence(LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
    let counted = house.counted();
    let path = house.path();
    for (name, bytes) in [("0000000002.index", "x"), ("0000000002.open", "y"), ("0000000003.jsonl", "{}\n")] {
        std::fs::write(path.join(name), bytes).unwrap();
    }
    assert_eq!(house.counted(), counted);
    assert_eq!(house.fence(LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
    assert_eq!(house.counted(), counted);
}

#[test]
fn two_fences_at_once_come_to_one_record() {
    for policy in [LockPolicy::TakeLock, LockPolicy::NamedDead] {
        let mut step = 0;
        while second_fence_at(step, policy) {
            step += 1;
        }
        assert!(5 < step);
    }
}

/// Whether the first fence had such a step.
fn second_fence_at(step: u64, policy: LockPolicy) -> bool {
    let house = House::new();
    let mut writer = house.create_as(INCARNATION, Files::default()).unwrap();
    let mut written = Written::default();
    (0..BLOCKS).for_each(|number| assert!(write(&mut writer, number, &mut written)));
    drop(writer);
    let second = Arc::new(Mutex::new(None));
    let hook = {
        let (output, second) = (house.output(), second.clone());
        move || {
            let outcome = fence(&output, INCARNATION, policy).unwrap();
            let record = std::fs::read(output.join("sealed").join(INCARNATION.to_string()).join("SEALED")).ok();
            *second.lock().unwrap() = Some((outcome, record));
        }
    };
    house.disk.hook_at(step, Box::new(hook));
    assert_eq!(house.fence(policy).unwrap(), FenceOutcome::Sealed);
    house.disk.stop_at(None);
    house.check_fenced(&written.answered);
    match &*second.lock().unwrap() {
        None => false,
        Some((FenceOutcome::Busy, _)) => {
            assert_eq!(policy, LockPolicy::TakeLock);
            true
        }
        Some((FenceOutcome::Sealed, record)) => {
            assert_eq!(record, &house.seal_record());
            true
        }
        Some((FenceOutcome::Held { reason }, _)) => panic!("held: {reason}"),
    }
}
