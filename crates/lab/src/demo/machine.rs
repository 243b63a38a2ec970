//! The machine that the demo runs on: what it is, and how busy its processors are.

use std::fs;

/// The processors' time since boot, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    busy: u64,
    all: u64,
}

impl CpuTime {
    /// Now.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(text.lines().next().unwrap_or_default())
    }

    /// Reads `cpu  user nice system idle iowait irq softirq steal ...`; the rest is part of these.
    fn parse(line: &str) -> Self {
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let all = ticks.iter().sum();
        let waiting: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy: all - waiting, all }
    }

    /// The share of the time since `before` in which the processors worked.
    pub fn busy_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.busy.saturating_sub(before.busy) as f64 / all as f64 }
    }
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
    fn waiting_for_a_disk_is_not_work() {
        let before = CpuTime::parse("cpu  100 0 100 800 0 0 0 0 0 0");
        let after = CpuTime::parse("cpu  110 0 110 860 20 0 0 0 0 0");
        assert!((after.busy_since(&before) - 0.2).abs() < 1e-9);
    }
}
