//! `headpond check`: the examination of a pool that is not in use, for people and for programs.
//!
//! Invariant: the flash is opened for reading only, and only if no daemon uses it.

use std::fmt::Write;

use headpond_base::BLOCK_U64;
use headpond_check::{Conclusion, Device, Progress, Report, Severity, examine_members};
use headpond_control::{ExitStatus, HeldFlash, HowMany, Refusal, Size};
use headpond_shard::FlashReader;
use indicatif::ProgressBar;

use crate::args::CheckArgs;
use crate::output::{print, print_json};
use crate::progress::Bar;

/// The most dirty files in the text. JSON has them all.
const FILES_SHOWN: usize = 20;

/// `headpond check`.
pub fn run(args: &CheckArgs) -> Result<(), Refusal> {
    let paths = args.flash.iter().chain(&args.more);
    let flashes = paths.map(|path| HeldFlash::open_read_only(path)).collect::<Result<Vec<_>, _>>()?;
    let mut readers: Vec<FlashReader<'_>> = flashes.iter().map(FlashReader).collect();
    let devices =
        readers.iter_mut().zip(&flashes).map(|(reader, flash)| Device { flash: reader, bytes: flash.bytes() });
    let mut bar = Bar::new(args.quiet, "checking {msg} [{bar:30}] {percent}%, {eta} to go");
    let report = examine_members(devices.collect(), &mut |progress| show(&mut bar, progress));
    drop(bar);
    if args.json {
        print_json(&report)?;
    } else {
        print(&text(&report))?;
    }
    verdict(args, &report)
}

/// The exit status, with advice.
fn verdict(args: &CheckArgs, report: &Report) -> Result<(), Refusal> {
    let (advice, status) = match report.verdict {
        Conclusion::Sound => return Ok(()),
        Conclusion::Harmless => (
            "Nothing was written. You can mount the pool as always. If damage comes back, the device is failing: read the kernel's log.",
            ExitStatus::PoolBlemished,
        ),
        Conclusion::Loss => (
            "Nothing was written. A mount serves all but the damaged blocks. Restore the files named above, or run the \
             database's own check on them. Then replace the device.",
            ExitStatus::PoolDamaged,
        ),
        Conclusion::Refused => refused(report),
    };
    let path = args.flash.iter().chain(&args.more).next().cloned().unwrap_or_default();
    Err(Refusal::Pool { path, what: report.why.clone(), advice, status })
}

fn refused(report: &Report) -> (&'static str, ExitStatus) {
    use headpond_check::RecoverError;
    match report.refused {
        Some(RecoverError::NotAPool) => {
            ("Nothing was written. Check that you named the right file or device.", ExitStatus::FlashForeign)
        }
        Some(RecoverError::Version { .. }) => {
            ("Nothing was written. Use the headpond that wrote the pool.", ExitStatus::PoolVersion)
        }
        Some(RecoverError::CutShort { .. }) => {
            ("Nothing was written. Bring the whole file or device back.", ExitStatus::PoolTruncated)
        }
        Some(RecoverError::Read { .. }) => {
            ("Nothing was written. Read the kernel's log: the device may be failing.", ExitStatus::FlashFailed)
        }
        Some(RecoverError::MissingMember { .. } | RecoverError::MissingAfterCrash { .. }) => {
            ("Nothing was written. Name all devices of the pool: headpond check FLASH FLASH", ExitStatus::MemberMissing)
        }
        Some(RecoverError::OtherPool { .. } | RecoverError::SameMember { .. } | RecoverError::UsedApart { .. }) => {
            ("Nothing was written. Name the devices of one pool only.", ExitStatus::NotOnePool)
        }
        _ => (
            "Nothing was written. Copy the pool before you try anything else. To drop its dirty data and make a new \
             pool: mount with --format --discard-dirty",
            ExitStatus::PoolDamaged,
        ),
    }
}

/// The report for people.
fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, report);
    out
}

fn write_text(out: &mut String, report: &Report) -> std::fmt::Result {
    match &report.pool {
        Some(pool) => {
            writeln!(out, "pool         {}, format version {}", pool.name, pool.format_version)?;
            let origin = pool.origin.as_deref().unwrap_or("none yet");
            writeln!(out, "origin       {origin}")?;
            writeln!(out, "mode         {}", pool.mode)?;
            writeln!(out, "size         {}, segments of {}", Size(pool.bytes), Size(pool.segment_bytes.into()))?;
            let left = if pool.clean_stop { "by an unmount" } else { "by a crash, or it is still in use" };
            writeln!(out, "left         {left}")?;
        }
        None => writeln!(out, "pool         unknown: no superblock is intact")?,
    }
    for (index, slot) in report.superblocks.iter().enumerate() {
        let state = match (&slot.damage, slot.counter) {
            (Some(why), _) => why.clone(),
            (None, Some(counter)) => format!("intact, number {counter}{}", counts(slot.counts)),
            (None, None) => "none".to_owned(),
        };
        writeln!(out, "superblock   {index}: {state}")?;
    }
    for (index, slot) in report.settings.iter().enumerate() {
        let state = match (&slot.damage, slot.counter) {
            (Some(why), _) => why.clone(),
            (None, Some(counter)) => format!("intact, number {counter}{}", counts(slot.counts)),
            // Most pools have none.
            (None, None) => continue,
        };
        writeln!(out, "settings     {index}: {state}")?;
    }
    for area in &report.checkpoints {
        let state = match (&area.damage, area.counter) {
            (Some(why), _) => why.clone(),
            (None, Some(counter)) => format!("whole, number {counter}{}", counts(area.counts)),
            (None, None) => format!("whole, but its superblock is lost{}", counts(area.counts)),
        };
        writeln!(out, "checkpoint   at byte {}: {state}", area.offset)?;
    }
    let segments = &report.segments;
    if report.pool.is_some() {
        let (batches, footers) = (HowMany(segments.batches, "batch"), HowMany(segments.footers, "footer"));
        writeln!(out, "segments     {} of {} used, {batches}, {footers}", segments.used, segments.all)?;
    }
    if report.verdict != Conclusion::Refused {
        let blocks = &report.blocks;
        writeln!(
            out,
            "data         {} of {}; {} verified, of which {} damaged",
            Size(blocks.cached * BLOCK_U64),
            HowMany(report.files, "file"),
            Size(blocks.verified * BLOCK_U64),
            Size((blocks.damaged_clean + blocks.damaged_dirty) * BLOCK_U64)
        )?;
        let dirty_files = HowMany(report.dirty_files.len() as u64, "file");
        writeln!(out, "dirty        {} in {dirty_files}", Size(blocks.dirty * BLOCK_U64))?;
        write_files(out, report)?;
        if report.dropped_batches > 0 {
            let batches = HowMany(report.dropped_batches, "batch");
            writeln!(out, "dropped      {batches}, not synced before a crash")?;
        }
    }
    for finding in &report.findings.listed {
        let severity = match finding.severity {
            Severity::Note => "note",
            Severity::Harmless => "harmless",
            Severity::Loss => "LOSS",
        };
        writeln!(out, "{severity:<12} {} at byte {}: {}", finding.structure, finding.offset, finding.what)?;
    }
    if report.findings.more > 0 {
        writeln!(out, "             and {} more of the same kinds", report.findings.more)?;
    }
    writeln!(out, "verdict      {}", report.why)
}

const fn counts(counts: bool) -> &'static str {
    if counts { ", in force" } else { "" }
}

fn write_files(out: &mut String, report: &Report) -> std::fmt::Result {
    for file in report.dirty_files.iter().take(FILES_SHOWN) {
        let name = match (&file.volume, file.inode) {
            (Some(volume), _) => format!("volume {volume}"),
            (None, inode) => {
                let path = if file.path.is_empty() { "path unknown" } else { &file.path };
                let removed = if file.removed { ", removed" } else { "" };
                format!("{path} (inode {}{removed})", inode.unwrap_or(0))
            }
        };
        let dirty = match file.dirty_bytes {
            0 => "size or time".to_owned(),
            bytes => Size(bytes).to_string(),
        };
        let lost = match file.damaged_dirty_blocks {
            0 => String::new(),
            blocks => format!(", {blocks} blocks LOST"),
        };
        writeln!(out, "  {dirty:>12}  {name}{lost}")?;
    }
    match report.dirty_files.len().saturating_sub(FILES_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more: see --json"),
    }
}

/// Shows how far an examination is.
pub fn show(bar: &mut Bar, progress: Progress) {
    let on_bar = |bar: &ProgressBar| {
        if bar.message() != progress.doing {
            bar.set_message(progress.doing);
            bar.reset();
        }
        bar.set_length(progress.of);
        bar.set_position(progress.done);
    };
    bar.show(on_bar, || format!("checking {}: {}%", progress.doing, progress.done * 100 / progress.of.max(1)));
}
