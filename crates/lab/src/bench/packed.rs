//! How much longer a hit takes if its record is packed. Files with the same bytes lie on one mount. A rule packs each
//! in its own way, and they are read in turns.

use std::path::Path;

use super::Outcome;
use super::fio::{self, Target as On};
use super::plan::Plan;
use super::table::{Line, Target};

/// Bytes of each file: written as a database does, a page of 16 KiB at a time, and half as large when packed.
const SIZE: &str = "256m";
const WRITES: [&str; 7] = [
    "--rw=write",
    "--bs=16k",
    "--iodepth=8",
    "--direct=1",
    "--ioengine=io_uring",
    "--refill_buffers",
    "--buffer_compress_percentage=50",
];
const READS: [&str; 5] = ["--rw=randread", "--bs=16k", "--iodepth=1", "--direct=1", "--ioengine=io_uring"];

/// The target, in times the latency of pages that are not packed.
const LONGER_MAX: f64 = 1.15;

/// Each way with the line that it gets.
const WAYS: [(&str, &str); 2] = [
    ("lz4", "mount, random 16 KiB read hits, depth 1, packed with lz4: the median"),
    ("zstd:1", "mount, random 16 KiB read hits, depth 1, packed with zstd:1: the median"),
];

/// The file that is packed in this way, seen through the mount.
fn name(way: &str) -> String {
    format!("data.{}", way.replace(':', ""))
}

/// Reads of packed pages against reads of others.
pub fn packed(plan: &Plan) -> Outcome<Vec<Line>> {
    let mount = plan.mount("packed", "3g")?;
    // There is room for all of it as it is.
    mount.set("compression-from=0%")?;
    for way in ["off"].into_iter().chain(WAYS.map(|(way, _)| way)) {
        let (path, compression) = (format!("path={}", name(way)), format!("compression={way}"));
        mount.add_rule(&[&path, "action=cache", &compression])?;
        let file = mount.file(&name(way));
        fio::write_once(&file, "64k", &WRITES)?;
        // The first request had the superblock say that there are packed records; from now on there are.
        mount.flush()?;
        fio::write_once(&file, SIZE, &WRITES)?;
    }
    mount.flush()?;
    let median = |file: &Path| {
        Ok::<_, Box<dyn std::error::Error>>(fio::run(&On::File(file), SIZE, plan.seconds, &READS)?.median)
    };
    let mut lines = Vec::new();
    for (way, work) in WAYS {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            plain.push(median(&mount.file(&name("off")))?);
            ours.push(median(&mount.file(&name(way)))?);
        }
        let rounds = ours.iter().zip(&plain).map(|(ours, plain)| ours / plain).collect();
        let parts = vec![("packed, us", ours), ("not packed, us", plain)];
        let (figure, target) = ("times what is not packed", Target::AtMost(LONGER_MAX));
        lines.push(Line { work: work.to_owned(), figure, rounds, interval: None, parts, target });
    }
    let [record, payload] = ["record_bytes_total", "payload_bytes_total"].map(|name| mount.number(name));
    if payload? > 0.9 * record? {
        return Err("the records were not packed".into());
    }
    Ok(lines)
}
