//! What `headpond top` shows: lines of text from two looks at the numbers. Pure.
//!
//! Invariant: never wider or higher than the smallest terminal, 80 x 24.

use headpond_control::{FileNumbers, LatencyDistribution, Numbers, ProcessNumbers, Size};

/// Columns of the screen.
pub const WIDTH: usize = 80;

/// Lines of the screen.
pub const HEIGHT: usize = 23;

/// Cells of a bar.
const BAR: usize = 24;

/// The numbers of two looks.
pub struct Interval {
    now: Numbers,
    since: Option<(Numbers, f64)>,
}

impl Interval {
    /// The first frame, with nothing to compare with.
    pub fn waiting(now: &Numbers) -> Self {
        Self { now: now.clone(), since: None }
    }

    /// The frame of the last `seconds`.
    pub fn between(before: &Numbers, now: &Numbers, seconds: f64) -> Self {
        Self { now: now.clone(), since: Some((before.clone(), seconds)) }
    }

    /// The lines.
    pub fn lines(&self) -> Vec<String> {
        let now = &self.now;
        let gauge = |name: &str| now.metric(name);
        let mut lines = vec![
            format!("headpond top  {}", now.mountpoint.display()),
            format!("{}, {}, up {}; q quits", now.mode, now.state, clock(gauge("uptime_seconds"))),
            format!("origin  {}", now.origin.display()),
            format!("flash   {} ({})", now.flash.display(), size(gauge("pool_size_bytes"))),
            format!(
                "{:<16}{:>10}{:>12}{:>11}{:>11}{:>11}",
                "APPLICATIONS", "a second", "bytes/s", "p50", "p99", "longest"
            ),
        ];
        for (name, latency, bytes) in [
            ("read hits", "read_hit", Some("read_hit_bytes_total")),
            ("read misses", "read_miss", Some("read_miss_bytes_total")),
            ("bypassed reads", "read_bypass", Some("bypassed_read_bytes_total")),
            ("writes", "write", Some("write_bytes_total")),
            ("syncs", "sync", None),
        ] {
            lines.push(self.requests(name, latency, bytes));
        }
        let (hits, misses) = (self.rate("read_hit_bytes_total"), self.rate("read_miss_bytes_total"));
        let ratio =
            if hits + misses > 0.0 { format!("{:.1} %", 100.0 * hits / (hits + misses)) } else { "-".to_owned() };
        lines.push(format!("hit ratio {ratio}, {:.0} writes a second stalled", self.rate("stalls_total")));
        lines.push(format!(
            "{:<16}{:>10}{:>12}{:>11}{:>12}{:>10}",
            "BELOW", "reads/s", "bytes/s", "writes/s", "bytes/s", "syncs/s"
        ));
        lines.push(self.below("origin"));
        lines.push(self.below("flash"));
        let capacity = gauge("pool_capacity_bytes");
        let (clean, dirty) = (gauge("clean_bytes"), gauge("dirty_bytes"));
        lines.push(share("used", clean + dirty, capacity, ""));
        lines.push(share("dirty", dirty, capacity, &format!(" in {:.0} files", gauge("dirty_files"))));
        let oldest = gauge("oldest_dirty_age_seconds");
        let oldest = if oldest > 0.0 { format!(", oldest dirty {}", clock(oldest)) } else { String::new() };
        let destage = size(gauge("destage_bytes_per_second"));
        lines.push(format!("{:<8}{destage}/s{oldest}{}", "destage", flush(now)));
        lines.push(format!(
            "{:<8}origin {:.0}, flash {:.0} (masked), lost {}{}",
            "errors",
            gauge("origin_errors_total"),
            gauge("flash_errors_masked_total"),
            size(gauge("lost_bytes_total")),
            if gauge("flash_failed") > 0.0 { "; THE FLASH HAS FAILED" } else { "" },
        ));
        lines.push(format!("{:<40}{}", "BUSIEST FILES", "BUSIEST PROCESSES"));
        let (files, processes) = (self.files(), self.processes());
        for row in 0..HEIGHT - lines.len() {
            let cell = |cells: &[String]| cells.get(row).cloned().unwrap_or_default();
            let line = format!("{:<39} {}", cell(&files), cell(&processes));
            lines.push(line.trim_end().to_owned());
        }
        lines.into_iter().map(|line| line.chars().take(WIDTH).collect()).collect()
    }

    fn requests(&self, name: &str, latency: &str, bytes: Option<&str>) -> String {
        let interval = self.latency(latency);
        let per_second = self.since.as_ref().map_or(0.0, |(_, seconds)| interval.count as f64 / seconds.max(1e-3));
        let bytes = bytes.map_or_else(String::new, |bytes| size(self.rate(bytes)));
        let [p50, p99, max] = [interval.p50_seconds, interval.p99_seconds, interval.max_seconds]
            .map(|seconds| if interval.count == 0 { "-".to_owned() } else { time(seconds) });
        format!("  {name:<14}{per_second:>10.0}{bytes:>12}{p50:>11}{p99:>11}{max:>11}")
    }

    fn below(&self, name: &str) -> String {
        let rate = |what: &str| self.rate(&format!("{name}_{what}_total"));
        let (reads, read, writes, written, syncs) =
            (rate("reads"), size(rate("read_bytes")), rate("writes"), size(rate("write_bytes")), rate("syncs"));
        format!("  {name:<14}{reads:>10.0}{read:>12}{writes:>11.0}{written:>12}{syncs:>10.0}")
    }

    /// The files with most bytes a second, each in half a line. It shows the end of a path, which says most.
    fn files(&self) -> Vec<String> {
        let before =
            |path: &str| self.since.as_ref()?.0.files.iter().find(|file| file.path == path).map(FileNumbers::bytes);
        let rates = self.now.files.iter().map(|file| {
            let name = if file.path.is_empty() { "(removed)" } else { &file.path };
            (self.lately(file.bytes(), before(&file.path), file.recent_bytes), name.to_owned())
        });
        busiest(rates)
    }

    /// The same for processes.
    fn processes(&self) -> Vec<String> {
        let before = |pid: u32| {
            self.since.as_ref()?.0.processes.iter().find(|process| process.pid == pid).map(ProcessNumbers::bytes)
        };
        let rates = self.now.processes.iter().map(|process| {
            let name = format!("{} ({})", process.name, process.pid);
            (self.lately(process.bytes(), before(process.pid), process.recent_bytes), name)
        });
        busiest(rates)
    }

    /// Bytes a second: over the interval, or over the last second if the item was not shown before.
    fn lately(&self, bytes: u64, before: Option<u64>, recent: u64) -> f64 {
        match (&self.since, before) {
            (Some((_, seconds)), Some(before)) => bytes.saturating_sub(before) as f64 / seconds.max(1e-3),
            (Some(_), None) => recent as f64,
            (None, _) => 0.0,
        }
    }

    fn latency(&self, name: &str) -> LatencyDistribution {
        match (&self.since, self.now.latency.get(name)) {
            (Some((before, _)), Some(now)) => {
                now.since(before.latency.get(name).unwrap_or(&LatencyDistribution::default()))
            }
            _ => LatencyDistribution::default(),
        }
    }

    /// The growth of a counter a second.
    fn rate(&self, name: &str) -> f64 {
        self.since
            .as_ref()
            .map_or(0.0, |(before, seconds)| (self.now.metric(name) - before.metric(name)).max(0.0) / seconds.max(1e-3))
    }
}

/// The busiest, each with its rate first: at most half the screen wide.
fn busiest(rates: impl Iterator<Item = (f64, String)>) -> Vec<String> {
    const NAME: usize = WIDTH / 2 - 14;
    let mut rates: Vec<(f64, String)> = rates.filter(|(rate, _)| *rate >= 1.0).collect();
    rates.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let short = |name: &str| {
        let plain = name.chars().map(|letter| if letter.is_control() { '?' } else { letter });
        let len = plain.clone().count();
        let end: String = plain.skip(len.saturating_sub(NAME)).collect();
        if len > NAME { format!("~{}", end.chars().skip(1).collect::<String>()) } else { end }
    };
    rates.iter().map(|(rate, name)| format!("{:>10}/s {}", size(*rate), short(name))).collect()
}

fn flush(now: &Numbers) -> String {
    let left = now.metric("flush_left_bytes");
    let takes = now.metric("flush_left_seconds");
    match (left > 0.0, takes > 0.0) {
        (false, _) => String::new(),
        (true, false) => format!("; a flush has {} left", size(left)),
        (true, true) => format!("; a flush has {} left, {}", size(left), clock(takes)),
    }
}

fn share(name: &str, part: f64, whole: f64, more: &str) -> String {
    let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * BAR as f64).round() as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR - full));
    format!("{name:<8}[{bar}] {:>3.0} %  {} of {}{more}", share * 100.0, size(part), size(whole))
}

fn size(bytes: f64) -> String {
    Size(bytes as u64).to_string()
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    if seconds < 86_400 { clock } else { format!("{} d {clock}", seconds / 86_400) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(scale: f64) -> Numbers {
        let metrics = headpond_control::METRICS.iter().map(|metric| (metric.name.to_owned(), scale)).collect();
        let latency = LatencyDistribution {
            count: scale as u64,
            buckets: vec![(250_000, scale as u64)],
            ..LatencyDistribution::default()
        };
        let latency = ["read_hit", "read_miss", "write", "sync"].map(|name| (name.to_owned(), latency.clone())).into();
        let bytes = scale as u64;
        let file = |path: &str| FileNumbers { path: path.to_owned(), hit_bytes: bytes, ..FileNumbers::default() };
        let files = vec![file("db/t1.ibd"), file(&"/long".repeat(30)), file("new\nline"), file("")];
        let process =
            ProcessNumbers { pid: 7, name: "mariadbd".into(), written_bytes: bytes, ..ProcessNumbers::default() };
        Numbers {
            mountpoint: "/var/lib/mysql".into(),
            origin: "/slow/".into(),
            mode: "write-back".into(),
            metrics,
            latency,
            files,
            processes: vec![process; 9],
            ..Numbers::default()
        }
    }

    #[test]
    fn every_frame_fits_the_smallest_terminal_whatever_the_numbers() {
        let mut long = numbers(1e18);
        long.origin = "/x".repeat(300).into();
        for (before, now) in [(numbers(0.0), numbers(0.0)), (numbers(0.0), long), (numbers(5.0), numbers(1.0))] {
            for frame in
                [Interval::waiting(&now), Interval::between(&before, &now, 1.0), Interval::between(&before, &now, 0.0)]
            {
                let lines = frame.lines();
                assert!(lines.len() <= HEIGHT, "{}", lines.len());
                assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
            }
        }
    }

    #[test]
    fn rates_and_percentiles_are_those_of_the_interval() {
        let text = Interval::between(&numbers(1000.0), &numbers(5000.0), 2.0).lines().join("\n");
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(line("writes"))[1..6], ["2000", "1.9", "KiB", "250", "us"].map(str::to_owned), "{text}");
        assert!(line("hit ratio").contains("50.0 %"), "{text}");
        let row = text.lines().skip_while(|line| !line.starts_with("BUSIEST")).nth(1).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>().join(" "),
            "1.9 KiB/s db/t1.ibd 1.9 KiB/s mariadbd (7)",
            "{text}"
        );
        assert!(text.contains("~/long/long") && text.contains("new?line") && text.contains("(removed)"), "{text}");
    }
}
