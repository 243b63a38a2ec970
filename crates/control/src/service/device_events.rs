//! What the history tells of the devices of a pool: which came, which went and why, and when dirty data has its copies.
//!
//! Keeps true: a change is told once, by the worker that made it or saw its end. What a killed worker had begun is told
//! by the next one.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use headpond_base::MemberId;

use crate::history::{EventKind, History};

/// After these, dirty data may lack copies.
const UNSETTLING: [EventKind; 4] =
    [EventKind::DeviceLost, EventKind::DeviceAdded, EventKind::DeviceReplaced, EventKind::DeviceOffline];

/// The events of one pool's devices. Clones are the same.
#[derive(Clone)]
pub(crate) struct DeviceEvents {
    history: History,
    /// Copies are being made: their end is an event.
    awaits_copies: Arc<AtomicBool>,
    /// Removals that an earlier worker began. Nobody waits for them here.
    begun_before: Arc<Mutex<BTreeSet<MemberId>>>,
}

impl DeviceEvents {
    /// Those of a pool whose earlier workers began to empty these members.
    pub(crate) fn of(history: History, begun_before: BTreeSet<MemberId>) -> Self {
        let [lost, added, replaced, offline] = UNSETTLING;
        let last = history.last_of(&[lost, added, replaced, offline, EventKind::CopiesComplete]);
        let awaits_copies = last.is_some_and(|kind| UNSETTLING.contains(&kind));
        Self {
            history,
            awaits_copies: Arc::new(AtomicBool::new(awaits_copies)),
            begun_before: Arc::new(Mutex::new(begun_before)),
        }
    }

    /// A device was lost, and why.
    pub(crate) fn lost(&self, flash: &Path, why: &str) {
        self.changed(EventKind::DeviceLost, &format!("{} {why}", flash.display()));
    }

    /// The devices changed. An event has room for some hundred letters.
    pub(crate) fn changed(&self, kind: EventKind, what: &str) {
        self.history.note(kind, 1, what);
        if UNSETTLING.contains(&kind) {
            self.awaits_copies.store(true, Ordering::SeqCst);
        }
    }

    /// This worker was asked to remove a member: who asked tells its end.
    pub(crate) fn removes(&self, member: MemberId) {
        self.begun_before.lock().unwrap_or_else(PoisonError::into_inner).remove(&member);
    }

    /// A member has left in order.
    pub(crate) fn left(&self, member: MemberId, flash: &Path) {
        if self.begun_before.lock().unwrap_or_else(PoisonError::into_inner).remove(&member) {
            self.changed(EventKind::DeviceRemoved, &removed(flash));
        }
    }

    /// Whether dirty data has its copies now.
    pub(crate) fn look(&self, is_mirrored: bool) {
        if is_mirrored && self.awaits_copies.swap(false, Ordering::SeqCst) {
            self.history.note(EventKind::CopiesComplete, 1, "all dirty data is on two devices");
        }
    }
}

/// A device was removed, in words.
pub(crate) fn removed(flash: &Path) -> String {
    format!("{} was emptied, and is free", flash.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(history: &History) -> Vec<(&'static str, String)> {
        history.events().into_iter().map(|event| (EventKind::named(event.kind).0, event.text)).collect()
    }

    #[test]
    fn copies_are_told_once_after_a_loss_also_by_the_next_worker() {
        let history = History::in_memory();
        let events = DeviceEvents::of(history.clone(), BTreeSet::new());
        events.look(true);
        assert!(told(&history).is_empty(), "nothing was amiss");
        events.lost(Path::new("/nvme/a"), "refused a write or a sync");
        events.look(false);
        // The worker dies here.
        let next = DeviceEvents::of(history.clone(), BTreeSet::new());
        next.look(false);
        (0..2).for_each(|_| next.look(true));
        let lost = "/nvme/a refused a write or a sync".to_owned();
        let complete = ("copies-complete", "all dirty data is on two devices".to_owned());
        assert_eq!(told(&history), [("device-lost", lost), complete]);
        DeviceEvents::of(history.clone(), BTreeSet::new()).look(true);
        assert_eq!(told(&history).len(), 2, "it was told");
    }

    #[test]
    fn a_removal_that_an_earlier_worker_began_is_told_and_one_of_this_worker_by_who_asked() {
        let history = History::in_memory();
        let events = DeviceEvents::of(history.clone(), [MemberId(1), MemberId(2)].into());
        (0..2).for_each(|_| events.left(MemberId(1), Path::new("/nvme/b")));
        events.removes(MemberId(2));
        events.left(MemberId(2), Path::new("/nvme/c"));
        assert_eq!(told(&history), [("device-removed", "/nvme/b was emptied, and is free".to_owned())]);
    }
}
