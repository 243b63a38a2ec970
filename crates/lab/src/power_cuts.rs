//! Power cuts of a whole machine. A guest has the origin on one disk and the pool on another, both with volatile
//! caches. It is killed when a flush arrives, and both disks lose, tear and reorder unflushed writes. Then it starts
//! again and is checked.
//!
//! This process serves the disks (`vhost`), so it alone decides what outlives the cut (`cache`, [`power`]). Inside,
//! several writers work on a mount and print each acknowledged record. The [`ledger`] out here keeps them. After the
//! next start every one must be there: on the mount and, in half of the starts, at the bare origin after an unmount.
//!
//! Invariants
//! - A cut counts only if a disk had something to lose.
//! - What the check finds wrong ends the run as [`CutReport::wrong`]; a bed that does not work is a failure.
//! - Before each start the images are copied aside: what a finding leaves can be looked at, and started again.

pub mod cache;
pub mod inside;
pub mod ledger;
pub mod power;
mod queue;
pub mod story;
mod vhost;

use crate::command;
use crate::failure::{Failure, Result};
use crate::guest::{Guest, GuestEnd};
use crate::random::{below, next};
use cache::Unflushed;
use inside::{BEGUN, DONE, FOUND, WRITERS, WRONG};
use ledger::Ledger;
use power::{Cut, Power, Trigger, Which};
use std::cell::Cell;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The disk of the origin: its file system needs no more.
const ORIGIN_BYTES: u64 = 192 << 20;
/// The pool: small, so that the log comes round and destage never rests.
const FLASH_BYTES: u64 = 72 << 20;
/// One start takes at most so long, from power to power.
const START_MAX: Duration = Duration::from_secs(240);
/// If the chosen flush has not come so long after the load began, the next of any disk will do.
const PATIENCE: Duration = Duration::from_secs(12);
/// Loads whose directories stay, so that each is compared after more than one start.
const LOADS_KEPT: u64 = 3;

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many cuts.
    pub cuts: u32,
    /// Decides the moments, what is lost, and what the writers do. How requests interleave it does not decide.
    pub seed: u64,
    /// A disk that answers flushes and does nothing while the writers work: the run must then find something wrong, or
    /// it proves nothing.
    pub lies: Option<Which>,
}

/// The programs on trial and at work in the guest.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `headpond`.
    pub headpond: PathBuf,
    /// `headpond-lab`, whose writers and checks run in the guest.
    pub lab: PathBuf,
}

/// One cut.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// What the disks had to lose.
    pub cut: Cut,
    /// Whether it came before the load: while the last cut was recovered from, checked, or flushed away.
    pub recovering: bool,
    /// Records acknowledged since the last cut.
    pub acknowledged: u64,
    /// Writers' directories that were compared since the last cut, and were right.
    pub compared: u64,
    /// From power to power.
    pub took: Duration,
}

impl Round {
    /// What stands over the lines, after the cut's number.
    pub const HEADINGS: &str = " cut  met a flush of  while       origin: writes sectors dropped torn  flash: writes sectors dropped torn trims  \
                                records  compared  seconds";
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [origin, flash] = self.cut.unflushed;
        let while_ = if self.recovering { "recovering" } else { "loaded" };
        write!(f, " {:<15} {while_:<11}", self.cut.met.name())?;
        for (width, disk) in [(14, origin), (14, flash)] {
            write!(f, " {:>width$} {:>7} {:>7} {:>4}", disk.writes, disk.sectors, disk.dropped, disk.torn)?;
        }
        write!(
            f,
            " {:>5}  {:>7}  {:>8}  {:>7.1}",
            flash.trims,
            self.acknowledged,
            self.compared,
            self.took.as_secs_f64()
        )
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct CutReport {
    /// The cuts, in order.
    pub rounds: Vec<Round>,
    /// What was wrong, in words of the guest's script or of the ledger. The run ended with it.
    pub wrong: Option<String>,
    /// Damage that `headpond check` found and that cost nothing.
    pub blemishes: Vec<String>,
}

impl fmt::Display for CutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cuts = self.rounds.len();
        let recovering = self.rounds.iter().filter(|round| round.recovering).count();
        let records: u64 = self.rounds.iter().map(|round| round.acknowledged).sum();
        let compared: u64 = self.rounds.iter().map(|round| round.compared).sum();
        writeln!(
            f,
            "{cuts} cuts, {recovering} of them while the one before was recovered from; {records} records acknowledged, \
             {compared} directories compared, {} blemishes",
            self.blemishes.len()
        )?;
        for which in Which::BOTH {
            let lost = self.rounds.iter().map(|round| round.cut.unflushed[which as usize]);
            let sum = |figure: fn(&Unflushed) -> u64| lost.clone().map(|lost| figure(&lost)).sum::<u64>();
            let with = lost.clone().filter(|lost| lost.writes > 0).count();
            writeln!(
                f,
                "  {}: {with} cuts had something to lose; {} writes ({} sectors) were unflushed, {} dropped, {} torn",
                which.name(),
                sum(|lost| lost.writes),
                sum(|lost| lost.sectors),
                sum(|lost| lost.dropped),
                sum(|lost| lost.torn)
            )?;
        }
        match &self.wrong {
            None => write!(f, "  nothing was wrong"),
            Some(wrong) => write!(f, "  WRONG: {wrong}"),
        }
    }
}

/// What this machine lacks for it, if anything.
#[must_use]
pub fn missing() -> Option<String> {
    Guest::missing(&["mkfs.ext4"])
}

/// Runs it in `directory`, and tells `each` about every cut.
pub fn run(
    programs: &Programs,
    directory: &Path,
    options: &Options,
    mut each: impl FnMut(&Round),
) -> Result<CutReport> {
    let mut machine = Machine::make(programs, directory, options)?;
    let mut report = CutReport::default();
    machine.start(Phase::Make, 0, None, &mut report)?;
    let mut load = 0;
    while report.wrong.is_none() && (report.rounds.len() as u32) < options.cuts {
        load += 1;
        let plan = Plan::choose(&mut machine.random);
        if let Some(round) = machine.start(Phase::Cut, load, Some(plan), &mut report)? {
            each(&round);
            report.rounds.push(round);
        }
    }
    if report.wrong.is_none() {
        machine.start(Phase::End, load + 1, None, &mut report)?;
    }
    Ok(report)
}

/// What a start is for, in the words of the guest's script.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Make,
    Cut,
    End,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Make => "make",
            Self::Cut => "cut",
            Self::End => "end",
        }
    }
}

/// When a start is to end.
#[derive(Clone, Copy)]
struct Plan {
    trigger: Trigger,
    /// Whether flushes count from the start, not from the load.
    recovering: bool,
    /// Whether everything is flushed and compared at the origin before the load.
    settle: bool,
}

impl Plan {
    fn choose(random: &mut u64) -> Self {
        let recovering = below(random, 5) == 0;
        let disk = [Some(Which::Flash), Some(Which::Origin), None][below(random, 3) as usize];
        // The origin is flushed by destage and by changes of names, the flash by each sync.
        let flushes = match disk {
            _ if recovering => below(random, 12),
            Some(Which::Origin) => below(random, 40),
            _ => below(random, 200),
        };
        let least = if recovering { 1 } else { [1, 1, 2, 3, 5, 8][below(random, 6) as usize] };
        Self { trigger: Trigger { disk, flushes, least }, recovering, settle: below(random, 2) == 0 }
    }
}

/// The machine between its starts: two images, and the ledger of what must be on them.
struct Machine {
    programs: Programs,
    directory: PathBuf,
    ledger: Ledger,
    seed: u64,
    lies: Option<Which>,
    random: u64,
}

impl Machine {
    fn make(programs: &Programs, directory: &Path, options: &Options) -> Result<Self> {
        let (programs, seed) = (programs.clone(), options.seed);
        let directory = directory.canonicalize().map_err(Failure::io("looking for the scratch directory"))?;
        let machine = Self { programs, directory, ledger: Ledger::default(), seed, lies: options.lies, random: seed };
        for (which, bytes) in Which::BOTH.into_iter().zip([ORIGIN_BYTES, FLASH_BYTES]) {
            let image = machine.image(which);
            let made = File::create(&image).and_then(|file| file.set_len(bytes));
            made.map_err(Failure::io(format!("making {}", image.display())))?;
        }
        let mut format = Command::new("/sbin/mkfs.ext4");
        command::run(
            "making the origin's file system",
            format.args(["-q", "-F", "-b", "4096"]).arg(machine.image(Which::Origin)),
        )?;
        Ok(machine)
    }

    fn image(&self, which: Which) -> PathBuf {
        self.directory.join(format!("{}.img", which.name()))
    }

    fn copy_images(&self) -> Result<()> {
        for which in Which::BOTH {
            let (from, to) = (self.image(which), self.directory.join(format!("{}-at-start.img", which.name())));
            let mut copy = Command::new("cp");
            command::run("copying an image", copy.arg("--sparse=always").arg(from).arg(to))?;
        }
        Ok(())
    }

    fn guest(&self, phase: Phase, load: u64, settle: bool, sockets: Vec<PathBuf>) -> Guest {
        let text = |path: &Path| path.display().to_string();
        let settle = if settle { "yes" } else { "no" };
        Guest {
            directory: self.directory.clone(),
            modules: &["virtio_blk", "fuse"],
            disk: None,
            sockets,
            script: include_str!("power_cuts/guest.sh").to_owned(),
            environment: vec![
                ("PHASE", phase.name().to_owned()),
                ("SETTLE", settle.to_owned()),
                ("NUMBER", load.to_string()),
                ("SEED", self.seed.to_string()),
                ("HEADPOND", text(&self.programs.headpond)),
                ("LAB", text(&self.programs.lab)),
                ("LEDGER", text(&self.directory.join("ledger"))),
            ],
            limit: START_MAX,
        }
    }

    /// Switches the power on until the guest is done or it goes; the cut, if it went.
    fn start(&mut self, phase: Phase, load: u64, plan: Option<Plan>, report: &mut CutReport) -> Result<Option<Round>> {
        self.ledger.forget_before((load + 1).saturating_sub(LOADS_KEPT));
        self.ledger.write(&self.directory.join("ledger"))?;
        self.copy_images()?;
        let images = Which::BOTH.map(|which| self.image(which));
        let power = Power::on([&images[0], &images[1]], next(&mut self.random));
        let power = Arc::new(power.map_err(Failure::io("opening the images"))?);
        let disks = Disks::serve(&self.directory, &power)?;
        let guest = self.guest(phase, load, plan.is_none_or(|plan| plan.settle), disks.sockets());
        let (begin, began) = (Instant::now(), Cell::new(None));
        let enough = || {
            if began.get().is_some_and(|at: Instant| at.elapsed() > PATIENCE) {
                power.arm(Trigger { disk: None, flushes: 0, least: 1 });
            }
            power.cut().is_some()
        };
        let mut heard =
            Heard { ledger: &mut self.ledger, load, acknowledged: 0, compared: 0, wrong: None, broken: None };
        let end = guest.run_until(enough, |line| {
            let arms = if plan.is_some_and(|plan| plan.recovering) { "STARTED" } else { BEGUN };
            if line == arms
                && let Some(plan) = plan
            {
                power.arm(plan.trigger);
            }
            if line == BEGUN {
                began.set(Some(Instant::now()));
                if let Some(lies) = self.lies {
                    power.lie(lies);
                }
            }
            match line.strip_prefix("BLEMISH ") {
                Some(blemish) => report.blemishes.push(blemish.to_owned()),
                None => heard.line(line),
            }
        });
        let Heard { acknowledged, compared, wrong, broken, .. } = heard;
        disks.join()?;
        let end = end?;
        if let Some(broken) = broken {
            return Err(broken);
        }
        report.wrong = wrong;
        if report.wrong.is_some() {
            return Ok(None);
        }
        match (end, power.cut()) {
            (GuestEnd::Killed, Some(cut)) => {
                let recovering = began.get().is_none();
                Ok(Some(Round { cut, recovering, acknowledged, compared, took: begin.elapsed() }))
            }
            _ if phase == Phase::Cut => {
                Err(Failure::Other("the guest came to its end before its power did".to_owned()))
            }
            _ => Ok(None),
        }
    }
}

/// What was heard over the console.
struct Heard<'a> {
    ledger: &'a mut Ledger,
    load: u64,
    acknowledged: u64,
    compared: u64,
    wrong: Option<String>,
    /// A line that does not fit what came before it: the bed is at fault.
    broken: Option<Failure>,
}

impl Heard<'_> {
    fn line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let outcome = match words.next() {
            Some(BEGUN) => {
                self.ledger.begin(self.load, WRITERS);
                Ok(())
            }
            Some(DONE) => self.done(&words.collect::<Vec<_>>()),
            Some(FOUND) => self.found(&words.collect::<Vec<_>>()),
            Some(WRONG) => {
                self.wrong.get_or_insert(line[WRONG.len()..].trim().to_owned());
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(failure) = outcome {
            self.broken.get_or_insert(failure);
        }
    }

    fn done(&mut self, words: &[&str]) -> Result<()> {
        let [writer, record] = words else { return Err(garbled(DONE, words)) };
        self.ledger.acknowledge(self.load, number(writer)?, number(record)?)?;
        self.acknowledged += 1;
        Ok(())
    }

    fn found(&mut self, words: &[&str]) -> Result<()> {
        let [place, load, writer, steps] = words else { return Err(garbled(FOUND, words)) };
        if let Err(wrong) = self.ledger.found(number(load)?, number(writer)?, number(steps)? as usize)? {
            self.wrong.get_or_insert(format!("found otherwise at the {place}: {wrong}"));
        }
        self.compared += 1;
        Ok(())
    }
}

fn number(word: &str) -> Result<u64> {
    word.parse().map_err(|_| Failure::Other(format!("'{word}' on the guest's console is no number")))
}

fn garbled(what: &str, words: &[&str]) -> Failure {
    Failure::Other(format!("the guest's console is garbled: {what} {}", words.join(" ")))
}

/// The threads that serve the disks.
struct Disks(Vec<(PathBuf, std::thread::JoinHandle<std::io::Result<()>>)>);

impl Disks {
    fn serve(directory: &Path, power: &Arc<Power>) -> Result<Self> {
        let serve = |which: Which| {
            let path = directory.join(format!("{}.socket", which.name()));
            // What is left of the last start. If it cannot be removed, the next line says so.
            let _ = fs::remove_file(&path);
            let listener =
                UnixListener::bind(&path).map_err(Failure::io(format!("listening at {}", path.display())))?;
            let power = Arc::clone(power);
            Ok((path, std::thread::spawn(move || vhost::serve(&listener, power, which))))
        };
        Which::BOTH.into_iter().map(serve).collect::<Result<_>>().map(Self)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        self.0.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Waits for them to notice that the guest is gone.
    fn join(self) -> Result<()> {
        for (path, thread) in self.0 {
            // The server waits for a guest that never came. This connection hangs up at once, and ends the wait.
            drop(UnixStream::connect(&path));
            let ended = thread.join().map_err(|_| Failure::Other("the server of a disk panicked".to_owned()))?;
            ended.map_err(Failure::io(format!("serving {}", path.display())))?;
        }
        Ok(())
    }
}
