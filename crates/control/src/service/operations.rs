//! Long work that clients start and follow. Its number is bounded. It is remembered for a while after its end, which
//! is always one of done, cancelled, or failed with a reason.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::protocol::OperationProgress;

/// The most operations under way at once. Each is one request in the engine.
const RUNNING_MAX: usize = 8;

/// The most operations remembered, so that a slow client still learns how its own ended.
const REMEMBERED_MAX: usize = 64;

/// The operations of one daemon.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    known: VecDeque<StartedOperation>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct StartedOperation {
    /// Its handle.
    pub id: u64,
    /// What it does.
    pub name: &'static str,
    /// The path that it is about, if it is not about everything.
    pub about: String,
    /// Its state.
    pub progress: OperationProgress,
    /// Whether it must end early.
    pub cancelled: bool,
    started: Instant,
    took: Option<Duration>,
}

impl StartedOperation {
    /// How long it has been running, or ran.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took.unwrap_or_else(|| self.started.elapsed())
    }
}

impl Operations {
    /// Begins an operation. `None` if too many are under way.
    #[must_use]
    pub fn begin(&self, name: &'static str, about: &str) -> Option<u64> {
        let mut inner = self.inner();
        let running = inner.known.iter().filter(|known| known.progress == OperationProgress::Running).count();
        if running >= RUNNING_MAX {
            return None;
        }
        while inner.known.len() >= REMEMBERED_MAX {
            let over = inner.known.iter().position(|known| known.progress != OperationProgress::Running)?;
            inner.known.remove(over);
        }
        inner.last += 1;
        let id = inner.last;
        inner.known.push_back(StartedOperation {
            id,
            name,
            about: about.to_owned(),
            progress: OperationProgress::Running,
            cancelled: false,
            started: Instant::now(),
            took: None,
        });
        Some(id)
    }

    /// Ends an operation. A second end changes nothing.
    pub fn finish(&self, id: u64, end: OperationProgress) {
        let mut inner = self.inner();
        if let Some(known) = inner.known.iter_mut().find(|known| known.id == id && known.took.is_none()) {
            known.progress = end;
            known.took = Some(known.started.elapsed());
        }
    }

    /// Takes back an operation that was refused before it did anything, and forgets it. If none began after it, the
    /// next one gets its handle.
    pub fn withdraw(&self, id: u64) {
        let mut inner = self.inner();
        inner.known.retain(|known| known.id != id);
        if inner.last == id {
            inner.last -= 1;
        }
    }

    /// Makes an operation end early. Returns its state, if it is remembered.
    #[must_use]
    pub fn cancel(&self, id: u64) -> Option<OperationProgress> {
        let mut inner = self.inner();
        let known = inner.known.iter_mut().find(|known| known.id == id)?;
        known.cancelled = true;
        Some(known.progress.clone())
    }

    /// An operation, if it is remembered.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<StartedOperation> {
        self.inner().known.iter().find(|known| known.id == id).cloned()
    }

    /// The last operations of this name, the newest first.
    #[must_use]
    pub fn last(&self, name: &str, most: usize) -> Vec<StartedOperation> {
        self.inner().known.iter().rev().filter(|known| known.name == name).take(most).cloned().collect()
    }

    /// Running, if an operation of this name is under way; else the state of the last one, if there was one.
    #[must_use]
    pub fn state_of(&self, name: &str) -> Option<OperationProgress> {
        let inner = self.inner();
        let of_name = || inner.known.iter().filter(|known| known.name == name).map(|known| &known.progress);
        of_name().find(|progress| **progress == OperationProgress::Running).or_else(|| of_name().next_back()).cloned()
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_withdrawn_leaves_no_trace() {
        let operations = Operations::default();
        let first = operations.begin("flush", "nope").unwrap();
        operations.withdraw(first);
        assert_eq!(operations.begin("flush", ""), Some(first));
        let second = operations.begin("flush", "nope").unwrap();
        let third = operations.begin("flush", "").unwrap();
        operations.withdraw(second);
        operations.finish(second, OperationProgress::Done);
        assert!(operations.get(second).is_none() && operations.get(third).is_some());
        assert!(operations.begin("flush", "").unwrap() > third, "a handle names one operation");
    }

    #[test]
    fn operations_are_bounded_and_remembered() {
        let operations = Operations::default();
        let ids: Vec<u64> = (0..RUNNING_MAX).map(|_| operations.begin("flush", "").unwrap()).collect();
        assert_eq!(operations.begin("flush", ""), None, "full means no, not growth");
        operations.finish(ids[0], OperationProgress::Failed("no space".into()));
        let progress = |id| operations.get(id).map(|known| known.progress);
        assert_eq!(progress(ids[0]), Some(OperationProgress::Failed("no space".into())));
        assert_eq!(operations.state_of("flush"), Some(OperationProgress::Running));
        for &id in &ids[1..] {
            operations.finish(id, OperationProgress::Done);
        }
        assert_eq!(operations.state_of("flush"), Some(OperationProgress::Done));
        assert_eq!(operations.state_of("mode"), None);
        assert_eq!(operations.last("flush", 2).iter().map(|known| known.id).collect::<Vec<_>>(), [ids[7], ids[6]]);
        for _ in 0..1000 {
            let id = operations.begin("mode", "").unwrap();
            operations.finish(id, OperationProgress::Done);
        }
        assert!(operations.inner().known.len() <= REMEMBERED_MAX);
        assert_eq!(progress(ids[0]), None, "forgotten in the end");
    }

    #[test]
    fn an_operation_has_one_end() {
        let operations = Operations::default();
        let id = operations.begin("flush", "db").unwrap();
        assert_eq!(operations.cancel(id), Some(OperationProgress::Running));
        assert!(operations.get(id).unwrap().cancelled);
        operations.finish(id, OperationProgress::Cancelled);
        operations.finish(id, OperationProgress::Done);
        assert_eq!(operations.get(id).unwrap().progress, OperationProgress::Cancelled);
        assert_eq!(operations.cancel(99), None);
    }
}
