//! Recorded ends that are not believed: the input has the query, or the end is older than a claim.

use photon_format::source::SourceList;

use super::*;
use crate::world::QUERIES;

#[tokio::test]
async fn a_click_recorded_as_unjoinable_whose_query_is_in_the_input_comes_back() {
    let mut world = World::new(3).await;
    // Its query was not there when both datacenters looked for it, and came later.
    world.remove_queries();
    DATACENTERS.iter().for_each(|name| (0..3).for_each(|number| world.end(name, number, EndState::Unjoinable)));
    world.pass();
    let ended = world.look().await;
    check(&ended, [3, 0, 0, 0, 0, 0]);
    assert_eq!(ended.ledger.unjoinable, 3);
    is_clean(&ended);

    world.restore_queries();
    let doubted = world.look().await;
    check(&doubted, [3, 0, 0, 0, 3, 0]);
    assert_eq!((doubted.exit_code(), doubted.ledger.unjoinable), (3, 0), "{doubted}");
    assert_eq!(doubted.findings.count(Kind::LostQueryFound), 3);
    let text = doubted.to_string();
    let places = format!(
        "{CLICKS}:{}: click 1000001:c1 is lost: it is recorded as unjoinable, but its query is in the input at \
         {QUERIES}:{}",
        world.click_offset(1),
        world.query_offset(1)
    );
    assert!(text.contains(&places), "{text}");
    assert!(doubted.to_json().contains("\"lost_query_found\":3"), "{}", doubted.to_json());

    let repaired = world.repair().await;
    check(&repaired, [3, 0, 3, 0, 0, 0]);
    assert_eq!((repaired.exit_code(), repaired.repaired.reinjected), (0, 3), "{repaired}");
    assert_eq!((repaired.repaired.deleted, world.comebacks()), (0, 3));
    // They wait in the retry store: the record that they have no query is still not believed.
    let again = world.repair().await;
    check(&again, [3, 0, 3, 0, 0, 0]);
    assert!(!again.repaired.is_change(), "{again}");
    world.join_reinjected("west");
    let end = world.repair().await;
    check(&end, [3, 3, 0, 0, 0, 0]);
    is_clean(&end);
}

#[tokio::test]
async fn a_query_in_the_last_line_of_a_final_input_needs_no_line_end() {
    let mut world = World::new(2).await;
    world.restore_queries_without_last_line_end();
    world.end("east", 1, EndState::Unjoinable);
    world.end("east", 0, EndState::Filtered);
    check(&world.look().await, [2, 0, 0, 0, 0, 0]);
    let sources = SourceList::list(&world.config, &world.config.datacenters[0]).unwrap();
    let report = world.run(Options { sources: Some(sources), ..world.options() }).await.unwrap();
    check(&report, [2, 0, 0, 0, 1, 0]);
    assert_eq!(report.findings.count(Kind::LostQueryFound), 1, "{report}");
}

#[tokio::test]
async fn of_two_records_with_one_key_the_one_whose_query_is_there_comes_back() {
    let mut world = World::new(1).await;
    let good = world.click_payload(0).to_owned();
    let first = good.replace("\"q0\"", "\"nowhere\"");
    world.replace_click_log(&[&first, &good]);
    world.end("east", 0, EndState::Unjoinable);
    world.pass();
    check(&world.repair().await, [1, 0, 1, 0, 0, 0]);
    let inbox = world.inboxes["east"].lock().unwrap();
    assert_eq!(&inbox.clicks[0].reference[..], b"q0", "{:?}", inbox.clicks);
}

#[tokio::test]
async fn a_retry_store_that_is_lost_after_a_delete_does_not_bring_an_older_end_to_life() {
    let mut world = World::new(1).await;
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    drop(joiner);
    world.end("west", 0, EndState::Filtered);
    world.pass();
    let repaired = world.repair().await;
    assert_eq!((repaired.repaired.deleted, repaired.repaired.reinjected), (1, 1), "{repaired}");
    world.lose_retry("east");
    check(&world.look().await, [1, 0, 0, 0, 1, 0]);
    let again = world.repair().await;
    check(&again, [1, 0, 1, 0, 0, 0]);
    assert_eq!(world.comebacks(), 2);
    // A dispatcher that ends it after that is believed: no click comes back for ever.
    world.lose_retry("east");
    let end = world.repair().await;
    check(&end, [1, 0, 0, 0, 0, 0]);
    assert_eq!((end.ledger.filtered, world.comebacks()), (1, 2), "{end}");
}
