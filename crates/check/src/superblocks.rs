//! The two copies of the superblock.

use std::fmt;

use headpond_base::BLOCK;
use headpond_engine::FlashRead;
use headpond_format::{Damage, SUPERBLOCK_SLOTS, Superblock, decode_superblock};

use crate::report::{Findings, Severity, SlotReport};

/// Why a slot gives no superblock.
enum Lack {
    /// There is none where one should be.
    Missing,
    Damaged(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::Damaged(why) => f.write_str(why),
        }
    }
}

/// The content of the two slots.
pub(crate) struct Slots {
    pub(crate) found: [Option<Superblock>; 2],
}

impl Slots {
    /// The superblock that counts, and the one before it.
    pub(crate) fn in_order(&self) -> (Option<&Superblock>, Option<&Superblock>) {
        let counter = |superblock: &Option<Superblock>| superblock.as_ref().map(|superblock| superblock.counter);
        let [first, second] = &self.found;
        if counter(second) > counter(first) {
            (second.as_ref(), first.as_ref())
        } else {
            (first.as_ref(), second.as_ref())
        }
    }
}

pub(crate) fn examine(
    flash: &mut dyn FlashRead,
    device_bytes: u64,
    findings: &mut Findings,
) -> (Slots, Vec<SlotReport>) {
    let read = SUPERBLOCK_SLOTS.map(|offset| {
        if offset + BLOCK as u64 > device_bytes {
            return Err(Lack::Damaged("the device ends before it".to_owned()));
        }
        let bytes = flash.read(offset, BLOCK).map_err(|errno| Lack::Damaged(format!("unreadable: {errno}")))?;
        decode_superblock(&bytes).map_err(|damage| match damage {
            Damage::Missing(_) => Lack::Missing,
            damage => Lack::Damaged(damage.to_string()),
        })
    });
    let newest = read.iter().flatten().map(|superblock| superblock.counter).max();
    // After a format, and after a repair of one copy from the other.
    let alike = matches!(&read, [Ok(first), Ok(second)] if first == second);
    // A file or device that was never a pool: the verdict says so, and nothing is lost.
    let none = read.iter().all(|slot| matches!(slot, Err(Lack::Missing)));
    let mut told = Vec::new();
    for (index, (offset, slot)) in SUPERBLOCK_SLOTS.into_iter().zip(&read).enumerate() {
        let counter = slot.as_ref().ok().map(|superblock| superblock.counter);
        let damage = match (slot, newest) {
            (Err(lack), _) => Some(lack.to_string()),
            // Writes alternate between them.
            (Ok(found), Some(newest)) if found.counter.abs_diff(newest) > 1 => {
                Some(format!("has counter {}, not the one before {newest}: a write was lost", found.counter))
            }
            (Ok(found), _) if !alike && found.counter % 2 != index as u64 => {
                Some("belongs in the other slot: a write was misdirected".to_owned())
            }
            _ => None,
        };
        if let Some(why) = damage.as_ref().filter(|_| !none) {
            let (severity, meaning) = match newest {
                Some(_) => (Severity::Harmless, "The other copy is in force; the next checkpoint repairs this one."),
                None => (Severity::Loss, "Without it the check cannot examine the pool."),
            };
            findings.add(severity, format!("superblock {index}"), offset, format!("{why}. {meaning}"));
        }
        told.push(SlotReport { offset, counter, counts: counter.is_some() && counter == newest, damage });
    }
    if alike && let Some(second) = told.get_mut(1) {
        second.counts = false;
    }
    (Slots { found: read.map(Result::ok) }, told)
}
