//! The measurements. The parts of a ratio run in turns within one round, so that both sides see the same machine.

use std::path::Path;
use std::time::{Duration, Instant};

use headpond_device::Backend;
use headpond_lab::experiment::processors::Confined;
use headpond_lab::loop_device::LoopDevice;
use headpond_lab::processor_quota::OneProcessorQuota;
use serde_json::Value;

use super::Outcome;
use super::backend::{self, BACKENDS};
use super::copies::copies;
use super::counting::counting;
use super::devices::devices;
use super::engine::{EngineLoad, Filled};
use super::fio::{self, Target as On};
use super::fuse_alone::{self, FuseAlone};
use super::lives::lives;
use super::packed::packed;
use super::plan::{DATA, Plan, READS, forget};
use super::pond::Mount;
use super::reads::reads;
use super::recording::recording;
use super::side::{Rounds, Side};
use super::table::{Line, Target};

/// A work by its name, what it is, and how it is done.
pub type Work = (&'static str, &'static str, fn(&Plan) -> Outcome<Vec<Line>>);

/// All of them.
pub const WORKS: [Work; 15] = [
    ("engine", "the engine alone, read hits", engine),
    ("side-by-side", "two engines at once against one: what a second shard could give", side_by_side),
    ("reads", "read hits through the mount", reads),
    ("writes", "random writes through the mount", writes),
    ("appends", "appends with a sync each through the mount", appends),
    ("appends-confined", "the same with one processor, and with a quota of one", appends_confined),
    ("appends-device", "the same with a pool on a block device", appends_device),
    ("devices", "pools of several devices on one disk against a pool of one", devices),
    ("copies", "what a copy on another host costs a sync", copies),
    ("lives", "what it costs that the death of the process that serves is a pause", lives),
    ("packed", "read hits of packed records", packed),
    ("counting", "what counting by file, process and rule costs", counting),
    ("recording", "what a recording of the requests costs", recording),
    ("steady", "the slowest request while reclaim and destage run", steady),
    ("restart", "restart after a crash, and memory for the map", restart),
];

/// The engine alone, of raw.
const ENGINE_OF_RAW: f64 = 0.95;

fn engine(plan: &Plan) -> Outcome<Vec<Line>> {
    let raw = plan.raw()?;
    let start = |backend| {
        let flash = plan.path(&format!("{}.pond", backend::pool(backend, "engine")));
        forget(&plan.path("none"), &flash)?;
        Filled::start(&flash, backend)
    };
    let sides: Vec<Filled> = BACKENDS.into_iter().map(start).collect::<Outcome<_>>()?;
    let (mut ours, mut theirs) = (vec![Vec::new(); sides.len()], Vec::new());
    for _ in 0..plan.rounds {
        theirs.push(plan.fio(&On::File(&raw), &[&READS, &["--ioengine=io_uring", "--iodepth=32"]])?.rate);
        for (side, rates) in sides.iter().zip(&mut ours) {
            rates.push(side.rate(EngineLoad::Read, 32, Duration::from_secs(plan.seconds)));
        }
    }
    sides.into_iter().try_for_each(Filled::end)?;
    let line = |(backend, rates)| {
        let work = backend::work(backend, "engine alone, random 4 KiB read hits, depth 32");
        Line::ratio(&work, "of raw", rates, theirs.clone(), ENGINE_OF_RAW)
    };
    Ok(BACKENDS.into_iter().zip(ours).map(line).collect())
}

/// The most that a second shard could give: a pool of its own shares nothing with the first.
fn side_by_side(plan: &Plan) -> Outcome<Vec<Line>> {
    let start = |number: u32| {
        let flash = plan.path(&format!("side-{number}.pond"));
        forget(&plan.path("none"), &flash)?;
        Filled::start(&flash, Backend::Auto)
    };
    let pools = [start(0)?, start(1)?];
    let time = Duration::from_secs(plan.seconds);
    let mut lines = Vec::new();
    for (what, depth, work) in [
        (EngineLoad::Read, 32, "engine alone, random 4 KiB read hits, 32 at once"),
        (EngineLoad::SyncedWrite, 8, "engine alone, random 4 KiB writes, each durable, 8 at once"),
    ] {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            one.push(pools[0].rate(what, depth, time));
            two.push(std::thread::scope(|scope| {
                let half = |pool| scope.spawn(move || Filled::rate(pool, what, depth / 2, time));
                let halves: Vec<_> = pools.iter().map(half).collect();
                halves.into_iter().map(|half| half.join().unwrap_or(f64::NAN)).sum()
            }));
        }
        lines.push(Line::ratio(work, "two pools, times one", two, one, 1.6));
    }
    pools.into_iter().try_for_each(Filled::end)?;
    (0..2).try_for_each(|number| forget(&plan.path("none"), &plan.path(&format!("side-{number}.pond"))))?;
    Ok(lines)
}

fn writes(plan: &Plan) -> Outcome<Vec<Line>> {
    const JOB: [&str; 6] =
        ["--rw=randwrite", "--bs=16k", "--direct=1", "--ioengine=io_uring", "--iodepth=8", "--fdatasync=32"];
    let raw = plan.raw()?;
    let mut sides = Side::filled(plan, "writes", "4g")?;
    let mut theirs = Vec::new();
    for _ in 0..plan.rounds {
        theirs.push(plan.fio(&On::File(&raw), &[&JOB])?.rate);
        for side in &mut sides {
            side.run(plan, &[&JOB])?;
        }
    }
    let work = "mount, random 16 KiB writes, depth 8, fdatasync every 32";
    Ok(sides.iter_mut().map(|side| side.take(work).ratio("of raw in place", &theirs, 1.0)).collect())
}

/// One program that appends and syncs.
const APPENDS: [&str; 4] = ["--rw=write", "--bs=4k", "--ioengine=psync", "--fdatasync=1"];

/// How much it appends each time: a page of a log, and one of a database.
const APPENDED: [(&str, &str); 2] = [("4 KiB", "--bs=4k"), ("16 KiB", "--bs=16k")];

/// Of the raw flash, with a pool in a file; with a pool on a block device.
const APPENDS_OF_RAW: (f64, f64) = (0.7, 0.8);

/// Appends through the mount a second, and writes in place of `raw`.
fn appends_and_raw(plan: &Plan, mount: &Mount, raw: &Path) -> Outcome<(Vec<f64>, Vec<f64>)> {
    let (mut ours, mut in_place) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        in_place.push(plan.fio(&On::File(raw), &[&APPENDS])?.rate);
        ours.push(appends_to(plan, &mount.file("log"))?);
    }
    Ok((ours, in_place))
}

/// Appends to a file that is made anew, so that each makes it longer.
fn appends_to(plan: &Plan, log: &Path) -> Outcome<f64> {
    let _ = std::fs::remove_file(log);
    Ok(plan.fio(&On::File(log), &[&APPENDS, &["--file_append=1"]])?.rate)
}

fn appends(plan: &Plan) -> Outcome<Vec<Line>> {
    let raw = plan.raw()?;
    let mut sides = Side::empty(plan, "appends", "3g")?;
    let raw_log = plan.path("log");
    let mut lines = Vec::new();
    for (size, block) in APPENDED {
        let (mut in_place, mut growing, mut fio) = (Vec::new(), Vec::new(), Vec::new());
        let mut empty = Vec::new();
        for _ in 0..plan.rounds {
            // Each log is made anew, so that each append makes it longer.
            let _ = std::fs::remove_file(&raw_log);
            let run = plan.fio(&On::File(&raw), &[&APPENDS, &[block]])?;
            in_place.push(run.rate);
            fio.push(run.processor_cost());
            for side in &mut sides {
                let _ = std::fs::remove_file(side.file());
                side.run(plan, &[&APPENDS, &[block, "--file_append=1"]])?;
            }
            growing.push(plan.fio(&On::File(&raw_log), &[&APPENDS, &[block, "--file_append=1"]])?.rate);
            // Serves only while it is measured: it takes a processor for itself.
            let alone = FuseAlone::start(&plan.path("fuse-alone.mount"))?;
            empty.push(plan.fio(&On::File(&alone.file()), &[&APPENDS, &[block]])?.rate);
        }
        std::fs::remove_file(&raw_log)?;
        let work = format!("mount, {size} append and fdatasync");
        let taken: Vec<Rounds> = sides.iter_mut().map(|side| side.take(&work)).collect();
        lines.extend(taken.iter().map(|rounds| rounds.ratio("of raw, written in place", &in_place, APPENDS_OF_RAW.0)));
        lines.extend(fuse_alone::and_then(&format!("{size} written and fdatasync"), &in_place, empty));
        lines.extend(taken.iter().map(|rounds| rounds.ratio("of a raw file that grows", &growing, 0.5).only_told()));
        lines.extend(taken.iter().map(|rounds| rounds.processor(&fio)));
    }
    Ok(lines)
}

/// Daemon and fio together have one processor: the only one, or as much time of several.
fn appends_confined(plan: &Plan) -> Outcome<Vec<Line>> {
    let raw = plan.raw()?;
    let mut lines = Vec::new();
    let mut measure = |work: &str| {
        let mount = plan.mount("appends-confined", "3g")?;
        let (ours, in_place) = appends_and_raw(plan, &mount, &raw)?;
        lines.push(Line::ratio(work, "of raw, written in place", ours, in_place, APPENDS_OF_RAW.0));
        Outcome::Ok(())
    };
    {
        let _one = Confined::to(1)?;
        measure("mount, 4 KiB append and fdatasync, one processor")?;
    }
    match OneProcessorQuota::enter() {
        Ok(_quota) => measure("mount, 4 KiB append and fdatasync, a quota of one processor")?,
        Err(why) => eprintln!("without a quota: {why}"),
    }
    Ok(lines)
}

fn appends_device(plan: &Plan) -> Outcome<Vec<Line>> {
    if let Some(missing) = LoopDevice::missing() {
        eprintln!("left out: {missing}");
        return Ok(Vec::new());
    }
    let name = "appends-device";
    let raw = LoopDevice::over(&plan.raw()?)?;
    let flash = LoopDevice::over(&plan.written(&format!("{name}.pond"), "3g")?)?;
    let point = plan.path(&format!("{name}.mount"));
    let mount = Mount::start_on_devices(&plan.origin.join(name), &point, &[flash.path()], "none")?;
    let (ours, in_place) = appends_and_raw(plan, &mount, raw.path())?;
    let work = "mount, 4 KiB append and fdatasync, on a block device";
    Ok(vec![Line::ratio(work, "of raw, written in place", ours, in_place, APPENDS_OF_RAW.1)])
}

/// A pool with a fraction of the data's size, so that reclaim and destage never rest.
fn steady(plan: &Plan) -> Outcome<Vec<Line>> {
    const JOB: [&str; 6] =
        ["--rw=randrw", "--rwmixread=70", "--bs=16k", "--direct=1", "--ioengine=io_uring", "--iodepth=4"];
    let mount = plan.mount("steady", "512m")?;
    let (small, large) = (mount.file("small"), mount.file("large"));
    fio::fill(&small, "128m", false)?;
    fio::fill(&large, DATA, false)?;
    mount.flush()?;
    let (mut medians, mut slowest) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        medians.push(fio::run(&On::File(&small), "128m", plan.seconds, &JOB)?.median / 1000.0);
        slowest.push(plan.fio(&On::File(&large), &[&JOB])?.slowest / 1000.0);
    }
    Ok(vec![Line {
        work: "mount, 16 KiB reads and writes on twice the pool: the slowest".to_owned(),
        figure: "ms",
        rounds: slowest.clone(),
        interval: None,
        parts: vec![("slowest, under pressure", slowest), ("median, without", medians)],
        target: Target::AtMost(100.0),
    }])
}

fn restart(plan: &Plan) -> Outcome<Vec<Line>> {
    let mount = plan.mount("restart", &plan.restart_pool)?;
    fio::fill(&mount.file("data"), &plan.restart_size, true)?;
    let engine = mount.status()?["engine"].clone();
    let figure = |name: &str| engine[name].as_f64().ok_or_else(|| format!("no figure {name} in {engine}"));
    let (blocks, bytes) = (figure("cached_blocks")?, figure("map_bytes")?);
    let map = Line {
        work: format!("memory for the map, random 4 KiB writes, {blocks} blocks"),
        figure: "bytes for each 4 KiB",
        rounds: vec![bytes / blocks],
        interval: None,
        parts: vec![],
        target: Target::AtMost(12.0),
    };
    let (origin, flash, point) = (plan.origin.join("restart"), plan.path("restart.pond"), plan.path("restart.mount"));
    let (mut ready, mut cached) = (Vec::new(), Vec::new());
    let mut mount = mount;
    for _ in 0..plan.rounds {
        mount.crash()?;
        let start = Instant::now();
        mount = Mount::start(&origin, &point, &flash, "", Backend::Auto)?;
        ready.push(start.elapsed().as_secs_f64());
        cached.push(mount.status()?["engine"]["cached_blocks"].as_f64().unwrap_or(0.0));
        if cached.last() < Some(&(blocks * 0.9)) {
            return Err(format!("of {blocks} cached blocks only {cached:?} came back").into());
        }
    }
    drop(mount);
    let restart = Line {
        work: format!("restart after a crash, {} cached as 4 KiB blocks", plan.restart_size),
        figure: "seconds until it serves",
        rounds: ready,
        interval: None,
        parts: vec![("blocks that came back", cached)],
        target: Target::AtMost(1.0),
    };
    Ok(vec![map, restart])
}

/// What the results were measured on.
pub fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    serde_json::json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "load": read("/proc/loadavg").trim(),
    })
}
