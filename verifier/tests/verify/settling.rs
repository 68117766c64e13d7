//! Which clicks are judged: what cursors, retry stores and age say.

use super::*;

#[tokio::test]
async fn a_click_in_a_retry_store_is_pending_however_long_it_waits() {
    let world = World::new(2).await;
    let impatient = || Options { settle_after: Duration::ZERO, ..world.options() };
    let repair = || Options { repair: true, ..impatient() };
    // A claim without a line, and nobody's click: both come back, and nobody joins them.
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    drop(joiner);
    let first = world.run(repair()).await.unwrap();
    check(&first, [2, 0, 2, 0, 0, 0]);
    assert_eq!(world.comebacks(), 2);
    for options in [impatient(), repair(), repair()] {
        let report = world.run(options).await.unwrap();
        check(&report, [2, 0, 2, 0, 0, 0]);
        assert_eq!((report.findings.total(), report.repaired.is_change()), (0, false), "{report}");
    }
    // Nor when the cursor is damaged.
    let cursor = world.config.dispatcher_dir("east").join("cursor");
    fs::write(&cursor, "x").unwrap();
    let damaged = world.run(repair()).await.unwrap();
    check(&damaged, [2, 0, 2, 0, 0, 0]);
    assert_eq!((damaged.exit_code(), world.comebacks()), (5, 2), "{damaged}");
}

#[tokio::test]
async fn age_says_nothing_against_a_cursor_that_moves() {
    let world = World::new(3).await;
    let impatient = || Options { settle_after: Duration::ZERO, ..world.options() };
    world.pass_up_to("west", world.click_offset(1));
    check(&world.run(impatient()).await.unwrap(), [3, 0, 2, 0, 1, 0]);
    // It catches up: what it has not come to is on its way.
    world.pass_up_to("west", world.click_offset(2));
    check(&world.run(impatient()).await.unwrap(), [3, 0, 1, 0, 2, 0]);
    // Since the last run it stands still.
    check(&world.run(impatient()).await.unwrap(), [3, 0, 0, 0, 3, 0]);
}

#[tokio::test]
async fn clicks_come_back_where_the_next_run_can_see_them_wait() {
    let world = World::new(2).await;
    let away = world.dir.path().join("away");
    fs::rename(world.config.datacenter_dir("east"), &away).unwrap();
    for _ in 0..3 {
        check(&world.repair().await, [2, 0, 2, 0, 0, 0]);
    }
    assert_eq!(world.comebacks(), 2);
    assert_eq!(world.inboxes["west"].lock().unwrap().clicks.len(), 2);
}

#[tokio::test]
async fn what_a_cursor_has_not_passed_is_pending_until_it_was_seen_long_ago() {
    let world = World::new(2).await;
    world.pass_up_to("west", world.click_offset(1));
    let fresh = world.look().await;
    check(&fresh, [2, 0, 1, 0, 1, 0]);
    // The cursor of another file under the same name has passed nothing of this one.
    world.pass();
    let path = world.dir.path().join("clicks/log.ndjson");
    let text = fs::read(&path).unwrap();
    fs::write(path.with_extension("new"), text).unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    check(&world.look().await, [2, 0, 2, 0, 0, 0]);
    // The run before this one saw them; with no time to wait that is long ago.
    let impatient = Options { settle_after: Duration::ZERO, ..world.options() };
    check(&world.run(impatient).await.unwrap(), [2, 0, 0, 0, 2, 0]);
}
