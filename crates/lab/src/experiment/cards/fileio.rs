//! Random pages over the number of threads, on one to eight devices, bare and through headpond: throughput, and how long
//! requests take.

use super::super::report::picture::{Drawing, Line, Picture, Scale};
use super::side_by_side::side_by_side;
use super::table::Table;
use super::{Drawn, Output};
use crate::failure::{Failure, Result};
use clap::Args;
use headpond_base::{Nanos, Redundancy};
use headpond_timed::{
    ArrayModel, ArraySide, DeviceArray, DeviceModel, ThreadLoad, ThreadPoint, ThreadSweep, sweep_threads,
};
use serde_json::json;

/// What `fileio` is given.
#[derive(Args, Debug)]
pub(super) struct FileioArgs {
    /// Numbers of DIMMs
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u8).range(1..=8))]
    devices: Vec<u8>,
    /// The size of all of them together in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1024..=8192))]
    mib: u64,
    /// Numbers of threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512,1024",
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Vec<u64>,
    /// How many devices have each page that is written: none (one) or mirror (two)
    #[arg(long, value_name = "WHICH", default_value = "none")]
    redundancy: Redundancy,
    #[command(flatten)]
    output: Output,
}

impl FileioArgs {
    pub(super) const fn output(&self) -> &Output {
        &self.output
    }
}

const LOADS: [(ThreadLoad, &str, &str); 4] = [
    (ThreadLoad::Reads, "reads", "random reads"),
    (ThreadLoad::Writes, "writes", "random writes, asynchronous"),
    (ThreadLoad::SyncedWrites, "synced-writes", "random writes, each synced"),
    (ThreadLoad::Mixed, "mixed", "three reads for two writes, asynchronous"),
];

const SIDES: [(ArraySide, &str); 2] = [(ArraySide::Bare, "bare"), (ArraySide::Headpond, "headpond")];

/// A line.
#[derive(Clone, Copy, Debug)]
struct Series {
    load: ThreadLoad,
    devices: u8,
    side: ArraySide,
    name: &'static str,
}

impl Series {
    fn named(&self) -> String {
        format!("{}, {} device{}", self.name, self.devices, if self.devices == 1 { "" } else { "s" })
    }
}

type Found = Vec<(Series, Vec<ThreadPoint>)>;

/// Runs all, and draws two pictures for each load.
pub(super) fn drawn(arguments: &FileioArgs) -> Result<Drawn> {
    if arguments.redundancy == Redundancy::Mirror && arguments.devices.contains(&1) {
        return Err(Failure::Other(
            "--redundancy mirror: one device cannot be mirrored. Give --devices 2,4,8".to_owned(),
        ));
    }
    let series = |(load, ..): &(ThreadLoad, _, _)| {
        let load = *load;
        let of = move |devices: &u8| SIDES.map(|(side, name)| Series { load, devices: *devices, side, name });
        arguments.devices.iter().flat_map(of).collect::<Vec<_>>()
    };
    let all: Vec<Series> = LOADS.iter().flat_map(series).collect();
    let work = |one: &Series| {
        let array = DeviceArray {
            devices: one.devices,
            model: ArrayModel::Device(DeviceModel::DIMM),
            bytes: (arguments.mib << 20) / u64::from(one.devices),
            redundancy: arguments.redundancy,
            seed: arguments.output.seed,
        };
        sweep_threads(&ThreadSweep { array, load: one.load, threads: arguments.threads.clone() }, one.side)
    };
    let found = side_by_side(&all, |one| format!("{:?}: {}", one.load, one.named()), work)?;
    let found: Found = all.into_iter().zip(found).collect();
    let figures = found.iter().map(|(one, points)| {
        let micros = |time: Nanos| time.0 as f64 / 1e3;
        let of = |point: &ThreadPoint| json!({"threads": point.threads, "mb": point.rate / 1e6, "p50_us": micros(point.median), "p95_us": micros(point.p95), "p999_us": micros(point.p999)});
        let load = LOADS.iter().find(|(load, ..)| *load == one.load).map(|(_, id, _)| *id);
        json!({"load": load, "side": one.name, "devices": one.devices, "points": points.iter().map(of).collect::<Vec<_>>()})
    });
    let about = json!({"redundancy": arguments.redundancy.name(), "mib": arguments.mib, "seed": arguments.output.seed, "lines": figures.collect::<Vec<_>>()});
    let name = if arguments.redundancy == Redundancy::Mirror { "fileio-mirrored" } else { "fileio" };
    Ok(Drawn { name, text: text(arguments, &found), figures: about, pictures: pictures(arguments, name, &found) })
}

fn of_load(found: &Found, load: ThreadLoad) -> impl Iterator<Item = &(Series, Vec<ThreadPoint>)> {
    found.iter().filter(move |(one, _)| one.load == load)
}

fn text(arguments: &FileioArgs, found: &Found) -> String {
    let mut text = format!("Random 16 KiB pages on modelled DIMMs, redundancy {}.\n", arguments.redundancy.name());
    for (load, _, title) in LOADS {
        let lines: Vec<_> = of_load(found, load).collect();
        let head = lines.iter().map(|(one, _)| one.named());
        let mut rates = Table::new([format!("{title}: MB/s, by threads")].into_iter().chain(head));
        let most = arguments.devices.iter().max();
        let of_most: Vec<_> = lines.iter().filter(|(one, _)| Some(&one.devices) == most).collect();
        let head = of_most.iter().map(|(one, _)| format!("{}: median / 95th / 99.9th percentile, us", one.named()));
        let mut waits = Table::new([format!("{title}, by threads")].into_iter().chain(head));
        for (index, threads) in arguments.threads.iter().enumerate() {
            let rate = |(_, points): &&(Series, Vec<ThreadPoint>)| format!("{:.0}", points[index].rate / 1e6);
            rates.row([threads.to_string()].into_iter().chain(lines.iter().map(rate)));
            let wait = |(_, points): &&&(Series, Vec<ThreadPoint>)| {
                let ThreadPoint { median, p95, p999, .. } = points[index];
                [median, p95, p999].map(|time| grouped(time.0 / 1000)).join(" / ")
            };
            waits.row([threads.to_string()].into_iter().chain(of_most.iter().map(wait)));
        }
        text += &format!("\n{}\n{}", rates.markdown(), waits.markdown());
    }
    text
}

/// A number with a comma between thousands.
fn grouped(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", grouped(number / 1000), number % 1000) }
}

/// The fewest and the most devices: throughput, and the 95th percentile.
fn pictures(arguments: &FileioArgs, name: &str, found: &Found) -> Vec<Picture> {
    let ends = [arguments.devices.iter().min(), arguments.devices.iter().max()];
    let of = |(load, id, title): (ThreadLoad, &str, &str)| {
        let drawn: Vec<_> = of_load(found, load).filter(|(one, _)| ends.contains(&Some(&one.devices))).collect();
        let picture = |id: String, what: &str, unit: &str, scale, value: &dyn Fn(&ThreadPoint) -> f64| {
            let line = |(colour, (one, points)): (usize, &&(Series, Vec<ThreadPoint>))| Line {
                name: one.named(),
                colour,
                points: points.iter().map(|point| (point.threads as f64, value(point))).collect(),
                spread: Vec::new(),
            };
            Picture {
                id,
                title: format!("Modelled DIMMs, {title}: {what}"),
                along: "threads".to_owned(),
                unit: unit.to_owned(),
                scale,
                drawing: Drawing::Lines { scale: Scale::Log, warmup: None, marks: Vec::new() },
                lines: drawn.iter().enumerate().map(line).collect(),
            }
        };
        [
            picture(format!("{name}-{id}"), "MB/s", "MB/s", Scale::Linear, &|point| point.rate / 1e6),
            picture(format!("{name}-{id}-p95"), "95th percentile, ms (by factors)", "ms", Scale::Log, &|point| {
                (point.p95.0 as f64 / 1e6).max(0.001)
            }),
        ]
    };
    LOADS.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([7, 999, 1000, 1_234_567].map(grouped), ["7", "999", "1,000", "1,234,567"]);
    }
}
