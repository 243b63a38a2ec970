//! A run from its first operation to its last: the requests, and their times.

use headpond_base::{CacheMode, Nanos};
use headpond_engine::{Class, Compression, FlushId, Handling, Treatment};
use headpond_timed::{Rng, mix};

use crate::content::{Content, ContentChange};
use crate::origin::{FileId, Name};
use crate::scenario::{Classes, Kind, Options, Scenario, Treatments, USER, class};
use crate::sim::Sim;
use crate::under_test::Maker;
use crate::{Failure, HistorySums};

/// Separates the draws of settings from those of operations.
const SETTINGS: u64 = 1 << 40;

/// Separates the draws of what happens to members.
const MEMBERS: u64 = 1 << 41;

/// Separates the draws of upkeep.
const UPKEEP: u64 = 1 << 42;

/// Memory kept for buffers of each size, as much as most simulated pools have. Simulated devices hold the written
/// ones, and release all at a run's end.
const KEPT_BYTES: usize = 16 << 20;

/// Runs a seed against any engine.
pub(crate) fn run(seed: u64, options: &Options, maker: &dyn Maker) -> Result<HistorySums, Failure> {
    let scenario = Scenario::new(seed, options);
    let scenario = if options.untorn { scenario.untorn(seed) } else { scenario };
    run_scenario(seed, scenario, options, maker)
}

/// Runs a scenario.
pub(crate) fn run_scenario(
    seed: u64,
    scenario: Scenario,
    options: &Options,
    maker: &dyn Maker,
) -> Result<HistorySums, Failure> {
    headpond_base::keep_up_to(KEPT_BYTES);
    let mut sim = Sim::new(seed, scenario, options, maker);
    sim.world.trace(|| format!("{:#?}", sim.scenario));
    let mut at = None;
    let result = sim.start().and_then(|()| {
        for index in 0..options.ops {
            if options.skip.iter().any(|range| range.contains(&index)) {
                continue;
            }
            at = Some(index);
            let mut own = Rng::for_part(seed, SETTINGS + u64::from(index));
            if sim.scenario.settings_change && own.chance(40) {
                sim.configure(&mut own)?;
            }
            if options.members {
                sim.disturb_members(&mut Rng::for_part(seed, MEMBERS + u64::from(index)))?;
            }
            if options.upkeep {
                sim.look_after_pool(&mut Rng::for_part(seed, UPKEEP + u64::from(index)))?;
            }
            sim.operate(&mut Rng::for_part(seed, u64::from(index)))?;
            sim.follow_a_death()?;
            sim.summary.ops += 1;
            if sim.over {
                return Ok(());
            }
        }
        at = None;
        sim.finish()
    });
    let mut summary = sim.summary;
    summary.hash = sim.world.hash;
    summary.steps = sim.world.steps;
    summary.segments = sim.world.flash.segments_opened();
    [summary.losses, summary.repairs, summary.lists, summary.second_losses] = sim.world.losses.counts;
    summary.undecided = u64::from(result.is_err() && sim.world.undecidable);
    match result {
        Err(what) if !sim.world.undecidable => Err(Failure { seed, options: options.clone(), at, what }),
        _ => Ok(summary),
    }
}

impl Sim<'_> {
    /// Formats a pool. Some files exist already.
    fn start(&mut self) -> Result<(), String> {
        self.format()?;
        let mut rng = self.world.rng.clone();
        for index in 0..rng.below(self.scenario.files + 1) {
            let file = self.world.origin.create(&name(index));
            let size = rng.below(self.scenario.file_bytes / 2);
            let content = Content::of(self.writer(), size);
            let data = vec![content.bytes()];
            if self.world.origin.change(file, crate::origin::OriginChange::Write { offset: 0, data }).is_err() {
                break;
            }
            self.model.add_file(file, content);
        }
        if let Some(size) = self.scenario.volume {
            self.make_volume(size)?;
        }
        self.world.origin.sync_all();
        self.world.origin.set_quota(self.scenario.quota_blocks);
        self.world.rng = rng;
        self.restart(true)
    }

    /// Makes the pool.
    pub(crate) fn format(&mut self) -> Result<(), String> {
        for (at, data) in self.maker.format(&self.scenario, self.mode)? {
            self.world.flash.put(at, &data)?;
        }
        Ok(())
    }

    /// One operation.
    fn operate(&mut self, rng: &mut Rng) -> Result<(), String> {
        let mut steps = 0_u64;
        while self.requests.len() >= self.scenario.concurrency {
            steps += 1;
            // So long only what is never answered takes; that is for `drain` to find.
            if steps > 400_000 || !self.step()? {
                self.drain()?;
            }
        }
        if self.options.untorn {
            return self.operate_untorn(rng);
        }
        let kind = Kind::ALL[rng.weighted(&self.scenario.weights)];
        self.world.trace(|| format!("op    {kind:?}"));
        match kind {
            Kind::Create => self.create_some(rng)?,
            Kind::Open => {
                let names: Vec<FileId> = self.world.origin.names().values().copied().collect();
                if !names.is_empty() && !self.names_busy() {
                    let file = *rng.pick(&names);
                    if !self.doors.get(&file).is_some_and(|door| door.changing) {
                        self.open(file, false)?;
                    }
                }
            }
            Kind::Rename if !self.names_busy() => {
                let names: Vec<Name> = self.world.origin.file_names();
                if !names.is_empty() {
                    let (from, to) = (rng.pick(&names).clone(), name(rng.below(self.scenario.files + 2)));
                    if from != to {
                        self.rename(&from, &to)?;
                    }
                }
            }
            Kind::Unlink if !self.names_busy() => {
                let names: Vec<Name> = self.world.origin.file_names();
                if !names.is_empty() {
                    self.unlink(&rng.pick(&names).clone())?;
                }
            }
            Kind::Rename | Kind::Unlink => {}
            Kind::SyncAll => self.sync_all()?,
            Kind::SyncDirectory => {
                if !self.names_busy() {
                    self.sync_all()?;
                    self.drain()?;
                    self.world.origin.sync_directory();
                }
            }
            Kind::SetMode => {
                let changing = self.requests.values().any(|asked| matches!(asked, crate::sim::Asked::SetMode { .. }));
                if self.scenario.mode_switches && !changing {
                    let mode = if rng.chance(400) { CacheMode::WriteBack } else { *rng.pick(&CacheMode::ALL) };
                    self.set_mode(mode)?;
                }
            }
            Kind::Flush => {
                let id = FlushId(rng.below(2));
                let files: Vec<FileId> = self.doors.keys().copied().collect();
                match rng.below(4) {
                    0 if !files.is_empty() => self.flush_file(*rng.pick(&files), id)?,
                    1 => self.cancel_flush(id)?,
                    _ => self.flush()?,
                }
            }
            Kind::Idle => {
                let span = *rng.pick(&[1, 10, 100, 1000, 10_000]) * Nanos::MILLISECOND.0;
                self.idle(rng.below(span))?;
            }
            Kind::LookAtAll => self.look_around()?,
            Kind::Restart => {
                self.drain()?;
                self.stop_and_restart(rng)?;
            }
            Kind::Crash => {
                for _ in 0..rng.below_one_of(&[1, 20, 200]) {
                    self.step()?;
                }
                self.crash(rng)?;
            }
            kind => self.operate_on_file(kind, rng)?,
        }
        if self.over {
            // No other start knows what a start decided with the operator.
            return Ok(());
        }
        for _ in 0..rng.below_one_of(&[1, 1, 4, 20]) {
            self.step()?;
        }
        match self.just_let_go.take() {
            Some(file) if !self.world.killed && rng.chance(150) => self.remove_let_go(file, rng),
            _ => Ok(()),
        }
    }

    /// The engine has just let go of a file. The file goes, and perhaps everything that runs.
    fn remove_let_go(&mut self, file: FileId, rng: &mut Rng) -> Result<(), String> {
        if self.world.origin.is_volume(file) {
            return Ok(());
        }
        let Some(name) = self.world.origin.name_of(file).cloned().filter(|_| !self.names_busy()) else { return Ok(()) };
        self.unlink(&name)?;
        if rng.chance(500) { self.crash(rng) } else { Ok(()) }
    }

    /// Lets time pass.
    pub(crate) fn idle(&mut self, nanos: u64) -> Result<(), String> {
        let until = Nanos(self.world.now.0 + nanos);
        while self.world.next_time().is_some_and(|at| at <= until) && self.step()? {}
        self.world.now = self.world.now.max(until);
        Ok(())
    }

    pub(crate) fn create_some(&mut self, rng: &mut Rng) -> Result<(), String> {
        let name = name(rng.below(self.scenario.files + 2));
        if self.names_busy() || self.world.origin.names().contains_key(&name) {
            return Ok(());
        }
        self.create(&name)
    }

    fn operate_on_file(&mut self, kind: Kind, rng: &mut Rng) -> Result<(), String> {
        let open: Vec<FileId> = self
            .doors
            .iter()
            .filter(|(_, door)| door.handles > 0 && door.object.is_some())
            .map(|(file, _)| *file)
            .collect();
        if open.is_empty() {
            let names: Vec<FileId> = self.world.origin.names().values().copied().collect();
            return if names.is_empty() {
                self.create_some(rng)
            } else if self.names_busy() || self.doors.values().any(|door| door.changing) {
                // Meanwhile the kernel holds the directory.
                Ok(())
            } else {
                self.open(*rng.pick(&names), false)
            };
        }
        let file = *rng.pick(&open);
        if self.model.has_failed(file) {
            return self.settle(file);
        }
        self.light_fuse();
        let size = self.model.some_size(file);
        let limit = self.scenario.file_bytes;
        let (offset, len) = self.place(size, rng);
        let how = self.treatment(file, rng);
        if self.world.origin.is_volume(file) {
            return self.operate_on_volume(kind, file, (offset, len), how, rng);
        }
        let may_change = self.model.open_changes(file) < 3;
        match kind {
            Kind::Read => {
                let len = if rng.chance(100) { rng.between(1, self.scenario.write_bytes) } else { len };
                self.read(file, offset.min(size + 5000), len, false, how).map(|_| ())
            }
            Kind::Write | Kind::DurableWrite if may_change => {
                let offset = if rng.chance(150) && size < limit { size } else { offset };
                let writer = self.writer();
                self.change(file, ContentChange::Write { offset, len, writer }, kind == Kind::DurableWrite, how)
            }
            Kind::Truncate if may_change => {
                let size = match rng.below(6) {
                    0 => 0,
                    1 => size.saturating_sub(rng.below(5000)),
                    2 => (size + rng.below(50_000)).min(limit),
                    _ => offset,
                };
                self.change(file, ContentChange::Truncate { size }, false, how)
            }
            Kind::Zero if may_change => {
                let len = if rng.chance(300) { rng.between(1, limit - offset) } else { len };
                self.change(file, ContentChange::Zero { offset, len, extend: rng.chance(300) }, false, how)
            }
            Kind::Allocate if may_change => {
                self.change(file, ContentChange::Allocate { offset, len, extend: rng.chance(500) }, false, how)
            }
            Kind::Sync => self.sync(file),
            Kind::Seek => self.seek(file, offset, rng.chance(500)),
            Kind::Chmod => self.chmod(file),
            Kind::Close => {
                let idle = self.doors.get(&file).is_some_and(|door| door.busy == 0 && door.opening == 0);
                if idle { self.close(file) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// The treatment of a request: by a rule for its file, or as the request comes.
    fn treatment(&self, file: FileId, rng: &mut Rng) -> Treatment {
        let of_file = |salt: u64| mix(salt ^ mix(u64::from(file.0)));
        let class = match self.scenario.classes {
            None => Class::EVERYBODY,
            Some(Classes::ByFile(salt)) => class(of_file(salt)),
            Some(Classes::ByRequest) => class(rng.next()),
        };
        let draw = match self.scenario.treatments {
            Treatments::Usual => return Treatment { user: USER, class, ..Treatment::default() },
            Treatments::ByFile(salt) => of_file(salt),
            Treatments::ByRequest => rng.next(),
        };
        // Writes that must be whole have a run of their own: `untorn.rs`.
        let handlings = [Handling::Cache, Handling::Bypass, Handling::ReadOnly, Handling::WriteThrough];
        let handling = handlings[(draw % handlings.len() as u64) as usize];
        let packings = [Some(Compression::Off), Some(Compression::Lz4), Some(Compression::Zstd(1)), None, None, None];
        let compression = packings[((draw >> 16) % packings.len() as u64) as usize];
        Treatment { process: (draw >> 32) as u32 % 3, user: USER, handling, class, compression, copies: None }
    }

    /// A place in a file: often in the same few blocks, often at borders, with any alignment.
    fn place(&self, size: u64, rng: &mut Rng) -> (u64, u64) {
        let limit = self.scenario.file_bytes;
        let region = *rng.pick(&[limit, limit, limit / 4 + 1, 32 << 10, size + 1]);
        let grain = if rng.chance(850) { self.scenario.alignment } else { 1 };
        let offset = rng.below(region.min(limit)) / grain * grain;
        let most = match rng.below(10) {
            0..4 => 4096,
            4..8 => 16384,
            8 => 65536,
            _ => self.scenario.write_bytes,
        };
        let len =
            rng.between(1, most.min(self.scenario.write_bytes)).next_multiple_of(grain).min(self.scenario.write_bytes);
        (offset, len.min(limit - offset).max(1))
    }

    /// The end: nothing may be lost, and the origin must be complete without headpond.
    fn finish(&mut self) -> Result<(), String> {
        self.world.trace(|| "op    end".into());
        self.world.faults = crate::scenario::Faults::default();
        self.world.origin.set_quota(None);
        self.drain()?;
        let excused = self.world.injected.flash_write + self.world.injected.any_rot > 0;
        for attempt in 0..5 {
            let before = self.summary.flushes;
            self.flush()?;
            self.drain()?;
            if self.summary.flushes > before {
                break;
            }
            // Failed work is tried again after a while.
            self.idle(Nanos::SECOND.0 * 5)?;
            if attempt == 4 && !excused {
                return Err("the last flush failed though all faults are over".into());
            }
        }
        self.look_around()?;
        self.stop_and_restart(&mut Rng::new(1))?;
        self.look_at_all()
    }
}

/// The `index`-th name.
fn name(index: u64) -> Name {
    format!("file-{index}").into_bytes()
}
