//! The promises to applications about names and modes, and whether a power cut of the origin's host has kept them.
//!
//! Keeps true: after a power cut a promised name is what it was at the promise, or what it became later. It is never
//! what it was before.

use std::collections::BTreeMap;

use crate::origin::{FileId, SimOrigin};
use crate::tree::{NameSlot, Reach};

/// A name or a mode that was set since the daemon began.
#[derive(Clone, Copy, Debug)]
struct Given<T> {
    when: u64,
    what: T,
    /// When its caller had the answer: a sync from then on covers it.
    told: Option<u64>,
}

type Past<T> = Vec<Given<T>>;

/// See the head of the file.
#[derive(Clone, Default)]
pub(crate) struct Promises {
    names: BTreeMap<NameSlot, Past<Option<FileId>>>,
    /// Everything that a name was given before this moment is durable.
    named: BTreeMap<NameSlot, u64>,
    /// From this moment on a file has one of the names that it had then or later.
    held: BTreeMap<FileId, u64>,
    modes: BTreeMap<FileId, Past<u32>>,
    moded: BTreeMap<FileId, u64>,
}

impl Promises {
    /// Everything is durable as it is.
    pub(crate) fn begin<'a>(&mut self, names: impl Iterator<Item = (&'a NameSlot, FileId)>, origin: &SimOrigin) {
        *self = Self::default();
        for (slot, id) in names {
            self.names.insert(slot.clone(), vec![Given { when: 0, what: Some(id), told: Some(0) }]);
            self.modes.insert(id, vec![Given { when: 0, what: origin.mode(id).unwrap_or(0), told: Some(0) }]);
        }
    }

    /// Names were changed, but no caller has its answer yet.
    pub(crate) fn given(&mut self, given: Vec<(u64, NameSlot, Option<FileId>)>) {
        for (when, slot, what) in given {
            let past = self.names.entry(slot).or_insert_with(|| vec![Given { when: 0, what: None, told: Some(0) }]);
            past.push(Given { when, what, told: None });
        }
    }

    /// The caller that changed this name has its answer.
    pub(crate) fn name_told(&mut self, slot: &NameSlot, now: u64) {
        if let Some(last) = self.names.get_mut(slot).and_then(|past| past.last_mut()) {
            last.told.get_or_insert(now);
        }
    }

    /// A mode was set, but its caller has no answer yet.
    pub(crate) fn mode_set(&mut self, id: FileId, when: u64, mode: u32) {
        let told = if when == 0 { Some(0) } else { None };
        self.modes.entry(id).or_default().push(Given { when, what: mode, told });
    }

    /// The caller that set the mode has its answer.
    pub(crate) fn mode_told(&mut self, id: FileId, now: u64) {
        if let Some(last) = self.modes.get_mut(&id).and_then(|past| past.last_mut()) {
            last.told.get_or_insert(now);
        }
    }

    /// A sync of a file that began then was answered. Durable now: its mode and its names, also those that it lost.
    /// If a sync of a file reaches no names by itself, only that it has a name.
    pub(crate) fn file_synced(&mut self, id: FileId, began: u64, reach: Reach) {
        if reach == Reach::Nothing {
            let promised = self.held.entry(id).or_default();
            *promised = (*promised).max(began);
        } else {
            for (slot, past) in &self.names {
                let concerns =
                    |index: usize| past[index].what == Some(id) || index > 0 && past[index - 1].what == Some(id);
                let known = |index: &usize| past[*index].told.is_some_and(|told| told < began) && concerns(*index);
                if let Some(told) = (0..past.len()).rev().find(known).and_then(|last| past[last].told) {
                    let promised = self.named.entry(slot.clone()).or_default();
                    *promised = (*promised).max(told + 1);
                }
            }
        }
        let promised = self.moded.entry(id).or_default();
        *promised = (*promised).max(began);
    }

    /// A sync of a directory that began then was answered.
    pub(crate) fn directory_synced(&mut self, id: FileId, began: u64) {
        for slot in self.names.keys().filter(|slot| slot.0 == id) {
            let promised = self.named.entry(slot.clone()).or_default();
            *promised = (*promised).max(began);
        }
    }

    /// Checks the names after a power cut.
    pub(crate) fn check(&self, live: &BTreeMap<NameSlot, FileId>, origin: &SimOrigin) -> Result<(), String> {
        for (slot, past) in &self.names {
            let now = live.get(slot).copied();
            let promised = self.named.get(slot).copied().unwrap_or(0);
            if !since(past, promised).any(|given| given.what == now) {
                return Err(format!(
                    "the name {:?} in {:?} is {now:?} after a power cut; it was promised at {promised}, and was {past:?}",
                    String::from_utf8_lossy(&slot.1),
                    slot.0
                ));
            }
        }
        for (slot, id) in live {
            if !self.names.contains_key(slot) {
                return Err(format!("{id:?} has a name after a power cut that nobody gave it: {slot:?}"));
            }
            let (Some(past), Ok(mode)) = (self.modes.get(id), origin.mode(*id)) else { continue };
            let promised = self.moded.get(id).copied().unwrap_or(0);
            if !since(past, promised).any(|given| given.what == mode) {
                return Err(format!(
                    "{id:?} has mode {mode} after a power cut; what it had was promised at {promised}, and was {past:?}"
                ));
            }
        }
        self.held.iter().try_for_each(|(id, promised)| self.check_held(*id, *promised, live))
    }

    fn check_held(&self, id: FileId, promised: u64, live: &BTreeMap<NameSlot, FileId>) -> Result<(), String> {
        let kept = |(slot, named): (&NameSlot, &FileId)| {
            let past = self.names.get(slot);
            *named == id && past.is_some_and(|past| since(past, promised).any(|given| given.what == Some(id)))
        };
        if live.iter().any(kept) {
            return Ok(());
        }
        // It may have no name if it had none at some moment.
        let moments = self.names.values().flatten().map(|given| given.when).filter(|when| *when >= promised);
        let named_at = |moment: u64| {
            let at = |past: &Past<Option<FileId>>| {
                past.iter().rev().find(|given| given.when <= moment).is_some_and(|given| given.what == Some(id))
            };
            self.names.values().any(at)
        };
        if moments.chain([promised]).all(named_at) {
            return Err(format!("{id:?} was synced at {promised}, and has none of its names after a power cut"));
        }
        Ok(())
    }
}

/// What it was at that moment as far as callers knew, and what it became later.
fn since<T>(past: &Past<T>, moment: u64) -> impl Iterator<Item = &Given<T>> {
    let first = past.iter().rposition(|given| given.told.is_some_and(|told| told < moment)).unwrap_or(0);
    past[first..].iter()
}
