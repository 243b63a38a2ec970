//! How to spoil bytes: at sensitive places, and with values at which arithmetic goes wrong.

use headpond_base::BLOCK;

use crate::input::{Edit, Input};
use crate::seals::Seal;
use crate::seed::Seed;

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
pub(crate) fn spoil(seed: &mut Seed, input: &mut Input, bytes: &[u8], seals: &[Seal]) {
    if !input.edits.is_empty() && seed.one_in(4) {
        let gone = seed.index(input.edits.len());
        input.edits.remove(gone);
    }
    if seed.one_in(8) {
        input.forged = !input.forged;
    }
    let more = if seed.one_in(2) { 1 } else { 1 + seed.index(6) };
    for _ in 0..more {
        if input.edits.len() < EDITS_MAX {
            input.edits.push(edit(seed, bytes, seals));
        }
    }
}

fn edit(seed: &mut Seed, bytes: &[u8], seals: &[Seal]) -> Edit {
    let seal = (!seals.is_empty() && !seed.one_in(5)).then(|| &seals[seed.index(seals.len())]);
    let place = seal.map_or(0..bytes.len(), |seal| {
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
