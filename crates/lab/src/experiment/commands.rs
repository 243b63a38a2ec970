//! The command line of `headpond lab`.

use super::cards::{self, CardsArgs};
use super::plan::{Plan, duration};
use super::results::{Results, Session};
use super::runner::Means;
use super::study::{self, Study};
use super::target::{Kind, is_throttled, on_disk, without_throttled_disk};
use super::{Definition, Target, report, runner, shipped, shipped_text};
use crate::demo;
use crate::failure::{Failure, Result, catch_interrupts};
use crate::pond::Headpond;
use crate::{fio, sysbench};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Rounds of a run that goes on until it is steady.
const ROUNDS_MIN: u32 = 10;

/// What `headpond lab` is given.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  Every experiment, and how long it takes:
    headpond lab list

  A first look, in two minutes, on a throttled disk (root):
    headpond lab run profiles --quick

  The same on a modelled disk, without root:
    headpond lab run profiles --quick --target none=headpond:mode=pass-through --target headpond

  `headpond lab run --help` has more.")]
pub struct LabArgs {
    /// What to do
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show the experiments that come with headpond
    List(ListArgs),
    /// Print an experiment's file, to read or to copy and change
    Show(ShowArgs),
    /// Run an experiment
    ///
    /// The command first shows its plan: what it runs, how long that takes, and how much it writes. It works in new
    /// directories and removes them at the end. It overwrites a device only if you also name it with --destroy.
    ///
    /// You can interrupt it with ctrl-C. It cleans up and keeps its results, and `headpond lab resume DIRECTORY` goes
    /// on.
    #[command(after_long_help = RUN_HELP)]
    Run(RunArgs),
    /// Run an experiment on two or more targets, often enough to tell a difference from chance
    ///
    /// The same as `run` with at least two targets, and at least four runs of each, in turns (A B B A).
    Compare(RunArgs),
    /// Run all experiments of a published study, and put its figures beside ours on one page
    ///
    /// Each experiment has a session of its own in the directory. The same command with the same --out goes on where it
    /// was interrupted. Without a name: the studies that there are.
    Study(StudyArgs),
    /// Go on with an interrupted session
    Resume(ResumeArgs),
    /// Write the page, charts and tables of a session again
    Report(ReportArgs),
    /// Draw the tables of the flash card studies on modelled devices, without headpond and with it
    ///
    /// The engine is the real one; devices, origin and time are models. So it needs no device and no root, and the
    /// figures are the same on every machine.
    Cards(CardsArgs),
}

const RUN_HELP: &str = "Targets, [NAME=]PLACE:
  /slow                              a directory
  flash                              a scratch directory on flash, without headpond
  throttled:volume-200               a scratch directory on a throttled disk, without headpond (root)
  /dev/sdb                           a device; also needs --destroy /dev/sdb
  headpond:mode=write-back           headpond over a scratch directory, slowed to a 7,200 rpm disk
  headpond:origin=/slow,flash=/nvme  headpond over your own storage; other keys: mode, disk, size (MiB)
  guest:dm-cache                     a cache in a guest of User Mode Linux; the experiment kernel-caches has them all
  model:tachion                      a modelled flash card ('headpond lab cards models' shows all), for 'fill'

Examples:
  A first look, in two minutes, on a throttled disk (root):
    headpond lab run profiles --quick

  The load of ./demo on your own storage:
    headpond lab run demo --origin /slow --flash /nvme

  Your own storage, bare and with headpond:
    headpond lab compare oltp --target bare=/slow --target pond=headpond:origin=/slow,flash=/nvme

  Only show the plan:
    headpond lab run fileio --target /slow --plan";

#[derive(Args, Debug)]
struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ShowArgs {
    /// The experiment's name, as `headpond lab list` shows it
    name: String,
}

#[derive(Args, Debug)]
struct RunArgs {
    /// An experiment's name (see `headpond lab list`), an experiment file, or `demo`
    experiment: String,
    /// What to measure. You can repeat this option. Without it: the targets in the experiment's file
    #[arg(long, value_name = "[NAME=]PLACE")]
    target: Vec<String>,
    /// The disk of the targets that name none, or of the experiment's own: a modelled one, or throttled:iops=N,mib=N (root;
    /// see `headpond-lab disk`)
    #[arg(long, value_name = "DISK")]
    origin_disk: Option<String>,
    #[command(flatten)]
    scale: ScaleArgs,
    /// The amount of data for fio, in MiB [default: the experiment's]
    #[arg(long, value_name = "MIB")]
    size: Option<u32>,
    /// Where the results go [default: headpond-lab/EXPERIMENT-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    means: MeansArgs,
    /// The seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only show the plan
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    demo: demo::Extras,
}

/// How large and how long.
#[derive(Args, Clone, Copy, Debug)]
struct ScaleArgs {
    /// Run for seconds instead of minutes, to see that everything works. The figures mean little
    #[arg(long)]
    quick: bool,
    /// The study's own sizes and times, for people with the hardware; `headpond lab list` says how long that takes
    #[arg(long, value_enum, conflicts_with = "quick")]
    scale: Option<Scale>,
    /// Seconds to measure in each run [default: the experiment's]
    #[arg(long, value_name = "N")]
    seconds: Option<u32>,
    /// Seconds of load before that, not measured [default: the experiment's]
    #[arg(long, value_name = "N")]
    warmup: Option<u32>,
    /// Runs of each target [default: the experiment's]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,
}

/// How large an experiment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Scale {
    /// As the study had it
    Study,
}

#[derive(Args, Debug)]
struct StudyArgs {
    /// The study's name
    name: Option<String>,
    #[command(flatten)]
    scale: ScaleArgs,
    /// Only these of its experiments. You can repeat this option
    #[arg(long, value_name = "EXPERIMENT")]
    only: Vec<String>,
    /// The disk of the origins: throttled:iops=N,mib=N (root; see `headpond-lab disk`) [default: the experiments']
    #[arg(long, value_name = "DISK")]
    origin_disk: Option<String>,
    /// Where the results go [default: headpond-lab/STUDY]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    means: MeansArgs,
    /// Only show the plan
    #[arg(long)]
    plan: bool,
}

impl ScaleArgs {
    /// An experiment, so large and so long.
    fn of(&self, mut definition: Definition) -> Result<Definition> {
        if self.quick {
            definition = definition.quick();
        } else if self.scale == Some(Scale::Study) {
            definition = definition.of_study()?;
        }
        for case in &mut definition.cases {
            // What the command line says is for all of them.
            case.seconds = case.seconds.filter(|_| self.seconds.is_none());
            case.warmup = case.warmup.filter(|_| self.warmup.is_none());
        }
        definition.seconds = self.seconds.unwrap_or(definition.seconds).max(1);
        definition.warmup = self.warmup.unwrap_or(definition.warmup);
        if let Some(round) = &mut definition.round {
            if definition.warmup > 0 {
                return Err(Failure::Other(format!(
                    "experiment '{}' does not take --warmup: it runs until it is steady",
                    definition.name
                )));
            }
            // Ten rounds at least, so that five in a row can be chosen from.
            *round = (*round).min(definition.seconds / ROUNDS_MIN).max(1);
        }
        definition.repeats = self.repeats.unwrap_or(definition.repeats).max(1);
        Ok(definition)
    }
}

impl RunArgs {
    /// The first thing that was asked for and that the demo does not have.
    fn not_for_the_demo(&self) -> Option<&'static str> {
        let all = [
            ("--target", !self.target.is_empty()),
            ("--origin-disk", self.origin_disk.is_some()),
            ("--scale", self.scale.scale.is_some()),
            ("--repeats", self.scale.repeats.is_some()),
            ("--size", self.size.is_some()),
            ("--seed", self.seed != 1),
            ("--destroy", !self.means.destroy.is_empty()),
            ("--keep-tables", self.means.keep_tables.is_some()),
            ("--runs", self.means.runs.is_some()),
        ];
        all.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

/// What of the machine may be used, when a session begins and when it goes on.
#[derive(Args, Debug)]
struct MeansArgs {
    /// Where to make scratch directories
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// A device that headpond may overwrite. You lose all data on it. You can repeat this option
    #[arg(long, value_name = "DEVICE")]
    destroy: Vec<PathBuf>,
    /// Keep the databases' tables in this directory, and use them again for the same data
    #[arg(long, value_name = "DIR")]
    keep_tables: Option<PathBuf>,
    /// Stop after this many runs, for a machine that is quiet only for a while. `resume` goes on
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
}

impl MeansArgs {
    fn means(&self) -> Means {
        Means {
            scratch: self.scratch.clone(),
            destroy: self.destroy.clone(),
            keep_tables: self.keep_tables.clone(),
            runs_max: self.runs,
        }
    }
}

#[derive(Args, Debug)]
struct ResumeArgs {
    /// The session's directory
    directory: PathBuf,
    #[command(flatten)]
    means: MeansArgs,
}

#[derive(Args, Debug)]
struct ReportArgs {
    /// The session's directory
    directory: PathBuf,
}

/// Does what the command line says.
pub fn run(arguments: &LabArgs) -> Result<()> {
    match &arguments.command {
        Command::List(list) => print_list(list.json),
        Command::Show(show) => {
            if show.name == demo::NAME {
                return Err(Failure::Other(
                    "the demo has no experiment file. For its load as an experiment: headpond lab show oltp".to_owned(),
                ));
            }
            let text = shipped_text(&show.name);
            let text = text.ok_or_else(|| Failure::Other(format!("no experiment is called '{}'", show.name)))?;
            print!("{text}");
            Ok(())
        }
        Command::Run(run) if run.experiment == demo::NAME => show_demo(run),
        Command::Run(run) => begin(run, 1),
        Command::Compare(run) => begin(run, 2),
        Command::Study(StudyArgs { name: None, .. }) => list_studies(),
        Command::Study(study @ StudyArgs { name: Some(name), .. }) => run_study(study, name),
        Command::Resume(resume) => {
            let results = Results::open(&resume.directory)?;
            carry_out(&results, &resume.means).map(drop)
        }
        Command::Cards(cards) => cards::run(cards),
        Command::Report(report) => tell(&Results::open(&report.directory)?),
    }
}

fn print_list(json: bool) -> Result<()> {
    let experiments = shipped()?;
    if json {
        let mut list: Vec<_> = experiments
            .iter()
            .map(|one| serde_json::json!({"name": one.name, "title": one.title, "question": one.question, "source": one.source}))
            .collect();
        list.push(serde_json::json!({"name": demo::NAME, "title": demo::TITLE, "question": demo::QUESTION, "source": "./demo"}));
        println!("{}", serde_json::Value::from(list));
        return Ok(());
    }
    for one in experiments {
        let targets = one.targets.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>>>()?;
        let time = |definition: Definition| Plan::of(definition, targets.clone()).map(|plan| duration(plan.seconds()));
        println!("{:<12} {}", one.name, one.title);
        let study = match one.clone().of_study() {
            Ok(study) => format!("; about {} with --scale study", time(study)?),
            Err(_) => String::new(),
        };
        println!("{:<12} about {}; about {} with --quick{study}", "", time(one.clone())?, time(one.clone().quick())?);
    }
    println!("{:<12} {}", demo::NAME, demo::TITLE);
    let time = |(seconds, warmup)| duration(demo::seconds(seconds, warmup));
    println!("{:<12} about {}; about {} with --quick", "", time((demo::SECONDS, demo::WARMUP)), time(demo::QUICK));
    println!("\nheadpond lab run NAME --quick    headpond lab show NAME    headpond lab run --help");
    Ok(())
}

/// The demo: no file, but the same command.
fn show_demo(run: &RunArgs) -> Result<()> {
    if let Some(other) = run.not_for_the_demo() {
        return Err(Failure::Other(format!(
            "the demo does not take {other}. To choose its storage: --origin and --flash. For the same load with \
             all options: headpond lab run oltp"
        )));
    }
    let (seconds, warmup) = if run.scale.quick { demo::QUICK } else { (demo::SECONDS, demo::WARMUP) };
    let directory = run.out.clone().unwrap_or_else(|| PathBuf::from(format!("headpond-lab/demo-{}", now())));
    let (seconds, warmup) = (run.scale.seconds.unwrap_or(seconds), run.scale.warmup.unwrap_or(warmup));
    let options = run.demo.options(seconds, warmup, &run.means.scratch, &directory);
    if run.plan {
        println!("{}", demo::introduction(&options)?);
        return Ok(());
    }
    catch_interrupts()?;
    demo::run(&options)
}

/// In seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn begin(run: &RunArgs, sides_min: usize) -> Result<()> {
    if let Some(other) = run.demo.given() {
        return Err(Failure::Other(format!(
            "{other} belongs to 'headpond lab run demo'. For any other experiment, name the storage with --target"
        )));
    }
    let mut definition = run.scale.of(Definition::find(&run.experiment)?)?;
    if let Some(size) = run.size {
        definition.cases.iter_mut().for_each(|case| case.size = None);
        definition.size = size.max(8);
    }
    if sides_min > 1 {
        definition.repeats = definition.repeats.max(headpond_measure::RUNS_MIN as u32);
    }
    let disk = run.origin_disk.as_deref();
    let texts = if run.target.is_empty() { own_targets(&definition, disk) } else { run.target.clone() };
    let (texts, plan) = planned(&definition, texts, disk)?;
    if plan.sides.len() < sides_min {
        return Err(Failure::Other("a comparison needs two targets. Give --target twice or more".to_owned()));
    }
    println!("{}", plan.introduction());
    if run.plan {
        return Ok(());
    }
    let began = now();
    let out = run.out.clone().unwrap_or_else(|| PathBuf::from(format!("headpond-lab/{}-{began}", definition.name)));
    let session = Session { format: 0, definition, targets: texts, seed: run.seed, began, about: about(&plan) };
    let results = Results::begin(&out, session)?;
    println!("\nResults: {}\n", out.display());
    carry_out(&results, &run.means).map(drop)
}

/// An experiment's own targets. Another disk takes the place of the throttled one of all sides.
fn own_targets(definition: &Definition, disk: Option<&str>) -> Vec<String> {
    let own = |text: &String| if disk.is_some() { without_throttled_disk(text) } else { text.clone() };
    definition.targets.iter().map(own).collect()
}

/// An experiment on these targets, whose origins are on this disk where they name none.
fn planned(definition: &Definition, mut texts: Vec<String>, disk: Option<&str>) -> Result<(Vec<String>, Plan)> {
    if let Some(disk) = disk {
        texts.iter_mut().for_each(|text| *text = on_disk(text, disk));
    }
    let targets = texts.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>>>()?;
    let bare = targets.iter().any(|target| matches!(target.kind, Kind::Throttled(_)));
    if let Some(disk) = disk.filter(|disk| bare && !is_throttled(disk)) {
        return Err(Failure::Other(format!(
            "--origin-disk {disk}: the bare side of '{}' is a directory on a disk, and {disk} is a model in front of one. \
             Give throttled:iops=N,mib=N, or name the sides with --target",
            definition.name
        )));
    }
    let plan = Plan::of(definition.clone(), targets)?;
    Ok((texts, plan))
}

fn list_studies() -> Result<()> {
    for study in study::shipped()? {
        let tables = if study.cards.is_empty() { "" } else { ", and tables of modelled cards" };
        println!("{:<12} {}\n{:<12} {}{tables}", study.name, study.title, "", study.experiments.join(", "));
    }
    println!("\nheadpond lab study NAME --quick    headpond lab study --help");
    Ok(())
}

/// All of a study, an experiment at a time. What is there already is not run again.
fn run_study(arguments: &StudyArgs, name: &str) -> Result<()> {
    let study = Study::find(name)?;
    if let Some(other) = arguments.only.iter().find(|only| !study.experiments.contains(only)) {
        let all = study.experiments.join(", ");
        return Err(Failure::Other(format!("'{other}' is no experiment of the study {name}: its are {all}")));
    }
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("headpond-lab/{name}")));
    let wanted = |one: &Definition| arguments.only.is_empty() || arguments.only.contains(&one.name);
    let mut sessions = Vec::new();
    for definition in study.definitions()?.into_iter().filter(wanted) {
        // One that the study had no larger stays as it is.
        let scale = arguments.scale.scale.filter(|_| definition.study.is_some());
        let definition = ScaleArgs { scale, ..arguments.scale }.of(definition)?;
        let disk = arguments.origin_disk.as_deref();
        let (texts, plan) = planned(&definition, own_targets(&definition, disk), disk)?;
        println!("{}\n", plan.introduction());
        sessions.push((definition, texts, plan));
    }
    let seconds = sessions.iter().map(|(_, _, plan)| plan.seconds()).sum();
    println!("{} experiments, about {} in all.", sessions.len(), duration(seconds));
    if arguments.plan {
        return Ok(());
    }
    for (definition, targets, plan) in sessions {
        let directory = study::session_directory(&out, &definition.name);
        let results = match Results::open(&directory) {
            Ok(results) if results.session().definition == definition && results.session().targets == targets => {
                results
            }
            Ok(_) => {
                let directory = directory.display();
                return Err(Failure::Other(format!(
                    "{directory} has runs of other sizes, times or targets. Name a new directory with --out, or ask for the same"
                )));
            }
            Err(_) => {
                let about = about(&plan);
                Results::begin(&directory, Session { format: 0, definition, targets, seed: 1, began: now(), about })?
            }
        };
        if !carry_out(&results, &arguments.means)? {
            break;
        }
    }
    // The tables of models take minutes, which nobody wants of a first look.
    if !arguments.scale.quick && arguments.only.is_empty() {
        study::draw_cards(&study, &out)?;
    }
    let (text, page) = study::write(&study, &out)?;
    println!("\n{text}\nThe page: {}", page.display());
    Ok(())
}

/// What it runs on and with.
fn about(plan: &Plan) -> Vec<(String, String)> {
    let version =
        |name: &str, version: Result<String>| (name.to_owned(), version.unwrap_or_else(|_| "missing".to_owned()));
    let mut about = vec![("machine".to_owned(), demo::machine::describe())];
    about.push(version("headpond", Headpond::beside_this_program().and_then(|headpond| headpond.version())));
    match plan.definition.load {
        super::Load::Fio => about.push(version("fio", fio::version())),
        load @ (super::Load::Oltp | super::Load::Tpcc | super::Load::Pgbench) => {
            let software = plan.definition.database;
            about.push(version(software.title(), software.version()));
            // pgbench comes with the server, and is of its version.
            if load != super::Load::Pgbench {
                about.push(version("sysbench", sysbench::version()));
            }
        }
    }
    about
}

/// Runs what a session lacks, and tells of it. Returns whether it is complete.
fn carry_out(results: &Results, means: &MeansArgs) -> Result<bool> {
    catch_interrupts()?;
    let outcome = runner::run(results, &Headpond::beside_this_program()?, &means.means());
    if !matches!(outcome, Ok(true)) {
        eprintln!("\nThe lab kept each finished run. To go on: headpond lab resume {}", results.directory().display());
    }
    let complete = outcome?;
    tell(results)?;
    Ok(complete)
}

fn tell(results: &Results) -> Result<()> {
    let (text, page) = report::write(results)?;
    println!("\n{text}\nThe page: {}", page.display());
    Ok(())
}
