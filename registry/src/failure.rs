//! The first error that ends a node, and who waits for it.
//!
//! Invariant: what failed stays failed. A lane whose write failed says nothing more, so nobody is
//! told that something is durable which is not.

use std::sync::Arc;

use photon_types::NodeId;
use tokio::sync::watch;
use tracing::error;

use crate::error::RegistryError;

/// Shared by all threads and tasks of a node.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    node: NodeId,
    first: Arc<watch::Sender<Option<Arc<RegistryError>>>>,
}

impl Failure {
    pub fn new(node: NodeId) -> Failure {
        Failure { node, first: Arc::new(watch::Sender::new(None)) }
    }

    /// Ends the node, unless another error has.
    pub fn report(&self, error: RegistryError) {
        self.first.send_if_modified(|first| {
            if first.is_some() {
                return false;
            }
            error!(node = %self.node, %error, "the node ends");
            *first = Some(Arc::new(error));
            true
        });
    }

    pub fn get(&self) -> Option<Arc<RegistryError>> {
        self.first.borrow().clone()
    }

    /// Waits until something fails.
    pub async fn wait(&self) -> Arc<RegistryError> {
        let mut first = self.first.subscribe();
        let found = first.wait_for(Option::is_some).await.expect("the sender is held by self");
        found.clone().expect("waited for")
    }

    /// Runs the body of a thread: an error or a panic ends the node, and `at_end` is called
    /// whatever happens.
    pub fn spawn_thread(
        &self,
        name: &'static str,
        at_end: impl FnOnce() + Send + 'static,
        body: impl FnOnce() -> Result<(), RegistryError> + Send + 'static,
    ) -> Result<std::thread::JoinHandle<()>, RegistryError> {
        let failure = self.clone();
        let run = move || {
            // The body's state is not looked at after a panic: the node ends.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            match result {
                Ok(Ok(())) => (),
                Ok(Err(error)) => failure.report(error),
                Err(panic) => failure.report(RegistryError::ThreadEnded {
                    thread: name,
                    node: failure.node,
                    reason: panic_text(&*panic),
                }),
            }
            at_end();
        };
        std::thread::Builder::new()
            .name(format!("{name}-{}", self.node))
            .spawn(run)
            .map_err(|source| RegistryError::System { operation: "starting a thread", source })
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a bug: {}", text.unwrap_or_else(|| "a panic without a text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_error_stays() {
        let failure = Failure::new(NodeId(1));
        assert!(failure.get().is_none());
        let (ended, has_ended) = std::sync::mpsc::channel();
        let at_end = ended.clone();
        let thread =
            failure.spawn_thread("driver", move || at_end.send(()).unwrap(), || panic!("slot 3 chosen twice")).unwrap();
        thread.join().unwrap();
        has_ended.recv().unwrap();
        failure.report(RegistryError::Config { message: "later".into() });
        let text = failure.wait().await.to_string();
        assert!(text.contains("driver of node 1 ended: a bug: slot 3 chosen twice"), "{text}");
    }
}
