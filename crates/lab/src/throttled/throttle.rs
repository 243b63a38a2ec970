//! How fast a throttled disk serves, and when an access may begin: arithmetic without a clock.
//!
//! Source: the generic cell rate algorithm (ITU-T I.371), as a virtual schedule: a limit knows when the next access is
//! due, and how far a pause may let that lie in the past.

use headpond_base::Nanos;
use std::fmt;
use std::str::FromStr;

const MIB: f64 = 1_048_576.0;

/// Accesses a second beyond the limit, as long as credits last.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    /// Accesses a second.
    pub iops: f64,
    /// For how long a full account lasts, in seconds. It is full at the start.
    pub seconds: f64,
}

/// What a throttled disk charges. An access of any size counts as one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Throttle {
    /// Accesses a second, reads and writes together.
    pub iops: Option<f64>,
    /// MiB a second, reads and writes together.
    pub mib: Option<f64>,
    /// How accesses come faster for a while.
    pub burst: Option<Burst>,
    /// From the start of an access to its end, in milliseconds.
    pub latency: f64,
}

impl Throttle {
    /// A cheap volume: 200 accesses and 150 MiB a second.
    pub const VOLUME_200: Self = Self { iops: Some(200.0), mib: Some(150.0), burst: None, latency: 0.0 };
    /// A common entry tier: 3,000 accesses and 125 MiB a second.
    pub const VOLUME_3000: Self = Self { iops: Some(3000.0), mib: Some(125.0), burst: None, latency: 0.0 };
    /// 100 accesses a second, and 3,000 for a minute after a long pause; 125 MiB a second.
    pub const BURST: Self =
        Self { iops: Some(100.0), mib: Some(125.0), burst: Some(Burst { iops: 3000.0, seconds: 60.0 }), latency: 0.0 };
    /// A millisecond for each access, any number at once.
    pub const FAR: Self = Self { iops: None, mib: None, burst: None, latency: 1.0 };

    /// Every profile, by its name.
    pub const PROFILES: [(&'static str, Self); 4] = [
        ("volume-200", Self::VOLUME_200),
        ("volume-3000", Self::VOLUME_3000),
        ("burst", Self::BURST),
        ("far", Self::FAR),
    ];

    /// The words that `from_str` takes, for a message.
    #[must_use]
    pub fn words() -> String {
        let names = Self::PROFILES.map(|(name, _)| name).join(", ");
        format!("one of {names}, or some of iops=N, mib=N, burst=N, burst-seconds=N, latency=MILLISECONDS")
    }
}

impl FromStr for Throttle {
    type Err = String;

    /// A profile's name, or keys with their values between commas or plus signs.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, profile)) = Self::PROFILES.into_iter().find(|(name, _)| *name == text) {
            return Ok(profile);
        }
        let wrong = |what: &str| format!("throttle '{text}': {what}: {}", Self::words());
        let mut throttle = Self::default();
        let (mut burst, mut seconds) = (None, None);
        for part in text.split([',', '+']) {
            let (key, value) = part.split_once('=').ok_or_else(|| wrong(&format!("'{part}' is no profile")))?;
            let number = value.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
            let number = number.ok_or_else(|| wrong(&format!("{key}={value} is no number above zero")))?;
            match key {
                "iops" => throttle.iops = Some(number),
                "mib" => throttle.mib = Some(number),
                "burst" => burst = Some(number),
                "burst-seconds" => seconds = Some(number),
                "latency" => throttle.latency = number,
                _ => return Err(wrong(&format!("no key is called '{key}'"))),
            }
        }
        throttle.burst = match (burst, seconds, throttle.iops) {
            (None, None, _) => None,
            (Some(iops), Some(seconds), Some(limit)) if iops > limit => Some(Burst { iops, seconds }),
            _ => return Err(wrong("a burst has burst-seconds, and more accesses a second than iops")),
        };
        Ok(throttle)
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.iops.map(|iops| format!("{iops} I/Os a second")));
        parts.extend(self.mib.map(|mib| format!("{mib} MiB a second")));
        parts.extend(self.burst.map(|burst| format!("{} I/Os a second for {} s", burst.iops, burst.seconds)));
        if self.latency > 0.0 {
            parts.push(format!("{} ms for each", self.latency));
        }
        f.write_str(&parts.join(", "))
    }
}

/// One limit.
struct Limit {
    /// Of what it counts, a second.
    rate: f64,
    /// How far `due` may lie in the past, in nanoseconds: what a pause saves up.
    saved: f64,
    /// When the next access is due, in nanoseconds.
    due: f64,
}

impl Limit {
    fn charge(&mut self, start: f64, amount: f64) {
        self.due = self.due.max(start - self.saved) + amount * 1e9 / self.rate;
    }
}

/// The schedule of a throttled disk.
pub struct ThrottleSchedule {
    accesses: Vec<Limit>,
    bytes: Option<Limit>,
    latency: Nanos,
}

impl ThrottleSchedule {
    /// With full credits, from `now` on.
    #[must_use]
    pub fn new(throttle: &Throttle, now: Nanos) -> Self {
        let now = now.0 as f64;
        let mut accesses = Vec::new();
        if let Some(rate) = throttle.iops {
            // While a burst lasts, credits are spent by what it is above the limit.
            let saved = throttle.burst.map_or(0.0, |burst| (burst.iops / rate - 1.0) * burst.seconds * 1e9);
            accesses.push(Limit { rate, saved, due: now - saved });
        }
        accesses.extend(throttle.burst.map(|burst| Limit { rate: burst.iops, saved: 0.0, due: now }));
        let bytes = throttle.mib.map(|mib| Limit { rate: mib * MIB, saved: 0.0, due: now });
        Self { accesses, bytes, latency: Nanos((throttle.latency * 1e6) as u64) }
    }

    /// When an access of so many bytes that comes `now` may end. Ask in the order in which they come.
    pub fn end_of(&mut self, bytes: u64, now: Nanos) -> Nanos {
        let limits = || self.accesses.iter().chain(&self.bytes);
        let start = limits().map(|limit| limit.due).fold(now.0 as f64, f64::max);
        self.accesses.iter_mut().for_each(|limit| limit.charge(start, 1.0));
        if let Some(limit) = &mut self.bytes {
            limit.charge(start, bytes as f64);
        }
        Nanos(start as u64 + self.latency.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many accesses of so many bytes end within `seconds`, if all came at `from` seconds.
    fn served(schedule: &mut ThrottleSchedule, bytes: u64, from: u64, seconds: u64) -> usize {
        let end = Nanos((from + seconds) * Nanos::SECOND.0);
        (0..1_000_000).take_while(|_| schedule.end_of(bytes, Nanos(from * Nanos::SECOND.0)) < end).count()
    }

    #[test]
    fn each_limit_holds_whatever_the_size() {
        let served =
            |bytes, seconds| served(&mut ThrottleSchedule::new(&Throttle::VOLUME_200, Nanos(0)), bytes, 0, seconds);
        assert_eq!(served(4096, 10), 2000);
        assert_eq!(served(512 << 10, 10), 2000, "as many large ones, until the bytes run out");
        assert_eq!(served(1 << 20, 10), 1500);
    }

    #[test]
    fn a_pause_saves_nothing_up_without_a_burst() {
        let mut schedule = ThrottleSchedule::new(&Throttle::VOLUME_200, Nanos(0));
        served(&mut schedule, 4096, 0, 1);
        assert_eq!(served(&mut schedule, 4096, 100, 1), 200);
    }

    #[test]
    fn a_burst_lasts_as_long_as_its_credits_and_a_pause_earns_them_back() {
        let mut schedule = ThrottleSchedule::new(&Throttle::BURST, Nanos(0));
        assert_eq!(served(&mut schedule, 4096, 0, 60), 180_000);
        let limited = served(&mut schedule, 4096, 60, 10);
        assert!((999..=1000).contains(&limited), "then the limit alone: {limited}");
        let earned = served(&mut schedule, 4096, 170, 10);
        assert!((10_900..=11_100).contains(&earned), "100 s earn 10,000: {earned}");
    }

    #[test]
    fn latency_is_no_limit() {
        let mut schedule = ThrottleSchedule::new(&Throttle::FAR, Nanos(0));
        assert!((0..1000).all(|_| schedule.end_of(4096, Nanos(5)) == Nanos(1_000_005)));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_there_is() {
        assert_eq!("volume-200".parse(), Ok(Throttle::VOLUME_200));
        assert_eq!("iops=200,mib=150".parse(), Ok(Throttle::VOLUME_200));
        assert_eq!("iops=100+mib=125+burst=3000+burst-seconds=60".parse(), Ok(Throttle::BURST));
        assert_eq!("latency=1".parse(), Ok(Throttle::FAR));
        for (text, told) in [
            ("", "volume-200"),
            ("fast", "'fast'"),
            ("iops=0", "above zero"),
            ("iops=inf", "above zero"),
            ("colour=1", "'colour'"),
            ("iops=100,burst=50,burst-seconds=1", "burst-seconds"),
            ("burst=50", "burst-seconds"),
        ] {
            let error = text.parse::<Throttle>().expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
