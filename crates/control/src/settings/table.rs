//! Every setting of a mount, one entry each: its name, meaning, range, default, and where it takes effect. `headpond
//! set`, `get`, `--config`, the settings in the pool and docs/settings.md all come from this table.
//!
//! A new setting is one more entry here. A released name keeps its meaning.

use headpond_base::{CacheMode, CopyLoss, Nanos};
use headpond_engine::{Admission, Compression, Config, FlashWriteLimit, Policy};

use super::kind::{OFF, ValueKind};

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name: on the command line, in files, and in answers.
    pub name: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// What another value does, and when you want it.
    pub effect: &'static str,
    /// The form of its values, and their range.
    pub kind: ValueKind,
    /// Its default.
    pub default: u64,
    /// Sets it in the engine's configuration.
    pub(super) apply: fn(&mut Config, u64),
}

/// The place of [`MODE`] in the table. A change of the mode is the only one that takes time.
pub(super) const MODE_INDEX: usize = 0;

/// The cache mode's name among the settings.
pub const MODE: &str = "mode";

/// The name of the setting that shows or hides `.headpond` in the mount.
pub(super) const NUMBERS_DIRECTORY: &str = "numbers-directory";

/// The name of the setting that turns counting of requests on or off.
pub(super) const COUNTING: &str = "counting";

/// The name of the setting that bounds the flush at a shutdown.
pub(super) const SHUTDOWN_FLUSH: &str = "shutdown-flush";

/// The name of the setting that says how many devices have each dirty block.
pub(crate) const REDUNDANCY: &str = "redundancy";

/// The name of the setting that says on how many other hosts dirty data is.
pub(super) const COPIES: &str = "copies";

const MODES: &[&str] = &["write-back", "write-through", "write-around", "pass-through"];
const POLICIES: &[&str] = &["fifo", "lru", "s3-fifo", "w-tinylfu", "adaptive"];
/// In the order of the kept numbers: add only at the end.
const COMPRESSIONS: &[&str] =
    &["off", "lz4", "zstd", "zstd:1", "zstd:2", "zstd:3", "zstd:4", "zstd:5", "zstd:6", "zstd:7", "zstd:8", "zstd:9"];
const REDUNDANCIES: &[&str] = &["none", "mirror", "parity"];
const COPY_LOSSES: &[&str] = &["write-through", "go-on", "freeze"];
const MILLISECOND: u64 = Nanos::MILLISECOND.0;
const SECOND: u64 = Nanos::SECOND.0;
const DAY: u64 = 86_400 * SECOND;

/// All settings, in the order in which they are shown.
pub const TABLE: &[Setting] = &[
    Setting {
        name: MODE,
        meaning: "Where a write is safe, and whether headpond caches reads.",
        effect: "write-back: writes go to the log, and fsync makes them durable on flash; the origin gets them later. \
                 write-through: the origin takes each write before headpond acknowledges it, and fsync makes it durable \
                 there; flash keeps a copy. write-around: writes go to the origin alone; reads are cached. \
                 pass-through: everything goes to the origin. When you leave write-back, headpond first flushes in \
                 the background while programs go on; `set` waits for it and shows its progress.",
        kind: ValueKind::Choice(MODES),
        default: 0,
        apply: |config, value| {
            if let Some(mode) = u8::try_from(value).ok().and_then(CacheMode::from_number) {
                config.mode = mode;
            }
        },
    },
    Setting {
        name: "dirty-threshold",
        meaning: "The share of the pool that dirty data may take. Destage keeps it near this, if the origin keeps \
                 up.",
        effect: "Higher: several writes to one place become one write at the origin, and the pool absorbs longer \
                 bursts. Lower: less data exists on flash alone, and reads get more of the pool. Ten points above \
                 the threshold, writes wait for destage. off: destage starts after the flush-period, or when dirty \
                 data takes 75% of the pool, its limit.",
        kind: ValueKind::Percent { min: 1, max: 70, can_be_off: true },
        default: 50,
        apply: |config, value| {
            config.dirty_threshold = if value == OFF { 0 } else { u8::try_from(value).unwrap_or(50) }
        },
    },
    Setting {
        name: "flush-period",
        meaning: "The longest time that a block stays dirty while the origin keeps up.",
        effect: "Shorter: you lose less if the flash fails. Longer: fewer writes at the origin. off: destage starts \
                 at the dirty-threshold, or with a flush.",
        kind: ValueKind::Duration { min: SECOND, max: 7 * DAY, can_be_off: true },
        default: 300 * SECOND,
        apply: |config, value| config.flush_period = Nanos(if value == OFF { u64::MAX } else { value }),
    },
    Setting {
        name: "idle-flush",
        meaning: "After this long without a write, and without a request that waits for the origin, headpond flushes \
                 at full speed.",
        effect: "Shorter: headpond uses short pauses, and less data exists on flash alone. Longer, or off: several \
                 writes to one place become one write at the origin. A load without pauses never notices it.",
        kind: ValueKind::Duration { min: 100 * MILLISECOND, max: DAY, can_be_off: true },
        default: 10 * SECOND,
        apply: |config, value| config.idle_flush = (value != OFF).then_some(Nanos(value)),
    },
    Setting {
        name: "destage-rate",
        meaning: "The most that destage writes to the origin in a second.",
        effect: "Lower: more of the origin's throughput is left for others. If programs write faster than this for \
                 long, they wait. The limit does not apply to a flush, to an unmount, or to a pool that is out of \
                 room. off: the other settings decide.",
        kind: ValueKind::Size { min: 64 << 10, max: 1 << 40, power_of_two: false, can_be_off: true },
        default: OFF,
        apply: |config, value| config.destage_rate = (value != OFF).then_some(value),
    },
    Setting {
        name: "fetch-size",
        meaning: "How much a miss prefetches around the missed block. While the pool has room, every miss \
                 prefetches; later, a miss does where that has proved useful.",
        effect: "Larger: a cold cache warms up with fewer reads of the origin. Smaller: better if the origin \
                 charges by the byte, or if reads have no order at all. 4K: no prefetch.",
        kind: ValueKind::Size { min: 4 << 10, max: 1 << 20, power_of_two: true, can_be_off: false },
        default: 512 << 10,
        apply: |config, value| config.fetch_bytes = u32::try_from(value).unwrap_or(512 << 10),
    },
    Setting {
        name: "sync-interval",
        meaning: "The longest time until an unsynced write is durable on flash.",
        effect: "Shorter: a crash loses fewer unsynced writes. Longer: fewer syncs of the flash. When a program \
                 syncs its writes, they are durable at once in any case.",
        kind: ValueKind::Duration { min: 10 * MILLISECOND, max: 60 * SECOND, can_be_off: false },
        default: SECOND,
        apply: |config, value| config.sync_interval = Nanos(value),
    },
    Setting {
        name: "sequential-cutoff",
        meaning: "A sequential run of one process in one file bypasses the cache once it is longer than this.",
        effect: "Larger: headpond caches more sequential data. Smaller: backups and bulk loads evict less. off: \
                 headpond caches everything. Reads always use what is on flash. Writes that a \
                 program syncs as it goes, such as a log's, never bypass, nor do writes to a file with much dirty data, \
                 or to one that headpond promised to keep untorn.",
        kind: ValueKind::Size { min: 64 << 10, max: 1 << 40, power_of_two: false, can_be_off: true },
        default: 4 << 20,
        apply: |config, value| config.sequential_cutoff = (value != OFF).then_some(value),
    },
    Setting {
        name: "policy",
        meaning: "The eviction policy: which data stays when the pool is full.",
        effect: "adaptive watches a sample of the load and follows the policy that fits it best. Choose another for \
                 a load that you know: lru for a hot spot that moves, w-tinylfu for loops and a stable hot set, \
                 s3-fifo for a mixture, fifo to compare with. A change drops nothing.",
        kind: ValueKind::Choice(POLICIES),
        default: 4,
        apply: |config, value| {
            if let Some(policy) = usize::try_from(value).ok().and_then(|index| Policy::ALL.get(index)) {
                config.policy = *policy;
            }
        },
    },
    Setting {
        name: "admission",
        meaning: "The admission policy: which blocks read from the origin enter the pool.",
        effect: "always: every block that the eviction policy wants. ghost: a block enters at its second miss, if \
                 headpond still remembers the first. This writes far less to flash, and a cold cache warms up more \
                 slowly. Written data always enters.",
        kind: ValueKind::Choice(&["always", "ghost"]),
        default: 0,
        apply: |config, value| {
            config.admission = if value == 1 { Admission::Returning } else { Admission::Always };
        },
    },
    Setting {
        name: "flash-write-limit",
        meaning: "The most that reads of the origin may write to flash in a day.",
        effect: "Lower: the flash lasts longer. headpond answers a read beyond the limit, but does not cache it. It \
                 saves up unused allowance, at most an hour's worth. The limit never holds back what programs write.",
        kind: ValueKind::Size { min: 1 << 20, max: 1 << 50, power_of_two: false, can_be_off: true },
        default: OFF,
        apply: |config, value| config.flash_write_limit = (value != OFF).then_some(FlashWriteLimit(value)),
    },
    Setting {
        name: "hits-to-origin",
        meaning: "The largest share of hits on clean data that headpond may read from the origin instead of flash.",
        effect: "For hosts where flash is the bottleneck: while the origin answers sooner than flash, it serves hits \
                 up to this share. A slower origin serves none. Higher: headpond uses more of the origin's \
                 throughput. off: flash serves every hit. headpond verifies these bytes as it does those from flash.",
        kind: ValueKind::Percent { min: 1, max: 90, can_be_off: true },
        default: OFF,
        apply: |config, value| config.hits_to_origin = if value == OFF { 0 } else { u8::try_from(value).unwrap_or(0) },
    },
    Setting {
        name: "compression",
        meaning: "How headpond compresses data that it writes to flash.",
        effect: "lz4: the pool holds more where data shrinks, for little processor time. zstd: it holds more still, \
                 for more time; the number is the level, and zstd means zstd:1. off: no compression. A change \
                 applies to data that headpond writes, admits or moves from then on; data on flash stays readable. \
                 headpond stores data uncompressed if it would shrink by less than an eighth. A headpond without \
                 compression refuses a pool that ever had it on.",
        kind: ValueKind::Choice(COMPRESSIONS),
        default: 0,
        apply: |config, value| {
            let word = usize::try_from(value).ok().and_then(|index| COMPRESSIONS.get(index));
            config.compression = word.and_then(|word| Compression::parse(word)).unwrap_or_default();
        },
    },
    Setting {
        name: "compression-from",
        meaning: "The share of the pool that must be in use before headpond compresses.",
        effect: "Below this share there is room for everything, so compression would only cost processor time. \
                 Lower: headpond writes less to flash, which helps a flash that wears out or limits writes. 0%: it \
                 compresses from the first write on. Higher: it compresses only when room gets short. Reclaim \
                 compresses older data as it moves it. Compression by rules follows this setting, too.",
        kind: ValueKind::Percent { min: 0, max: 75, can_be_off: false },
        default: 50,
        apply: |config, value| config.compression_from = u8::try_from(value).unwrap_or(50),
    },
    Setting {
        name: REDUNDANCY,
        meaning: "How many devices of a pool have the data that the origin lacks. A pool of one device has it once.",
        effect: "mirror: two devices have each dirty block, so the loss of either loses nothing. Dirty data takes twice \
                 its room, and a sync waits for both devices. parity: the same, but where much is dirty, full segments \
                 on several devices get a parity on one more in the background, and give up their second copies. \
                 Then N devices hold dirty data in N/(N-1) of its room. It needs three devices or more. none: one \
                 device has it; the loss of a device loses what is dirty on it. Clean data lies on one device in any case: the origin has it, too. A change applies to \
                 what is written from then on.",
        kind: ValueKind::Choice(REDUNDANCIES),
        default: 1,
        apply: |config, value| {
            let word = usize::try_from(value).ok().and_then(|index| REDUNDANCIES.get(index));
            config.redundancy = word.and_then(|word| word.parse().ok()).unwrap_or_default();
        },
    },
    Setting {
        name: COPIES,
        meaning: "On how many other hosts dirty data is, if as many peers are named (--peer).",
        effect: "2: two peers have all that the origin lacks, and a sync waits for both. The loss of this host and of one \
                 of them at once loses nothing that was synced. While one is lost, a sync waits for the other, and the next \
                 peer that is named gets a copy. 1: one peer has it; the next one that is named gets a copy once that \
                 is lost. A lower number takes no copy away: headpond pool remove does.",
        kind: ValueKind::Choice(&["1", "2"]),
        default: 0,
        // Not the engine's: each segment has a copy at each peer that joined the pool.
        apply: |_, _| {},
    },
    Setting {
        name: "on-copy-loss",
        meaning: "What a sync waits for while no other host has a copy any more, until one has.",
        effect: "write-through: the origin has the file's data, too. The loss of this host still takes nothing that was \
                 synced, and syncs are as slow as the origin. If the origin fails as well, the flash here is enough. \
                 go-on: the flash here is enough; syncs stay fast, and the loss of this host loses what the origin has not. \
                 freeze: another copy. Until then no sync is answered, so a database stands still at its next commit. \
                 headpond looks for another copy by itself with each of them.",
        kind: ValueKind::Choice(COPY_LOSSES),
        default: 0,
        apply: |config, value| {
            let choice = usize::try_from(value).ok().and_then(|index| CopyLoss::ALL.get(index));
            config.copy_loss = choice.copied().unwrap_or_default();
        },
    },
    Setting {
        name: SHUTDOWN_FLUSH,
        meaning: "How long headpond writes dirty data to the origin at SIGTERM, and when systemd shuts the host down.",
        effect: "Longer: the origin is more likely to be complete after a shutdown. Shorter, or off: the host goes down \
                 sooner. What is left stays in the pool, and a marker beside the origin says so. A second signal ends the \
                 flush.",
        kind: ValueKind::Duration { min: SECOND, max: DAY, can_be_off: true },
        default: 30 * SECOND,
        // Not the engine's: the end of the mount reads it.
        apply: |_, _| {},
    },
    Setting {
        name: NUMBERS_DIRECTORY,
        meaning: "Whether the mount has a directory .headpond at its top, with numbers as small text files.",
        effect: "on: you can follow the mount with cat, watch and grep; no listing shows the directory. off: there \
                 is no such directory.",
        kind: ValueKind::Choice(&["on", "off"]),
        default: 0,
        // Not the engine's: the mount reads it.
        apply: |_, _| {},
    },
    Setting {
        name: COUNTING,
        meaning: "Whether headpond counts requests for each file, process and rule.",
        effect: "on: `top`, `.headpond/files`, `.headpond/processes` and `rules list` show the requests of each. off: \
                 these stand still; the mount's own numbers go on. `cargo xtask bench --only counting` measures the \
                 cost.",
        kind: ValueKind::Choice(&["on", "off"]),
        default: 0,
        // Not the engine's: the mount reads it.
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
    fn redundancies_have_the_names_that_they_have_everywhere() {
        assert_eq!(REDUNDANCIES, headpond_base::Redundancy::ALL.map(headpond_base::Redundancy::name));
    }

    #[test]
    fn copy_losses_have_the_names_that_they_have_everywhere() {
        assert_eq!(COPY_LOSSES, CopyLoss::ALL.map(CopyLoss::name));
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
