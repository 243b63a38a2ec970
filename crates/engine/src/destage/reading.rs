//! Reading a run's bytes before it is written to the origin.
//!
//! Invariant: only bytes that agree with their slots' checksums are written. What flash cannot give for the second
//! time stays dirty, and is counted as lost; what reclaim took elsewhere meanwhile is left for the next round.

use headpond_base::{Block, ObjectId};

use super::Destaging;
use super::job::Job;
use super::run::Run;
use crate::effect::Outcome;
use crate::purpose::{JobEffect, JobId, Purpose, Reading};
use crate::store::{Stretch, Unpacked};

/// A job begins no more writes while it reads so many blocks of flash: 1 MiB. Flash is the faster of the two, so
/// that keeps the origin busy. All that the origin may be given at once, 16 MiB, would keep reads and syncs of requests
/// waiting.
const READING_MOST: usize = 256;

impl Job {
    /// Whether it may begin another of its writes, of `depth` at once.
    pub(super) const fn may_begin(&self, depth: usize) -> bool {
        self.under_way < depth && self.reading < READING_MOST && self.failed.is_none()
    }
}

impl Destaging<'_> {
    /// Reads a run's blocks, those that lie together on flash in one go.
    pub(super) fn read_run(&mut self, id: JobId, job: &mut Job, index: usize) {
        let run = &mut job.runs[index];
        let mut unpacked = Unpacked::default();
        let blocks = (run.first.0..).map(Block).zip(&run.slots);
        run.bytes = blocks.map(|(block, slot)| self.store.in_batch(job.object, block, *slot, &mut unpacked)).collect();
        let mut from = 0;
        while from < run.slots.len() {
            if run.bytes[from].is_some() {
                from += 1;
                continue;
            }
            let mut count = 1;
            while from + count < run.slots.len()
                && run.bytes[from + count].is_none()
                && self.store.lies_behind(&run.slots[from..from + count], run.slots[from + count])
            {
                count += 1;
            }
            run.reading += 1;
            job.reading += count;
            let attempt = self.store.first_attempt();
            self.read_blocks(id, run, Reading { run: index, from, count, attempt });
            from += count;
        }
    }

    fn read_blocks(&mut self, job: JobId, run: &Run, reading: Reading) {
        let purpose = Purpose::Destage(JobEffect::Read { job, reading });
        self.store.read_flash(
            self.outbox,
            Stretch::of(&run.slots[reading.from..reading.from + reading.count]),
            reading.attempt,
            purpose,
        );
    }

    /// A read of a run's blocks came back.
    pub(super) fn run_read(&mut self, id: JobId, job: &mut Job, reading: Reading, outcome: Outcome) {
        let Reading { run: index, from, count, attempt } = reading;
        let run = &mut job.runs[index];
        let first = run.first.plus(from as u64);
        let found = self.store.flash_was_read(job.object, first, &run.slots[from..from + count], &outcome);
        if found.all_good() {
            for part in 0..count {
                run.bytes[from + part] = found.block(part);
            }
        } else if self.run_moved(job.object, &job.runs[index], reading) {
            // Reclaim took it elsewhere meanwhile; the next round finds it there.
            job.leave_run(index);
        } else if let Some(attempt) = self.store.next_attempt(attempt, &job.runs[index].slots[from]) {
            return self.read_blocks(id, &job.runs[index], Reading { attempt, ..reading });
        } else {
            // Wrong bytes must not reach the origin. It stays dirty, and reads of it fail.
            job.runs[index].unreadable = true;
            self.stats.lost_blocks += count as u64;
            job.lost = true;
        }
        let run = &mut job.runs[index];
        run.reading -= 1;
        job.reading -= count;
        let group = run.group;
        self.group_step(id, job, group);
    }

    fn run_moved(&self, object: ObjectId, run: &Run, reading: Reading) -> bool {
        (reading.from..reading.from + reading.count).any(|at| {
            let present = self.store.get(object).and_then(|known| known.map().get(run.first.plus(at as u64)));
            present.is_none_or(|slot| !slot.is_where(&run.slots[at]))
        })
    }
}
