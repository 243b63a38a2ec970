//! The end of a daemon, in order or not, and the start of the next one.

use headpond_base::{Buf, CacheMode, Errno};
use headpond_engine::{Device, FlashRead, Request, Verdict};
use headpond_format::OriginName;
use headpond_timed::Rng;

use crate::content::Content;
use crate::flash::{Cut, SimFlash};
use crate::marker::{KEY, Marker};
use crate::origin::{FileId, OriginChange, SpaceKind};
use crate::outliving::OutlivingMemory;
use crate::roster::Roster;
use crate::sim::{Asked, Door, Sim};
use crate::under_test::{Refusal, Restored};

/// Reads for recovery, with errors now and then.
struct Reader<'a> {
    flash: &'a SimFlash,
    rng: Rng,
    per_mille: u64,
    failed: u64,
    /// It vanishes after so many reads.
    lasts: u64,
}

impl FlashRead for Reader<'_> {
    fn read(&mut self, offset: u64, len: usize) -> headpond_base::Result<Buf> {
        if offset + len as u64 > self.flash.bytes() {
            return Err(Errno::INVAL);
        }
        if self.lasts == 0 {
            return Err(Errno::NODEV);
        }
        self.lasts -= 1;
        if self.rng.chance(self.per_mille) {
            self.failed += 1;
            return Err(Errno::IO);
        }
        Ok(self.flash.read(offset, len))
    }
}

/// What a start is given.
fn given<'a>(readers: &'a mut [Reader<'_>]) -> Vec<Device<'a>> {
    let device = |reader: &'a mut Reader<'_>| {
        let bytes = reader.flash.bytes();
        Device { flash: reader, bytes }
    };
    readers.iter_mut().map(device).collect()
}
/// A change by others to the origin while headpond was away.
struct Outside {
    file: FileId,
    /// The file's present content. `None` if the file is gone.
    content: Option<Content>,
    /// The last host batch of the log that says how such a change shows. `None`: it shows whatever the log says.
    shows_after: Option<u64>,
}

impl Sim<'_> {
    /// Kills the daemon, or cuts the power; then starts everything again and checks it.
    pub(crate) fn crash(&mut self, rng: &mut Rng) -> Result<(), String> {
        let mut kept_origin = self.fall(rng)?;
        // Again during recovery or the first checkpoint.
        while rng.chance(300) {
            if self.over {
                return Ok(());
            }
            self.begin(None)?;
            for _ in 0..rng.below_one_of(&[3, 30, 300]) {
                self.step()?;
            }
            kept_origin &= self.fall(rng)?;
        }
        if rng.chance(150)
            && let Some(outside) = self.meddle_unseen(rng)?
        {
            self.begin(Some(&outside))?;
            // What every file has after this is not computed here.
            self.over = true;
            return Ok(());
        }
        self.restart(kept_origin)
    }

    /// After a crash others change a file with dirty data in the pool, and put its size and time back. They take a
    /// file for which the log says that its status change time shows this.
    ///
    /// The next start may have other devices, and find more of the log, or less: batches that were not durable. What it
    /// finds counts. Such a batch may say that headpond is about to change the status, and the time tells nothing.
    fn meddle_unseen(&mut self, rng: &mut Rng) -> Result<Option<Outside>, String> {
        if self.damaged || self.world.disowned || self.over {
            return Ok(None);
        }
        self.redo()?;
        let Some(restored) = self.recover()? else { return Ok(None) };
        let told: Vec<FileId> = restored
            .objects()
            .into_iter()
            .filter(|known| known.tells)
            .filter_map(|known| {
                let file = self.world.origin.by_identity(known.identity)?;
                let (now, before) = (self.world.origin.identity(file).ok()?, known.identity.file()?);
                now.may_be(before).then_some(file)
            })
            .collect();
        if told.is_empty() {
            return Ok(None);
        }
        let file = *rng.pick(&told);
        let Ok(left) = self.world.origin.stamp(file) else { return Ok(None) };
        let writer = self.writer();
        self.world.trace(|| format!("meddle unseen with {file:?} by {writer:?}"));
        let mut content = Content::default();
        content.apply(&crate::content::ContentChange::Write { offset: 0, len: left.size, writer }, 0);
        // Without space only the owner changes.
        if left.size == 0
            || self.world.origin.change(file, OriginChange::Write { offset: 0, data: vec![content.bytes()] }).is_err()
        {
            self.world.origin.touch_status(file);
        } else if self.world.origin.change(file, OriginChange::Times { mtime: left.mtime.0 }).is_err() {
            return Ok(None);
        }
        self.world.origin.sync_all();
        self.summary.unseen += 1;
        Ok(Some(Outside { file, content: Some(content), shows_after: Some(restored.last_host_batch()) }))
    }

    /// Everything that runs ends. Returns whether the origin's host still stands.
    fn fall(&mut self, rng: &mut Rng) -> Result<bool, String> {
        let power = rng.chance(self.scenario.power_cuts) && !self.world.killed;
        let origin_falls = power && rng.chance(self.scenario.origin_falls);
        let cut = power.then(|| {
            *rng.pick(&[
                Cut::Random,
                Cut::Random,
                Cut::Random,
                Cut::DropAll,
                Cut::KeepAll,
                Cut::OnlyLast,
                Cut::TearLastEnd,
            ])
        });
        self.world.trace(|| format!("crash: flash {cut:?}, origin falls {origin_falls}"));
        self.summary.crashes += 1;
        self.summary.at_risk += self.model.at_risk();
        self.leave(cut, origin_falls);
        Ok(!origin_falls)
    }

    pub(crate) fn leave(&mut self, cut: Option<Cut>, origin_falls: bool) {
        if let Some(core) = &self.world.core {
            // Before a use serves, what its start found is nobody's: without the devices that it had, another start finds less.
            if !self.options.members || self.world.marker.has_begun() {
                self.durable_host_batch = self.durable_host_batch.max(core.durable_host_batch());
            }
            let [_, reclaimed, checkpoints, destaged, saved, rows, row_reads] = core.figures();
            self.summary.reclaimed += reclaimed;
            self.summary.checkpoints += checkpoints;
            self.summary.destaged += destaged;
            self.summary.saved += saved;
            self.summary.rows += rows;
            self.summary.row_reads += row_reads;
        }
        if self.world.injected.flash_write > 0 {
            self.model.loosen_all();
        }
        if self.world.injected.any_rot > 0 || std::mem::take(&mut self.world.unsaid) {
            self.damaged = true;
        }
        self.note_past_pool();
        self.outlives(cut.is_some());
        self.world.note_covered();
        self.world.lose_daemon(cut, origin_falls);
        self.boots += u64::from(origin_falls);
        if origin_falls {
            self.world.origin.has_another_kernel();
        }
        self.requests.clear();
        self.status_changes.clear();
        // After a crash another time counts, if answers were not durable.
        self.seen_ctimes.clear();
        self.kept.clear();
        for door in self.doors.values_mut() {
            *door = Door { anchored: door.anchored, unlinked: door.unlinked, ..Door::default() };
        }
        self.stopping = false;
        self.mode_open = false;
    }

    /// Starts, and checks the files against the model.
    pub(crate) fn restart(&mut self, kept_origin: bool) -> Result<(), String> {
        self.begin(None)?;
        if self.over {
            return Ok(());
        }
        self.settle_start()?;
        self.observe(kept_origin)
    }

    /// Does what a mount does before it serves: the engine's first checkpoint makes durable what this start has found
    /// and decided.
    fn settle_start(&mut self) -> Result<(), String> {
        self.ask(Asked::Settled, Request::SyncAll)?;
        self.drain()?;
        // If the flash fails meanwhile it is not durable, and the next start finds the same again.
        self.settled_boots = (self.world.injected.flash_write == 0).then_some(self.boots);
        if self.settled_boots.is_some() && !self.world.killed {
            self.world.marker.begun();
        }
        Ok(())
    }

    /// A stop in order, perhaps a change of the origin, and a new start.
    pub(crate) fn stop_and_restart(&mut self, rng: &mut Rng) -> Result<(), String> {
        if rng.chance(500) {
            self.flush()?;
            self.drain()?;
        }
        self.stop()?;
        self.drain()?;
        self.summary.stops += 1;
        // The promises hold whatever happens to the machine now.
        let cut = rng.chance(500).then_some(Cut::Random);
        let origin_falls = cut.is_some() && rng.chance(500);
        let seen = std::mem::take(&mut self.seen_ctimes);
        self.leave(cut, origin_falls);
        let clean_stop = self.stopped_well && self.model.is_all_synced() && !self.damaged;
        let free = self.world.origin.free_blocks();
        let outside = if clean_stop && rng.chance(600) { self.meddle(rng) } else { None };
        let took_space = self.world.origin.free_blocks() < free;
        self.world.others_have_space |= took_space && self.world.origin.kind() != SpaceKind::Keeps;
        if clean_stop && outside.is_none() {
            self.seen_ctimes = seen;
        }
        let mut kept_origin = !origin_falls;
        self.kept_over = None;
        self.begin(outside.as_ref())?;
        // Killed before the decisions are durable: the next start asks and decides again.
        while outside.is_some() && !self.over && rng.chance(300) {
            for _ in 0..rng.below_one_of(&[3, 30]) {
                self.step()?;
            }
            kept_origin &= self.fall(rng)?;
            self.begin(outside.as_ref())?;
        }
        if let Some(Outside { file, content: Some(content), .. }) = outside
            && self.kept_over != Some(file)
        {
            self.model.replace(file, content);
        }
        if self.over {
            return Ok(());
        }
        self.settle_start()?;
        self.observe(kept_origin)
    }

    /// Others change a file at the origin.
    fn meddle(&mut self, rng: &mut Rng) -> Option<Outside> {
        let names: Vec<_> = self.world.origin.names().iter().map(|(name, file)| (name.clone(), *file)).collect();
        if names.is_empty() {
            return None;
        }
        let (name, file) = rng.pick(&names).clone();
        if self.world.origin.is_volume(file) {
            self.world.trace(|| format!("meddle with the volume {file:?}"));
            return self.meddle_with_volume(file).ok().map(|content| Outside {
                file,
                content: Some(content),
                shows_after: None,
            });
        }
        let writer = self.writer();
        self.world.trace(|| format!("meddle with {file:?} by {writer:?}"));
        let mut content = Content::default();
        let left = self.world.origin.stamp(file).ok()?;
        let put_back = rng.chance(300);
        match rng.below(4) {
            0 => {
                self.world.origin.unlink(&name).ok()?;
                self.world.origin.sync_all();
                self.meddled_away.insert(file);
                return Some(Outside { file, content: None, shows_after: None });
            }
            1 => {
                // The same size: only times tell, perhaps only the one that no program can set.
                let size = left.size;
                content.apply(&crate::content::ContentChange::Write { offset: 0, len: size, writer }, 0);
            }
            _ => {
                let size = rng.between(1, self.scenario.file_bytes / 2);
                self.world.origin.change(file, OriginChange::Resize { size: 0 }).ok()?;
                content.apply(&crate::content::ContentChange::Write { offset: 0, len: size, writer }, 0);
            }
        }
        if content.size == 0 {
            self.world.origin.change(file, OriginChange::Times { mtime: 12_345 }).ok()?;
        } else if self
            .world
            .origin
            .change(file, OriginChange::Write { offset: 0, data: vec![content.bytes()] })
            .is_err()
        {
            // There was no space, so the change makes the file empty.
            self.world.origin.change(file, OriginChange::Resize { size: 0 }).ok()?;
            content = Content::default();
        }
        if put_back {
            self.world.origin.change(file, OriginChange::Times { mtime: left.mtime.0 }).ok()?;
        }
        self.world.origin.sync_all();
        Some(Outside { file, content: Some(content), shows_after: None })
    }

    /// Recovers, reconciles and starts an engine.
    fn begin(&mut self, outside: Option<&Outside>) -> Result<(), String> {
        if std::mem::take(&mut self.world.disowned) {
            // No other pool gets what was left for this one.
            self.world.outliving.iter().for_each(OutlivingMemory::lose);
            // The operator answers the refusal with a fresh pool. What only the old one had is gone.
            self.world.trace(|| "the pool was disowned: a fresh one".into());
            self.world.flash = self.scenario.devices();
            self.world.marker = Marker::default();
            self.roster = Roster::default();
            self.world.losses.left_behind.clear();
            self.format()?;
            self.damaged = true;
            // What each file lost with it is not known here, so the run ends after this start.
            self.over = true;
        }
        if self.options.members {
            let mut rng = self.deaths.clone();
            self.deaths.next();
            self.replug(&mut rng);
        }
        self.redo()?;
        if self.options.members {
            self.try_one_left_behind()?;
            self.try_fewer()?;
        }
        // As a mount does before it forgets files that are gone: the directory is durable.
        self.world.origin.sync_directory();
        let Some(mut restored) = self.recover()? else {
            self.over = true;
            return Ok(());
        };
        if self.options.members {
            self.meet_members(&*restored)?;
            self.heal_members()?;
            self.world.marker.begin(&mut *restored);
        }
        if let Some(outliving) = &mut self.world.outliving {
            restored.survive_in(outliving.second_tail()?);
        }
        self.summary.gaps += u64::from(restored.beyond_gap() > 0);
        if !restored.clean_stop() {
            // As control does: no later sync covers direct writes that the pool does not know.
            self.world.origin.sync_all();
        }
        let mut boot = [1; 16];
        boot[..8].copy_from_slice(&self.boots.to_le_bytes());
        restored.booted(boot);
        restored.adopt(OriginName { key: KEY, path: b"/origin".to_vec() });
        for known in restored.objects() {
            let file = self.world.origin.by_identity(known.identity);
            let found = file.and_then(|file| self.describe(file, false));
            let found = found.map(|found| self.told_of_a_volume(found, known.left));
            let verdict = restored.reconcile(known.object, found.as_ref());
            self.world.trace(|| format!("found {known:?}: {verdict:?}"));
            let same = found.as_ref().is_some_and(|found| found.identity().may_be(known.identity));
            let gone = matches!(verdict, Verdict::Forgotten);
            let told_no_more = file.and_then(|file| self.world.origin.is_told_no_more(file, known.identity));
            match (outside, verdict) {
                (Some(outside), verdict) if file == Some(outside.file) && same => {
                    self.judge_outside(&mut *restored, &known, outside, &verdict)?;
                }
                (Some(Outside { content: None, .. }), Verdict::Conflict(_)) => restored.discard(known.object),
                (_, Verdict::Conflict(conflict)) if self.damaged => {
                    self.world.trace(|| format!("conflict in a damaged pool: {conflict:?}"));
                    restored.discard(known.object);
                }
                // Nothing tells which file it is, so the operator does.
                (_, Verdict::Conflict(_)) if told_no_more.is_some() => {
                    self.summary.conflicts += 1;
                    match found.as_ref().filter(|_| told_no_more == Some(true)) {
                        Some(found) => restored.keep(known.object, found),
                        None => restored.discard(known.object),
                    }
                }
                (_, Verdict::Conflict(conflict)) => {
                    return Err(format!(
                        "a conflict about {file:?}, and nobody changed anything: {conflict:?} {}",
                        known.told
                    ));
                }
                // A power cut of the origin takes times back, and without birth times its numbers silently go to
                // other files.
                (_, Verdict::Dropped)
                    if self.settled_boots == Some(self.boots)
                        && self.scenario.births
                        && !self.damaged
                        && same
                        && file.is_none_or(|file| !self.status_unsaid.contains(&file)) =>
                {
                    return Err(format!(
                        "{file:?} is taken for changed by others, and nobody changed it: {}",
                        known.told
                    ));
                }
                (_, Verdict::Dropped | Verdict::Doubted) => self.summary.dropped += 1,
                _ => {}
            }
            if let (Some(file), Some(found)) = (file, &found)
                && same
                && known.left_ctime == Some(found.witness().ctime().0)
                && let (Some(seen), Some(shown)) = (self.seen_ctimes.get(&file), restored.ctime(known.object))
                && *seen != shown
            {
                return Err(format!("the status change time of {file:?} was {seen} and is {shown}: {}", known.told));
            }
            if let Some(file) = file
                && !gone
                && same
            {
                self.world.objects.insert(known.object, file);
                self.doors.entry(file).or_default().object = Some(known.object);
                self.world.origin.set_open(file, true);
            }
        }
        let mut config = self.scenario.config;
        if self.scenario.mode_switches && self.world.rng.chance(100) {
            self.mode = *self.world.rng.pick(&CacheMode::ALL);
        }
        config.mode = self.mode;
        let now = self.world.now;
        self.world.core = Some(restored.start(config, now));
        self.summary.recoveries += 1;
        self.world.trace(|| self.world.core.as_ref().map(|core| core.told()).unwrap_or_default());
        self.world.pump()
    }

    /// Reads the pool, now and then twice: recovery changes nothing and finds the same each time.
    fn recover(&mut self) -> Result<Option<Box<dyn Restored>>, String> {
        let here = self.world.flash.here();
        if self.options.members {
            self.world.flash.sync_before_start(&here, &mut self.deaths);
        }
        let mutation = self.options.mutation;
        let per_mille = self.world.faults.recovery_read;
        if per_mille > 0 {
            let rng = Rng::new(self.world.rng.next());
            let mut readers = self.readers(&here, rng, per_mille);
            let result = self.maker.recover(given(&mut readers), &self.world.flash.refusing(&here), mutation);
            let failed = readers.iter().map(|reader| reader.failed).sum::<u64>();
            self.world.trace(|| format!("recovery with {failed} read errors: {:?}", result.as_ref().err()));
            let excused = self.world.losses.uncovered && !self.world.flash.missing().is_empty();
            if let (Err(why), 0, false) = (result, failed, excused) {
                return self.no_recovery(&why);
            }
        }
        if let Some(found) = self.lose_in_recovery() {
            return Ok(Some(found));
        }
        let mut here = self.world.flash.here();
        let first = loop {
            match self.recover_from(&here).and_then(|found| self.judged(found)) {
                Ok(first) => break first,
                Err(why) if self.brings_back_missing(&why.0) => here = self.world.flash.here(),
                Err(why) if self.goes_on_without_memory(&why.0) => {}
                Err(why) => return self.no_recovery(&why),
            }
        };
        self.roster.given.clone_from(&here);
        if self.thoroughness.second_recovery() {
            let second = self.recover_from(&here).map_err(|why| format!("the second recovery failed: {why:?}"))?;
            if first.objects() != second.objects() {
                let (first, second) = (first.objects(), second.objects());
                return Err(format!("two recoveries of one pool differ: {first:?} and {second:?}"));
            }
        }
        // The note beside the origin may say this much by then. Otherwise a pool after a crash would pass for an
        // older image.
        let (durable, found) = (self.durable_host_batch, first.last_host_batch());
        if found < durable && !self.damaged {
            return Err(format!("host batch {durable} was durable, and the log ends at {found}"));
        }
        Ok(Some(first))
    }

    /// Reads the pool on these devices.
    pub(crate) fn recover_from(&self, devices: &[usize]) -> Result<Box<dyn Restored>, Refusal> {
        let refusing = self.world.flash.refusing(devices);
        self.maker.recover(given(&mut self.readers(devices, Rng::new(0), 0)), &refusing, self.options.mutation)
    }

    /// The same, and one of them vanishes after so many reads. Returns whether it came to that.
    pub(crate) fn recover_losing(
        &self,
        devices: &[usize],
        vanishing: usize,
        reads: u64,
    ) -> (bool, Result<Box<dyn Restored>, Refusal>) {
        let mut readers = self.readers(devices, Rng::new(0), 0);
        for (_, reader) in devices.iter().zip(&mut readers).filter(|(device, _)| **device == vanishing) {
            reader.lasts = reads;
        }
        let refusing = self.world.flash.refusing(devices);
        let result = self.maker.recover(given(&mut readers), &refusing, self.options.mutation);
        (readers.iter().any(|reader| reader.lasts == 0), result)
    }

    /// Readers of these devices.
    fn readers(&self, devices: &[usize], mut rng: Rng, per_mille: u64) -> Vec<Reader<'_>> {
        let devices = devices.iter().map(|index| &self.world.flash.all()[*index]);
        // The first draws from the given stream itself, so that seeds with one device keep their histories.
        devices
            .map(|device| {
                let own = rng.clone();
                rng = Rng::new(rng.next());
                Reader { flash: &device.flash, rng: own, per_mille, failed: 0, lasts: u64::MAX }
            })
            .collect()
    }

    fn no_recovery(&self, why: &Refusal) -> Result<Option<Box<dyn Restored>>, String> {
        if self.damaged {
            self.world.trace(|| format!("the damaged pool is refused: {why:?}"));
            return Ok(None);
        }
        Err(format!("recovery failed though no fault can explain it: {why:?}"))
    }

    /// Others changed this file. Dirty data of it must lead to a conflict, clean data must go.
    fn judge_outside(
        &mut self,
        restored: &mut dyn Restored,
        known: &crate::under_test::Known,
        outside: &Outside,
        verdict: &Verdict,
    ) -> Result<(), String> {
        match (verdict, known.dirty) {
            // Decided at a start that was killed after it.
            (Verdict::Kept, true) if self.kept_over == Some(outside.file) => Ok(()),
            // This start found another log than the one for which the change was made.
            (Verdict::Kept, true)
                if !known.tells && outside.shows_after.is_some_and(|batch| batch != restored.last_host_batch()) =>
            {
                let (then, now) = (outside.shows_after, restored.last_host_batch());
                self.world.trace(|| format!("the log ends at host batch {now}, and ended at {then:?} before"));
                Ok(())
            }
            (Verdict::Conflict(_), true) => {
                self.summary.conflicts += 1;
                self.kept_over = None;
                if self.world.rng.chance(500) {
                    restored.discard(known.object);
                } else if let Some(open) = self.describe(outside.file, false) {
                    restored.keep(known.object, &open);
                    self.kept_over = Some(outside.file);
                    self.world.others_have_space = true;
                    if let Some(content) = &outside.content {
                        self.model.mix_with(outside.file, content.clone());
                    }
                }
                Ok(())
            }
            // The object of a file that was going, and whose inode number this file has now. Without birth times
            // neither the engine nor this check can tell them apart.
            (Verdict::Forgotten, true) if !self.scenario.births => Ok(()),
            (_, true) => Err(format!(
                "{:?} was changed from outside, has dirty data, and the verdict is {verdict:?}",
                outside.file
            )),
            (Verdict::Conflict(_), false) => Err(format!(
                "{:?} was changed from outside, has no dirty data, and is called a conflict: {}",
                outside.file, known.told
            )),
            _ => Ok(()),
        }
    }
}
