//! Read hits through the mount, against the raw file, nbdkit, and what FUSE leaves of the raw file's speed.

use super::Outcome;
use super::fio::Target as On;
use super::fuse_alone::{self, FuseAlone};
use super::nbdkit::Nbdkit;
use super::plan::{DATA, Plan, READS};
use super::side::{Rounds, Side};
use super::table::Line;

/// What nbdkit may keep of it in memory: a sixteenth.
const PEER_MEMORY: u64 = 64 << 20;

/// The depths, with the targets of raw and of nbdkit.
const DEPTHS: [(&str, f64, f64); 2] = [("1", 0.7, 2.0), ("32", 0.6, 1.3)];

/// The reads at each depth.
pub fn reads(plan: &Plan) -> Outcome<Vec<Line>> {
    let raw = plan.raw()?;
    // A file of its own each, as pages that the one has read would serve the other.
    let (for_peer, for_bound) = (plan.written("raw-peer", DATA)?, plan.written("raw-bound", DATA)?);
    let nbdkit = Nbdkit::start(&for_peer)?;
    let mut sides = Side::filled(plan, "reads", "3g")?;
    let mut lines = Vec::new();
    for (depth, of_raw, of_nbdkit) in DEPTHS {
        let depth_argument = format!("--iodepth={depth}");
        let uring = ["--ioengine=io_uring", &depth_argument];
        let (mut bare, mut fio, mut peer, mut bound) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut empty = Vec::new();
        for _ in 0..plan.rounds {
            let of = |nbdkit: &Nbdkit| plan.fio(&On::Nbd(nbdkit.socket()), &[&READS[..2], &[&depth_argument]]);
            let run = plan.fio(&On::File(&raw), &[&READS, &uring])?;
            bare.push(run.rate);
            fio.push(run.processor_cost());
            for side in &mut sides {
                side.run(plan, &[&READS, &uring])?;
            }
            if depth == "1" {
                // Serves only while it is measured: it takes a processor for itself.
                let alone = FuseAlone::start(&plan.path("fuse-alone.mount"))?;
                empty.push(plan.fio(&On::File(&alone.file()), &[&READS, &uring])?.rate);
            }
            bound.push(of(&Nbdkit::start_within(&for_bound, PEER_MEMORY)?)?.rate);
            peer.push(of(&nbdkit)?.rate);
        }
        let work = format!("mount, random 4 KiB read hits, depth {depth}");
        let taken: Vec<Rounds> = sides.iter_mut().map(|side| side.take(&work)).collect();
        lines.extend(taken.iter().map(|rounds| rounds.ratio("of raw", &bare, of_raw)));
        if !empty.is_empty() {
            lines.extend(fuse_alone::and_then("depth 1", &bare, empty));
        }
        lines.extend(taken.iter().map(|rounds| rounds.processor(&fio)));
        for rounds in &taken {
            lines.push(rounds.ratio("times nbdkit, both from flash", &bound, of_nbdkit));
            lines.push(rounds.ratio("times nbdkit out of memory", &peer, of_nbdkit).only_told());
        }
        let work = format!("the raw flash itself, depth {depth}");
        lines.push(Line::ratio(&work, "times nbdkit, both from flash", bare.clone(), bound, of_nbdkit).only_told());
        lines.push(Line::ratio(&work, "times nbdkit out of memory", bare, peer, of_nbdkit).only_told());
    }
    Ok(lines)
}
