//! The jobs of one lane: the driver puts, the lane's thread takes all that is there.
//!
//! It is bounded by credits and not by refusal: the driver may not block and may not lose an
//! effect, so it takes no work that could add to a lane while too much is under way (`drive`).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct JobQueue<J> {
    state: Mutex<State<J>>,
    ready: Condvar,
}

#[derive(Debug)]
struct State<J> {
    jobs: Vec<J>,
    closed: bool,
}

/// What a lane finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Jobs<J> {
    /// At least one, in the order in which they were put.
    Some(Vec<J>),
    /// None came in time.
    Idle,
    /// None is left, and none will come.
    Closed,
}

impl<J> JobQueue<J> {
    pub fn new() -> JobQueue<J> {
        JobQueue { state: Mutex::new(State { jobs: Vec::new(), closed: false }), ready: Condvar::new() }
    }

    /// Puts jobs behind those that wait.
    pub fn put(&self, jobs: Vec<J>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.jobs.is_empty() {
            state.jobs = jobs;
        } else {
            state.jobs.extend(jobs);
        }
        self.ready.notify_one();
    }

    /// No more jobs will come; those that wait are still done.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_one();
    }

    /// Waits for jobs, for ever without a timeout.
    pub fn take_all(&self, timeout: Option<Duration>) -> Jobs<J> {
        let mut state = self.lock();
        let must_wait = |state: &mut State<J>| state.jobs.is_empty() && !state.closed;
        state = match timeout {
            None => self.ready.wait_while(state, must_wait).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                self.ready.wait_timeout_while(state, timeout, must_wait).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if !state.jobs.is_empty() {
            return Jobs::Some(std::mem::take(&mut state.jobs));
        }
        if state.closed { Jobs::Closed } else { Jobs::Idle }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // Whoever panicked with the lock only moved whole values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_in_order_and_closing_loses_none() {
        let queue = JobQueue::new();
        assert_eq!(queue.take_all(Some(Duration::ZERO)), Jobs::Idle);
        queue.put(vec![1, 2]);
        queue.put(vec![]);
        queue.put(vec![3]);
        queue.close();
        assert_eq!(queue.take_all(None), Jobs::Some(vec![1, 2, 3]));
        assert_eq!(queue.take_all(None), Jobs::Closed);
    }

    #[test]
    fn a_waiting_lane_is_woken() {
        let queue = JobQueue::new();
        std::thread::scope(|scope| {
            let lane = scope.spawn(|| queue.take_all(None));
            queue.put(vec![7]);
            assert_eq!(lane.join().unwrap(), Jobs::Some(vec![7]));
        });
    }
}
