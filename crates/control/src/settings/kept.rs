//! The settings that the pool keeps: two slots beside the log, written in turn.
//!
//! Invariants:
//! - A set of settings is durable when [`Keeper::keep`] returns. A crash in the middle leaves the previous set.
//! - Only the holder of the pool's lock writes here, one at a time.

use std::sync::{Mutex, PoisonError};

use headpond_base::{BLOCK, BufMut, PoolId};
use headpond_format::{SETTINGS_SLOTS, SETTINGS_TEXT_MAX, SettingsBlock, decode_settings, encode_settings};
use headpond_rules::RuleSet;

use super::{MissedDevices, Settings, read_toml};
use crate::devices::{DeviceFile, PoolDevices};

/// Writes the settings of one pool.
pub(crate) struct Keeper {
    /// Each device has a copy.
    devices: PoolDevices,
    pool: PoolId,
    counter: Mutex<u64>,
}

impl Keeper {
    /// The keeper of a pool, and the text that the pool keeps. Unreadable text counts as none.
    pub(crate) fn open(devices: PoolDevices, pool: PoolId) -> (Self, Option<String>) {
        let read = |(file, offset): (DeviceFile, u64)| {
            let mut block = BufMut::zeroed(BLOCK);
            file.read_at(&mut block, offset).ok()?;
            decode_settings(&block, pool).ok()
        };
        let all = devices.all();
        let slots = all.iter().flat_map(|device| SETTINGS_SLOTS.map(|offset| (device.file.clone(), offset)));
        let newest = slots.filter_map(read).max_by_key(|block| block.counter);
        let counter = newest.as_ref().map_or(0, |block| block.counter);
        (Self { devices, pool, counter: Mutex::new(counter) }, newest.map(|block| block.text))
    }

    /// Writes settings to the pool, so that they survive any restart. It calls `text` when its turn comes.
    ///
    /// # Errors
    /// Those of the flash. With several devices one that takes them is enough.
    pub(crate) fn keep(&self, text: impl FnOnce() -> String) -> std::io::Result<()> {
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        let text = text();
        let next = *counter + 1;
        let block = encode_settings(&SettingsBlock { pool: self.pool, counter: next, text })
            .ok_or_else(|| std::io::Error::other("more settings than a pool has room for"))?;
        // Aligned memory for the flash, which may be open without the page cache.
        let block = BufMut::copy_of(&block).freeze();
        let write = |file: &DeviceFile| {
            file.write_at(&block, SETTINGS_SLOTS[(next % 2) as usize])?;
            file.sync()
        };
        let mut written: Vec<_> = self.devices.all().iter().map(|device| write(&device.file)).collect();
        match written.iter().position(Result::is_ok) {
            Some(_) => *counter = next,
            None => return written.pop().unwrap_or(Err(std::io::ErrorKind::NotFound.into())),
        }
        Ok(())
    }
}

/// The name of the kept rules, beside the settings.
const RULES: &str = "rules";

/// Bytes of the kept text for rules. The rest is for settings, all of which take less.
pub(crate) const RULES_TEXT_MAX: usize = SETTINGS_TEXT_MAX - 1024;

/// The name of what is known of devices that are missed, beside the settings.
const MISSED: &str = "missed";

/// The kept text: the settings, the rules as one text, and in the room that is left what is known of devices that the
/// pool misses.
pub(crate) fn kept_text(settings: &Settings, rules: &RuleSet, missed: &MissedDevices) -> String {
    let rules = if rules.is_empty() { String::new() } else { format!("{RULES} = {}\n", quoted(&rules.to_text())) };
    let mut text = settings.to_toml() + &rules;
    let frame = MISSED.len() + " = \"\"\n".len();
    let room = SETTINGS_TEXT_MAX.saturating_sub(text.len() + frame);
    let missed = missed.to_text(room);
    if !missed.is_empty() {
        text += &format!("{MISSED} = {}\n", quoted(&missed));
    }
    text
}

/// Bytes that rules take in the kept text.
pub(crate) fn rules_room(rules: &RuleSet) -> usize {
    quoted(&rules.to_text()).len()
}

/// A text in TOML, on one line. Rules have no control characters except newlines.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// The kept settings over the defaults. If this version does not know a setting, or refuses its value, it uses the
/// default and adds a note: a mount must not refuse a pool for that.
pub(crate) fn over_defaults(text: &str, notes: &mut Vec<String>) -> (Settings, RuleSet, MissedDevices) {
    let (mut settings, mut rules) = (Settings::default(), RuleSet::default());
    let mut missed = MissedDevices::default();
    match read_toml(text) {
        Ok(pairs) => {
            for (name, value) in pairs {
                if name == RULES {
                    match RuleSet::parse(&value) {
                        Ok(kept) => rules = kept,
                        Err(why) => notes.push(format!("headpond ignores the rules in the pool: {why}")),
                    }
                } else if name == MISSED {
                    missed = MissedDevices::parse(&value);
                } else if let Err(why) = settings.set(&name, &value) {
                    notes.push(format!("headpond ignores a setting in the pool: {why}"));
                }
            }
        }
        Err(why) => notes.push(format!("the settings in the pool are unreadable; headpond uses the defaults: {why}")),
    }
    (settings, rules, missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use headpond_base::MemberId;
    use headpond_device::{Fill, Flash};

    use crate::devices::PoolDevice;

    const POOL: PoolId = PoolId([1; 16]);

    #[test]
    fn what_is_kept_is_found_again_and_a_torn_write_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pond");
        let flash = Flash::create(&path, 1 << 20, Fill::Zeros).unwrap();
        let file = DeviceFile::Here(Arc::new(flash.file().unwrap().try_clone().unwrap()));
        let devices = PoolDevices::default();
        devices.join(PoolDevice { member: MemberId(0), path, bytes: 1 << 20, whole_bytes: 1 << 20, file });
        let (keeper, found) = Keeper::open(devices.clone(), POOL);
        assert_eq!(found, None);
        let mut settings = Settings::default();
        for period in ["10s", "20s", "30s"] {
            settings.set("flush-period", period).unwrap();
            keeper.keep(|| settings.to_toml()).unwrap();
            let (_, found) = Keeper::open(devices.clone(), POOL);
            assert_eq!(over_defaults(&found.unwrap(), &mut Vec::new()).0, settings);
        }
        let torn = BufMut::zeroed(512.max(BLOCK)).freeze();
        flash.write(SETTINGS_SLOTS[1], &torn).unwrap();
        let (keeper, found) = Keeper::open(devices.clone(), POOL);
        assert!(found.unwrap().contains("20s"));
        keeper.keep(|| settings.to_toml()).unwrap();
        let (_, found) = Keeper::open(devices, PoolId([2; 16]));
        assert_eq!(found, None, "another pool was made here");
    }

    #[test]
    fn what_is_not_understood_is_told_and_the_rest_is_used() {
        let mut notes = Vec::new();
        let (settings, _, _) =
            over_defaults("flush-period = \"10s\"\nnew-thing = \"1\"\ndirty-threshold = \"99%\"\n", &mut notes);
        let mut expected = Settings::default();
        expected.set("flush-period", "10s").unwrap();
        assert_eq!(settings, expected);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(over_defaults("\0", &mut notes).0, Settings::default());
    }

    #[test]
    fn rules_and_missed_devices_are_kept_beside_the_settings_and_rules_that_make_no_sense_are_told() {
        let rules =
            RuleSet::parse("name=\"my \\\"backup\\\" \\\\ é\" action=bypass\npath=db/** action=pin quota=10%\n")
                .unwrap();
        let mut settings = Settings::default();
        settings.set("flush-period", "10s").unwrap();
        let mut notes = Vec::new();
        let missed = MissedDevices::parse("1 1795227736 faulted /nvme/\"b\"\n");
        let (again, read, missed_again) = over_defaults(&kept_text(&settings, &rules, &missed), &mut notes);
        assert_eq!((&again, read.rules(), notes.len()), (&settings, rules.rules(), 0), "{notes:?}");
        assert_eq!(missed_again.all(), missed.all());
        let (_, read, _) = over_defaults("rules = \"name=x\\n\"\n", &mut notes);
        assert!(read.is_empty() && notes[0].contains("rule 1"), "{notes:?}");
        assert!(rules_room(&rules) < RULES_TEXT_MAX);
    }
}
