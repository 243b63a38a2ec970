//! Carries a plan out: visit by visit, run by run. Each run is saved as soon as it ends.

use super::counters::{self, watch};
use super::plan::{Plan, Visit, duration};
use super::record::{Figures, Record, Second};
use super::settling::{self, SettlingFound};
use super::side::{Session, Stage};
use super::target::GuestTarget;
use super::{
    Definition, Kind, Load, Results, Transactions, fio_load, guest_run, oltp_load, pgbench_load, processors, sense,
    tpcc_load,
};
use crate::command::{self, shortened};
use crate::failure::{Failure, Result, check_interrupt};
use crate::place;
use crate::pond::Headpond;
use crate::service::Service;
use headpond_models::flash::{Card, Model};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How much longer than planned a load may take to end: a slow disk finishes what it was asked.
const GRACE: Duration = Duration::from_secs(120);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(50);
/// How often a line is written where lines cannot be written over.
const QUIET: Duration = Duration::from_secs(10);
/// A modelled second is so much of the space in use, written once.
const MODEL_STEP: f64 = 0.1;

/// What a session may use of the machine.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// Where scratch directories are made.
    pub scratch: PathBuf,
    /// Devices that may be overwritten.
    pub destroy: Vec<PathBuf>,
    /// Where a database's tables are kept for the next session.
    pub keep_tables: Option<PathBuf>,
    /// No more runs than this now.
    pub runs_max: Option<u32>,
}

/// Runs what has not been run yet, or some of it. Returns whether all of it was.
pub fn run(results: &Results, headpond: &Headpond, means: &Means) -> Result<bool> {
    let plan = results.plan()?;
    let todo = |index: usize| (0..plan.points.len()).any(|point| !results.has(plan.number(index, point)));
    let visits: Vec<usize> = (0..plan.visits.len()).filter(|index| todo(*index)).collect();
    let modelled = |index: &usize| card(&plan, &plan.visits[*index]).is_some();
    let mut progress = Progress::new(&plan, results);
    let mut session = Session {
        headpond: headpond.clone(),
        scratch: place::directory_in(&means.scratch, 1)?,
        destroy: means.destroy.clone(),
        keep_tables: means.keep_tables.clone(),
        tables: PathBuf::new(),
        script: PathBuf::new(),
        limited: None,
        origin: None,
    };
    if visits.iter().any(|index| !modelled(index)) {
        // Refuses what it may not touch before it does anything.
        for target in &plan.targets {
            if let Kind::Device(path) = &target.kind {
                place::may_destroy(path, &means.destroy)?;
            }
        }
        let cores = plan.definition.variants.iter().filter_map(|variant| variant.cores).max();
        cores.map(|cores| processors::Confined::to(cores as usize)).transpose()?;
        progress.show("making the data");
        session.prepare(&plan)?;
    }
    let mut runs_left = means.runs_max.unwrap_or(u32::MAX);
    for index in visits {
        if runs_left == 0 {
            break;
        }
        let visit = plan.visits[index];
        match card(&plan, &visit) {
            Some(model) => run_model(results, &plan, index, model)?,
            None if guest(&plan, &visit).is_some() => {
                run_guests(results, &plan, index, &session, &mut progress, &mut runs_left)?;
            }
            None => run_visit(results, &plan, index, &session, &mut progress, &mut runs_left)?,
        }
    }
    progress.end();
    Ok((1..=plan.runs() as u32).all(|number| results.has(number)))
}

fn card(plan: &Plan, visit: &Visit) -> Option<Model> {
    match &plan.targets[plan.sides[visit.side].target].kind {
        Kind::Card(model) => Some(*model),
        _ => None,
    }
}

fn guest<'a>(plan: &'a Plan, visit: &Visit) -> Option<&'a GuestTarget> {
    match &plan.targets[plan.sides[visit.side].target].kind {
        Kind::Guest(guest) => Some(guest),
        _ => None,
    }
}

/// All points of a visit to a cache in guests: one guest for each.
fn run_guests(
    results: &Results,
    plan: &Plan,
    index: usize,
    session: &Session,
    progress: &mut Progress,
    runs_left: &mut u32,
) -> Result<()> {
    let visit = plan.visits[index];
    let (Some(guest), Some(origin)) = (guest(plan, &visit), &session.origin) else { return Ok(()) };
    for point in 0..plan.points.len() {
        let Some(number) = begin_run(results, plan, index, point, progress, runs_left) else { continue };
        let seed = seed(results, &visit, point);
        let load = guest_run::command(plan, point, seed);
        let outcome = guest_run::run(plan, point, guest, &load, seed, session, origin, || progress.tick())?;
        let log = results.log(number);
        std::fs::write(&log, &outcome.printed).map_err(Failure::io(format!("writing {}", log.display())))?;
        let printed = read(&plan.at(point), &outcome.printed, &outcome.commands)?;
        let mut record = record(plan, index, point, printed.figures, printed.seconds);
        (record.system, record.reads) = counters::told(&outcome.watched);
        (record.commands, record.waited) = (outcome.commands, outcome.waited);
        record.cores = 1;
        record.count_from(printed.found);
        finish(plan, point, &mut record);
        results.keep(&record)?;
        progress.ran(plan.run_seconds(&visit, point));
    }
    Ok(())
}

/// Begins a run that is still to be done, and returns its number.
fn begin_run(
    results: &Results,
    plan: &Plan,
    index: usize,
    point: usize,
    progress: &mut Progress,
    runs_left: &mut u32,
) -> Option<u32> {
    let number = plan.number(index, point);
    if results.has(number) || *runs_left == 0 {
        return None;
    }
    *runs_left -= 1;
    let side = &plan.sides[plan.visits[index].side].name;
    progress.begin(number, &format!("{side}: {}", plan.title(point)));
    Some(number)
}

/// Both sides of a repetition draw the same numbers.
fn seed(results: &Results, visit: &Visit, point: usize) -> u64 {
    results.session().seed + u64::from(visit.repetition) * 1_000 + point as u64
}

/// Reads what a load printed.
fn read(definition: &Definition, output: &str, commands: &[(String, String)]) -> Result<Printed> {
    Printed::read(definition, output).map_err(|what| Failure::Command {
        doing: "reading what the load printed".to_owned(),
        command: commands.last().map_or(String::new(), |(_, typed)| typed.clone()),
        status: what,
        output: shortened(output),
    })
}

fn run_visit(
    results: &Results,
    plan: &Plan,
    index: usize,
    session: &Session,
    progress: &mut Progress,
    runs_left: &mut u32,
) -> Result<()> {
    let visit = plan.visits[index];
    let side = &plan.sides[visit.side].name;
    progress.show(&format!("{side}: setting it up"));
    let mut stage = session.set_up(plan, &visit)?;
    for point in 0..plan.points.len() {
        if begin_run(results, plan, index, point, progress, runs_left).is_some() {
            let record = run_point(results, plan, index, point, session, &mut stage, progress)?;
            results.keep(&record)?;
            progress.ran(plan.run_seconds(&visit, point));
        }
    }
    stage.take_down()
}

fn run_point(
    results: &Results,
    plan: &Plan,
    index: usize,
    point: usize,
    session: &Session,
    stage: &mut Stage,
    progress: &mut Progress,
) -> Result<Record> {
    let (visit, definition, number) = (plan.visits[index], &plan.at(point), plan.number(index, point));
    let seed = seed(results, &visit, point);
    let load = stage.command(plan, &plan.points[point], seed)?;
    stage.make_dirty(plan)?;
    let mut commands = stage.commands().to_vec();
    commands.push(("load".to_owned(), command::typed(&load)));
    let log = results.log(number);
    // A log of a run that was interrupted is not its.
    let _ = std::fs::remove_file(&log);
    let limit = Duration::from_secs(u64::from(definition.warmup + definition.seconds)) + GRACE;
    let flush = stage.begin_flush(plan, &visit)?;
    let slow = session.limit()?;
    let (over, start) = (AtomicBool::new(false), Instant::now());
    let mut service = Service::start("the load", load, &log)?;
    let (ended, watched) = std::thread::scope(|scope| {
        let (stage, over) = (&*stage, &over);
        let places = (stage.below(), stage.flash());
        let watched = scope.spawn(move || watch(&places.0, places.1, stage.mount(), stage.cores(), start, over));
        let ended = wait(&mut service, limit, progress);
        over.store(true, Ordering::Relaxed);
        (ended, watched.join())
    });
    ended?;
    drop(slow);
    if let Some((mount, handle)) = stage.mount().zip(flush) {
        mount.cancel_flush(handle);
    }
    let (system, pond) =
        watched.map_err(|_| Failure::Other("the watch over the machine's counters failed".to_owned()))?;
    let output = std::fs::read_to_string(&log).map_err(Failure::io(format!("reading {}", log.display())))?;
    let mut printed = read(definition, &output, &commands)?;
    if let Some(waits) = stage.waits(plan, &plan.points[point])? {
        waits.put_into(f64::from(definition.warmup), &mut printed.figures, &mut printed.seconds);
    }
    let mut record = record(plan, index, point, printed.figures, printed.seconds);
    (record.commands, record.system, record.pond, record.kinds) = (commands, system, pond, printed.kinds);
    record.count_from(printed.found);
    record.cores = stage.cores().map_or_else(|| processors::available().len(), <[usize]>::len) as u32;
    finish(plan, point, &mut record);
    if definition.load == Load::Tpcc {
        progress.show("looking at the consistency conditions");
        record.doubts.extend(stage.inconsistencies(plan)?);
    }
    Ok(record)
}

/// What a load printed.
struct Printed {
    figures: Figures,
    seconds: Vec<Second>,
    kinds: Vec<Transactions>,
    found: Option<SettlingFound>,
}

impl Printed {
    fn read(definition: &Definition, output: &str) -> std::result::Result<Self, String> {
        let counted = f64::from(definition.seconds);
        if definition.load == Load::Pgbench {
            let (figures, seconds) = pgbench_load::parse(output, f64::from(definition.warmup))?;
            return Ok(Self { figures, seconds, kinds: Vec::new(), found: None });
        }
        if definition.load.on_database() {
            let (figures, seconds) = oltp_load::parse(output, counted)?;
            let kinds = if definition.load == Load::Tpcc { tpcc_load::parse(output, counted)? } else { Vec::new() };
            return Ok(Self { figures, seconds, kinds, found: None });
        }
        let (mut figures, mut seconds) = fio_load::parse(output, f64::from(definition.warmup))?;
        let found = definition.round.and_then(|round| settling::find(&seconds, round));
        if let Some(found) = &found {
            (figures, seconds) = fio_load::parse(output, found.from)?;
        }
        Ok(Self { figures, seconds, kinds: Vec::new(), found })
    }
}

fn record(plan: &Plan, index: usize, point: usize, figures: Figures, seconds: Vec<Second>) -> Record {
    let visit = plan.visits[index];
    Record {
        number: plan.number(index, point),
        side: visit.side,
        point,
        repetition: visit.repetition,
        ended: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        warmup: f64::from(plan.at(point).warmup),
        cores: 0,
        waited: None,
        commands: Vec::new(),
        figures,
        kinds: Vec::new(),
        seconds,
        system: Vec::new(),
        pond: Vec::new(),
        reads: Vec::new(),
        steadiness: None,
        settling: None,
        doubts: Vec::new(),
    }
}

fn finish(plan: &Plan, point: usize, record: &mut Record) {
    if record.settling.is_none() {
        record.judge_steadiness();
    }
    // Of requests of several sizes nobody knows how many bytes they are.
    let of_one_size =
        plan.definition.load == Load::Fio && plan.definition.cases[plan.points[point].case].blocks.is_empty();
    record.doubts = sense::doubts(record, of_one_size.then_some(plan.points[point].block));
    let variant = plan.sides[record.side].variant.map(|variant| &plan.definition.variants[variant]);
    if variant.is_some_and(|variant| variant.flush) {
        record.doubts.extend(sense::flush_doubts(record));
    }
}

fn wait(service: &mut Service, limit: Duration, progress: &mut Progress) -> Result<()> {
    let start = Instant::now();
    loop {
        if service.ended()? {
            return Ok(());
        }
        if start.elapsed() > limit {
            return service.wait_for_end(Duration::ZERO);
        }
        check_interrupt()?;
        progress.tick();
        std::thread::sleep(LOOK);
    }
}

/// All points of a visit to a modelled card. Its seconds are modelled ones.
fn run_model(results: &Results, plan: &Plan, index: usize, model: Model) -> Result<()> {
    for point in 0..plan.points.len() {
        check_interrupt()?;
        let number = plan.number(index, point);
        if results.has(number) {
            continue;
        }
        let (at, definition) = (&plan.points[point], &plan.definition);
        let seed = results.session().seed + u64::from(plan.visits[index].repetition) * 1_000 + point as u64;
        let mut card = Card::filled(model, f64::from(at.used) / 100.0, seed);
        if definition.round.is_none() {
            card.settle();
        }
        let bytes = u64::from(at.block) * 1024;
        let rate = |mib: f64| mib * f64::from(1 << 20) / bytes as f64;
        let second = |second: u32| Second {
            at: f64::from(second),
            throughput: rate(card.overwrite(MODEL_STEP).rate),
            p95_ms: None,
            p99_ms: None,
        };
        let seconds: Vec<Second> = (1..=definition.warmup + definition.seconds).map(second).collect();
        let found = definition.round.and_then(|round| settling::find(&seconds, round));
        let warmup = found.as_ref().map_or(f64::from(definition.warmup), |found| found.from);
        let counted: Vec<f64> =
            seconds.iter().filter(|second| second.at > warmup).map(|second| second.throughput).collect();
        let operations = counted.iter().sum::<f64>() as u64;
        let figures = Figures {
            throughput: operations as f64 / counted.len() as f64,
            operations,
            seconds: counted.len() as f64,
            write_bytes: operations * bytes,
            ..Figures::default()
        };
        let mut record = record(plan, index, point, figures, seconds);
        record.count_from(found);
        let about = format!("modelled flash card {}: {:.1} % spare", model.name, model.spare * 100.0);
        record.commands.push(("model".to_owned(), about));
        finish(plan, point, &mut record);
        results.keep(&record)?;
    }
    Ok(())
}

/// Shows what goes on and how long it still takes: on a terminal in one line that is written over, elsewhere in a
/// line for each run.
struct Progress {
    runs: u32,
    left: u64,
    number: u32,
    text: String,
    began: Instant,
    run_began: Instant,
    last: Instant,
    terminal: bool,
}

impl Progress {
    fn new(plan: &Plan, results: &Results) -> Self {
        let now = Instant::now();
        let mut left = 0;
        for (index, visit) in plan.visits.iter().enumerate() {
            let todo = (0..plan.points.len()).filter(|point| !results.has(plan.number(index, *point)));
            let runs: u64 = todo.map(|point| plan.run_seconds(visit, point)).sum();
            left += if runs > 0 { plan.set_up_seconds(visit) + runs } else { 0 };
        }
        Self {
            runs: plan.runs() as u32,
            left,
            number: 0,
            text: String::new(),
            began: now,
            run_began: now,
            last: now,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn begin(&mut self, number: u32, text: &str) {
        self.number = number;
        self.run_began = Instant::now();
        self.show(text);
    }

    fn ran(&mut self, seconds: u64) {
        self.left = self.left.saturating_sub(seconds);
    }

    fn tick(&mut self) {
        if self.last.elapsed() >= if self.terminal { QUIET / 10 } else { QUIET } {
            let text = std::mem::take(&mut self.text);
            self.show(&text);
        }
    }

    fn show(&mut self, text: &str) {
        self.last = Instant::now();
        text.clone_into(&mut self.text);
        let left = self.left.saturating_sub(self.run_began.elapsed().as_secs());
        let line = format!(
            "[{}/{}] {text} | {} gone, about {} left",
            self.number,
            self.runs,
            duration(self.began.elapsed().as_secs()),
            duration(left)
        );
        // A display that cannot be written to is no reason to stop.
        let mut out = std::io::stderr();
        let _ = if self.terminal { write!(out, "\r{line}\x1b[K") } else { writeln!(out, "{line}") };
    }

    fn end(&self) {
        if self.terminal {
            eprintln!();
        }
    }
}
