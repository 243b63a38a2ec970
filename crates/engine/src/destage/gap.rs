//! Writing over gaps: runs that lie close together go to the origin in one write, with what lies between
//! them, where that is cheaper than a write for each. What is between comes from the pool if it is all there
//! and clean; else from the origin, in one read before the write.
//!
//! Why that cannot hurt: what is put into a gap is what the origin has there already, and nobody changes that
//! from the moment it is read until the write has ended.
//! - The origin's file is changed only by jobs and by direct changes. There is one job at a time on an object,
//!   and none while a change goes there directly, nor the other way round (`may_start`, `direct_ready`). The
//!   job's own other writes and ranges of zeros are for other blocks: a gap has nothing that this job picked.
//! - A clean block of the pool is what the origin has, and its bytes are verified like any other's. A block that
//!   is written while the job lasts is dirty in the log, and goes to the origin with a later job. Until then the
//!   origin has the older bytes, whether they are written again or not. The same holds for one that was dirty
//!   from the start and is not durable yet: its older bytes are read from the origin.
//! - A crash in the middle leaves of each sector the old bytes or the new ones. In a gap those are the same. What
//!   was to be written is dirty until the origin's sync has returned.
//! - No space is taken that nobody reserved: beyond the origin's end no gap is filled, and a block of zeros, which
//!   may be a hole, is not written. Where space is counted, there must be plenty: nothing may be written in place.
//! - The file is not cut meanwhile: that, too, is a job's. If the log cuts it while the job lasts, the write is
//!   given up and each run goes alone.
//!
//! Whatever does not fit is no error: the runs go alone. So does a write over gaps that the origin refuses.

use headpond_base::{BLOCK, BLOCK_U64, Block, Buf, BufMut, ObjectId};
use headpond_map::Slot;
use headpond_policy::{Gap, Joined, WriteRun, join};

use super::Destaging;
use super::job::Job;
use super::run::{RUN_BLOCKS_MAX, Run};
use crate::effect::{Effect, Outcome};
use crate::purpose::{Filling, JobEffect, JobId, Purpose, Written};
use crate::store::object::Object;
use crate::store::{Stretch, Unpacked};

impl Job {
    /// The runs of a group that can be written.
    fn runs_of(&self, group: usize) -> impl Iterator<Item = &Run> {
        self.runs[self.groups[group].runs.clone()].iter().filter(|run| !run.unreadable)
    }
}

impl Destaging<'_> {
    /// Which of these runs go together, and what each write costs.
    pub(super) fn plan(&mut self, object: ObjectId, runs: &[Run]) -> Vec<Joined> {
        let (writes, reads) = (self.outbox.origin_costs().writes(), self.outbox.origin_costs().reads());
        let widest = writes.gap_worth(headpond_base::Nanos(0)).min(RUN_BLOCKS_MAX as u64);
        let between = runs.windows(2).map(|pair| pair[1].first.0 - pair[0].end().0).filter(|gap| *gap <= widest).sum();
        let spare = self.origin_space.counted.spare(between, self.store.sums().dirty_blocks());
        if !spare {
            self.origin_space.want_look(object);
        }
        let known = self.store.get(object).filter(|_| self.store.takes_writes());
        let mut before: Option<&Run> = None;
        let mut gaps = Vec::with_capacity(runs.len());
        for run in runs {
            let gap = match (before, known) {
                (Some(before), Some(known)) if spare && !before.zeros() && !run.zeros() => {
                    gap_of(known, before.end(), run.first, widest)
                }
                _ => Gap::Closed,
            };
            let blocks = run.weight();
            gaps.push((WriteRun { first: run.first.0, blocks, dirty: blocks }, gap));
            before = Some(run);
        }
        join(&gaps, RUN_BLOCKS_MAX as u64, writes, reads)
    }

    /// Starts to read what lies between the runs of a group.
    pub(super) fn fill_gaps(&mut self, id: JobId, job: &mut Job, index: usize) {
        let object = job.object;
        let ends: Vec<_> = {
            let runs: Vec<_> = job.runs_of(index).collect();
            runs.windows(2).map(|pair| (pair[0].end(), pair[1].first)).collect()
        };
        let mut missing: Option<(Block, Block)> = None;
        let mut on_flash: Vec<(Block, Vec<Slot>)> = Vec::new();
        let mut unpacked = Unpacked::default();
        for (from, to) in ends {
            let Some(known) = self.store.get(object) else { return };
            match gap_of(known, from, to, RUN_BLOCKS_MAX as u64) {
                Gap::Closed => {
                    job.groups[index].apart = true;
                    return;
                }
                Gap::ToRead => missing = Some((missing.map_or(from, |(from, _)| from), to)),
                Gap::AtHand => {
                    for (block, slot) in known.map().range(from, to) {
                        if let Some(bytes) = self.store.in_batch(object, block, slot, &mut unpacked) {
                            job.groups[index].filled.push((block, bytes));
                            continue;
                        }
                        match on_flash.last_mut() {
                            Some((first, slots))
                                if first.plus(slots.len() as u64) == block && self.store.lies_behind(slots, slot) =>
                            {
                                slots.push(slot);
                            }
                            _ => on_flash.push((block, vec![slot])),
                        }
                    }
                }
            }
        }
        for (first, slots) in on_flash {
            job.groups[index].reading += 1;
            let stretch = Stretch::of(&slots);
            let filling = Filling { group: index, first, blocks: slots.len() as u64, slots };
            let attempt = self.store.first_attempt();
            self.store.read_flash(
                self.outbox,
                stretch,
                attempt,
                Purpose::Destage(JobEffect::Fill { job: id, filling }),
            );
        }
        if let Some((first, to)) = missing {
            job.groups[index].reading += 1;
            let blocks = to.0 - first.0;
            let len = u32::try_from(blocks * BLOCK_U64).expect("a write is at most 1 MiB");
            let effect =
                JobEffect::Fill { job: id, filling: Filling { group: index, first, blocks, slots: Vec::new() } };
            let offset = first.byte();
            self.stats.gap_reads += 1;
            self.outbox.start(Purpose::Destage(effect), |ticket| Effect::OriginRead { ticket, object, offset, len });
        }
    }

    /// What lies in a gap is there, or will not come.
    pub(super) fn gap_read(&mut self, id: JobId, job: &mut Job, filling: Filling, outcome: Outcome) {
        let Filling { group, first, blocks, slots } = filling;
        let bytes = if slots.is_empty() {
            // Bytes of the origin have no checksum here, as in any miss.
            match outcome {
                Outcome::Bytes(bytes) if bytes.len() as u64 == blocks * BLOCK_U64 => Some(bytes),
                _ => None,
            }
        } else {
            let found = self.store.flash_was_read(job.object, first, &slots, &outcome);
            found.all_good().then_some(found.bytes)
        };
        let group_of = &mut job.groups[group];
        group_of.reading -= 1;
        match bytes {
            Some(bytes) => group_of.filled.push((first, bytes)),
            None => group_of.apart = true,
        }
        self.group_step(id, job, group);
    }

    /// Writes a group once all of it is there.
    pub(super) fn group_step(&mut self, id: JobId, job: &mut Job, index: usize) {
        let group = &job.groups[index];
        let runs = group.runs.clone();
        if group.reading > 0 || job.runs[runs.clone()].iter().any(|run| run.reading > 0) {
            return;
        }
        if group.alone() {
            return self.write_run(id, job, runs.start);
        }
        let Some((offset, data)) = self.assemble(job, index) else { return self.write_apart(id, job, index) };
        let (object, end) = (job.object, offset + data.len() as u64);
        let data = vec![data];
        self.stats.joined_writes += 1;
        let effect = JobEffect::Write { job: id, end, what: Written::Group(index) };
        self.outbox.start(Purpose::Destage(effect), |ticket| Effect::OriginWrite {
            ticket,
            object,
            offset,
            data,
            user: 0,
            written_out: true,
        });
    }

    /// Each run of a group goes alone.
    pub(super) fn write_apart(&mut self, id: JobId, job: &mut Job, index: usize) {
        let group = &mut job.groups[index];
        group.filled.clear();
        job.under_way -= 1;
        for run in group.runs.clone() {
            job.under_way += 1;
            self.write_run(id, job, run);
        }
    }

    /// The bytes of a group, and where they begin in the file; `None` if they must not be written so.
    fn assemble(&self, job: &mut Job, index: usize) -> Option<(u64, Buf)> {
        let filled = std::mem::take(&mut job.groups[index].filled);
        // Those of which no good bytes came are in a gap now, which nobody has filled.
        let runs: Vec<_> = job.runs_of(index).collect();
        let (first, last) = (*runs.first()?, *runs.last()?);
        let known = self.store.get(job.object)?;
        if job.groups[index].apart || known.job.cut().is_some() || !open_to(known, last.first) {
            return None;
        }
        let start = first.first;
        let end = last.end().byte().min(known.state.size);
        let blocks = usize::try_from(last.end().0 - start.0).expect("a write is at most 1 MiB");
        let mut data = BufMut::zeroed(blocks * BLOCK);
        // A block that nothing was found for is zeros, and is not written over.
        for (at, bytes) in &filled {
            let at = usize::try_from(at.0.checked_sub(start.0)?).ok()? * BLOCK;
            data.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        }
        for pair in runs.windows(2) {
            let (from, to) = (pair[0].end().0 - start.0, pair[1].first.0 - start.0);
            for block in from..to {
                let at = usize::try_from(block).ok()? * BLOCK;
                if data[at..at + BLOCK].iter().all(|byte| *byte == 0) {
                    return None;
                }
            }
        }
        for run in runs {
            let at = usize::try_from(run.first.0 - start.0).ok()?;
            for (index, block) in run.bytes.iter().enumerate() {
                let at = (at + index) * BLOCK;
                data[at..at + BLOCK].copy_from_slice(block.as_ref()?);
            }
        }
        let len = usize::try_from(end.checked_sub(start.byte())?).ok()?;
        data.truncate(len);
        Some((start.byte(), data.freeze()))
    }
}

/// Whether the origin's file is known to go on up to here at least.
fn open_to(known: &Object, to: Block) -> bool {
    known.origin_size.is_known() && to.byte() <= known.origin_end().min(known.state.size)
}

/// What lies from `from` up to `to`.
fn gap_of(known: &Object, from: Block, to: Block, widest: u64) -> Gap {
    let blocks = to.0 - from.0;
    if blocks > widest || !open_to(known, to) || known.zeros().has_any(from, to) {
        return Gap::Closed;
    }
    let mut clean = 0;
    for (_, slot) in known.map().range(from, to) {
        if slot.is_blank() && !slot.dirty {
            return Gap::Closed;
        }
        clean += u64::from(!slot.dirty);
    }
    if clean == blocks { Gap::AtHand } else { Gap::ToRead }
}
