//! Looks at files: each reads through the engine while nothing else runs, and everything found must be right.
//!
//! A look reads where a file can have changed since the last start, and the rest of some files (`thoroughness.rs`). A
//! later look reads what this one passes over: a history ends with a look at everything.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{Errno, RECORD_BYTES_MAX};
use headpond_engine::Treatment;

use crate::found::Found;
use crate::origin::FileId;
use crate::sim::Sim;
use crate::synced_here::SyncedFile;

/// Parts of a file, in order. The last one goes beyond its end. `None` is all of it.
type Ranges = Option<Vec<(u64, u64)>>;

impl Sim<'_> {
    /// Opens every file, reads it, and checks what was lost and what was not.
    pub(crate) fn observe(&mut self, kept_origin: bool) -> Result<(), String> {
        let names: BTreeSet<FileId> = self.world.origin.names().values().copied().collect();
        for file in self.model.files() {
            let door = self.doors.get(&file).cloned().unwrap_or_default();
            if names.contains(&file) {
                continue;
            }
            if door.anchored && !door.unlinked && !self.damaged && !self.meddled_away.contains(&file) {
                return Err(format!("{file:?} was synced and is gone after the crash"));
            }
            self.model.remove_file(file);
            self.doors.remove(&file);
        }
        for SyncedFile { file, moment, flashes } in self.synced_here.take() {
            if self.world.has_all_along(&flashes) {
                self.model.synced(file, moment);
                self.summary.synced_here += 1;
            }
        }
        if self.damaged {
            self.model.excuse_all();
        }
        let mut found = BTreeMap::new();
        let whole = self.damaged || self.thoroughness.all_files();
        self.observing = true;
        for &file in &names {
            // What is there after a start stays: the directory was synced.
            let door = self.doors.entry(file).or_default();
            (door.anchored, door.unlinked) = (true, false);
            self.open(file, false)?;
            self.drain()?;
            let ranges = self.ranges(file, whole, true);
            match self.read_ranges(file, ranges)? {
                Ok(bytes) => {
                    found.insert(file, bytes);
                }
                Err(error) if self.damaged || self.world.injected.excuses_errors() => {
                    self.world.trace(|| format!("{file:?} cannot be read: {error:?}"));
                    self.over = true;
                    return Ok(());
                }
                Err(error) => return Err(format!("{file:?} cannot be read after the restart: {error:?}")),
            }
        }
        self.observing = false;
        self.unseen_end = false;
        let moment = self.model.check_crash(&found, kept_origin)?;
        self.world.trace(|| format!("all files are as they were after event {moment}"));
        // After damage the model would have to guess what is durable: one life is enough. The same holds if the flash
        // failed while this start was made durable: what a read sees now may be in the flash's cache alone, and a
        // power cut takes it.
        self.over |= self.damaged || self.settled_boots != Some(self.boots);
        for file in names {
            let idle = self.doors.get(&file).is_some_and(|door| door.handles > 0 && door.busy == 0);
            if idle && self.world.rng.chance(300) {
                self.close(file)?;
                self.drain()?;
            }
        }
        Ok(())
    }

    /// Looks at the open files, now and then at all files: they must be right.
    pub(crate) fn look_around(&mut self) -> Result<(), String> {
        let whole = self.thoroughness.all_files();
        self.look_at_open(whole)
    }

    /// Reads everything in the open files: all of it must be right.
    pub(crate) fn look_at_all(&mut self) -> Result<(), String> {
        self.look_at_open(true)
    }

    fn look_at_open(&mut self, whole: bool) -> Result<(), String> {
        self.drain()?;
        let open: Vec<FileId> = self.doors.iter().filter(|(_, door)| door.handles > 0).map(|(file, _)| *file).collect();
        for file in open {
            let ranges = self.ranges(file, whole, false);
            self.look_at(file, ranges)?;
        }
        Ok(())
    }

    /// Looks at a file while nothing else runs: this shows what became of failed changes.
    pub(crate) fn settle(&mut self, file: FileId) -> Result<(), String> {
        self.drain()?;
        let whole = self.thoroughness.whole_file();
        self.look_at(file, if whole { None } else { self.model.in_question_for_failures(file) })
    }

    /// Everything in these ranges must be right; `None` is everywhere.
    fn look_at(&mut self, file: FileId, ranges: Ranges) -> Result<(), String> {
        if let Ok(bytes) = self.read_ranges(file, ranges)? {
            self.model.settle(file, &bytes).map_err(|why| format!("{file:?}, looked at: {why}"))?;
        }
        Ok(())
    }

    /// The ranges of a file that a look reads.
    fn ranges(&mut self, file: FileId, whole: bool, crashed: bool) -> Ranges {
        let whole = whole || self.thoroughness.whole_file();
        if whole { None } else { self.model.in_question(file, crashed) }
    }

    /// Reads these ranges of a file in pieces of random size, while nothing else runs.
    fn read_ranges(&mut self, file: FileId, ranges: Ranges) -> Result<Result<Found, Errno>, String> {
        let most = self.world.rng.between(1, 8) * (self.scenario.write_bytes / 8).max(4096);
        let most = most.min(RECORD_BYTES_MAX as u64);
        let mut bytes = Found::default();
        let mut failures = 0;
        for (from, to) in ranges.unwrap_or_else(|| vec![(0, u64::MAX)]) {
            bytes.skip_to(from);
            while bytes.end() < to {
                if bytes.len() > 256 << 20 {
                    return Err(format!("{file:?} never ends"));
                }
                let wanted = most.min(to - bytes.end());
                let Some(id) = self.read(file, bytes.end(), wanted, true, Treatment::default())? else {
                    return Ok(Err(Errno::BADF));
                };
                self.drain()?;
                match self.kept.remove(&id) {
                    Some(Ok(pieces)) => {
                        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
                        pieces.into_iter().for_each(|piece| bytes.push(piece));
                        if (len as u64) < wanted {
                            return Ok(Ok(bytes));
                        }
                    }
                    Some(Err(error)) if failures >= 30 => return Ok(Err(error)),
                    _ => failures += 1,
                }
            }
        }
        Ok(Ok(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Content, ContentChange, WriterId};
    use crate::model::Model;
    use headpond_timed::Rng;

    /// Whether both hold the same wherever a look at these ranges passes over.
    fn agree_outside(one: &Content, other: &Content, ranges: &Ranges) -> bool {
        let Some(ranges) = ranges else { return true };
        let looked_at = |(from, to): (u64, u64)| ranges.iter().any(|(start, end)| *start <= from && to <= *end);
        one.differences(other).into_iter().all(looked_at)
    }

    #[test]
    fn what_a_look_passes_over_is_the_same_in_all_contents_that_a_file_may_have() {
        let mut rng = Rng::new(6);
        let mut passed_over = 0;
        for _ in 0..300 {
            let file = FileId(1);
            let mut model = Model::default();
            let base = Content::of(WriterId(0), rng.below(2 << 20));
            model.add_file(file, base.clone());
            let mut before = None;
            for step in 1..=6 {
                let (offset, len) = (rng.below(2 << 20), 1 + rng.below(50_000));
                let change = match rng.below(4) {
                    0 => ContentChange::Zero { offset, len, extend: rng.chance(500) },
                    1 if rng.chance(300) => ContentChange::Truncate { size: offset },
                    _ => ContentChange::Write { offset, len, writer: WriterId(step) },
                };
                let id = model.ask(file, change, 0, false, false);
                // Now and then the next read goes out before the answer: their order is then open.
                if let Some(before) = before.take() {
                    model.acknowledge(before);
                }
                match rng.below(4) {
                    0 if model.open_changes(file) < 4 => model.fail(id),
                    1 => before = Some(id),
                    _ => model.acknowledge(id),
                }
                let (since, failed) = (model.in_question(file, true), model.in_question_for_failures(file));
                let contents = model.contents(file);
                assert!(contents.iter().all(|content| agree_outside(&base, content, &since)), "{since:x?}");
                assert!(contents.iter().all(|content| agree_outside(&contents[0], content, &failed)), "{failed:x?}");
                passed_over += since.iter().flatten().next().map_or(0, |(from, _)| *from);
            }
        }
        assert!(passed_over > 0, "every look is at everything");
    }
}
