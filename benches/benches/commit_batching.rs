//! How many ids a second three replicas commit, by ids per call: real journals with fsync, real
//! sockets, one process. What is measured is batching: a commit costs one round trip and one fsync,
//! whatever its size.

use std::path::Path;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use photon_benches::BenchCluster;
use tokio::runtime::Runtime;

fn commit_batching(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let cluster = runtime.block_on(BenchCluster::start(Path::new(env!("CARGO_TARGET_TMPDIR"))));
    let mut group = criterion.benchmark_group("commit_batching");
    group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    for (ids_per_call, callers) in [(1, 256), (16, 64), (128, 16), (1_000, 16)] {
        group.throughput(Throughput::Elements(ids_per_call));
        let id = BenchmarkId::new(format!("{callers}_callers"), ids_per_call);
        group.bench_with_input(id, &ids_per_call, |bencher, ids_per_call| {
            bencher.iter_custom(|calls| runtime.block_on(cluster.insert(calls, *ids_per_call, callers)));
        });
    }
    group.finish();
    runtime.block_on(cluster.stop());
}

criterion_group!(benches, commit_batching);
criterion_main!(benches);
