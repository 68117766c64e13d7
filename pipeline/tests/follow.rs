//! Growing sources, restarts, stores that are behind, clicks that are put back.

mod world;

use std::sync::atomic::Ordering;

use photon_disk::DiskError;
use photon_format::cursor::Counts;
use photon_pipeline::PipelineError;
use photon_pipeline::dispatcher::RunningDispatcher;
use photon_proto::pipeline as wire;
use photon_proto::pipeline::dispatcher_client::DispatcherClient;
use world::{World, assert_exactly_once, click, generate, get, guarded, key, query, until, until_health};

/// Ends clicks at once, whatever their age, so that only the passes of the store count.
const NO_WINDOW: &str = "window = \"1ms\"\nretry-min = \"10ms\"\nretry-max = \"50ms\"";
/// Never ends a click by age.
const LONG_WINDOW: &str = "window = \"3650d\"\nretry-min = \"10ms\"\nretry-max = \"50ms\"";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_grow_and_new_ones_appear() {
    let world = World::new(LONG_WINDOW).await;
    world.append("queries/a", &query(1));
    let (head, tail) = (click(1, 1), click(2, 2));
    let (half, rest) = tail.split_at(9);
    world.append("clicks/a", &format!("{head}{half}"));
    let roles = world.roles("east", None).await;
    until("the first click", || roles.joiner.totals().joined == 1).await;
    // The second one is whole only now, and its query comes later, in a file that was not there.
    world.append("clicks/a", rest);
    until("the second click waits", || roles.dispatcher.ledger().pending == 1).await;
    world.append("queries/0", &query(2));
    until("the second click", || roles.joiner.totals().joined == 2).await;
    world.append("clicks/b", &click(3, 2));
    until("the third click", || roles.dispatcher.ledger().total().joined == 3).await;
    let ledger = roles.shutdown().await;
    assert_eq!(ledger.total(), Counts { read: 3, joined: 3, ..Counts::default() });
    assert_exactly_once(&world.output("east").0, &[key(1), key(2), key(3)].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_click_is_unjoinable_after_another_pass_and_not_before() {
    let world = World::new(NO_WINDOW).await;
    world.append("queries/a", &query(1));
    world.append("clicks/a", &format!("{}{}", click(1, 1), click(2, 99)));
    let roles = world.roles("east", None).await;
    until("the orphan", || roles.dispatcher.ledger().total().unjoinable == 1).await;
    let ledger = roles.shutdown().await;
    assert_eq!(ledger.total(), Counts { read: 2, joined: 1, unjoinable: 1, ..Counts::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_can_not_read_its_sources_makes_no_click_unjoinable() {
    let world = World::new(NO_WINDOW).await;
    world.append("queries/a", &query(1));
    world.append("clicks/a", &format!("{}{}", click(1, 1), click(2, 2)));
    // No pass can list this.
    world.append("queries/a\nb", "");
    let roles = world.roles("east", None).await;
    until("clicks wait", || roles.dispatcher.ledger().pending == 2).await;
    until("the store was asked often", || 6 < roles.joiner.totals().behind).await;
    let total = roles.dispatcher.ledger().total();
    assert_eq!((total.unjoinable, roles.joiner.totals().missing), (0, 0));
    std::fs::remove_file(world.path("queries/a\nb")).unwrap();
    until("the joinable one", || roles.joiner.totals().joined == 1).await;
    until("the orphan", || roles.dispatcher.ledger().total().unjoinable == 1).await;
    roles.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_goes_on_where_it_was_and_its_ledger_adds_up() {
    let world = World::new(LONG_WINDOW).await;
    let joinable = generate(&world, 100, 1_000);
    let roles = world.roles("east", None).await;
    until("some clicks", || 100 < roles.joiner.totals().joined).await;
    let store = roles.store.address.to_string();
    let first = roles.dispatcher.shutdown().await.unwrap();
    assert!(first.total().pending() <= Some(first.pending), "{first:?}");
    // Its joiner goes as well: the second one takes over.
    roles.joiner.shutdown().await.unwrap();
    let joiner = world.joiner("east", store, false).await;
    let dispatcher = world.dispatcher("east", joiner.address.to_string(), None).await;
    let orphans = 1_000 - joinable.len() as u64;
    until("all", || {
        let ledger = dispatcher.ledger();
        ledger.total().read == 1_000 && ledger.pending == orphans && ledger.under_way == 0
    })
    .await;
    // The orphans come now.
    let late: String = (0..1_000).filter(|id| id % 8 == 7).map(|id| query(100 + id)).collect();
    world.append("queries/late", &late);
    until("the orphans", || dispatcher.ledger().pending == 0).await;
    let ledger = dispatcher.shutdown().await.unwrap();
    joiner.shutdown().await.unwrap();
    roles.store.shutdown().await;

    let total = ledger.total();
    assert_eq!((total.read, total.pending(), total.joined + total.claimed), (1_000, Some(0), 1_000));
    let all = (0..1_000).map(key).collect();
    let (lines, sealed) = world.output("east");
    assert_exactly_once(&lines, &all);
    assert_eq!(sealed, 2);
}

/// The role is dropped without a word at several moments: nothing is saved at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_was_cut_off_loses_nothing_and_counts_no_record_twice() {
    let mut world = World::new(LONG_WINDOW).await;
    world.chaos = Some(7);
    let joinable = generate(&world, 100, 2_000);
    let orphans = 2_000 - joinable.len() as u64;
    let store = world.store("east", None).await;
    let joiner = world.joiner("east", store.address.to_string(), false).await;
    for round in 0..3_u64 {
        let dispatcher = start_when_free(&world, joiner.address.to_string()).await;
        let goal = (round + 1) * 300;
        until("some progress", || goal < joiner.totals().joined || dispatcher.ledger().total().read == 2_000).await;
        drop(dispatcher);
    }
    let dispatcher = start_when_free(&world, joiner.address.to_string()).await;
    until("all", || {
        let ledger = dispatcher.ledger();
        ledger.total().read == 2_000 && ledger.pending == orphans && ledger.under_way == 0
    })
    .await;
    let ledger = dispatcher.shutdown().await.unwrap();
    joiner.shutdown().await.unwrap();
    store.shutdown().await;
    assert_exactly_once(&world.output("east").0, &joinable);
    let total = ledger.total();
    assert_eq!((total.read, total.joined + total.claimed), (2_000, joinable.len() as u64));
    assert_eq!(total.pending(), Some(orphans));
}

/// The last one may not have let go of its files yet.
async fn start_when_free(world: &World, joiner: String) -> RunningDispatcher {
    guarded("the lock", async {
        loop {
            match world.try_dispatcher("east", joiner.clone(), None).await {
                Ok(dispatcher) => return dispatcher,
                Err(PipelineError::Disk(DiskError::Busy { .. })) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_click_that_is_put_back_is_joined_without_a_look_up() {
    let world = World::new(LONG_WINDOW).await;
    world.append("queries/a", &query(1));
    let roles = world.roles("east", None).await;
    let mut verifier = DispatcherClient::connect(format!("http://{}", roles.dispatcher.address)).await.unwrap();
    let record = click(1, 1);
    let put_back = |stream: &str| wire::ReinjectRequest {
        clicks: vec![wire::ReinjectedClick {
            timestamp: key(1).timestamp.micros(),
            id: key(1).id.as_bytes().to_vec().into(),
            reference: "q-1".into(),
            stream: stream.into(),
            source: "clicks/gone".into(),
            offset: 77,
            payload: record.trim_end().to_owned().into(),
            deleted_at: None,
        }],
    };
    assert!(verifier.reinject(put_back("queries")).await.unwrap_err().message().contains("stream"));
    assert_eq!(verifier.reinject(put_back("clicks")).await.unwrap().into_inner().accepted, 1);
    until("the click", || roles.dispatcher.ledger().total().joined == 1).await;
    assert_eq!(world.registry.state.lookups.load(Ordering::SeqCst), 0);
    // Once more: somebody has it.
    assert_eq!(verifier.reinject(put_back("clicks")).await.unwrap().into_inner().accepted, 1);
    until("the second", || roles.dispatcher.ledger().total().claimed == 1).await;
    let ledger = roles.shutdown().await;
    assert_eq!(ledger.total(), Counts { reinjected: 2, joined: 1, claimed: 1, ..Counts::default() });
    assert_exactly_once(&world.output("east").0, &[key(1)].into());
    // The next life knows of them, and begins no file that nobody has read.
    let store = world.store("east", None).await;
    let joiner = world.joiner("east", store.address.to_string(), false).await;
    let dispatcher = world.dispatcher("east", joiner.address.to_string(), None).await;
    world.append("clicks/gone", &click(2, 1));
    until("its file", || dispatcher.ledger().total().joined == 2).await;
    assert_eq!(dispatcher.shutdown().await.unwrap().total().reinjected, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_was_replaced_is_named_and_the_others_go_on() {
    let world = World::new(LONG_WINDOW).await;
    world.append("queries/a", &query(1));
    world.append("clicks/a", &click(1, 1));
    world.append("clicks/b", &click(2, 1));
    let roles = world.roles("east", None).await;
    until("both", || roles.dispatcher.ledger().total().joined == 2).await;
    std::fs::rename(world.path("clicks/a"), world.path("old")).unwrap();
    world.append("clicks/a", &click(3, 1));
    world.append("clicks/b", &click(4, 1));
    until("the other file", || roles.dispatcher.ledger().total().joined == 3).await;
    let http = roles.dispatcher.http_address.unwrap();
    let mut body = String::new();
    guarded("the complaint", async {
        while !body.contains("clicks/a") {
            body = get(http, "/healthz").await;
        }
    })
    .await;
    assert!(body.starts_with("HTTP/1.1 503") && body.contains("another file"), "{body}");
    assert!(get(roles.store.http_address.unwrap(), "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(roles.joiner.http_address.unwrap(), "/status").await.contains("\"joined\":3"));
    roles.shutdown().await;
}

/// The inode stays, and the file is longer than what was read: only its beginning tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_was_rewritten_in_place_is_named_and_the_others_go_on() {
    let world = World::new(LONG_WINDOW).await;
    world.append("queries/a", &query(1));
    world.append("clicks/a", &click(1, 1));
    world.append("clicks/b", &click(2, 1));
    let roles = world.roles("east", None).await;
    let (store, http) = (roles.store.http_address.unwrap(), roles.dispatcher.http_address.unwrap());
    until("both", || roles.dispatcher.ledger().total().joined == 2).await;
    rewrite(&world, "clicks/a", &format!("{}{}", click(5, 1), click(6, 1)));
    world.append("clicks/b", &click(4, 1));
    until("the other file", || roles.dispatcher.ledger().total().joined == 3).await;
    until_health(http, "503", "clicks/a").await;
    until_health(http, "503", "rewritten in place").await;
    rewrite(&world, "queries/a", &format!("{}{}", query(8), query(9)));
    until_health(store, "503", "rewritten in place").await;
    // What was read is put back.
    rewrite(&world, "queries/a", &query(1));
    rewrite(&world, "clicks/a", &format!("{}{}", click(1, 1), click(3, 1)));
    until("the click behind", || roles.dispatcher.ledger().total().joined == 4).await;
    until_health(http, "200", "").await;
    until_health(store, "200", "").await;
    roles.shutdown().await;
    assert_exactly_once(&world.output("east").0, &(1..5).map(key).collect());
}

/// The cursor knows what the file began with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_was_rewritten_between_two_lives_is_not_read_on() {
    let world = World::new(LONG_WINDOW).await;
    world.append("queries/a", &query(1));
    world.append("clicks/a", &click(1, 1));
    let roles = world.roles("east", None).await;
    until("the click", || roles.dispatcher.ledger().total().joined == 1).await;
    roles.shutdown().await;
    rewrite(&world, "clicks/a", &format!("{}{}", click(5, 1), click(6, 1)));
    let dispatcher = world.dispatcher("east", "127.0.0.1:9".into(), None).await;
    until_health(dispatcher.http_address.unwrap(), "503", "rewritten in place").await;
    assert_eq!(dispatcher.shutdown().await.unwrap().total().read, 1);
    // With `--once` it ends.
    let dispatcher = world.dispatcher("east", "127.0.0.1:9".into(), Some(world.list())).await;
    let failure = guarded("the failure", dispatcher.failed()).await;
    assert!(matches!(*failure, PipelineError::SourceChanged { .. }), "{failure}");
}

/// As `cp` over it: the same inode.
fn rewrite(world: &World, log: &str, text: &str) {
    std::fs::write(world.path(log), text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_store_without_room_loses_nothing() {
    let world = World::new(&format!("{LONG_WINDOW}\nretry-store = 20")).await;
    let joinable = generate(&world, 50, 400);
    let orphans = 400 - joinable.len();
    assert!(20 < orphans);
    let roles = world.roles("east", None).await;
    until("a full store", || roles.dispatcher.ledger().pending == 20).await;
    let http = roles.dispatcher.http_address.unwrap();
    until_health(http, "503", "retry store is full").await;
    until("the joinable ones", || roles.joiner.totals().joined == joinable.len() as u64).await;
    let late: String = (0..400).filter(|id| id % 8 == 7).map(|id| query(50 + id)).collect();
    world.append("queries/late", &late);
    until("all", || roles.dispatcher.ledger().total().joined == 400).await;
    until_health(http, "200", "").await;
    roles.shutdown().await;
    assert_exactly_once(&world.output("east").0, &(0..400).map(key).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_dispatcher_of_one_directory_is_refused() {
    let world = World::new("").await;
    let roles = world.roles("east", None).await;
    let second = world.try_dispatcher("east", roles.joiner.address.to_string(), None);
    let error = second.await.unwrap_err().to_string();
    assert!(error.contains("dispatcher") && error.contains("lock"), "{error}");
    roles.shutdown().await;
}
