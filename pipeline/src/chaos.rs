//! A test aid: seeded random delays in lanes and calls.
//!
//! Invariant: without a seed nothing sleeps.

/// A source of delays, shared by all calls at one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delays(photon_types::Delays);

impl Delays {
    /// Delays at the place named: different for each datacenter and place of one seed.
    pub fn new(seed: Option<u64>, datacenter: &str, place: &str) -> Delays {
        Delays(photon_types::Delays::new(seed, &format!("{datacenter}/{place}")))
    }

    /// Delays this thread.
    pub fn block(&self) {
        if let Some(delay) = self.0.draw() {
            std::thread::sleep(delay);
        }
    }

    /// Delays this task.
    pub async fn wait(&self) {
        if let Some(delay) = self.0.draw() {
            tokio::time::sleep(delay).await;
        }
    }
}
