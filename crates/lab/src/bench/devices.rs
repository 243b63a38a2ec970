//! Pools of several devices against a pool of one, in turns. The devices are loop devices over one disk, so more of
//! them cannot be faster; what shows is whether they are slower. What independent devices give is told in virtual time
//! (`cargo test -p headpond-sim --test several_devices`).

use std::path::Path;

use headpond_lab::loop_device::LoopDevice;

use super::Outcome;
use super::fio::{Target as On, fill, run};
use super::plan::{Plan, SYNCED_APPENDS, forget};
use super::pond::Mount;
use super::table::Line;

/// A pool: what it is called, its devices, the size of each in GiB, and where dirty data lies. All have as much room.
struct Pool {
    called: &'static str,
    devices: usize,
    gib: u64,
    redundancy: &'static str,
}

/// The first is what the others are compared with.
const POOLS: [Pool; 4] = [
    Pool { called: "one device", devices: 1, gib: 2, redundancy: "none" },
    Pool { called: "two devices, nothing mirrored", devices: 2, gib: 1, redundancy: "none" },
    Pool { called: "four devices, nothing mirrored", devices: 4, gib: 1, redundancy: "none" },
    Pool { called: "two devices, mirrored", devices: 2, gib: 2, redundancy: "mirror" },
];

/// What is written at random: less than every pool has room for.
const DATA: &str = "512m";

const WRITES: [&str; 6] =
    ["--rw=randwrite", "--bs=16k", "--direct=1", "--ioengine=io_uring", "--iodepth=8", "--fdatasync=32"];

/// A pool's mount, with the devices below it.
struct Side {
    mount: Mount,
    // Dropped after the mount.
    _devices: Vec<LoopDevice>,
}

impl Side {
    fn start(plan: &Plan, number: usize, pool: &Pool) -> Outcome<Self> {
        let name = name(number);
        forget(&plan.origin.join(&name), &plan.path(&format!("{name}-0.img")))?;
        let over = |device| {
            let file = plan.path(&format!("{name}-{device}.img"));
            let _ = std::fs::remove_file(&file);
            fill(&file, &format!("{}g", pool.gib), false)?;
            Outcome::Ok(LoopDevice::over(&file)?)
        };
        let devices: Vec<LoopDevice> = (0..pool.devices).map(over).collect::<Outcome<_>>()?;
        let paths: Vec<&Path> = devices.iter().map(LoopDevice::path).collect();
        let point = plan.path(&format!("{name}.mount"));
        let mount = Mount::start_on_devices(&plan.origin.join(&name), &point, &paths, pool.redundancy)?;
        Ok(Self { mount, _devices: devices })
    }
}

fn name(number: usize) -> String {
    format!("devices-{number}")
}

/// Random writes and synced appends on each pool.
pub fn devices(plan: &Plan) -> Outcome<Vec<Line>> {
    if let Some(missing) = LoopDevice::missing() {
        eprintln!("left out: {missing}");
        return Ok(Vec::new());
    }
    let start = |(number, pool)| Side::start(plan, number, pool);
    let sides: Vec<Side> = POOLS.iter().enumerate().map(start).collect::<Outcome<_>>()?;
    let mut writes = [const { Vec::new() }; POOLS.len()];
    let mut appends = [const { Vec::new() }; POOLS.len()];
    for _ in 0..plan.rounds {
        for (side, rates) in sides.iter().zip(&mut writes) {
            rates.push(run(&On::File(&side.mount.file("data")), DATA, plan.seconds, &WRITES)?.rate);
            side.mount.flush()?;
        }
        for (side, rates) in sides.iter().zip(&mut appends) {
            let log = side.mount.file("log");
            let _ = std::fs::remove_file(&log);
            rates.push(plan.fio(&On::File(&log), &[&SYNCED_APPENDS])?.rate);
        }
    }
    drop(sides);
    for (number, pool) in POOLS.iter().enumerate() {
        for device in 0..pool.devices {
            forget(&plan.origin.join(name(number)), &plan.path(&format!("{}-{device}.img", name(number))))?;
        }
    }
    let mut lines = Vec::new();
    for (work, rates) in
        [("random 16 KiB writes, depth 8, fdatasync every 32", writes), ("16 KiB append and fdatasync", appends)]
    {
        let [one, others @ ..] = rates;
        for (pool, rates) in POOLS[1..].iter().zip(others) {
            let line =
                Line::ratio(&format!("mount, {work}, {}", pool.called), "of one device", rates, one.clone(), 1.0);
            // A mirror writes everything twice, and here both go to one disk.
            lines.push(if pool.redundancy == "mirror" { line.only_told() } else { line });
        }
    }
    Ok(lines)
}
