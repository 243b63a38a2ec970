//! A whole pool of two or three mirrored devices, or of three or four with rows that have a parity. The real engine made
//! it over a known history. Then it is spoiled: one device, several, or the way in which they are given.
//!
//! - Whatever the damage: recovery and the examination have a verdict, and the same one. A pool in use can be read,
//!   written, flushed and stopped without a panic.
//! - If no checksum was forged: each block that is read once was there. What the examination calls sound or harmless
//!   reads without an error.
//! - If one device was damaged, the pool is refused, or nothing that was synced is lost: all reads give the state of
//!   one moment, none older than the last sync, and without an error.
//!   A device that the pool went on without is not believed.
//! - If one device is absent, or they are only given in another order, nothing is refused either.

use std::collections::BTreeMap;

use headpond_check::{Conclusion, Report, examine_members};
use headpond_engine::{Present, recover_members};

use super::{used, without_numbers};
use crate::devices::{Devices, MemoryFlash, given};
use crate::history::Found;
use crate::input::{DeviceEdit, Input};
use crate::life::{Made, Shape, config, made};
use crate::seals::{self, Seal};
use crate::seed::Seed;
use crate::subject::{Base, PlantedBug, Told};
use crate::target::Target;
use crate::world::World;

/// Every third pool has one device more than the others.
const fn shape(target: Target, base: u64) -> Shape {
    let more = if base % 3 == 2 { 1 } else { 0 };
    if matches!(target, Target::Rows) { Shape::Rows(3 + more) } else { Shape::Mirrored(2 + more) }
}

pub(super) fn base(target: Target, seed: u64) -> Base {
    let made = made(shape(target, seed), seed);
    let mut seals: Vec<Seal> = Vec::new();
    let mut start = 0;
    for image in &made.images {
        seals.extend(seals::of_image(image).into_iter().map(|seal| seal.moved(start)));
        start += image.len();
    }
    Base { bytes: made.images.concat(), devices: made.images.len(), seals }
}

pub(super) fn run(input: &Input, bytes: &[u8], planted: PlantedBug) -> Result<Told, String> {
    let shape = shape(input.target, input.base);
    let made = made(shape, input.base);
    let mut flashes = devices(input, &made, bytes);
    let report = examine_members(given(&mut flashes), &mut |_| {});
    let damage = Damage::of(input, bytes.len() / made.images.len());
    let count = flashes.len();
    let recovered = Present::muster_mutated(given(&mut flashes), planted.mutation()).and_then(|mut present| {
        let places: Vec<_> = (0..count).map(|device| present.member_of(device)).collect();
        Ok((recover_members(&mut present, planted.mutation())?, places))
    });
    let (recovered, places) = match recovered {
        Ok(recovered) => recovered,
        Err(error) if damage == Damage::Absent && made.is_double => {
            return Err(format!("a pool with a copy of everything is refused: {error}"));
        }
        Err(error) if report.verdict == Conclusion::Refused => {
            return Ok(Told { verdict: "refused", words: without_numbers(&error.to_string()) });
        }
        Err(error) => return Err(format!("recovery refuses what the examination calls {:?}: {error}", report.verdict)),
    };
    if report.verdict == Conclusion::Refused {
        return Err(format!("recovery takes what the examination says it refuses: {}", report.why));
    }
    if made.lost.is_some_and(|lost| places.contains(&Some(lost))) && !input.forged && damage != Damage::Much {
        return Err("a device is believed that the pool went on without".to_owned());
    }
    let of_members = flashes.into_iter().zip(places).filter_map(|(flash, member)| Some((member?, flash)));
    let mut seed = Seed(input.base ^ report.device_bytes);
    let (mut world, conflicts) =
        World::start(Devices::new(of_members), made.origin.clone(), recovered, config(shape, input.base), &mut || {
            seed.one_in(2)
        })?;
    let mut found = world.look_at_all()?;
    found.retain(|inode, _| !conflicts.contains(inode));
    if !input.forged {
        check_what_is_served(&made, &report, &found)?;
        if damage != Damage::Much && made.is_double {
            check_that_all_is_there(&made, &report, &found, &conflicts)?;
        }
    }
    world.use_it(&mut seed)?;
    Ok(used(&report, !conflicts.is_empty()))
}

/// The devices as they are given to a start.
fn devices(input: &Input, made: &Made, bytes: &[u8]) -> Vec<MemoryFlash> {
    let len = bytes.len() / made.images.len();
    let mut flashes: Vec<Option<MemoryFlash>> =
        bytes.chunks(len).map(|bytes| Some(MemoryFlash(bytes.to_vec()))).collect();
    let mut order: Vec<usize> = (0..flashes.len()).collect();
    for edit in &input.devices {
        match *edit {
            DeviceEdit::Stale { device, at, len } => {
                let (Some(Some(flash)), Some(earlier)) = (flashes.get_mut(device), made.earlier.get(device)) else {
                    continue;
                };
                let range = at.min(flash.0.len())..at.saturating_add(len).min(flash.0.len());
                flash.0[range.clone()].copy_from_slice(&earlier[range]);
            }
            DeviceEdit::Cut { device, len } => {
                if let Some(Some(flash)) = flashes.get_mut(device) {
                    flash.0.truncate(len);
                }
            }
            DeviceEdit::Absent { device } => {
                if let Some(flash) = flashes.get_mut(device) {
                    *flash = None;
                }
            }
            DeviceEdit::Swap { one, other } => {
                if one.max(other) < order.len() {
                    order.swap(one, other);
                }
            }
        }
    }
    order.into_iter().filter_map(|device| flashes[device].take()).collect()
}

/// How much of a pool an input damages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// At most one device is not there. All others are whole.
    Absent,
    /// One device.
    OneDevice,
    Much,
}

impl Damage {
    fn of(input: &Input, device_bytes: usize) -> Self {
        let mut damaged: Vec<usize> = input.devices.iter().filter_map(|edit| edit.damages()).collect();
        for edit in &input.edits {
            let (at, len) = edit.span();
            damaged.extend([at / device_bytes, (at + len.max(1) - 1) / device_bytes]);
        }
        damaged.dedup();
        let is_gone = input.devices.iter().any(|edit| matches!(edit, DeviceEdit::Absent { .. }));
        match damaged.iter().all(|device| *device == damaged[0]) {
            true if damaged.is_empty() || is_gone => Self::Absent,
            true => Self::OneDevice,
            false => Self::Much,
        }
    }
}

fn check_what_is_served(made: &Made, report: &Report, found: &BTreeMap<u64, Found>) -> Result<(), String> {
    for (inode, found) in found {
        made.history.check_blocks(*inode, found)?;
        if report.verdict != Conclusion::Loss && found.blocks.contains(&None) {
            return Err(format!("file {inode} cannot be read, and the examination says: {}", report.why));
        }
    }
    Ok(())
}

/// With damage to one device, what was synced is there.
fn check_that_all_is_there(
    made: &Made,
    report: &Report,
    found: &BTreeMap<u64, Found>,
    conflicts: &[u64],
) -> Result<(), String> {
    if !conflicts.is_empty() {
        return Err(format!("a conflict about {conflicts:?}, and nobody changed anything"));
    }
    if report.verdict == Conclusion::Loss {
        return Err(format!("one device is damaged, and the examination says: {}", report.why));
    }
    match made.history.newest_like(found) {
        Some(state) if state >= made.history.synced() => Ok(()),
        Some(_) => Err("synced changes are gone, and nothing says so".to_owned()),
        None => Err("the files are as they never were, all together".to_owned()),
    }
}
