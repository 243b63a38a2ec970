//! The two slots of settings.

use headpond_base::{BLOCK, PoolId};
use headpond_engine::FlashRead;
use headpond_format::{Damage, SETTINGS_SLOTS, decode_settings};

use crate::report::{Findings, Severity, SlotReport};

pub(crate) fn examine(flash: &mut dyn FlashRead, pool: PoolId, findings: &mut Findings) -> Vec<SlotReport> {
    let mut told = Vec::new();
    for (index, offset) in SETTINGS_SLOTS.into_iter().enumerate() {
        let (counter, damage) = match flash.read(offset, BLOCK) {
            Err(errno) => (None, Some(format!("unreadable: {errno}"))),
            Ok(bytes) => match decode_settings(&bytes, pool) {
                Ok(settings) => (Some(settings.counter), None),
                // No settings were ever written, or these belong to the flash's earlier pool.
                Err(Damage::Missing(_) | Damage::Foreign(_)) => (None, None),
                Err(damage) => (None, Some(damage.to_string())),
            },
        };
        if let Some(why) = &damage {
            let what = format!(
                "{why}. The other copy is in force or, if there is none, the defaults. To see them: headpond get"
            );
            findings.add(Severity::Harmless, format!("settings {index}"), offset, what);
        }
        told.push(SlotReport { offset, counter, counts: false, damage });
    }
    let newest = told.iter().filter_map(|slot| slot.counter).max();
    if let Some(slot) = told.iter_mut().find(|slot| slot.counter.is_some() && slot.counter == newest) {
        slot.counts = true;
    }
    told
}
