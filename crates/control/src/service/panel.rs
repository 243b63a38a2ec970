//! The texts in `.headpond` at the top of a mount: one for each question of an operator.
//!
//! Each text is made when its file is opened, from the same numbers and settings that the control socket gives.

use std::fmt::Write;

use headpond_mount::{Panel, Sheet, WholeFile};

use super::commands::Service;
use super::{FlushShown, RuleShown};
use crate::numbers::{FileNumbers, Numbers, ProcessNumbers, number};

/// The texts, in the order of the listing.
const SHEETS: &[Sheet] = &[
    Sheet { name: "dirty", private: false },
    Sheet { name: "errors", private: false },
    Sheet { name: "files", private: true },
    Sheet { name: "latency", private: false },
    Sheet { name: "processes", private: true },
    Sheet { name: "rules", private: true },
    Sheet { name: "settings", private: false },
    Sheet { name: "stats", private: false },
    Sheet { name: "whole", private: true },
];

impl Panel for Service {
    fn sheets(&self) -> &'static [Sheet] {
        SHEETS
    }

    fn text(&self, name: &str) -> String {
        match name {
            "dirty" => dirty(&self.numbers_of_mount(), &self.flushes()),
            "errors" => errors(&self.numbers_of_mount(), &self.news()),
            "files" => files(&self.numbers().files),
            "processes" => processes(&self.numbers().processes),
            "rules" => rules(&self.shown_rules()),
            "latency" => latency(&self.numbers_of_mount()),
            "settings" => self.settings().values().iter().map(|value| format!("{value}\n")).collect(),
            "stats" => self.numbers_of_mount().lines(),
            "whole" => whole(&self.whole.files()),
            _ => String::new(),
        }
    }

    fn is_shown(&self) -> bool {
        self.settings().shows_panel()
    }
}

/// Some numbers, a line each.
fn lines(numbers: &Numbers, names: &[&str]) -> String {
    names.iter().map(|name| format!("{name} {}\n", number(numbers.metric(name)))).collect()
}

fn dirty(numbers: &Numbers, flushes: &[FlushShown]) -> String {
    let names = ["dirty_bytes", "dirty_files", "oldest_dirty_age_seconds", "failing_files", "destage_bytes_per_second"];
    let more = ["flush_left_bytes", "flush_left_seconds", "pool_capacity_bytes"];
    let mut text = lines(numbers, &names) + &lines(numbers, &more);
    for flush in flushes {
        let FlushShown { handle, state, left_bytes, total_bytes, .. } = flush;
        // Writing to a string does not fail.
        let _ = writeln!(text, "flush_{handle} {state} left_bytes {left_bytes} total_bytes {total_bytes}");
    }
    text
}

/// A line for each file. Its path comes last, because it may hold anything but a newline.
fn files(files: &[FileNumbers]) -> String {
    let counts = ["hit_bytes", "miss_bytes", "bypassed_bytes", "written_bytes", "dirty_bytes"];
    let held = ["cached_bytes", "stored_bytes", "bytes_per_s"];
    let mut text = format!("{} {} path\n", columns(&counts), columns(&held));
    for file in files {
        let FileNumbers { hit_bytes, miss_bytes, bypassed_bytes, written_bytes, dirty_bytes, recent_bytes, .. } = file;
        let counts = columns(&[hit_bytes, miss_bytes, bypassed_bytes, written_bytes, dirty_bytes]);
        // None if other files have more: then the number is not known.
        let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let held = columns(&[known(file.cached_bytes), known(file.stored_bytes), recent_bytes.to_string()]);
        let _ = writeln!(text, "{counts} {held} {}", file.path.replace('\n', "\\n"));
    }
    text
}

fn processes(processes: &[ProcessNumbers]) -> String {
    let mut text = columns(&["hit_bytes", "miss_bytes", "bypassed_bytes", "written_bytes", "bytes_per_s", "pid"]);
    text += " name\n";
    for process in processes {
        let ProcessNumbers { pid, name, hit_bytes, miss_bytes, bypassed_bytes, written_bytes, recent_bytes } = process;
        let pid = u64::from(*pid);
        let counts = [hit_bytes, miss_bytes, bypassed_bytes, written_bytes, recent_bytes, &pid];
        let _ = writeln!(text, "{} {}", columns(&counts), name.replace('\n', "\\n"));
    }
    text
}

fn rules(rules: &[RuleShown]) -> String {
    let mut text = columns(&["rule", "requests", "bytes"]) + " what\n";
    for rule in rules {
        let counts = columns(&[rule.number as u64, rule.requests, rule.bytes]);
        let _ = writeln!(text, "{counts} {}{}", rule.rule, rule.remark());
    }
    text
}

/// A line for each process to which the mount promised whole writes to a file.
fn whole(files: &[WholeFile]) -> String {
    let mut text = format!("{:>14} {:<15} path\n", "pid", "name");
    for WholeFile { path, process, name } in files {
        let path = String::from_utf8_lossy(path).replace('\n', "\\n");
        let _ = writeln!(text, "{process:>14} {:<15} {path}", name.replace([' ', '\n'], "_"));
    }
    text
}

/// Words in columns, with blanks between.
fn columns<T: std::fmt::Display>(words: &[T]) -> String {
    words.iter().map(|word| format!("{word:>14}")).collect::<Vec<_>>().join(" ")
}

fn errors(numbers: &Numbers, news: &[String]) -> String {
    let names = ["flash_failed", "lost_bytes_total", "origin_errors_total", "flash_errors_masked_total"];
    let counts = lines(numbers, &names) + &lines(numbers, &["failing_files", "stalls_total"]);
    news.iter().fold(counts, |text, line| text + line + "\n")
}

/// A line for each kind of request, with times in microseconds.
fn latency(numbers: &Numbers) -> String {
    let mut text = format!("{:<12}", "request");
    for column in ["count", "mean_us", "p50_us", "p95_us", "p99_us", "p999_us", "max_us"] {
        // Writing to a string does not fail.
        let _ = write!(text, " {column:>10}");
    }
    text.push('\n');
    for (name, latency) in &numbers.latency {
        let _ = write!(text, "{name:<12} {:>10}", latency.count);
        for (_, seconds) in latency.few().into_iter().skip(1) {
            let _ = write!(text, " {:>10.0}", seconds * 1e6);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LatencyDistribution;

    #[test]
    fn a_text_has_a_line_for_each_number_and_columns_for_each_latency() {
        let mut numbers = Numbers::default();
        numbers.metrics.insert("dirty_bytes".to_owned(), 4096.0);
        numbers.latency.insert(
            "read_hit".to_owned(),
            LatencyDistribution { count: 3, p99_seconds: 0.0005, ..LatencyDistribution::default() },
        );
        let flush = FlushShown { handle: 3, state: "done".to_owned(), ..FlushShown::default() };
        let text = dirty(&numbers, &[flush]);
        assert!(text.starts_with("dirty_bytes 4096\n") && text.contains("\nflush_3 done left_bytes 0 "), "{text}");
        let text = files(&[FileNumbers { path: "db/a b\nc".to_owned(), hit_bytes: 7, ..FileNumbers::default() }]);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["7", "0", "0", "0", "0", "-", "-", "0", "db/a", "b\\nc"], "{text}");
        let text = errors(&numbers, &["2026-01-01T00:00:00Z something".to_owned()]);
        assert!(text.contains("flash_failed 0\n") && text.ends_with("Z something\n"), "{text}");
        let text = latency(&numbers);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((rows[0][5], rows[1][5], rows[1][1]), ("p99_us", "500", "3"), "{text}");
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
    }
}
