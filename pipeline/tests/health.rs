//! `/healthz` says whether a role does its work, and why not; `/status` what it could not use.

mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use photon_proto::pipeline as wire;
use photon_proto::pipeline::event_store_client::EventStoreClient;
use tokio::net::TcpListener;
use world::{World, click, get, guarded, key, query, until, until_health};

const SHORT_CALLS: &str =
    "window = \"3650d\"\nretry-min = \"10ms\"\nretry-max = \"50ms\"\ncall-timeout = \"300ms\"\ncache = \"1KiB\"";

/// A number of `/status`.
async fn number(address: std::net::SocketAddr, name: &str) -> u64 {
    let answer = get(address, "/status").await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    status[name].as_u64().unwrap_or_else(|| panic!("{name} in {body}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_first_pass_fails_is_not_well() {
    let world = World::new(SHORT_CALLS).await;
    std::fs::remove_dir(world.path("queries")).unwrap();
    let store = world.store("east", None).await;
    let http = store.http_address.unwrap();
    until_health(http, "503", "queries").await;
    std::fs::create_dir(world.path("queries")).unwrap();
    until_health(http, "200", "ok").await;
    store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_does_not_answer_inserts_is_seen_at_joiner_and_dispatcher() {
    let world = World::new(SHORT_CALLS).await;
    world.append("queries/a", &query(1));
    world.registry.state.is_mute.store(true, Ordering::SeqCst);
    let roles = world.roles("east", None).await;
    let (joiner, dispatcher) = (roles.joiner.http_address.unwrap(), roles.dispatcher.http_address.unwrap());
    until_health(joiner, "200", "ok").await;
    until_health(dispatcher, "200", "ok").await;
    world.append("clicks/a", &click(1, 1));
    until_health(joiner, "503", "registry").await;
    until_health(dispatcher, "503", "joiner gives no answer").await;
    world.registry.state.is_mute.store(false, Ordering::SeqCst);
    until("the click", || roles.joiner.totals().joined == 1).await;
    until_health(joiner, "200", "ok").await;
    until_health(dispatcher, "200", "ok").await;
    roles.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_store_that_is_away_is_seen_at_the_joiner() {
    let world = World::new(SHORT_CALLS).await;
    world.append("clicks/a", &click(1, 1));
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let joiner = world.joiner("east", nobody.to_string(), false).await;
    let dispatcher = world.dispatcher("east", joiner.address.to_string(), None).await;
    until_health(joiner.http_address.unwrap(), "503", "event store").await;
    dispatcher.shutdown().await.unwrap();
    joiner.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joiner_that_is_away_is_seen_at_the_dispatcher_when_clicks_wait() {
    let world = World::new(SHORT_CALLS).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let dispatcher = world.dispatcher("east", nobody.to_string(), None).await;
    let http = dispatcher.http_address.unwrap();
    until_health(http, "200", "ok").await;
    world.append("clicks/a", &click(1, 1));
    until_health(http, "503", "joiner").await;
    dispatcher.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_are_not_usable_are_counted_and_a_byte_order_mark_is_passed_over() {
    let world = World::new(SHORT_CALLS).await;
    world.append("queries/a", &format!("\u{feff}{}", query(1)));
    let wide: Vec<u8> = query(2).encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(world.path("queries/b"), wide).unwrap();
    world.append("clicks/a", &format!("\u{feff}{}", click(1, 1)));
    let roles = world.roles("east", None).await;
    until("the click", || roles.joiner.totals().joined == 1).await;
    let http = roles.store.http_address.unwrap();
    guarded("the dead letters", async { while number(http, "dead_letters").await == 0 {} }).await;
    // Its beginning belongs to no record, so that the record is read again from where it stands.
    let (lines, _) = world.output("east");
    assert_eq!((lines[0].primary_at.as_str(), &lines[0].key), ("queries/a:3", &key(1)));
    roles.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_can_not_be_read_again_is_told_from_a_store_that_is_behind() {
    let world = World::new(SHORT_CALLS).await;
    // Larger than the cache.
    world.append("queries/a", &format!("{{\"q\":\"q-1\",\"text\":\"{}\"}}\n", "x".repeat(2_000)));
    let store = world.store("east", None).await;
    guarded("the first pass", store.caught_up()).await;
    std::fs::remove_file(world.path("queries/a")).unwrap();
    let mut client = EventStoreClient::connect(format!("http://{}", store.address)).await.unwrap();
    let request = wire::GetRequest { ids: vec!["q-1".into()], wait_ms: 0 };
    let page = client.get(request).await.unwrap().into_inner().message().await.unwrap().unwrap();
    let Some(wire::get_result::Result::Behind(behind)) = &page.results[0].result else { panic!("{page:?}") };
    assert!(behind.unreadable, "{behind:?}");
    assert_eq!(number(store.http_address.unwrap(), "unreadable_sources").await, 1);
    store.shutdown().await;
}

/// With a full window there is nothing to do but to wait for an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_window_does_not_keep_the_dispatcher_awake() {
    let world = World::new("call-timeout = \"60s\"\ndispatch-in-flight = 4").await;
    let clicks: String = (0..100).map(|id| click(id, 1)).collect();
    world.append("clicks/a", &clicks);
    // Takes connections and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = world.dispatcher_config("east", mute.local_addr().unwrap().to_string(), None).await;
    config.records_per_second_max = 1;
    let dispatcher = photon_pipeline::dispatcher::start(config).await.unwrap();
    until("a full window", || 4 <= dispatcher.ledger().under_way).await;
    let http = dispatcher.http_address.unwrap();
    // That nothing happens has no event: a second is let pass, and rounds are counted against the
    // time that did pass, so that a slow machine changes nothing.
    let (began, before) = (Instant::now(), number(http, "rounds").await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rounds = number(http, "rounds").await - before;
    assert!(rounds < 50 * began.elapsed().as_secs(), "{rounds} rounds in {:?}", began.elapsed());
}
