//! What a joiner does at its limits: a fence, a registry that is away, a stop.

mod world;

use std::sync::atomic::Ordering;

use photon_pipeline::PipelineError;
use world::{World, assert_exactly_once, generate, guarded, key, until};

const RETRIES: &str = "window = \"3650d\"\nretry-min = \"10ms\"\nretry-max = \"50ms\"\ncall-timeout = \"2s\"";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_joiner_ends_without_an_answer_for_what_is_not_counted() {
    let world = World::new(RETRIES).await;
    generate(&world, 10, 50);
    let store = world.store("east", None).await;
    let joiner = world.joiner("east", store.address.to_string(), false).await;
    let root = world.config.output_dir("east");
    let name = joiner.incarnation.to_string();
    std::fs::rename(root.join("live").join(&name), root.join("sealed").join(&name)).unwrap();
    let dispatcher = world.dispatcher("east", joiner.address.to_string(), None).await;
    let failure = guarded("the fence is seen", joiner.failed()).await;
    assert!(failure.is_fenced(), "{failure}");
    assert_eq!(dispatcher.ledger().total().joined, 0);
    let stopped = guarded("the stop", joiner.shutdown()).await.unwrap_err();
    assert!(stopped.is_fenced(), "{stopped}");
    dispatcher.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserts_without_an_answer_are_asked_again_with_the_same_token() {
    let world = World::new(RETRIES).await;
    let joinable = generate(&world, 10, 200);
    // Nearly every answer is lost. The registry checks that no token serves two clicks.
    world.registry.state.lose_every.store(2, Ordering::SeqCst);
    let roles = world.roles("east", Some(world.list())).await;
    guarded("draining", roles.dispatcher.drained()).await;
    let ledger = roles.shutdown().await;
    assert_exactly_once(&world.output("east").0, &joinable);
    assert_eq!(ledger.total().joined, joinable.len() as u64);
    let tokens = world.registry.state.tokens.lock().unwrap();
    assert_eq!(tokens.len(), joinable.len(), "one token per attempt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joiner_is_replaced_while_clicks_are_under_way() {
    let world = World::new(RETRIES).await;
    let joinable = generate(&world, 50, 3_000);
    let store = world.store("east", None).await;
    let joiner = world.joiner("east", store.address.to_string(), false).await;
    let address = joiner.address.to_string();
    let dispatcher = world.dispatcher("east", address.clone(), None).await;
    until("some clicks", || 200 < joiner.totals().joined).await;
    joiner.shutdown().await.unwrap();
    // The same address, another incarnation.
    let joiner = photon_pipeline::joiner::start(photon_pipeline::joiner::JoinerConfig {
        config: world.config.clone(),
        datacenter: "east".into(),
        listen: address,
        http: None,
        event_store: store.address.to_string(),
        client: world.client().await,
        once: false,
        adapter: None,
        chaos_delays: None,
    })
    .await
    .unwrap();
    until("all", || {
        let total = dispatcher.ledger().total();
        total.joined + total.claimed == joinable.len() as u64
    })
    .await;
    dispatcher.shutdown().await.unwrap();
    joiner.shutdown().await.unwrap();
    let (lines, sealed) = world.output("east");
    assert_exactly_once(&lines, &joinable);
    assert_eq!(sealed, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_is_named() {
    let world = World::new("").await;
    let store = world.store("east", None).await;
    let second = photon_pipeline::store::start(photon_pipeline::store::StoreConfig {
        config: world.config.clone(),
        datacenter: "west".into(),
        listen: store.address.to_string(),
        http: None,
        sources: None,
        chaos_delays: None,
    });
    let error = second.await.unwrap_err();
    assert!(matches!(error, PipelineError::Listen { .. }));
    assert!(error.to_string().contains(&store.address.to_string()), "{error}");
    assert!(key(1) < key(2));
}
