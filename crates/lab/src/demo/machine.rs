//! The machine of the demo: its properties, and how busy its processors are.

use crate::processor::ticks_of;
use std::fs;

/// The processors' time, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// What the demo's own processes used.
    own: u64,
    /// What went by, on all processors together.
    all: u64,
}

impl CpuTime {
    /// Up to now; `processes` are those of the demo.
    pub fn now(processes: &[u32]) -> Self {
        let own = processes.iter().map(|pid| ticks_of(*pid)).sum();
        Self { own, all: passed(&fs::read_to_string("/proc/stat").unwrap_or_default()) }
    }

    /// The share of the time since `before` that the demo's own processes used.
    pub fn share_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.own.saturating_sub(before.own) as f64 / all as f64 }
    }
}

/// Reads `cpu  user nice system idle iowait irq softirq steal ...`; the rest is part of these.
fn passed(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Processors, memory and kernel in a line.
pub fn describe() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |text: &str, label: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(label)?.split_once(':')?.1.trim().to_owned()))
    };
    let model = value(&cpus, "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = value(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let gib = kib as f64 / f64::from(1 << 20);
    format!("{count} x {model}, {gib:.0} GiB of memory, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_own_processes() {
        let machine = "cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 1 1 1\n";
        assert_eq!(passed(machine), 1000);
        let (before, after) = (CpuTime { own: 10, all: 1000 }, CpuTime { own: 60, all: 1200 });
        assert!((after.share_since(&before) - 0.25).abs() < 1e-9);
    }
}
