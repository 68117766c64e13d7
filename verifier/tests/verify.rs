//! Whole runs over real directories, a registry that is a map, and dispatchers that only take clicks
//! back: each row of "What the verifier may conclude", repairs and their crashes.

mod world;

#[path = "verify/doubt.rs"]
mod doubt;
#[path = "verify/settling.rs"]
mod settling;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use photon_check::Kind;
use photon_format::cursor::Ended;
use photon_format::ends::{EndRecord, EndState};
use photon_format::output::OutputError;
use photon_types::{Holder, Incarnation, Token};
use photon_verifier::{Options, Progress, Report};
use world::registry::OnDelete;
use world::{CLICKS, DATACENTERS, World};

/// keys, joined, pending, held, lost, duplicates.
#[track_caller]
fn check(report: &Report, want: [u64; 6]) {
    let ledger = report.ledger;
    let found = [ledger.keys, ledger.joined, ledger.pending, ledger.held, ledger.lost, ledger.duplicates];
    assert_eq!(found, want, "\n{report}");
}

#[track_caller]
fn is_clean(report: &Report) {
    assert_eq!(report.exit_code(), 0, "\n{report}");
    assert_eq!(report.findings.total(), 0, "\n{report}");
}

fn open_segment(world: &World, datacenter: &str, place: &str, incarnation: Incarnation) -> PathBuf {
    let directory = world.config.output_dir(datacenter).join(place).join(incarnation.to_string());
    directory.join("0000000001.open")
}

#[tokio::test]
async fn every_click_has_one_state_and_both_ledgers_add_up() {
    let mut world = World::new(6).await;
    world.log_click_without_query(6);
    let cut = world.log_raw("{\"id\":\"cut");
    let copy = world.click_payload(0).to_owned();
    world.log_raw(&copy);
    let (mut east, mut west) = (world.joiner("east"), world.joiner("west"));
    world.join(&mut east, 0);
    world.join(&mut east, 1);
    world.join(&mut west, 2);
    world.join(&mut west, 3);
    for name in DATACENTERS {
        world.end(name, 6, EndState::Unjoinable);
        world.end(name, 4, EndState::Filtered);
        world.end(name, 5, EndState::DeadLettered { raw: b"null".to_vec() });
        let cut_record = EndRecord {
            source: CLICKS.into(),
            offset: cut,
            key: None,
            state: EndState::DeadLettered { raw: b"{\"id\":\"cut".to_vec() },
            reason: "not-json".into(),
        };
        world.end_record(name, &cut_record);
        // Four joined somewhere, and the copy of the first.
        (0..5).for_each(|_| world.ended(name, Ended::Claimed));
    }
    world.pass();
    east.seal().unwrap();
    let report = world.look().await;
    check(&report, [7, 4, 0, 0, 0, 0]);
    let ledger = report.ledger;
    assert_eq!((ledger.unjoinable, ledger.filtered, ledger.dead_lettered, ledger.unkeyed), (1, 1, 1, 1));
    is_clean(&report);
    let json = report.to_json();
    assert!(json.starts_with("{\"keys\":7,\"joined\":4,\"filtered\":1,\"unjoinable\":1,"), "{json}");
    assert!(json.contains("\"west\":{\"claimed\":5"), "{json}");
    assert!(!report.repaired.is_change());
}

#[tokio::test]
async fn a_lost_line_is_found_deleted_and_re_injected_until_it_is_joined() {
    let mut world = World::new(3).await;
    let mut joiner = world.joiner("east");
    world.join(&mut joiner, 0);
    world.claim(&joiner, 1);
    world.join(&mut joiner, 2);
    DATACENTERS.iter().for_each(|name| (0..3).for_each(|_| world.ended(name, Ended::Claimed)));
    world.pass();
    let token = world.token(&joiner, 1);
    joiner.seal().unwrap();

    let found = world.look().await;
    check(&found, [3, 2, 0, 0, 1, 0]);
    assert_eq!(found.exit_code(), 3);
    assert_eq!(found.findings.count(Kind::Lost), 1);
    assert!(found.to_string().contains(&format!("{CLICKS}:{}", world.click_offset(1))), "{found}");
    assert_eq!(world.holder(1), Some(Holder::Token(token)), "looking changes nothing");

    let repaired = world.repair().await;
    check(&repaired, [3, 2, 1, 0, 0, 0]);
    assert_eq!((repaired.repaired.deleted, repaired.repaired.reinjected), (1, 1));
    assert_eq!(repaired.exit_code(), 0, "{repaired}");
    assert_eq!(world.holder(1), None);
    {
        let inbox = world.inboxes["east"].lock().unwrap();
        let [click] = inbox.clicks.as_slice() else { panic!("one click comes back: {:?}", inbox.clicks) };
        assert_eq!((click.source.as_str(), click.offset), (CLICKS, world.click_offset(1)));
        assert_eq!((click.stream.as_str(), &click.reference[..]), ("clicks", &b"q1"[..]));
        assert_eq!(click.payload, world.click_payload(1).as_bytes());
        let at = click.deleted_at.as_ref().unwrap();
        let slot = world.table.lock().unwrap().deleted_at.unwrap();
        assert_eq!((&at.cluster_id[..], at.group, at.slot), (&world::registry::CLUSTER[..], 1, slot));
    }
    // Idempotent: it waits in the retry store now.
    let again = world.repair().await;
    check(&again, [3, 2, 1, 0, 0, 0]);
    assert!(!again.repaired.is_change(), "{again}");

    world.join_reinjected("west");
    let joined = world.repair().await;
    check(&joined, [3, 3, 0, 0, 0, 0]);
    assert_eq!(joined.findings.total(), 0, "{joined}");
}

#[tokio::test]
async fn nobody_deletes_before_the_seal_is_durable() {
    let world = World::new(1).await;
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    let sealed = world.config.output_dir("east").join("sealed").join(joiner.incarnation().to_string()).join("SEALED");
    drop(joiner);
    let was_sealed = Arc::new(AtomicBool::new(false));
    let look = {
        let was_sealed = was_sealed.clone();
        move || was_sealed.store(sealed.exists(), Ordering::SeqCst)
    };
    world.table.lock().unwrap().on_delete.push_back(OnDelete::Look(Box::new(look)));
    let report = world.repair().await;
    assert_eq!((report.repaired.fenced, report.repaired.deleted), (1, 1), "{report}");
    assert!(was_sealed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_living_joiner_is_left_alone_and_a_dead_one_is_fenced() {
    let mut world = World::new(2).await;
    let mut joiner = world.joiner("east");
    let incarnation = joiner.incarnation();
    world.join(&mut joiner, 0);
    world.claim(&joiner, 1);
    for report in [world.look().await, world.repair().await] {
        check(&report, [2, 1, 1, 0, 0, 0]);
        assert_eq!(report.waiting[&incarnation].in_flight, 1);
        assert!(!report.repaired.is_change());
    }
    drop(joiner);
    let dead = world.look().await;
    check(&dead, [2, 1, 1, 0, 0, 0]);
    assert_eq!(dead.waiting[&incarnation].not_fenced, 1);

    let repaired = world.repair().await;
    check(&repaired, [2, 1, 1, 0, 0, 0]);
    assert_eq!((repaired.repaired.fenced, repaired.repaired.deleted, repaired.repaired.reinjected), (1, 1, 1));
    world.join_reinjected("east");
    check(&world.repair().await, [2, 2, 0, 0, 0, 0]);
}

#[tokio::test]
async fn one_named_dead_is_fenced_without_its_lock_and_can_not_write_any_more() {
    let mut world = World::new(2).await;
    let mut joiner = world.joiner("west");
    world.join(&mut joiner, 0);
    world.claim(&joiner, 1);
    let dead = vec![joiner.incarnation()];
    let named = world.run(Options { dead: dead.clone(), ..world.options() }).await.unwrap();
    check(&named, [2, 1, 1, 0, 0, 0]);

    let report = world.run(Options { repair: true, dead, ..world.options() }).await.unwrap();
    check(&report, [2, 1, 1, 0, 0, 0]);
    assert_eq!((report.repaired.fenced, report.repaired.reinjected), (1, 1));
    let late = joiner.write_block(&[world.line(&joiner, 1)]);
    assert!(matches!(late, Err(OutputError::Fenced { .. } | OutputError::Disk(_))), "{late:?}");
    world.join_reinjected("east");
    let end = world.repair().await;
    check(&end, [2, 2, 0, 0, 0, 0]);
    assert_eq!(end.findings.total(), 0, "{end}");
}

#[tokio::test]
async fn a_name_that_no_output_has_is_refused_before_anything_is_changed() {
    let mut world = World::new(2).await;
    let mut joiner = world.joiner("west");
    world.join(&mut joiner, 0);
    world.claim(&joiner, 1);
    let live = open_segment(&world, "west", "live", joiner.incarnation());
    let stranger = Incarnation([9; 16]);
    let dead = vec![joiner.incarnation(), stranger];
    drop(joiner);
    let error = world.run(Options { repair: true, dead, ..world.options() }).await.unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    let text = error.to_string();
    assert!(text.contains(&stranger.to_string()), "{text}");
    for name in DATACENTERS {
        assert!(text.contains(world.config.output_dir(name).to_str().unwrap()), "{text}");
    }
    assert!(live.exists(), "nobody was fenced");
    assert_eq!((world.holder(1).is_some(), world.comebacks()), (true, 0));
}

#[tokio::test]
async fn a_claim_without_a_directory_is_held_and_never_deleted() {
    let world = World::new(1).await;
    let nobody = Token { incarnation: Incarnation([7; 16]), sequence: 1 };
    world.table.lock().unwrap().rows.insert(world.key(0), Holder::Token(nobody));
    for report in [world.look().await, world.repair().await] {
        check(&report, [1, 0, 0, 1, 0, 0]);
        assert_eq!((report.exit_code(), report.findings.count(Kind::Held)), (3, 1), "{report}");
    }
    assert_eq!(world.holder(0), Some(Holder::Token(nobody)));
    assert_eq!(world.comebacks(), 0);
}

#[tokio::test]
async fn a_datacenter_out_of_reach_is_said_and_its_claims_are_held() {
    let mut world = World::new(2).await;
    let (mut east, mut west) = (world.joiner("east"), world.joiner("west"));
    world.join(&mut east, 0);
    world.join(&mut west, 1);
    east.seal().unwrap();
    west.seal().unwrap();
    let away = world.dir.path().join("away");
    fs::rename(world.config.datacenter_dir("west"), &away).unwrap();
    for report in [world.look().await, world.repair().await] {
        check(&report, [2, 1, 0, 1, 0, 0]);
        assert!(report.datacenters[1].unreachable.is_some());
        assert!(report.to_string().contains("ledger of datacenter west, by record\n  not reachable"), "{report}");
    }
    assert!(world.holder(1).is_some());
    fs::rename(away, world.config.datacenter_dir("west")).unwrap();
    check(&world.look().await, [2, 2, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_click_in_two_lines_is_found_with_both_places() {
    let mut world = World::new(1).await;
    let (mut east, mut west) = (world.joiner("east"), world.joiner("west"));
    world.join(&mut east, 0);
    west.write_block(&[world.line(&west, 0)]).unwrap();
    let report = world.look().await;
    check(&report, [1, 1, 0, 0, 0, 1]);
    assert_eq!(report.exit_code(), 3);
    assert_eq!((report.findings.count(Kind::Duplicate), report.findings.count(Kind::TokenDiffers)), (1, 1));
    let text = report.to_string();
    assert!(text.contains(&east.incarnation().to_string()) && text.contains(&west.incarnation().to_string()), "{text}");
}

#[tokio::test]
async fn a_line_without_a_click_is_found() {
    let mut world = World::new(1).await;
    let mut joiner = world.joiner("east");
    world.join(&mut joiner, 0);
    let stranger = Token { incarnation: joiner.incarnation(), sequence: 50 };
    let mut entry = world.line(&joiner, 0);
    entry.key = photon_types::EventKey::new(5, b"stranger").unwrap();
    entry.sequence = 50;
    let text = String::from_utf8(entry.line).unwrap();
    let text = text.replace("[1000000,\"c0\"]", "[5,\"stranger\"]").replace("-0\"", "-50\"");
    entry.line = text.into_bytes();
    world.table.lock().unwrap().rows.insert(entry.key.clone(), Holder::Token(stranger));
    joiner.write_block(&[entry]).unwrap();
    let report = world.look().await;
    check(&report, [1, 1, 0, 0, 0, 0]);
    assert_eq!((report.exit_code(), report.findings.count(Kind::NoClick)), (3, 1), "{report}");
}

#[tokio::test]
async fn content_that_is_not_the_input_s_is_found_with_its_place() {
    let mut world = World::new(4).await;
    let mut joiner = world.joiner("east");
    world.join(&mut joiner, 0);
    let click = world.click_payload(1).replace("c1", "cx");
    let wrong_click = world.line_of(&joiner, 1, &click, "{\"id\":\"q1\", \"text\":\"größe 1\"}");
    let wrong_query = world.line_of(&joiner, 2, world.click_payload(2), "{\"id\":\"q2\",\"text\":\"größe 2\"}");
    let mut other_query = world.line(&joiner, 3);
    let text = String::from_utf8(other_query.line).unwrap();
    let (head, _) = text.split_once("\"primary_at\"").unwrap();
    let rest = format!(
        "\"primary_at\":\"queries/log.ndjson:0\",\"click\":{},\"query\":{{\"id\":\"q0\", \"text\":\"größe 0\"}}}}\n",
        world.click_payload(3)
    );
    other_query.line = format!("{head}{rest}").into_bytes();
    (1..4).for_each(|number| world.claim(&joiner, number));
    joiner.write_block(&[wrong_click, wrong_query, other_query]).unwrap();
    let report = world.look().await;
    check(&report, [4, 4, 0, 0, 0, 0]);
    assert_eq!((report.exit_code(), report.wrong_content.count), (3, 3), "{report}");
    let [click, query, reference] = report.wrong_content.kept.as_slice() else { panic!("{report}") };
    assert!(click.contains("segment 0000000001 at byte") && click.contains(":c1"), "{click}");
    assert!(query.contains("queries/log.ndjson"), "{query}");
    assert!(reference.contains("the click names query q3, the line has query q0"), "{reference}");
}

#[tokio::test]
async fn a_damaged_block_makes_its_incarnation_held_and_nothing_is_deleted() {
    let mut world = World::new(2).await;
    let mut joiner = world.joiner("east");
    world.join(&mut joiner, 0);
    world.join(&mut joiner, 1);
    let path = open_segment(&world, "east", "live", joiner.incarnation());
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    drop(joiner);
    for report in [world.look().await, world.repair().await] {
        check(&report, [2, 0, 0, 2, 0, 0]);
        assert_eq!((report.exit_code(), report.damage.count), (5, 1), "{report}");
        assert!(report.damage.kept[0].contains("0000000001.open"), "{report}");
    }
    assert!(world.holder(0).is_some() && world.holder(1).is_some());
}

#[tokio::test]
async fn one_incarnation_in_two_places_is_no_evidence() {
    let mut world = World::new(1).await;
    let mut joiner = world.joiner("east");
    world.join(&mut joiner, 0);
    let name = joiner.incarnation().to_string();
    joiner.seal().unwrap();
    let from = world.config.output_dir("east").join("live").join(&name);
    // Somebody restored a copy: into another output, or beside the fenced one.
    for (datacenter, place) in [("west", "live"), ("east", "sealed")] {
        let to = world.config.output_dir(datacenter).join(place).join(&name);
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(&from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        let report = world.repair().await;
        check(&report, [1, 0, 0, 1, 0, 0]);
        assert_eq!((report.exit_code(), report.damage.count), (5, 1), "{report}");
        fs::remove_dir_all(to).unwrap();
    }
    check(&world.repair().await, [1, 1, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_crash_between_delete_and_re_inject_is_healed_by_the_next_run() {
    let mut world = World::new(1).await;
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    drop(joiner);
    // West never found the query and said so: that end must not be believed after the delete.
    world.end("west", 0, EndState::Unjoinable);
    world.pass();
    world.inboxes.values().for_each(|inbox| inbox.lock().unwrap().is_down = true);
    let broken = world.repair().await;
    check(&broken, [1, 0, 0, 0, 1, 0]);
    assert_eq!((broken.repaired.deleted, broken.repaired.reinjected), (1, 0), "{broken}");
    assert_eq!((broken.repaired.unfinished.count, broken.exit_code()), (1, 3), "{broken}");
    assert_eq!(world.holder(0), None);

    check(&world.look().await, [1, 0, 0, 0, 1, 0]);
    world.inboxes.values().for_each(|inbox| inbox.lock().unwrap().is_down = false);
    let healed = world.repair().await;
    check(&healed, [1, 0, 1, 0, 0, 0]);
    assert_eq!((healed.repaired.deleted, healed.repaired.reinjected), (0, 1), "{healed}");
    world.join_reinjected("west");
    check(&world.repair().await, [1, 1, 0, 0, 0, 0]);
    // What was written down for the crash is gone: a recorded end counts again.
    let left: Vec<_> = fs::read_dir(world.dir.path().join("data/verifier")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn without_a_dispatcher_nothing_is_deleted() {
    let mut world = World::new(1).await;
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    drop(joiner);
    world.endpoints.dispatchers.clear();
    let report = world.repair().await;
    check(&report, [1, 0, 0, 0, 1, 0]);
    assert_eq!((report.repaired.deleted, report.repaired.unfinished.count), (0, 1), "{report}");
    assert!(world.holder(0).is_some());
}

#[tokio::test]
async fn another_datacenter_takes_clicks_when_the_first_is_down() {
    let world = World::new(3).await;
    world.inboxes["east"].lock().unwrap().is_down = true;
    let report = world.repair().await;
    check(&report, [3, 0, 3, 0, 0, 0]);
    assert_eq!(world.inboxes["west"].lock().unwrap().clicks.len(), 3);
}

#[tokio::test]
async fn nobody_s_click_without_an_end_is_lost_and_re_injected_without_a_delete() {
    let mut world = World::new(1).await;
    world.log_click_without_query(1);
    world.pass();
    world.end("east", 1, EndState::Unjoinable);
    let found = world.look().await;
    check(&found, [2, 0, 0, 0, 1, 0]);
    let report = world.repair().await;
    check(&report, [2, 0, 1, 0, 0, 0]);
    assert_eq!((report.repaired.deleted, report.repaired.reinjected), (0, 1));
    assert!(world.inboxes["east"].lock().unwrap().clicks[0].deleted_at.is_none());
}

#[tokio::test]
async fn a_click_that_names_no_query_does_not_come_back_and_stops_nobody() {
    let mut world = World::new(1).await;
    world.log_raw("{\"time\":7,\"id\":\"nobody\",\"query\":null}");
    world.pass();
    let report = world.repair().await;
    check(&report, [2, 0, 1, 0, 1, 0]);
    assert_eq!((world.comebacks(), report.repaired.unfinished.count), (1, 1), "{report}");
    assert!(report.repaired.unfinished.kept[0].contains("7:nobody"), "{report}");
}

#[tokio::test]
async fn an_end_in_one_datacenter_does_not_hide_a_claim_of_another() {
    let mut world = World::new(1).await;
    world.end("west", 0, EndState::Unjoinable);
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    joiner.seal().unwrap();
    check(&world.look().await, [1, 0, 0, 0, 1, 0]);
}

#[tokio::test]
async fn a_claim_that_changed_hands_before_the_delete_is_left_to_its_new_owner() {
    let world = World::new(1).await;
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    joiner.seal().unwrap();
    let other = world.joiner("west");
    let new_owner = world.token(&other, 0);
    world.table.lock().unwrap().on_delete.push_back(OnDelete::TakenOverBy(new_owner));
    let report = world.repair().await;
    check(&report, [1, 0, 1, 0, 0, 0]);
    assert_eq!((report.repaired.deleted, world.comebacks()), (0, 0));
    assert_eq!(world.holder(0), Some(Holder::Token(new_owner)));
    let next = world.repair().await;
    assert_eq!(next.waiting[&other.incarnation()].in_flight, 1, "{next}");
}

#[tokio::test]
async fn an_unclear_delete_that_happened_is_followed_by_the_re_injection() {
    let world = World::new(1).await;
    let joiner = world.joiner("east");
    world.claim(&joiner, 0);
    joiner.seal().unwrap();
    world.table.lock().unwrap().on_delete.push_back(OnDelete::AppliedAndUnclear);
    let report = world.repair().await;
    check(&report, [1, 0, 1, 0, 0, 0]);
    assert_eq!((report.repaired.reinjected, world.comebacks()), (1, 1), "{report}");
    assert!(world.inboxes["east"].lock().unwrap().clicks[0].deleted_at.is_some());
}

#[tokio::test]
async fn two_verifiers_at_once_do_no_harm() {
    let mut world = World::new(40).await;
    let mut dead = world.joiner("east");
    for number in 0..40 {
        match number % 2 {
            0 => world.join(&mut dead, number),
            _ => world.claim(&dead, number),
        }
    }
    drop(dead);
    let (one, other) = tokio::join!(world.repair(), world.repair());
    assert!(one.repaired.fenced + other.repaired.fenced <= 2);
    assert_eq!(one.repaired.deleted + other.repaired.deleted, 20, "\n{one}\n{other}");
    for _ in 0..5 {
        world.join_reinjected("west");
        if !world.repair().await.repaired.is_change() {
            break;
        }
    }
    let end = world.look().await;
    check(&end, [40, 40, 0, 0, 0, 0]);
    assert_eq!(end.findings.total(), 0, "{end}");
}

#[tokio::test]
async fn a_click_that_comes_and_is_joined_during_the_run_is_no_stranger() {
    let mut world = World::new(1).await;
    let mut joiner = world.joiner("east");
    world.join(&mut joiner, 0);
    let config = world.config.clone();
    let options = world.options();
    let world = Arc::new(std::sync::Mutex::new((world, joiner)));
    let late = world.clone();
    let done = AtomicBool::new(false);
    // The input is read, the outputs are not yet.
    let progress = move |progress: Progress| match progress {
        Progress::Input { bytes, bytes_end } if bytes == bytes_end && !done.swap(true, Ordering::SeqCst) => {
            let (world, joiner) = &mut *late.lock().unwrap();
            world.log_click(1);
            world.join(joiner, 1);
        }
        Progress::Input { .. } | Progress::Output { .. } | Progress::Registry { .. } | Progress::Repair { .. } => (),
    };
    let report = photon_verifier::run(&config, options, progress).await.unwrap();
    check(&report, [1, 1, 0, 0, 0, 0]);
    assert_eq!((report.findings.total(), report.wrong_content.count), (0, 0), "{report}");
}

#[tokio::test]
async fn a_fence_that_died_half_way_is_finished() {
    let mut world = World::new(2).await;
    let mut joiner = world.joiner("east");
    world.join(&mut joiner, 0);
    world.claim(&joiner, 1);
    let incarnation = joiner.incarnation();
    drop(joiner);
    let output = world.config.output_dir("east");
    let name = incarnation.to_string();
    fs::rename(output.join("live").join(&name), output.join("sealed").join(&name)).unwrap();
    // Nothing counts before the seal record is there.
    check(&world.look().await, [2, 0, 2, 0, 0, 0]);
    let report = world.repair().await;
    check(&report, [2, 1, 1, 0, 0, 0]);
    assert_eq!((report.repaired.fenced, report.repaired.deleted), (1, 1));
    assert!(!open_segment(&world, "east", "sealed", incarnation).exists());
}

#[tokio::test]
async fn a_registry_that_can_not_be_asked_is_an_error_of_its_own() {
    let mut world = World::new(1).await;
    world.table.lock().unwrap().key_rules = Some("clicks.id = other\n".into());
    let differ = world.run(world.options()).await.unwrap_err();
    assert_eq!(differ.exit_code(), 2, "{differ}");
    world.endpoints.registry = vec!["nowhere".into()];
    let wrong = world.run(world.options()).await.unwrap_err();
    assert_eq!(wrong.exit_code(), 2, "{wrong}");
}
