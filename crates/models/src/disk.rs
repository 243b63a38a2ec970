//! How long a slow disk takes: the model, without a clock and without a disk.
//!
//! An access of a disk with one arm takes
//!
//! ```text
//! overhead + seek(x) + rotational wait + bytes / rate
//! seek(0) = 0, seek(x) = a + b sqrt(x) + c x      x = way of the arm / its whole way
//! ```
//!
//! An access that goes on where the last one ended, with nothing in between, has neither seek nor rotational wait: the
//! disk reads ahead, and takes writes into its track buffer. A sync costs the overhead and a rotational wait, and ends
//! such a run. So an append with a sync after each takes one revolution on average, like a disk without a battery.
//!
//! A volume without an arm, in the network or of flash, takes its latency for each access. Its two limits bound how
//! fast accesses start. Its sync is one more access.

use std::fmt;
use std::str::FromStr;

use headpond_base::Nanos;

/// A disk with one arm. Times in nanoseconds, rates in bytes a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spindle {
    /// For each access, before the arm moves.
    pub overhead: f64,
    /// The seek's constant part.
    pub a: f64,
    /// The factor of the root of the way.
    pub b: f64,
    /// The factor of the way.
    pub c: f64,
    /// One turn of the platter. The rotational wait is evenly distributed from none to one turn.
    pub revolution: f64,
    /// The rate at address 0, the outer edge.
    pub outer_rate: f64,
    /// The rate at the last address, the inner edge.
    pub inner_rate: f64,
}

/// A volume without an arm: somewhere in the network, or of flash.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Network {
    /// Accesses a second.
    pub iops: f64,
    /// Bytes a second.
    pub rate: f64,
    /// From the start of an access to its end, in nanoseconds.
    pub latency: f64,
}

/// A disk that stands in for a slow origin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DiskModel {
    /// With an arm: one access at a time.
    Spindle(Spindle),
    /// Without an arm: any number of accesses, at a limited rate.
    Network(Network),
}

/// The position of the arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// The address behind the last access.
    pub address: u64,
    /// Whether an access at this address continues a run.
    pub streaming: bool,
}

/// An access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskAccess {
    /// The first byte on the disk.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u64,
}

const MS: f64 = 1e6;
const MB: f64 = 1e6;

impl Spindle {
    /// 7,200 turns a minute: 85 random reads of 4 KiB a second.
    pub const HDD_7200: Self = Self {
        overhead: 0.1 * MS,
        a: 0.23 * MS,
        b: 11.23 * MS,
        c: 3.54 * MS,
        revolution: 60e9 / 7_200.0,
        outer_rate: 210.0 * MB,
        inner_rate: 100.0 * MB,
    };
    /// 10,000 turns a minute: 129 random reads of 4 KiB a second.
    pub const HDD_10000: Self = Self {
        overhead: 0.03 * MS,
        a: 0.30 * MS,
        b: 5.00 * MS,
        c: 5.20 * MS,
        revolution: 60e9 / 10_000.0,
        outer_rate: 210.0 * MB,
        inner_rate: 120.0 * MB,
    };
    /// 15,000 turns a minute: 202 random reads of 4 KiB a second.
    pub const HDD_15000: Self = Self {
        overhead: 0.03 * MS,
        a: 0.20 * MS,
        b: 3.00 * MS,
        c: 3.30 * MS,
        revolution: 60e9 / 15_000.0,
        outer_rate: 240.0 * MB,
        inner_rate: 150.0 * MB,
    };

    /// The time to move the arm over a share of its way, in nanoseconds.
    #[must_use]
    pub fn seek(&self, way: f64) -> f64 {
        if way == 0.0 { 0.0 } else { self.a + self.b * way.sqrt() + self.c * way }
    }

    /// The time of an access on a disk of `span` bytes, with the arm at `head`. `turn` is the rotational wait, from 0
    /// to 1 revolution.
    #[must_use]
    pub fn access(&self, span: u64, head: Head, access: DiskAccess, turn: f64) -> Nanos {
        let span = span.max(1) as f64;
        let way = access.address.abs_diff(head.address) as f64 / span;
        let edge = (access.address as f64 / span).min(1.0);
        let rate = self.outer_rate + (self.inner_rate - self.outer_rate) * edge;
        let goes_on = head.streaming && way == 0.0;
        let arm = if goes_on { 0.0 } else { self.seek(way.min(1.0)) + turn * self.revolution };
        Nanos((self.overhead + arm + access.bytes as f64 * 1e9 / rate) as u64)
    }

    /// The time of a sync.
    #[must_use]
    pub fn sync(&self, turn: f64) -> Nanos {
        Nanos((self.overhead + turn * self.revolution) as u64)
    }
}

impl Network {
    /// A common entry tier: 3,000 accesses and 125 MB a second, 0.7 ms.
    pub const CLOUD: Self = Self { iops: 3_000.0, rate: 125.0 * MB, latency: 0.7 * MS };

    /// Two mirrored SSDs of 2011: 8,303 small accesses and 101 MB a second, 0.52 ms for 8 KiB.
    pub const SSD_MIRROR: Self = Self { iops: 8_303.0, rate: 101.0 * MB, latency: 0.44 * MS };
    /// A flash card of 2011, for reads: 33,439 small accesses and 750 MB a second, 0.08 ms for 8 KiB.
    pub const FLASH_CARD: Self = Self { iops: 33_439.0, rate: 750.0 * MB, latency: 0.069 * MS };

    /// A volume limited to 200 accesses and 150 MB a second, like cheap ones; 1 ms.
    pub const VOLUME_200: Self = Self { iops: 200.0, rate: 150.0 * MB, latency: 1.0 * MS };

    /// The least time between the starts of an access of `bytes` and of the next one.
    #[must_use]
    pub fn pace(&self, bytes: u64) -> Nanos {
        Nanos((1e9 / self.iops).max(bytes as f64 * 1e9 / self.rate) as u64)
    }

    /// The time of an access from its start.
    #[must_use]
    pub fn access(&self, bytes: u64) -> Nanos {
        Nanos((self.latency + bytes as f64 * 1e9 / self.rate) as u64)
    }
}

impl DiskModel {
    /// Every preset, by its name.
    pub const PRESETS: [(&'static str, Self); 7] = [
        ("hdd-7200", Self::Spindle(Spindle::HDD_7200)),
        ("hdd-10000", Self::Spindle(Spindle::HDD_10000)),
        ("hdd-15000", Self::Spindle(Spindle::HDD_15000)),
        ("cloud", Self::Network(Network::CLOUD)),
        ("volume-200", Self::Network(Network::VOLUME_200)),
        ("ssd-mirror", Self::Network(Network::SSD_MIRROR)),
        ("flash-card", Self::Network(Network::FLASH_CARD)),
    ];
}

impl FromStr for DiskModel {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::PRESETS.into_iter().find(|(known, _)| *known == name).map(|(_, model)| model).ok_or_else(|| {
            let known = Self::PRESETS.map(|(name, _)| name).join(", ");
            format!("unknown disk model '{name}': one of {known}")
        })
    }
}

impl fmt::Display for DiskModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::PRESETS.into_iter().find(|(_, model)| model == self).map_or("custom", |(name, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 1 << 40;

    #[test]
    fn a_run_streams_and_a_sync_ends_it() {
        let spindle = Spindle::HDD_7200;
        let access = DiskAccess { address: 1 << 20, bytes: 1 << 20 };
        let at = |streaming| Head { address: 1 << 20, streaming };
        let streamed = spindle.access(SPAN, at(true), access, 0.5);
        assert!((streamed.0 as f64 / 1e6 - (0.1 + 1.048_576e3 / 210.0)).abs() < 0.01, "{streamed:?}");
        let waited = spindle.access(SPAN, at(false), access, 0.5).since(streamed);
        assert_eq!(waited.0 / 1000, (spindle.revolution / 2.0) as u64 / 1000);
    }

    #[test]
    fn a_network_volume_keeps_both_limits() {
        let volume = Network::CLOUD;
        assert_eq!(volume.pace(4096).0, 333_333);
        assert_eq!(volume.pace(1_250_000).0, 10_000_000);
        assert!(volume.access(0).0 == 700_000);
    }

    /// Published for ORION on both (2011): the most small accesses and MB a second, and the latency of 8 KiB.
    #[test]
    fn an_ssd_and_a_flash_card_have_the_published_figures() {
        for (volume, iops, megabytes, milliseconds) in
            [(Network::SSD_MIRROR, 8_303.0, 101.0, 0.52), (Network::FLASH_CARD, 33_439.0, 750.0, 0.08)]
        {
            let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.01, "{found} {expected}");
            near(1e9 / volume.pace(8192).0 as f64, iops);
            near(1048.576 / (volume.pace(1 << 20).0 as f64 / 1e6), megabytes);
            near(volume.access(8192).0 as f64 / 1e6, milliseconds);
        }
    }

    #[test]
    fn presets_are_known_by_name() {
        for (name, model) in DiskModel::PRESETS {
            assert_eq!((name.parse(), model.to_string().as_str()), (Ok(model), name));
        }
        assert!("floppy".parse::<DiskModel>().unwrap_err().contains("hdd-7200"));
    }
}
