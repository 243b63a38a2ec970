//! Every setting of a mount, one entry each: its name, what it means, its range, its default, and
//! where it goes. `headpond set`, `get`, `--config`, what is kept with the pool, and docs/settings.md all
//! come from this table.
//!
//! A new setting is one more entry here. A name, once released, keeps its meaning.

use headpond_base::{CacheMode, Nanos};
use headpond_engine::{Admission, Compression, Config, FlashWriteLimit, Policy};

use super::kind::{Kind, OFF};

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name: on the command line, in files, and in answers.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// What another value does, and when one would want it.
    pub effect: &'static str,
    /// How it is written, and its range.
    pub kind: Kind,
    /// Its value where nobody says anything.
    pub default: u64,
    /// Puts it where it takes effect.
    pub(super) apply: fn(&mut Config, u64),
}

/// The place of [`MODE`] in the table: the one setting whose change takes its time.
pub(super) const MODE_INDEX: usize = 0;

/// The cache mode's name among the settings.
pub const MODE: &str = "mode";

/// The name of the setting that shows or hides `.headpond` in the mount.
pub(super) const NUMBERS_DIRECTORY: &str = "numbers-directory";

/// The name of the setting by which requests are counted or not.
pub(super) const COUNTING: &str = "counting";

const MODES: &[&str] = &["write-back", "write-through", "write-around", "pass-through"];
const POLICIES: &[&str] = &["fifo", "lru", "s3-fifo", "w-tinylfu", "adaptive"];
/// In the order of the numbers that are kept: at the end only can one be added.
const COMPRESSIONS: &[&str] =
    &["off", "lz4", "zstd", "zstd:1", "zstd:2", "zstd:3", "zstd:4", "zstd:5", "zstd:6", "zstd:7", "zstd:8", "zstd:9"];
const MILLISECOND: u64 = Nanos::MILLISECOND.0;
const SECOND: u64 = Nanos::SECOND.0;
const DAY: u64 = 86_400 * SECOND;

/// All settings, in the order in which they are shown.
pub const TABLE: &[Setting] = &[
    Setting {
        name: MODE,
        meaning: "What happens to writes, and whether reads are cached.",
        effect: "write-back: a write is safe once it is on flash. write-through: once the origin has it, with a copy on \
                 flash. write-around: at the origin only, reads are cached. pass-through: everything at the origin. Leaving \
                 write-back flushes first, in the background, while everything goes on; `set` waits for it and shows how far \
                 it is.",
        kind: Kind::Choice(MODES),
        default: 0,
        apply: |config, value| {
            if let Some(mode) = u8::try_from(value).ok().and_then(CacheMode::from_number) {
                config.mode = mode;
            }
        },
    },
    Setting {
        name: "dirty-threshold",
        meaning: "The share of the pool near which destage keeps what is dirty, if the origin keeps up.",
        effect: "Higher: more writes to one place become one write at the origin, and a burst fits. Lower: less is in the pool \
                 only, and more room for what is read. Ten points above it writes wait for destage. off: destage begins with the \
                 flush-period, or when the pool can take no more dirty data (75%).",
        kind: Kind::Percent { min: 1, max: 70, can_be_off: true },
        default: 50,
        apply: |config, value| {
            config.dirty_threshold = if value == OFF { 0 } else { u8::try_from(value).unwrap_or(50) }
        },
    },
    Setting {
        name: "flush-period",
        meaning: "No block stays dirty longer than this while the origin keeps up.",
        effect: "Shorter: a lost flash costs less. Longer: fewer writes at the origin. off: destage begins at the dirty-threshold \
                 only, or with a flush.",
        kind: Kind::Duration { min: SECOND, max: 7 * DAY, can_be_off: true },
        default: 60 * SECOND,
        apply: |config, value| config.flush_period = Nanos(if value == OFF { u64::MAX } else { value }),
    },
    Setting {
        name: "idle-flush",
        meaning: "Once nobody has waited for the origin for so long, everything dirty goes there, as fast as it takes it.",
        effect: "Shorter: quiet moments are used, and less is in the pool only. Longer, or off: what is written again soon goes \
                 to the origin once.",
        kind: Kind::Duration { min: 100 * MILLISECOND, max: DAY, can_be_off: true },
        default: OFF,
        apply: |config, value| config.idle_flush = (value != OFF).then_some(Nanos(value)),
    },
    Setting {
        name: "destage-rate",
        meaning: "The most that destage writes to the origin in a second.",
        effect: "Lower: more of the origin is left for others. If more becomes dirty than it allows, writes wait in the end. It \
                 does not bind a flush, an unmount, or what the pool must do to go on. off: as the other settings say.",
        kind: Kind::Size { min: 64 << 10, max: 1 << 40, power_of_two: false, can_be_off: true },
        default: OFF,
        apply: |config, value| config.destage_rate = (value != OFF).then_some(value),
    },
    Setting {
        name: "fetch-size",
        meaning: "A miss brings up to this much of its neighbourhood along: while the pool, or memory for such blocks, has room, then where that proved useful.",
        effect: "Larger: a cold cache warms up in fewer reads of the origin. Smaller: where the origin charges by the byte, or \
                 the data is read in no order at all. 4K: the block alone.",
        kind: Kind::Size { min: 4 << 10, max: 1 << 20, power_of_two: true, can_be_off: false },
        default: 512 << 10,
        apply: |config, value| config.fetch_bytes = u32::try_from(value).unwrap_or(512 << 10),
    },
    Setting {
        name: "sync-interval",
        meaning: "Writes that nobody synced become durable on flash after at most this.",
        effect: "Shorter: a crash takes less of what was not synced. Longer: fewer syncs of the flash. What an application \
                 syncs is durable at once in any case.",
        kind: Kind::Duration { min: 10 * MILLISECOND, max: 60 * SECOND, can_be_off: false },
        default: SECOND,
        apply: |config, value| config.sync_interval = Nanos(value),
    },
    Setting {
        name: "sequential-cutoff",
        meaning: "Sequential runs longer than this, of one process in one file, pass by the cache.",
        effect: "Larger: more of what is read or written in order is cached. Smaller: backups and bulk loads push out less. off: \
                 everything is cached. What is on flash is served from there in any case; writes that are synced as they go, such as \
                 a database's log, never pass by, nor do writes to a file whose dirty data lies scattered (in more than \
                 eight places).",
        kind: Kind::Size { min: 64 << 10, max: 1 << 40, power_of_two: false, can_be_off: true },
        default: 4 << 20,
        apply: |config, value| config.sequential_cutoff = (value != OFF).then_some(value),
    },
    Setting {
        name: "policy",
        meaning: "What is kept when the pool cannot hold everything.",
        effect: "adaptive watches a sample of the load and follows whichever rule fits it best. The others are for loads that one \
                 knows: lru for a hot spot that moves, w-tinylfu for loops and a stable favourite, s3-fifo for a mixture, fifo to \
                 compare with. Nothing is dropped by a change.",
        kind: Kind::Choice(POLICIES),
        default: 4,
        apply: |config, value| {
            if let Some(policy) = usize::try_from(value).ok().and_then(|index| Policy::ALL.get(index)) {
                config.policy = *policy;
            }
        },
    },
    Setting {
        name: "admission",
        meaning: "Which reads of the origin are let in.",
        effect: "always: all that the policy wants. ghost: a block comes in when it is missed for the second time while its first miss \
                 is remembered; far fewer flash writes, and slower to warm up. What is written is let in by either.",
        kind: Kind::Choice(&["always", "ghost"]),
        default: 0,
        apply: |config, value| {
            config.admission = if value == 1 { Admission::Returning } else { Admission::Always };
        },
    },
    Setting {
        name: "flash-write-limit",
        meaning: "What reads of the origin may write to flash in a day.",
        effect: "Lower: the flash lasts longer. A read that the limit does not cover is answered and not let in; an hour's worth is \
                 saved up. What is written to the mount is never held back by it.",
        kind: Kind::Size { min: 1 << 20, max: 1 << 50, power_of_two: false, can_be_off: true },
        default: OFF,
        apply: |config, value| config.flash_write_limit = (value != OFF).then_some(FlashWriteLimit(value)),
    },
    Setting {
        name: "hits-to-origin",
        meaning: "The largest share of hits on clean data that may be read from the origin instead of flash.",
        effect: "Where flash is the bottleneck, and the origin has headroom and answers sooner, hits go there as long as that holds, \
                 up to this share; a slower origin gets none. Higher: more of the origin's throughput is used. off: flash answers \
                 every hit. What comes back is verified as from flash.",
        kind: Kind::Percent { min: 1, max: 90, can_be_off: true },
        default: OFF,
        apply: |config, value| config.hits_to_origin = if value == OFF { 0 } else { u8::try_from(value).unwrap_or(0) },
    },
    Setting {
        name: "compression",
        meaning: "How data is packed as it is written to flash.",
        effect: "lz4: more fits into the pool where data shrinks, for little time. zstd: more still, for more time; the number \
                 behind it is the level, and zstd is zstd:1. off: everything is stored as it is. A change is for what is written, \
                 let in or moved from then on; what is on flash stays readable. What would shrink by less than an eighth is stored \
                 as it is. A pool that ever held packed data is refused by versions that cannot read it.",
        kind: Kind::Choice(COMPRESSIONS),
        default: 0,
        apply: |config, value| {
            let word = usize::try_from(value).ok().and_then(|index| COMPRESSIONS.get(index));
            config.compression = word.and_then(|word| Compression::parse(word)).unwrap_or_default();
        },
    },
    Setting {
        name: "compression-from",
        meaning: "The share of the pool that must be in use before records are packed.",
        effect: "Below it there is room for all, and packing would cost the processor time for nothing. Lower: less is written to \
                 flash, so it lasts longer, and a flash whose writes are the limit does more. 0%: all is packed from the \
                 first write on. Higher: packing only as room gets short. What was stored as it is is packed as reclaim moves it. It \
                 is for compression by rules, too.",
        kind: Kind::Percent { min: 0, max: 75, can_be_off: false },
        default: 50,
        apply: |config, value| config.compression_from = u8::try_from(value).unwrap_or(50),
    },
    Setting {
        name: NUMBERS_DIRECTORY,
        meaning: "Whether the mount has a directory .headpond at its top, with numbers as small text files.",
        effect: "on: cat, watch and grep show how the mount is doing; it is in no listing. off: there is no such directory to be \
                 seen.",
        kind: Kind::Choice(&["on", "off"]),
        default: 0,
        // Not the engine's: the mount asks for it.
        apply: |_, _| {},
    },
    Setting {
        name: COUNTING,
        meaning: "Whether each request is counted for its file, its process and the rule that decides it.",
        effect: "on: `top`, `.headpond/files`, `.headpond/processes` and `rules list` show who does what. off: those stand still; \
                 what is told of the mount as a whole is counted all the same. What it costs is measured by `cargo xtask \
                 bench --only counting`.",
        kind: Kind::Choice(&["on", "off"]),
        default: 0,
        // Not the engine's either.
        apply: |_, _| {},
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        let mut names: Vec<&str> = TABLE.iter().map(|setting| setting.name).collect();
        assert_eq!(names[MODE_INDEX], MODE);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len(), "no name twice");
        for setting in TABLE {
            let shown = setting.kind.show(setting.default);
            assert_eq!(
                setting.kind.parse(&shown),
                Ok(setting.default),
                "{}: its default is out of its range",
                setting.name
            );
        }
    }

    #[test]
    fn policies_have_the_names_that_they_have_everywhere() {
        let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
        assert_eq!(POLICIES, names);
        let setting = TABLE.iter().find(|setting| setting.name == "policy").unwrap();
        assert_eq!(POLICIES[setting.default as usize], Policy::default().name());
    }

    #[test]
    fn compressions_are_what_their_names_say() {
        let setting = TABLE.iter().find(|setting| setting.name == "compression").unwrap();
        for (index, name) in (0..).zip(COMPRESSIONS) {
            let mut config = Config::default();
            (setting.apply)(&mut config, index);
            let shown = config.compression.to_string();
            assert_eq!(shown, if *name == "zstd" { "zstd:1" } else { *name });
        }
    }

    #[test]
    fn modes_have_the_numbers_that_they_have_on_flash() {
        for (index, name) in MODES.iter().enumerate() {
            assert_eq!(CacheMode::from_number(index as u8).map(CacheMode::name), Some(*name));
        }
        assert_eq!(MODES.len(), CacheMode::ALL.len());
    }

    #[test]
    fn defaults_are_the_engines_own() {
        let (mut ours, engines) = (Config::default(), Config::default());
        TABLE.iter().for_each(|setting| (setting.apply)(&mut ours, setting.default));
        assert_eq!(format!("{ours:?}"), format!("{engines:?}"));
    }
}
