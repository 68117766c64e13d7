//! One process after the other: every step of one is a place to die.

use std::collections::BTreeSet;

use photon_format::output::{FenceOutcome, LockPolicy, ScanState};
use photon_types::Incarnation;

use crate::disk::Cut;
use crate::story::{BLOCKS, House, Written};

fn cuts(seed: u64) -> [Cut; 6] {
    let some = |number| Cut::PowerSome(seed * 4 + number);
    [Cut::Kill, Cut::PowerAll, some(0), some(1), some(2), some(3)]
}

/// Steps of a whole life.
fn steps_of_a_life() -> u64 {
    let house = House::new();
    let written = house.live();
    assert!(written.ended_clean);
    assert_eq!(written.answered.len() as u64, 2 * BLOCKS);
    house.disk.steps()
}

/// A life that ends before one step, and its directory if there is one.
fn life_cut_at(step: u64) -> (House, Written) {
    let house = House::new();
    house.disk.stop_at(Some(step));
    let written = house.live();
    assert!(house.disk.was_stopped());
    (house, written)
}

#[track_caller]
fn check_counted(written: &Written, counted: &BTreeSet<u64>) {
    assert!(written.answered.is_subset(counted), "lost: {written:?}, counted {counted:?}");
    assert!(counted.is_subset(&written.attempted), "not written: {written:?}, counted {counted:?}");
}

#[test]
fn a_writer_may_die_before_any_step() {
    for step in 0..steps_of_a_life() {
        for cut in cuts(step) {
            let (house, written) = life_cut_at(step);
            house.disk.cut(cut);
            if house.directory().is_none() {
                assert!(written.attempted.is_empty(), "step {step}, {cut:?}");
                // The next joiner cleans up and begins.
                let other = Incarnation([1; 16]);
                house.create_as(other, house.disk.files()).unwrap().seal().unwrap();
                let live = house.output().join("live");
                let names: Vec<_> = std::fs::read_dir(live).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(names, [other.to_string().as_str()], "step {step}, {cut:?}");
                continue;
            }
            let (state, counted) = house.counted();
            assert!(matches!(state, ScanState::Unsealed | ScanState::Sealed), "step {step}, {cut:?}: {state:?}");
            check_counted(&written, &counted);
            house.check_fenced(&counted);
        }
    }
}

#[test]
fn what_a_scan_counted_survives_a_power_cut() {
    for step in 0..steps_of_a_life() {
        for cut in cuts(step) {
            let (house, written) = life_cut_at(step);
            // The process is killed, and what it wrote is in the page cache only.
            house.disk.cut(Cut::Kill);
            if house.directory().is_none() {
                continue;
            }
            let (_, counted) = house.counted();
            check_counted(&written, &counted);
            house.disk.cut(cut);
            match house.directory() {
                None => assert_eq!(counted, BTreeSet::new(), "step {step}, {cut:?}"),
                Some(_) => house.check_fenced(&counted),
            }
        }
    }
}

#[test]
fn a_fence_may_die_before_any_step_and_the_next_takes_on() {
    for step in 0..steps_of_a_life() {
        let mut fence_step = 0;
        loop {
            let mut completed = false;
            for cut in cuts(step * 1000 + fence_step) {
                completed |= fence_cut_at(step, fence_step, cut);
            }
            if completed {
                break;
            }
            fence_step += 1;
        }
    }
}

/// Whether the fence came to its end.
fn fence_cut_at(step: u64, fence_step: u64, cut: Cut) -> bool {
    let (house, written) = life_cut_at(step);
    house.disk.cut(Cut::Kill);
    if house.directory().is_none() {
        return true;
    }
    house.disk.stop_at(Some(fence_step));
    let outcome = house.fence(LockPolicy::TakeLock);
    let completed = !house.disk.was_stopped();
    let promised = completed.then(|| {
        assert_eq!(outcome.unwrap(), FenceOutcome::Sealed);
        house.seal_record().unwrap()
    });
    house.disk.cut(cut);
    let at = format!("step {step}, fence {fence_step}, {cut:?}");
    if house.directory().is_none() {
        // The directory itself was not durable, so no insert was ever sent, and no fence had ended.
        assert!(written.attempted.is_empty() && !completed, "{at}");
        return completed;
    }
    let (state, before) = house.counted();
    match state {
        // Nothing is concluded from a fence half-way.
        ScanState::Fencing => assert_eq!(before, BTreeSet::new(), "{at}"),
        ScanState::Sealed | ScanState::Unsealed => check_counted(&written, &before),
        ScanState::Held { reason } => panic!("{at}: held: {reason}"),
    }
    if let Some(promised) = promised {
        assert_eq!(house.seal_record(), Some(promised), "{at}: the record changed");
    }
    assert_eq!(house.fence(LockPolicy::TakeLock).unwrap(), FenceOutcome::Sealed, "{at}");
    let (_, after) = house.counted();
    check_counted(&written, &after);
    if state_counts(&before, &written) {
        assert_eq!(before, after, "{at}");
    }
    house.check_fenced(&after);
    completed
}

/// Whether anything was counted: a fence half-way shows nothing.
fn state_counts(before: &BTreeSet<u64>, written: &Written) -> bool {
    !before.is_empty() || written.attempted.is_empty()
}
