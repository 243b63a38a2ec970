//! Long work that a client started and may ask after: bounded in number, remembered for a
//! while after its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::Progress;

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
    known: VecDeque<(u64, &'static str, Progress)>,
}

impl Operations {
    /// Begins an operation, unless too many are under way.
    #[must_use]
    pub fn begin(&self, name: &'static str) -> Option<u64> {
        let mut inner = self.inner();
        let running = inner.known.iter().filter(|(_, _, progress)| *progress == Progress::Running).count();
        if running >= RUNNING_MAX {
            return None;
        }
        while inner.known.len() >= REMEMBERED_MAX {
            let over = inner.known.iter().position(|(_, _, progress)| *progress != Progress::Running)?;
            inner.known.remove(over);
        }
        inner.last += 1;
        let id = inner.last;
        inner.known.push_back((id, name, Progress::Running));
        Some(id)
    }

    /// Ends an operation.
    pub fn finish(&self, id: u64, result: Result<(), String>) {
        let mut inner = self.inner();
        if let Some((_, _, progress)) = inner.known.iter_mut().find(|(known, _, _)| *known == id) {
            *progress = result.map_or_else(Progress::Failed, |()| Progress::Done);
        }
    }

    /// How an operation stands, if it is remembered.
    #[must_use]
    pub fn progress(&self, id: u64) -> Option<Progress> {
        self.inner().known.iter().find(|(known, _, _)| *known == id).map(|(_, _, progress)| progress.clone())
    }

    /// Whether an operation of this name is under way; else how the last one ended, if there was one.
    #[must_use]
    pub fn state_of(&self, name: &str) -> Option<Progress> {
        let inner = self.inner();
        let of_name = || inner.known.iter().filter(|(_, known, _)| *known == name).map(|(_, _, progress)| progress);
        of_name().find(|progress| **progress == Progress::Running).or_else(|| of_name().next_back()).cloned()
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
    fn operations_are_bounded_and_remembered() {
        let operations = Operations::default();
        let ids: Vec<u64> = (0..RUNNING_MAX).map(|_| operations.begin("flush").unwrap()).collect();
        assert_eq!(operations.begin("flush"), None, "full means no, not growth");
        operations.finish(ids[0], Err("no space".into()));
        assert_eq!(operations.progress(ids[0]), Some(Progress::Failed("no space".into())));
        assert_eq!(operations.state_of("flush"), Some(Progress::Running));
        for &id in &ids[1..] {
            operations.finish(id, Ok(()));
        }
        assert_eq!(operations.state_of("flush"), Some(Progress::Done));
        assert_eq!(operations.state_of("mode"), None);
        for _ in 0..1000 {
            let id = operations.begin("mode").unwrap();
            operations.finish(id, Ok(()));
        }
        assert!(operations.inner().known.len() <= REMEMBERED_MAX);
        assert_eq!(operations.progress(ids[0]), None, "forgotten in the end");
    }
}
