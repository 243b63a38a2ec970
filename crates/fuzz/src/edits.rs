//! How to spoil bytes: at sensitive places, and with values at which arithmetic goes wrong.

use std::ops::Range;

use headpond_base::BLOCK;

use crate::input::{DeviceEdit, Edit, Input};
use crate::seals::Seal;
use crate::seed::Seed;
use crate::subject::Base;

/// Values at the edges of fields.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 41,
    1 << 51,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// The most edits of one input.
const EDITS_MAX: usize = 12;

/// Spoils a fresh input, or one that was spoiled before.
pub(crate) fn spoil(seed: &mut Seed, input: &mut Input, base: &Base) {
    if !input.edits.is_empty() && seed.one_in(4) {
        let gone = seed.index(input.edits.len());
        input.edits.remove(gone);
    }
    if seed.one_in(8) {
        input.forged = !input.forged;
    }
    if base.devices > 1 {
        return spoil_devices(seed, input, base);
    }
    let more = if seed.one_in(2) { 1 } else { 1 + seed.index(6) };
    for _ in 0..more {
        if input.edits.len() < EDITS_MAX {
            input.edits.push(edit(seed, 0..base.bytes.len(), &base.bytes, &base.seals));
        }
    }
}

/// Spoils a pool of several devices: mostly one of them, and sometimes as a whole.
fn spoil_devices(seed: &mut Seed, input: &mut Input, base: &Base) {
    let len = base.bytes.len() / base.devices;
    if !input.devices.is_empty() && seed.one_in(2) {
        let gone = seed.index(input.devices.len());
        input.devices.remove(gone);
    }
    let damaged = input.edits.first().map(|edit| edit.span().0 / len);
    let damaged = damaged.or_else(|| input.devices.iter().find_map(|edit| edit.damages()));
    let one = damaged.filter(|device| *device < base.devices).unwrap_or_else(|| seed.index(base.devices));
    let wholly = seed.one_in(3);
    if wholly && input.devices.len() < base.devices {
        let device = if seed.one_in(4) { seed.index(base.devices) } else { one };
        input.devices.push(match seed.below(6) {
            0 => DeviceEdit::Swap { one: 0, other: 1 + seed.index(base.devices - 1) },
            1 => DeviceEdit::Absent { device },
            2 => DeviceEdit::Cut { device, len: seed.index(len / 512) * 512 },
            3 => DeviceEdit::Stale { device, at: 0, len },
            4 => DeviceEdit::Stale { device, at: 0, len: BLOCK << seed.below(8) },
            _ => DeviceEdit::Stale { device, at: seed.index(len / BLOCK) * BLOCK, len: BLOCK << seed.below(8) },
        });
    }
    let most = [2, 1, 6][if wholly { 0 } else { 1 + seed.index(2) }];
    let more = seed.index(most) + usize::from(!wholly);
    for _ in 0..more {
        let device = if seed.one_in(6) { seed.index(base.devices) } else { one };
        let within = device * len..(device + 1) * len;
        let seals: Vec<Seal> = base.seals.iter().filter(|seal| within.contains(&seal.covers.start)).cloned().collect();
        if input.edits.len() < EDITS_MAX {
            input.edits.push(edit(seed, within, &base.bytes, &seals));
        }
    }
}

/// An edit in this part of some bytes.
fn edit(seed: &mut Seed, within: Range<usize>, bytes: &[u8], seals: &[Seal]) -> Edit {
    let seal = (!seals.is_empty() && !seed.one_in(5)).then(|| &seals[seed.index(seals.len())]);
    let place = seal.map_or(within, |seal| {
        let part = if seed.one_in(4) { &seal.covers } else { &seal.fields };
        part.start..part.end.max(part.start + 1)
    });
    let at = place.start + seed.index(place.len());
    match seed.below(10) {
        0..3 => Edit::Set { at, bytes: vec![bytes.get(at).copied().unwrap_or(0) ^ (1 << seed.below(8))] },
        3..6 => number(seed, bytes, place.start + (at - place.start) / 4 * 4),
        6 => {
            let mut noise = vec![0; 1 + seed.index(64)];
            seed.fill(&mut noise);
            Edit::Set { at, bytes: noise }
        }
        7 => {
            let len = [8, 64, 512, BLOCK, 4 * BLOCK, 16 * BLOCK][seed.index(6)];
            let at = if seed.one_in(2) { at / BLOCK * BLOCK } else { at };
            Edit::Fill { at, len, byte: [0, 0xff, 0x5a][seed.index(3)] }
        }
        // Copies bytes from elsewhere: a misdirected write, or an older version of the same.
        8 if seals.len() > 1 => {
            let (from, to) = (&seals[seed.index(seals.len())], seal.unwrap_or(&seals[seed.index(seals.len())]));
            Edit::Copy { from: from.covers.start, to: to.covers.start, len: from.covers.len().min(to.covers.len()) }
        }
        _ => {
            let blocks = (bytes.len() / BLOCK).max(1);
            let len = BLOCK << seed.below(5);
            Edit::Copy { from: seed.index(blocks) * BLOCK, to: at / BLOCK * BLOCK, len }
        }
    }
}

/// A number at an edge, or next to the present one.
fn number(seed: &mut Seed, bytes: &[u8], at: usize) -> Edit {
    let width = [1, 2, 4, 8][seed.index(4)];
    let mut there = [0; 8];
    if let Some(found) = bytes.get(at..at + width) {
        there[..width].copy_from_slice(found);
    }
    let there = u64::from_le_bytes(there);
    let value = match seed.below(6) {
        0 => there.wrapping_add(1),
        1 => there.wrapping_sub(1),
        2 => there.wrapping_add(seed.below(100)),
        _ => EDGES[seed.index(EDGES.len())],
    };
    Edit::Set { at, bytes: value.to_le_bytes()[..width].to_vec() }
}
