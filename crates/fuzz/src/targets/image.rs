//! A whole pool, made by the real engine over a known history, and then spoiled.
//!
//! - Whatever the damage: recovery and the examination have a verdict, and the same one. A pool in use can be read,
//!   written, flushed and stopped without a panic.
//! - If no checksum was forged: each block that is read once was there.
//! - If one block of the pool was damaged: all reads give the state of one moment, and none older than the sync
//!   before the last. (Damage to the very last batch looks like a torn one.) What the examination calls sound or
//!   harmless reads without an error.

use std::collections::BTreeMap;

use headpond_base::BLOCK;
use headpond_check::{Conclusion, Report, examine};
use headpond_engine::recover_mutated;

use super::{used, without_numbers};
use crate::devices::{Devices, MemoryFlash};
use crate::history::Found;
use crate::input::{Edit, Input};
use crate::life::{Made, Shape, config, made};
use crate::seals;
use crate::seed::Seed;
use crate::subject::{Base, PlantedBug, Told};
use crate::world::World;

pub(super) fn base(seed: u64) -> Base {
    let bytes = made(Shape::One, seed).images.concat();
    let seals = seals::of_image(&bytes);
    Base { bytes, seals, devices: 1 }
}

pub(super) fn run(input: &Input, bytes: Vec<u8>, planted: PlantedBug) -> Result<Told, String> {
    let made = made(Shape::One, input.base);
    let device_bytes = bytes.len() as u64;
    let mut flash = MemoryFlash(bytes);
    let report = examine(&mut flash, device_bytes, &mut |_| {});
    let recovered = match recover_mutated(&mut flash, device_bytes, planted.mutation()) {
        Ok(recovered) => recovered,
        Err(error) if report.verdict == Conclusion::Refused => {
            return Ok(Told { verdict: "refused", words: without_numbers(&error.to_string()) });
        }
        Err(error) => return Err(format!("recovery refuses what the examination calls {:?}: {error}", report.verdict)),
    };
    if report.verdict == Conclusion::Refused {
        return Err(format!("recovery takes what the examination says it refuses: {}", report.why));
    }
    let mut seed = Seed(input.base ^ report.device_bytes);
    let (mut world, conflicts) = World::start(
        Devices::new([(recovered.superblock().member, flash)]),
        made.origin.clone(),
        recovered,
        config(Shape::One, input.base),
        &mut || seed.one_in(2),
    )?;
    let mut found = world.look_at_all()?;
    found.retain(|inode, _| !conflicts.contains(inode));
    if !input.forged {
        check_what_is_served(input, &made, &report, &found, conflicts.is_empty())?;
    }
    world.use_it(&mut seed)?;
    Ok(used(&report, !conflicts.is_empty()))
}

fn check_what_is_served(
    input: &Input,
    made: &Made,
    report: &Report,
    found: &BTreeMap<u64, Found>,
    all: bool,
) -> Result<(), String> {
    for (inode, found) in found {
        made.history.check_blocks(*inode, found)?;
        if report.verdict != Conclusion::Loss && found.blocks.contains(&None) {
            return Err(format!("file {inode} cannot be read, and the examination says: {}", report.why));
        }
    }
    if !all || !is_one_block(input) {
        return Ok(());
    }
    match made.history.newest_like(found) {
        Some(state) if state >= made.history.synced_before() => Ok(()),
        Some(_) => Err("synced changes are gone, and nothing says so".to_owned()),
        None => Err("the files are as they never were, all together".to_owned()),
    }
}

/// Whether exactly one block of the pool was damaged, and no bytes of other places were copied into it.
fn is_one_block(input: &Input) -> bool {
    let [edit] = &input.edits[..] else { return false };
    let (at, len) = edit.span();
    !matches!(edit, Edit::Copy { .. }) && at / BLOCK == (at + len.max(1) - 1) / BLOCK
}
