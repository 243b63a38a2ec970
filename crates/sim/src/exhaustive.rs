//! Every short history: all sequences of up to four operations on an object of four blocks. After every single
//! completion of a device the power is cut, in every way that matters.
//!
//! What is left out, and why that misses nothing:
//! - Cuts come only after the last operation was asked. Earlier cuts belong to the shorter sequence, which runs in
//!   exactly the same way (one seed, one schedule).
//! - Of the unsynced writes at a cut all are dropped, all kept, only the youngest kept (reordered before all others),
//!   the youngest torn after its first sector, or its first or its last sector missing. With one unsynced write the
//!   third is the second; with none there is one case. Other subsets and tears are the random runs' business: recovery
//!   looks at whole batches, so a batch torn anywhere else is no different.
//! - The process alone dies in sequences of up to three operations, and the power fails after the take-over.
//! - One request at a time, one order of completions. Other orders are the random runs' business.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use headpond_base::{BLOCK_U64, CacheMode, Nanos};
use headpond_engine::{Config, Mutation, TailSlots, Treatment};
use headpond_format::Geometry;

use crate::content::{Content, ContentChange};
use crate::flash::Cut;
use crate::origin::{FileId, SpaceKind};
use crate::scenario::{Faults, MemberShape, Options, Scenario};
use crate::sim::Sim;
use crate::under_test::{Maker, Real};
use crate::{Cases, Failure};

/// One of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Block 0.
    WriteFirst,
    /// Blocks 1 and 2.
    WriteMiddle,
    /// From the middle of block 0 to the middle of block 1.
    WriteAcross,
    /// The last block, durable at its answer.
    WriteDurable,
    Sync,
    /// To one block and a half.
    Shrink,
    /// Back to four blocks.
    Grow,
    /// Blocks 1 and 2 become zeros.
    Punch,
    Flush,
}

const STEPS: [Step; 9] = [
    Step::WriteFirst,
    Step::WriteMiddle,
    Step::WriteAcross,
    Step::WriteDurable,
    Step::Sync,
    Step::Shrink,
    Step::Grow,
    Step::Punch,
    Step::Flush,
];

const CUTS: [Cut; 6] =
    [Cut::DropAll, Cut::KeepAll, Cut::OnlyLast, Cut::TearLastFront, Cut::TearLastBack, Cut::TearLastEnd];

/// Runs all sequences of up to `depth` operations. `progress` gets the number done and the number of all.
///
/// # Errors
/// The first broken promise.
pub fn run_exhaustive(
    depth: u32,
    mutation: Option<Mutation>,
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Cases, Box<Failure>> {
    let all: u64 = (1..=depth).map(|length| (STEPS.len() as u64).pow(length)).sum();
    let next = AtomicU64::new(0);
    let total = Mutex::new((Cases::default(), None));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= all {
                        return;
                    }
                    let result = std::panic::catch_unwind(|| run_sequence(&sequence(index), mutation, false))
                        .unwrap_or_else(|panic| Err(crate::campaign::said(&*panic)));
                    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match result {
                        Ok(cases) => total.0.add(&cases),
                        Err(what) => {
                            next.store(all, Ordering::Relaxed);
                            let what = format!("{:?}: {what}", sequence(index));
                            total.1.get_or_insert((index, what));
                        }
                    }
                    progress(total.0.sequences, all);
                }
            });
        }
    });
    let (cases, failure) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    match failure {
        None => Ok(cases),
        Some((seed, what)) => {
            let options = Options { mutation, exhaustive: true, ..Options::default() };
            Err(Box::new(Failure { seed, options, at: None, what }))
        }
    }
}

/// Runs one sequence again and prints each event, also those of the worlds after each cut.
///
/// # Errors
/// The first broken promise.
pub fn run_one_sequence(index: u64, mutation: Option<Mutation>) -> Result<Cases, Box<Failure>> {
    run_sequence(&sequence(index), mutation, true).map_err(|what| {
        let options = Options { mutation, exhaustive: true, ..Options::default() };
        Box::new(Failure { seed: index, options, at: None, what: format!("{:?}: {what}", sequence(index)) })
    })
}

/// The `index`-th sequence, short ones first.
fn sequence(mut index: u64) -> Vec<Step> {
    let base = STEPS.len() as u64;
    let mut length = 1;
    while index >= base.pow(length) {
        index -= base.pow(length);
        length += 1;
    }
    let mut steps: Vec<Step> = (0..length)
        .map(|_| {
            let step = STEPS[(index % base) as usize];
            index /= base;
            step
        })
        .collect();
    steps.reverse();
    steps
}

/// The longest sequence in which the process dies, too: each death is a run of its own.
const DEATHS_DEPTH: usize = 3;

/// A second tail with hardly a slot too many for four blocks.
const TAIL: TailSlots = TailSlots { usual: 3, largest: 2 };

fn scenario(mutation: Option<Mutation>, tail_slots: Option<TailSlots>) -> Scenario {
    let mut scenario = Scenario::new(0, &Options { no_faults: true, serial: true, ..Options::default() });
    scenario.geometry = Geometry::with_segment_bytes(2 << 20, 64 << 10);
    scenario.file_bytes = 4 * BLOCK_U64;
    scenario.write_bytes = 8 * BLOCK_U64;
    scenario.config = Config {
        mode: CacheMode::WriteBack,
        sync_interval: Nanos(5 * Nanos::MILLISECOND.0),
        flush_period: Nanos(20 * Nanos::MILLISECOND.0),
        fetch_bytes: 4096,
        mutation,
        ..Config::default()
    };
    scenario.faults = Faults::default();
    scenario.origin_blocks = 1000;
    scenario.space = SpaceKind::Keeps;
    scenario.births = true;
    scenario.volume = None;
    scenario.quota_blocks = None;
    scenario.mode_switches = false;
    scenario.tail_slots = tail_slots;
    (scenario.flash_delay, scenario.origin_delay) = (1, 1);
    scenario.members = vec![MemberShape { bytes: scenario.geometry.pool_bytes, slowness: 1, copies_only: false }];
    scenario
}

/// Runs one sequence, and every cut in its last operation.
fn run_sequence(steps: &[Step], mutation: Option<Mutation>, verbose: bool) -> Result<Cases, String> {
    let options = Options { verbose, mutation, whole_looks: true, ..Options::default() };
    let mut cases = Cases { sequences: 1, ..Cases::default() };
    let mut sim = Sim::new(0, scenario(mutation, None), &options, &Real as &dyn Maker);
    sim.run_to_each_change(steps, &mut |sim| cut_here(sim, &mut cases).map(|()| true))?;
    if !sim.requests.is_empty() {
        return Err("a request is never answered".into());
    }
    let mut changes = 0;
    while steps.len() <= DEATHS_DEPTH
        && let Some(deaths) = die_after(steps, changes, mutation, &options)?
    {
        cases.deaths += deaths;
        changes += 1;
    }
    Ok(cases)
}

/// Runs a sequence on a pool with a second tail, and lets the process die after so many changes of the devices in its
/// last operation. Another takes over, and then the power may fail. Its memory has no second copy, so each death is a
/// run of its own. `None` if there are not so many changes.
fn die_after(
    steps: &[Step],
    changes: usize,
    mutation: Option<Mutation>,
    options: &Options,
) -> Result<Option<u64>, String> {
    let mut deaths = 0;
    for then in [None, Some((Cut::DropAll, false)), Some((Cut::DropAll, true))] {
        let mut sim = Sim::new(0, scenario(mutation, Some(TAIL)), options, &Real as &dyn Maker);
        let mut left = changes;
        let is_there = sim.run_to_each_change(steps, &mut |_| {
            left = left.wrapping_sub(1);
            Ok(left != usize::MAX)
        })?;
        if !is_there {
            return Ok(None);
        }
        let dies = |why| format!("death after {changes} changes, and then {then:?}: {why}");
        sim.world.trace(|| format!("DEATH after {changes} changes, then {then:?}"));
        sim.leave(None, false);
        sim.restart(true).map_err(dies)?;
        if let Some((cut, origin_falls)) = then {
            sim.fall_at(cut, origin_falls).map_err(dies)?;
        }
        deaths += 1;
    }
    Ok(Some(deaths))
}

/// Cuts the power in every way, each in a world of its own.
fn cut_here(sim: &Sim<'_>, cases: &mut Cases) -> Result<(), String> {
    cases.cuts += 1;
    let ways = match sim.world.flash.unsynced_writes() {
        0 => &CUTS[..1],
        1 => &[Cut::DropAll, Cut::KeepAll, Cut::TearLastFront, Cut::TearLastBack, Cut::TearLastEnd],
        _ => &CUTS[..],
    };
    let falls: &[bool] = if sim.world.origin.has_unsynced() { &[false, true] } else { &[false] };
    for cut in ways {
        for origin_falls in falls {
            cases.recoveries += 1;
            sim.world.trace(|| format!("CUT   {cut:?}, origin falls: {origin_falls}"));
            let mut fork = sim.fork();
            fork.fall_at(*cut, *origin_falls).map_err(|why| {
                format!(
                    "power cut {cut:?} after {} changes, origin falls: {origin_falls}: {why}",
                    sim.world.device_changes
                )
            })?;
            sim.world.trace(|| "CUT   end".into());
        }
    }
    Ok(())
}

impl Sim<'_> {
    /// Takes the steps. Before the last one, and after each change of a device from there on, `here` says whether to go
    /// on. Returns whether it said no.
    fn run_to_each_change(
        &mut self,
        steps: &[Step],
        here: &mut dyn FnMut(&Self) -> Result<bool, String>,
    ) -> Result<bool, String> {
        let file = self.begin_with_one_file(4 * BLOCK_U64)?;
        let Some((last, before)) = steps.split_last() else { return Ok(false) };
        for step in before {
            self.take(*step, file)?;
            self.drain()?;
            // Some background work may happen now, some later.
            for _ in 0..4 {
                self.step()?;
            }
        }
        self.take(*last, file)?;
        if !here(self)? {
            return Ok(true);
        }
        let mut done = self.world.device_changes;
        let until = Nanos(self.world.now.0 + 40 * Nanos::MILLISECOND.0);
        while !self.requests.is_empty() || self.world.next_time().is_some_and(|at| at <= until) {
            if !self.step()? {
                break;
            }
            if self.world.device_changes != done {
                done = self.world.device_changes;
                if !here(self)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// A world with one file of this size at the origin, opened.
    fn begin_with_one_file(&mut self, size: u64) -> Result<FileId, String> {
        let file = self.world.origin.create(b"file-0");
        let content = Content::of(self.writer(), size);
        let data = vec![content.bytes()];
        self.world
            .origin
            .change(file, crate::origin::OriginChange::Write { offset: 0, data })
            .map_err(|error| error.to_string())?;
        self.model.add_file(file, content);
        self.world.origin.sync_all();
        self.format()?;
        self.restart(true)?;
        self.drain()?;
        if self.doors.get(&file).is_none_or(|door| door.handles == 0) {
            self.open(file, false)?;
            self.drain()?;
        }
        Ok(file)
    }

    fn take(&mut self, step: Step, file: FileId) -> Result<(), String> {
        let block = BLOCK_U64;
        let usual = Treatment::default();
        let (offset, len) = match step {
            Step::WriteFirst => (0, block),
            Step::WriteMiddle | Step::Punch => (block, 2 * block),
            Step::WriteAcross => (block / 2, block),
            _ => (3 * block, block),
        };
        match step {
            Step::WriteFirst | Step::WriteMiddle | Step::WriteAcross | Step::WriteDurable => {
                let writer = self.writer();
                self.change(file, ContentChange::Write { offset, len, writer }, step == Step::WriteDurable, usual)
            }
            Step::Sync => self.sync(file),
            Step::Shrink => self.change(file, ContentChange::Truncate { size: block * 3 / 2 }, false, usual),
            Step::Grow => self.change(file, ContentChange::Truncate { size: 4 * block }, false, usual),
            Step::Punch => self.change(file, ContentChange::Zero { offset, len, extend: false }, false, usual),
            Step::Flush => self.flush(),
        }
    }

    /// The same world without its daemon: what is left if the power goes now.
    fn fork(&self) -> Self {
        Self {
            world: self.world.fork(),
            model: self.model.clone(),
            doors: self.doors.clone(),
            requests: self.requests.clone(),
            kept: self.kept.clone(),
            meddled_away: self.meddled_away.clone(),
            next_request: self.next_request,
            next_writer: self.next_writer,
            ..Self::new(0, self.scenario.clone(), self.options, self.maker)
        }
    }

    fn fall_at(&mut self, cut: Cut, origin_falls: bool) -> Result<(), String> {
        self.leave(Some(cut), origin_falls);
        self.restart(!origin_falls)
    }
}
