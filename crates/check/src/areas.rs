//! The two checkpoint areas: the one that counts, and the older one, which counts if the newest superblock is lost.

use headpond_base::{BLOCK, BLOCK_U64};
use headpond_engine::FlashRead;
use headpond_format::Superblock;
use headpond_log::{Checkpoint, ScanError, read_checkpoint};

use crate::report::{Area, Findings, Severity};
use crate::superblocks::Slots;

/// Examines both.
pub(crate) fn examine(flash: &mut dyn FlashRead, slots: &Slots, findings: &mut Findings) -> Vec<Area> {
    let (Some(newest), before) = slots.in_order() else { return Vec::new() };
    let read = read_checkpoint(flash, newest);
    let counts = describe(newest, &read, true);
    if let Some(why) = &counts.damage {
        let what = format!("{why}. The pool needs it: a mount refuses the pool.");
        findings.add(Severity::Loss, structure(newest), counts.offset, what);
    }
    let mut areas = vec![counts];
    if let Some(before) = before.filter(|before| before.checkpoint_area != newest.checkpoint_area) {
        let older = read_checkpoint(flash, before);
        let area = describe(before, &older, false);
        if let Some(why) = &area.damage {
            let (severity, meaning) = if newest.clean_stop && !is_written_over(flash, newest, area.offset) {
                (Severity::Harmless, "A newer checkpoint is in force, so it is not needed.")
            } else {
                (Severity::Note, "It is not needed. A crash leaves it so if it comes during the next checkpoint.")
            };
            findings.add(severity, structure(before), area.offset, format!("{why}. {meaning}"));
        }
        areas.push(area);
    }
    areas.sort_by_key(|area| area.offset);
    areas
}

/// The area of the checkpoint that counts, if its superblock is lost.
pub(crate) fn known_without_superblock(counting: &Superblock, objects: usize) -> Area {
    Area {
        offset: counting.geometry.checkpoint_start(usize::from(counting.checkpoint_area)),
        counter: None,
        counts: true,
        objects: objects as u64,
        damage: None,
    }
}

/// Whether the first frame in an area belongs to the checkpoint after the newest.
fn is_written_over(flash: &mut dyn FlashRead, newest: &Superblock, area: u64) -> bool {
    let Ok(bytes) = flash.read(area + BLOCK_U64, BLOCK) else { return false };
    bytes.get(8..16).is_some_and(|counter| counter == (newest.counter + 1).to_le_bytes())
}

fn structure(superblock: &Superblock) -> String {
    format!("checkpoint area {}", superblock.checkpoint_area)
}

fn describe(superblock: &Superblock, read: &Result<Checkpoint, ScanError>, counts: bool) -> Area {
    let offset = superblock.geometry.checkpoint_start(usize::from(superblock.checkpoint_area));
    let damage = match read {
        Ok(_) => None,
        Err(ScanError::Damaged { damage, .. }) => Some(damage.to_string()),
        Err(error) => Some(error.to_string()),
    };
    Area {
        offset,
        counter: read.as_ref().ok().map(|checkpoint| checkpoint.head.counter),
        counts,
        objects: read.as_ref().map_or(0, |checkpoint| checkpoint.objects.len() as u64),
        damage,
    }
}
