//! The settings of a mount: one table, one set of values, and the copy that the pool keeps.
//!
//! Sources of values, each over the earlier ones: the defaults, the pool's copy, the file of `--config`, the options
//! of the command line, and `headpond set`.
//!
//! Invariants:
//! - Values are always within their ranges: each change of a value goes through its [`ValueKind`].
//! - A set of changes is checked whole before any of it takes effect.
//!
//! `plan` has what the operator asked for at the start, `live` the settings of a running mount. Uses `refusal`,
//! `reserve` and `wording`.

mod kept;
mod kind;
mod live;
mod missed;
mod plan;
mod protect;
mod reference;
mod table;

use std::fmt;
use std::time::Duration;

use headpond_base::{CacheMode, Redundancy};
use headpond_engine::Config;
use serde::{Deserialize, Serialize};

pub(crate) use kept::{Keeper, RULES_TEXT_MAX, kept_text, over_defaults, rules_room};
pub use kind::{OFF, ValueKind};
pub(crate) use live::{LiveSettings, from_file as settings_from_file};
pub(crate) use missed::{Loss, Missed, MissedDevices};
pub use plan::{MountPlan, OriginLayer, PoolPlan};
pub use reference::reference;
pub(crate) use table::REDUNDANCY;
pub use table::{MODE, Setting, TABLE};

use protect::{PROTECT, places, values_of, word_of};
use table::{COUNTING, MODE_INDEX, NUMBERS_DIRECTORY, SHUTDOWN_FLUSH};

/// A value for every setting of the table.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    values: Vec<u64>,
}

/// One value, as shown to people and programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Value {
    /// The setting.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Its default.
    pub default: String,
}

/// One change, made or planned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingChange {
    /// The setting.
    pub name: String,
    /// Its value before.
    pub from: String,
    /// Its value after.
    pub to: String,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, default } = self;
        if value == default { write!(f, "{name}={value}") } else { write!(f, "{name}={value}    # default: {default}") }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { values: TABLE.iter().map(|setting| setting.default).collect() }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.all().map(|(setting, value)| (setting.name, setting.kind.show(value)))).finish()
    }
}

impl Settings {
    fn all(&self) -> impl Iterator<Item = (&'static Setting, u64)> + '_ {
        TABLE.iter().zip(self.values.iter().copied())
    }

    /// Sets one setting, or the three of `protect`.
    ///
    /// # Errors
    /// The possible names, or the values that this setting takes.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        if name == PROTECT {
            let values = values_of(text)?;
            places().into_iter().zip(values.into_iter().flatten()).for_each(|(index, value)| {
                self.values[index] = value;
            });
            return Ok(());
        }
        let Some(index) = TABLE.iter().position(|setting| setting.name == name) else {
            let known: Vec<&str> = [PROTECT].into_iter().chain(TABLE.iter().map(|setting| setting.name)).collect();
            return Err(format!("unknown setting '{name}'. Known: {}", known.join(", ")));
        };
        self.values[index] = TABLE[index].kind.parse(text).map_err(|why| format!("{name}: {why}"))?;
        Ok(())
    }

    /// Sets several, or none of them. `protect` comes first wherever it stands, so that what is named beside it holds.
    ///
    /// # Errors
    /// Those of [`Settings::set`], for all wrong changes.
    pub fn set_all(&mut self, changes: &[(String, String)]) -> Result<(), String> {
        let mut next = self.clone();
        let (words, others): (Vec<_>, Vec<_>) = changes.iter().partition(|(name, _)| name == PROTECT);
        let in_order = words.into_iter().chain(others);
        let wrong: Vec<String> = in_order.filter_map(|(name, text)| next.set(name, text).err()).collect();
        if !wrong.is_empty() {
            return Err(wrong.join("\n  "));
        }
        *self = next;
        Ok(())
    }

    /// Sets the cache mode.
    pub fn set_mode(&mut self, mode: CacheMode) {
        self.values[MODE_INDEX] = mode as u64;
    }

    /// Whether what was set fits a pool of so many devices.
    ///
    /// # Errors
    /// Why not, and what does.
    pub(crate) fn fit_devices(&self, before: &Self, devices: usize) -> Result<(), String> {
        let (was, now) = (before.config().redundancy, self.config().redundancy);
        if now != Redundancy::Parity || was == now || devices >= Redundancy::PARITY_DEVICES_LEAST {
            return Ok(());
        }
        Err(format!(
            "redundancy: parity needs at least {} devices, and this pool has {devices}. With two, use mirror; or add \
             devices first: headpond pool add MOUNTPOINT FLASH",
            Redundancy::PARITY_DEVICES_LEAST
        ))
    }

    /// The cache mode.
    #[must_use]
    pub fn mode(&self) -> CacheMode {
        self.config().mode
    }

    /// Whether the mount shows its numbers in `.headpond`.
    #[must_use]
    pub fn shows_panel(&self) -> bool {
        self.is_on(NUMBERS_DIRECTORY)
    }

    /// Whether requests are counted by file, process and rule.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.is_on(COUNTING)
    }

    /// On how many other hosts dirty data is to be.
    pub(crate) fn copies(&self) -> usize {
        let value = self.all().find(|(setting, _)| setting.name == table::COPIES).map_or(0, |(_, value)| value);
        1 + usize::from(value > 0)
    }

    /// How long a shutdown may flush. `None`: not at all.
    pub(crate) fn shutdown_flush(&self) -> Option<Duration> {
        let value = self.all().find(|(setting, _)| setting.name == SHUTDOWN_FLUSH).map_or(OFF, |(_, value)| value);
        (value != OFF).then(|| Duration::from_nanos(value))
    }

    /// Whether a setting that is on or off is on.
    fn is_on(&self, name: &str) -> bool {
        self.all().any(|(setting, value)| setting.name == name && value == 0)
    }

    /// The settings in the engine's form.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        self.all().for_each(|(setting, value)| (setting.apply)(&mut config, value));
        config
    }

    /// All values, for messages, with the word of `protect` before those that it sets.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        let show = |(setting, value): (&Setting, u64)| Value {
            name: setting.name.to_owned(),
            value: setting.kind.show(value),
            default: setting.kind.show(setting.default),
        };
        let mut values: Vec<Value> = self.all().map(show).collect();
        let of = |values: &[u64]| word_of(places().map(|index| values[index])).to_owned();
        let protect = Value { name: PROTECT.to_owned(), value: of(&self.values), default: of(&Self::default().values) };
        values.insert(MODE_INDEX + 1, protect);
        values
    }

    /// The settings that differ in `next`.
    #[must_use]
    pub fn changes(&self, next: &Self) -> Vec<SettingChange> {
        let pairs = self.all().zip(&next.values).filter(|((_, from), to)| from != *to);
        let change = |((setting, from), to): ((&Setting, u64), &u64)| SettingChange {
            name: setting.name.to_owned(),
            from: setting.kind.show(from),
            to: setting.kind.show(*to),
        };
        pairs.map(change).collect()
    }

    /// The settings as a TOML file: those that differ from their default, and always the mode.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let told = |(setting, value): &(&Setting, u64)| setting.name == MODE || *value != setting.default;
        self.all()
            .filter(told)
            .map(|(setting, value)| format!("{} = \"{}\"\n", setting.name, setting.kind.show(value)))
            .collect()
    }
}

/// The settings that a TOML file names, as `name = "value"`. Numbers may stand without quotes.
///
/// # Errors
/// What is wrong with it, and where.
pub fn read_toml(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string().trim_end().to_owned())?;
    let read = |(name, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok((name, text)),
        toml::Value::Integer(number) => Ok((name, number.to_string())),
        toml::Value::Table(_) => {
            Err(format!("[{name}]: the file has no sections. Write each setting as name = \"value\""))
        }
        _ => Err(format!("{name}: write the value in quotes or as a whole number, such as {name} = \"60s\"")),
    };
    table.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(changes: &[(&str, &str)]) -> Vec<(String, String)> {
        changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn several_changes_are_made_together_or_not_at_all() {
        let mut settings = Settings::default();
        let before = settings.clone();
        let error = settings.set_all(&pairs(&[("flush-period", "10s"), ("dirty-threshold", "90%"), ("colour", "red")]));
        let error = error.unwrap_err();
        assert!(error.contains("dirty-threshold: '90%'") && error.contains("1% to 70%"), "{error}");
        assert!(error.contains("unknown setting 'colour'. Known: protect, mode, dirty-threshold"), "{error}");
        assert_eq!(settings, before);
        settings.set_all(&pairs(&[("flush-period", "10s"), ("mode", "write-through")])).unwrap();
        assert_eq!(settings.mode(), CacheMode::WriteThrough);
        let changes = before.changes(&settings);
        assert_eq!((changes.len(), changes[1].from.as_str(), changes[1].to.as_str()), (2, "5m", "10s"));
    }

    #[test]
    fn a_word_of_protect_sets_three_and_what_stands_beside_it_holds() {
        let mut settings = Settings::default();
        let shown = |settings: &Settings, name: &str| {
            settings.values().into_iter().find(|value| value.name == name).unwrap().value
        };
        assert_eq!(shown(&settings, "protect"), "balanced", "the default is one of the words");
        settings.set_all(&pairs(&[("protect", "origin-soon")])).unwrap();
        assert_eq!(shown(&settings, "flush-period"), "1m");
        assert_eq!((shown(&settings, "dirty-threshold"), shown(&settings, "idle-flush")), ("30%".into(), "1s".into()));
        let mut read = Settings::default();
        read.set_all(&read_toml(&settings.to_toml()).unwrap()).unwrap();
        assert_eq!(shown(&read, "protect"), "origin-soon");
        settings.set_all(&pairs(&[("flush-period", "7m"), ("protect", "fewest-writes")])).unwrap();
        assert_eq!((shown(&settings, "flush-period"), shown(&settings, "protect")), ("7m".into(), "custom".into()));
        let before = settings.clone();
        settings.set("protect", "custom").unwrap();
        let error = settings.set("protect", "twice").unwrap_err();
        assert!(error.contains("fewest-writes") && error.contains("idle-flush"), "{error}");
        assert_eq!(settings, before, "what `get` shows can be set again");
    }

    #[test]
    fn what_a_file_says_reads_back() {
        let mut settings = Settings::default();
        settings.set_all(&pairs(&[("flush-period", "off"), ("fetch-size", "64K"), ("mode", "write-around")])).unwrap();
        let text = settings.to_toml();
        let mut read = Settings::default();
        read.set_all(&read_toml(&text).unwrap()).unwrap();
        assert_eq!(read, settings, "{text}");
        assert_eq!(read_toml("dirty-threshold = 30\n").unwrap(), pairs(&[("dirty-threshold", "30")]));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_its_line() {
        let error = read_toml("mode = \"write-back\"\nflush-period = \n").unwrap_err();
        assert!(error.contains("line 2"), "{error}");
        assert!(read_toml("[section]\nmode = \"write-back\"\n").unwrap_err().contains("section"));
        assert!(read_toml("flush-period = 1.5\n").unwrap_err().contains("60s"));
    }
}
