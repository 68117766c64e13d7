//! Sources that do not grow: every record comes to its one right end, whatever happens meanwhile.

mod world;

use std::sync::atomic::Ordering;

use photon_format::cursor::Counts;
use photon_format::ends::EndState;
use photon_pipeline::adapter::Adapter;
use world::{World, assert_exactly_once, click, generate, guarded, key, query};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_click_is_joined_or_unjoinable() {
    let world = World::new("").await;
    let joinable = generate(&world, 300, 4_000);
    let roles = world.roles("east", Some(world.list())).await;
    guarded("draining", roles.dispatcher.drained()).await;
    let ledger = roles.shutdown().await;

    let (lines, sealed) = world.output("east");
    assert_exactly_once(&lines, &joinable);
    assert_eq!(sealed, 1);
    for line in &lines {
        let id: u64 = std::str::from_utf8(line.key.id.as_bytes()).unwrap()[2..].parse().unwrap();
        assert_eq!(line.click, click(id, id * 7 % 300).trim_end());
        assert_eq!(line.query, query(id * 7 % 300).trim_end());
    }
    let unjoinable = 4_000 - joinable.len() as u64;
    let want = Counts { read: 4_000, joined: joinable.len() as u64, unjoinable, ..Counts::default() };
    assert_eq!((ledger.total(), ledger.pending, ledger.under_way), (want, 0, 0));
    assert_eq!(ledger.sources.len(), 2);
    let ends = world.ends("east");
    assert_eq!(ends.len() as u64, unjoinable);
    assert!(ends.values().all(|end| end.state == EndState::Unjoinable && end.reason.contains("q-")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_datacenters_share_the_clicks_under_any_schedule() {
    for seed in [1, 2, 3] {
        let mut world = World::new("cache = \"64KiB\"").await;
        world.chaos = Some(seed);
        let joinable = generate(&world, 200, 2_000);
        world.registry.state.lose_every.store(5, Ordering::SeqCst);
        world.registry.state.refuse_every.store(7, Ordering::SeqCst);
        let (east, west) =
            (world.roles("east", Some(world.list())).await, world.roles("west", Some(world.list())).await);
        guarded("draining", async { tokio::join!(east.dispatcher.drained(), west.dispatcher.drained()) }).await;
        let ledgers = [east.shutdown().await, west.shutdown().await];
        let lines = [world.output("east").0, world.output("west").0];
        assert_exactly_once(lines.iter().flatten(), &joinable);
        for ledger in &ledgers {
            let total = ledger.total();
            assert_eq!((total.read, total.pending(), ledger.pending), (2_000, Some(0), 0), "seed {seed}");
            assert_eq!(total.joined + total.claimed, joinable.len() as u64, "seed {seed}");
        }
        for (ledger, lines) in ledgers.iter().zip(&lines) {
            assert!(ledger.total().joined <= lines.len() as u64, "seed {seed}");
        }
        let holders = world.registry.holders();
        assert_eq!(holders.len(), joinable.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_joined_is_a_dead_letter_with_its_bytes() {
    let world = World::new("").await;
    world.append("queries/a", &query(1));
    let bad = [
        "{\"c\":\"c-1\",\"q\":null,\"t\":1700000000001}",
        "{\"c\":\"c-2\",\"q\":\"q-1\"",
        "{\"c\":\"c-3\",\"q\":\"q-1\",\"t\":\"NA\"}",
    ];
    world.append("clicks/a", &format!("{}\n{}\n{}{}\n", bad[0], bad[1], click(4, 1), bad[2]));
    // A last line that is whole, without its newline.
    world.append("clicks/b", click(5, 1).trim_end());
    // And one that is not: it is not read.
    world.append("clicks/c", "{\"c\":\"c-6\"");
    let roles = world.roles("east", Some(world.list())).await;
    guarded("draining", roles.dispatcher.drained()).await;
    let ledger = roles.shutdown().await;
    let want = Counts { read: 5, joined: 2, dead_lettered: 3, ..Counts::default() };
    assert_eq!(ledger.total(), want);

    assert_exactly_once(&world.output("east").0, &[key(4), key(5)].into());
    let ends = world.ends("east");
    let mut raw: Vec<_> = ends
        .values()
        .map(|end| match &end.state {
            EndState::DeadLettered { raw } => String::from_utf8(raw.clone()).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    raw.sort();
    let mut want = bad.map(str::to_owned);
    want.sort();
    assert_eq!(raw, want);
    // The null reference has a key, the others have none.
    let null = &ends[&("clicks/a".to_owned(), 0)];
    assert_eq!(null.key, Some(key(1)));
    assert!(null.reason.contains("reference-missing"), "{}", null.reason);
    assert_eq!(ends.values().filter(|end| end.key.is_none()).count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_smaller_than_one_payload_reads_the_log() {
    let world = World::new("cache = \"1KiB\"").await;
    let joinable = generate(&world, 500, 3_000);
    let roles = world.roles("east", Some(world.list())).await;
    guarded("draining", roles.dispatcher.drained()).await;
    roles.shutdown().await;
    assert_exactly_once(&world.output("east").0, &joinable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_several_queries_with_one_id_counts() {
    let world = World::new("").await;
    world.append("queries/b", "{\"q\":\"q-1\",\"text\":\"second\"}\n");
    world.append("queries/a", &format!("{}{{\"q\":\"q-1\",\"text\":\"first\"}}\n{}", query(2), query(1)));
    world.append("clicks/a", &click(1, 1));
    let roles = world.roles("east", Some(world.list())).await;
    guarded("draining", roles.dispatcher.drained()).await;
    roles.shutdown().await;
    let (lines, _) = world.output("east");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].query, "{\"q\":\"q-1\",\"text\":\"first\"}");
    assert_eq!(lines[0].primary_at, format!("queries/a:{}", query(2).len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clicks_below_the_boundary_end_as_expired() {
    let world = World::new("").await;
    let joinable = generate(&world, 10, 40);
    world.registry.state.boundary.store(key(20).timestamp.micros(), Ordering::SeqCst);
    let roles = world.roles("east", Some(world.list())).await;
    guarded("draining", roles.dispatcher.drained()).await;
    let ledger = roles.shutdown().await;
    let (below, above): (Vec<_>, Vec<_>) = joinable.iter().cloned().partition(|it| *it < key(20));
    assert!(!below.is_empty());
    assert_exactly_once(&world.output("east").0, &above.into_iter().collect());
    // Also those that name no query: the look-up says it first.
    assert_eq!((ledger.total().expired, ledger.total().pending()), (20, Some(0)));
    assert!(world.ends("east").values().filter(|end| end.state == EndState::Expired).count() == 20);
}

struct OnlyEven;

impl Adapter for OnlyEven {
    fn wants(&self, click: &[u8], _query: &[u8]) -> bool {
        let click = std::str::from_utf8(click).unwrap();
        let id = click.split('"').nth(3).unwrap();
        id.ends_with(['0', '2', '4', '6', '8'])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_that_the_adapter_does_not_want_are_filtered_and_not_inserted() {
    let world = World::new("").await;
    let joinable = generate(&world, 20, 200);
    let list = world.list();
    let store = world.store("east", Some(list.clone())).await;
    let joiner = world.joiner_with("east", store.address.to_string(), true, Some(Box::new(OnlyEven))).await;
    let dispatcher = world.dispatcher("east", joiner.address.to_string(), Some(list)).await;
    guarded("draining", dispatcher.drained()).await;
    let ledger = world::Roles { store, joiner, dispatcher }.shutdown().await;
    let even: std::collections::BTreeSet<_> =
        joinable.iter().filter(|key| (key.timestamp.micros() / 1_000).is_multiple_of(2)).cloned().collect();
    assert_exactly_once(&world.output("east").0, &even);
    assert_eq!(world.registry.holders().len(), even.len());
    let total = ledger.total();
    assert_eq!((total.joined, total.filtered), (even.len() as u64, (joinable.len() - even.len()) as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_larger_than_all_windows_is_joined_in_full() {
    let world = World::new("in-flight = 500\ndispatch-in-flight = 1000").await;
    let joinable = generate(&world, 5_000, 30_000);
    let roles = world.roles("east", Some(world.list())).await;
    guarded("draining", roles.dispatcher.drained()).await;
    let ledger = roles.shutdown().await;
    assert_exactly_once(&world.output("east").0, &joinable);
    assert_eq!((ledger.total().read, ledger.total().pending()), (30_000, Some(0)));
}
