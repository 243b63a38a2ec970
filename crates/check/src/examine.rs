//! The examination, from the superblocks to the data.

use std::collections::BTreeMap;
use std::fmt::Write;

use headpond_base::{BLOCK_U64, MemberId, ObjectId};
use headpond_engine::{
    Device, FlashRead, Present, RecoverError, Recovered, RecoveredObject, newest_superblock, recover, recover_members,
};
use headpond_format::Identity;
use headpond_format::{Superblock, VERSION};

use crate::report::{Blocks, Conclusion, DirtyObject, Findings, Pool, Progress, Report, SegmentCounts, Severity};
use crate::segments::Examined;
use crate::whole::{Copies, OneDevice, WholePool};
use crate::{areas, blocks, settings, superblocks};

/// Examines the pool on a device of `device_bytes`, and reports its progress.
pub fn examine(flash: &mut dyn FlashRead, device_bytes: u64, progress: &mut dyn FnMut(Progress)) -> Report {
    let mut findings = Findings::default();
    progress(Progress { doing: "superblocks and checkpoints", done: 0, of: 1 });
    let (slots, superblocks) = superblocks::examine(flash, device_bytes, &mut findings);
    let (newest, _) = slots.in_order();
    let fits = newest.filter(|superblock| superblock.geometry.segments_end() <= device_bytes);
    let settings = newest.map_or_else(Vec::new, |newest| settings::examine(flash, newest.pool, &mut findings));
    let checkpoints = if fits.is_some() { areas::examine(flash, &slots, &mut findings) } else { Vec::new() };
    let recovered = recover(flash, device_bytes);
    let segments = match fits {
        Some(superblock) => {
            let mut flash = OneDevice::new(superblock.geometry, &mut *flash);
            let mut pool = Examined { flash: &mut flash, superblock, recovered: &recovered, findings: &mut findings };
            pool.segments(progress)
        }
        None => SegmentCounts::default(),
    };
    let mut report = Report {
        verdict: Conclusion::Refused,
        why: String::new(),
        device_bytes,
        pool: newest.map(pool),
        superblocks,
        settings,
        checkpoints,
        segments,
        dropped_batches: 0,
        blocks: Blocks::default(),
        files: 0,
        dirty_files: Vec::new(),
        findings,
        refused: None,
    };
    match recovered {
        Ok(recovered) => {
            let counting = recovered.superblock();
            if newest.is_some_and(|newest| newest.epoch != counting.epoch || newest.counter != counting.counter) {
                let what = "the newest one is lost. Its checkpoint is whole and in force, so nothing else is lost.";
                report.findings.add(Severity::Harmless, "superblock".to_owned(), 0, what.to_owned());
                report.superblocks.iter_mut().for_each(|slot| slot.counts = false);
                report.checkpoints.iter_mut().for_each(|area| area.counts = false);
                report.checkpoints.push(areas::known_without_superblock(counting, recovered.objects().len()));
                report.pool = Some(pool(counting));
            }
            let mut flash = OneDevice::new(counting.geometry, flash);
            take_recovered(&mut report, &mut flash, &recovered, progress);
        }
        Err(error) => refuse(&mut report, error),
    }
    conclude(&mut report);
    report
}

/// Examines the pool on several devices, and reports its progress. Of a pool of one device it is [`examine`].
pub fn examine_members(mut devices: Vec<Device<'_>>, progress: &mut dyn FnMut(Progress)) -> Report {
    let of_several = |device: &mut Device<'_>| {
        newest_superblock(device.flash, device.bytes).is_ok_and(|superblock| superblock.members.given() > 1)
    };
    if let [device] = &mut devices[..]
        && !of_several(device)
    {
        return examine(device.flash, device.bytes, progress);
    }
    progress(Progress { doing: "superblocks and checkpoints", done: 0, of: 1 });
    let mut report = Report {
        verdict: Conclusion::Refused,
        why: String::new(),
        device_bytes: devices.iter().map(|device| device.bytes).sum(),
        pool: None,
        superblocks: Vec::new(),
        settings: Vec::new(),
        checkpoints: Vec::new(),
        segments: SegmentCounts::default(),
        dropped_batches: 0,
        blocks: Blocks::default(),
        files: 0,
        dirty_files: Vec::new(),
        findings: Findings::default(),
        refused: None,
    };
    let mut each = Vec::with_capacity(devices.len());
    for device in &mut devices {
        let mut findings = Findings::default();
        let (slots, told) = superblocks::examine(device.flash, device.bytes, &mut findings);
        report.superblocks.extend(told);
        if let (Some(newest), _) = slots.in_order() {
            report.settings.extend(settings::examine(device.flash, newest.pool, &mut findings));
            report.checkpoints.extend(areas::examine(device.flash, &slots, &mut findings));
        }
        each.push(findings);
    }
    let mustered = muster(&mut devices);
    let healthy = mustered.is_ok();
    each.into_iter().enumerate().for_each(|(device, findings)| report.findings.take(findings, device, healthy));
    match mustered {
        Ok((recovered, members)) => {
            report.pool = Some(pool(recovered.superblock()));
            tell_members(&recovered, &members, &mut report.findings);
            let superblock = recovered.superblock().clone();
            let verdict = Ok(recovered);
            let Ok(recovered) = &verdict else { return report };
            let here =
                devices.iter_mut().zip(members).filter_map(|(device, member)| Some((member?, &mut *device.flash)));
            let (geometry, segments) = (superblock.geometry, recovered.segments());
            let mut whole = WholePool::new(geometry, segments, here.collect());
            let findings = &mut report.findings;
            let mut examined = Examined { flash: &mut whole, superblock: &superblock, recovered: &verdict, findings };
            report.segments = examined.segments(progress);
            take_recovered(&mut report, &mut whole, recovered, progress);
        }
        Err(error) => refuse(&mut report, error),
    }
    conclude(&mut report);
    report
}

/// Reads the pool from its devices. Returns also which member each of them is.
fn muster(devices: &mut [Device<'_>]) -> Result<(Recovered, Vec<Option<MemberId>>), RecoverError> {
    let given = devices.iter_mut().map(|device| Device { flash: &mut *device.flash, bytes: device.bytes });
    let mut present = Present::muster(given.collect())?;
    let recovered = recover_members(&mut present, None)?;
    let count = devices.len();
    // Borrowed anew: `present` has done its work.
    let given = devices.iter_mut().map(|device| Device { flash: &mut *device.flash, bytes: device.bytes });
    let present = Present::muster(given.collect())?;
    Ok((recovered, (0..count).map(|device| present.member_of(device)).collect()))
}

/// Says which devices are members, and which members are not here.
fn tell_members(recovered: &Recovered, members: &[Option<MemberId>], findings: &mut Findings) {
    for (device, _) in members.iter().enumerate().filter(|(_, member)| member.is_none()) {
        let what = "it is no member of the pool any more: nothing on it counts.".to_owned();
        findings.add(Severity::Note, format!("device {}", device + 1), 0, what);
    }
    for member in recovered.missing() {
        let what = "it is not here, and nothing is lost by that.".to_owned();
        findings.add(Severity::Harmless, format!("member {}", member.0), 0, what);
    }
}

/// What recovery found, with its data verified.
fn take_recovered(
    report: &mut Report,
    flash: &mut dyn Copies,
    recovered: &Recovered,
    progress: &mut dyn FnMut(Progress),
) {
    let dropped = recovered.dropped_batches();
    if dropped > 0 {
        let what = format!(
            "{dropped} batches behind the last complete one do not count: they were not synced when a crash came \
             or, if it is the very last that is damaged, nothing is left that says so."
        );
        report.findings.add(Severity::Note, "log: end".to_owned(), 0, what);
    }
    let objects = recovered.objects();
    let (blocks, lost) = blocks::verify(flash, recovered, &objects, &mut report.findings, progress);
    report.blocks = blocks;
    report.dropped_batches = recovered.dropped_batches();
    report.files = objects.len() as u64;
    report.dirty_files = dirty_files(&objects, &lost);
}

fn pool(superblock: &Superblock) -> Pool {
    let hex = |key: &[u8; 16]| {
        key.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    let origin = superblock.origin.as_ref();
    Pool {
        name: superblock.pool.to_string(),
        format_version: VERSION,
        bytes: superblock.geometry.pool_bytes,
        segment_bytes: superblock.geometry.segment_bytes,
        uses: superblock.epoch.0,
        mode: superblock.mode.name(),
        clean_stop: superblock.clean_stop,
        origin: origin.map(|origin| String::from_utf8_lossy(&origin.path).into_owned()),
        origin_key: origin.map(|origin| hex(&origin.key)),
    }
}

fn dirty_files(objects: &[RecoveredObject], lost: &BTreeMap<ObjectId, u64>) -> Vec<DirtyObject> {
    let dirty = objects.iter().filter(|object| object.dirty || object.dirty_blocks > 0);
    let mut files: Vec<DirtyObject> = dirty
        .map(|object| DirtyObject {
            path: String::from_utf8_lossy(&object.state.path).into_owned(),
            inode: object.state.identity.file().map(|file| file.inode),
            volume: match object.state.identity {
                Identity::Volume(id) => Some(id.to_string()),
                Identity::File(_) => None,
            },
            size: object.state.size,
            dirty_bytes: object.dirty_blocks * BLOCK_U64,
            cached_bytes: object.cached_blocks * BLOCK_U64,
            damaged_dirty_blocks: lost.get(&object.object).copied().unwrap_or(0),
            removed: object.state.flags.unlinked,
        })
        .collect();
    files.sort_by(|one, other| other.dirty_bytes.cmp(&one.dirty_bytes).then_with(|| one.path.cmp(&other.path)));
    files
}

/// Recovery's verdict, if no finding has it yet.
fn refuse(report: &mut Report, error: RecoverError) {
    // Flash without a pool, or with one of another version, has lost nothing: the verdict says what it is.
    let is_other = matches!(error, RecoverError::NotAPool | RecoverError::Version { .. });
    if is_other || report.findings.worst() == Some(Severity::Loss) {
        report.refused = Some(error);
        return;
    }
    let (structure, offset) = match &error {
        RecoverError::Damaged { what, offset, .. } => ((*what).to_owned(), *offset),
        RecoverError::Read { offset, .. } => ("device".to_owned(), *offset),
        RecoverError::LostHistory { after, .. } => (format!("batch after {after}"), 0),
        RecoverError::LostSuperblock { segment, .. } => (format!("superblock, by segment {segment}"), 0),
        RecoverError::MissingMember { member, .. }
        | RecoverError::MissingAfterCrash { member }
        | RecoverError::UnreadAfterCrash { member } => (format!("member {}", member.0), 0),
        RecoverError::OtherPool { device }
        | RecoverError::SameMember { device }
        | RecoverError::UsedApart { device } => (format!("device {}", device + 1), 0),
        RecoverError::NotAPool | RecoverError::Version { .. } | RecoverError::CutShort { .. } => ("pool".to_owned(), 0),
    };
    report.findings.add(Severity::Loss, structure, offset, error.to_string());
    report.refused = Some(error);
}

fn conclude(report: &mut Report) {
    (report.verdict, report.why) = match (&report.refused, report.findings.worst()) {
        (Some(error), _) => (Conclusion::Refused, format!("a mount refuses it: {error}")),
        (None, Some(Severity::Loss)) => {
            let blocks = report.blocks.damaged_dirty;
            (Conclusion::Loss, format!("{blocks} dirty blocks are damaged; the rest of the pool is usable"))
        }
        (None, Some(Severity::Harmless)) => {
            (Conclusion::Harmless, "the damage loses nothing: the pool is usable".to_owned())
        }
        (None, Some(Severity::Note) | None) => (Conclusion::Sound, "nothing is damaged".to_owned()),
    };
}
