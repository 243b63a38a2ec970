//! A history of names, as its seed says: from a fresh pool to the last look.

use headpond_base::{CacheMode, MemberId, Nanos, PoolId};
use headpond_engine::format_pool;
use headpond_format::{Address, MemberName};
use headpond_timed::Rng;

use crate::above::Above;
use crate::configuration::Moment;
use crate::content::Content;
use crate::names::apps::{App, Doing};
use crate::names::env::{self, Env, NameFaults, with};
use crate::names::kernel::Mount;
use crate::names::tasks::Tasks;
use crate::origin::OriginChange;
use crate::planted::Planted;
use crate::scenario::{Options, PLENTY, Scenario};
use crate::tree::{Kind, Reach, Tree};
use crate::world::World;
use crate::{Failure, HistorySums};

/// One run.
pub(crate) struct Run {
    pub(crate) scenario: Scenario,
    pub(crate) tasks: Tasks,
    pub(crate) mount: Option<std::rc::Rc<Mount>>,
    pub(crate) summary: HistorySums,
    /// How often the origin's host has come up again, and how often it had when the last start was complete.
    pub(crate) boots: u64,
    pub(crate) settled_boots: u64,
    /// How many paths stay open, and how many files are remembered.
    pub(crate) descriptors: usize,
    pub(crate) remembered: usize,
    /// What memory that outlives the process promises, since the process died and until it is on flash.
    pub(crate) outlived: Option<Moment>,
    /// A daemon has ended, and nobody has looked at the files since.
    pub(crate) unseen_end: bool,
}

/// Runs a seed.
pub(crate) fn run(seed: u64, options: &Options, planted: Option<Planted>) -> Result<HistorySums, Failure> {
    let plain = Options { no_faults: true, mode: Some(CacheMode::WriteBack), ..options.clone() };
    // The other histories try the order of host writes.
    let host_segments = Some(options.host_segments.unwrap_or(1));
    let plain = Options { host_segments, volumes: Some(false), ..plain };
    let mut scenario = Scenario::new(seed, &plain);
    scenario.origin_blocks = PLENTY;
    scenario.config.sequential_cutoff = None;
    let mut rng = Rng::for_part(seed, u64::MAX - 20);
    let rng = &mut rng;
    let mut faults = NameFaults::default();
    if !options.no_faults && rng.chance(500) {
        let mut often = |most| if rng.chance(500) { rng.between(1, most) } else { 0 };
        faults = NameFaults { calls: often(20), syncs: often(100), no_room: often(30) };
        scenario.faults.origin_sync = faults.syncs;
    }
    let mut world = World::new(&scenario, seed, options.verbose);
    world.origin.tell_time_in(*rng.pick(&[1000, 1000, 20_000, 1_000_000]));
    let reach = *rng.pick(&[Reach::Journal, Reach::Own, Reach::Nothing]);
    let tree = Tree::new(reach, &mut world.origin);
    world.above = Some(Above::new(tree));
    world.trace(|| format!("{scenario:#?} {faults:?} {reach:?}"));
    let mut run = Run {
        scenario,
        tasks: Tasks::default(),
        mount: None,
        summary: HistorySums::default(),
        boots: 0,
        settled_boots: 0,
        descriptors: *rng.pick(&[2, 4, 16, 100]),
        remembered: *rng.pick(&[0, 1, 3, 100]),
        outlived: None,
        unseen_end: false,
    };
    env::begin(Env::new(world, rng.clone(), faults, run.scenario.births, planted));
    let mut at = None;
    let result = run.all(seed, options, &mut at);
    let mut summary = run.summary;
    // What is left of the run's futures finds it gone.
    let left = with(|env| {
        summary.hash = env.world.hash;
        summary.steps = env.world.steps + run.tasks.steps;
        summary.segments = env.world.flash.segments_opened();
        summary.undecided = u64::from(result.is_err() && env.world.undecidable);
        env.world.core = None;
        env.lose_life()
    });
    drop((left, run));
    drop(env::end());
    match result {
        Err(what) if summary.undecided == 0 => Err(Failure { seed, options: options.clone(), at, what }),
        _ => Ok(summary),
    }
}

impl Run {
    fn all(&mut self, seed: u64, options: &Options, at: &mut Option<u32>) -> Result<(), String> {
        self.start(seed)?;
        let mut weights: Vec<u64> = App::ALL.iter().map(|(_, weight)| *weight).collect();
        let mut swarm = Rng::for_part(seed, u64::MAX - 21);
        for weight in &mut weights {
            *weight = match swarm.below(8) {
                0 if *weight < 60 => 0,
                1 => *weight * 4,
                _ => *weight,
            };
        }
        for index in 0..options.ops {
            if options.skip.iter().any(|range| range.contains(&index)) {
                continue;
            }
            *at = Some(index);
            self.operate(&mut Rng::for_part(seed, u64::from(index)), &weights)?;
            self.summary.ops += 1;
        }
        *at = None;
        self.tasks.drain()?;
        self.check_counts()?;
        self.stop_and_restart(&mut Rng::new(1))?;
        self.check_counts()
    }

    fn start(&mut self, seed: u64) -> Result<(), String> {
        let mode = self.scenario.config.mode;
        let mut rng = Rng::for_part(seed, u64::MAX - 22);
        with(|env| {
            for (offset, data) in format_pool(PoolId([7; 16]), MemberName([7; 16]), self.scenario.geometry, None, mode)
            {
                env.world.flash.put(Address { member: MemberId(0), offset }, &data)?;
            }
            for name in [&b"d0"[..], b"d1"] {
                let (tree, origin) = env.tree();
                let root = tree.root();
                let made = tree.make(root, name, Kind::Directory, 0o755, origin).map_err(|error| error.to_string())?;
                for index in 0..rng.below(3) {
                    let writer = env.writer();
                    let content = Content::of(writer, rng.below(30_000));
                    let (tree, origin) = env.tree();
                    let name = format!("f{index}").into_bytes();
                    let file = tree.make(made, &name, Kind::File, 0o644, origin).map_err(|error| error.to_string())?;
                    let data = vec![content.bytes()];
                    origin.change(file, OriginChange::Write { offset: 0, data }).map_err(|error| error.to_string())?;
                    env.model.add_file(file, content);
                }
            }
            Ok::<_, String>(())
        })?;
        self.restart(true)
    }

    fn operate(&mut self, rng: &mut Rng, weights: &[u64]) -> Result<(), String> {
        while self.tasks.len() >= self.scenario.concurrency {
            if !self.tasks.step()? {
                self.tasks.drain()?;
            }
        }
        self.settle()?;
        match rng.below(1000) {
            0..15 => {
                for _ in 0..rng.below_one_of(&[1, 20, 200]) {
                    self.tasks.step()?;
                }
                let mut kept = self.fall(rng)?;
                while rng.chance(200) {
                    self.begin()?;
                    kept &= self.fall(rng)?;
                }
                self.restart(kept)?;
            }
            15..19 => {
                self.tasks.drain()?;
                self.stop_and_restart(rng)?;
            }
            19..21 => self.check_counts()?,
            21..24 => self.others_rename_meanwhile(rng)?,
            24..60 => self.idle(*rng.pick(&[1, 10, 100, 1000, 10_000]))?,
            60..70 => {
                self.tasks.drain()?;
                self.flush()?;
            }
            _ => {
                let (app, _) = App::ALL[rng.weighted(weights)];
                let mount = self.mount.clone().expect("it is mounted");
                with(|env| env.world.trace(|| format!("op    {app:?}")));
                self.tasks.spawn(Box::pin(Doing { mount, rng: rng.clone(), app }.run()));
            }
        }
        for _ in 0..rng.below_one_of(&[1, 4, 20, 60]) {
            self.tasks.step()?;
        }
        Ok(())
    }

    /// Lets this many milliseconds pass.
    pub(crate) fn idle(&mut self, millis: u64) -> Result<(), String> {
        let until = with(|env| Nanos(env.world.now.0 + millis * Nanos::MILLISECOND.0));
        while with(|env| env.world.next_time().is_some_and(|at| at <= until)) {
            self.tasks.step()?;
        }
        with(|env| env.world.now = env.world.now.max(until));
        Ok(())
    }
}
