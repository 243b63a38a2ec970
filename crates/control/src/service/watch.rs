//! Writes trouble to the log when it begins, and not each time it shows.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headpond_engine::Stats;

use crate::process::log::log_line;
use crate::wording::clock::{unix_seconds, utc};

/// The shortest time between two lines about one kind of trouble.
const EVERY: Duration = Duration::from_secs(30);

/// The last lines kept for the panel.
const KEPT: usize = 32;

/// What was reported last.
#[derive(Default)]
pub(crate) struct WatchNotes {
    told: [(u64, Option<Instant>); 4],
    /// The other origins below this one that were reported.
    nested: Vec<PathBuf>,
    lines: VecDeque<String>,
    lost: bool,
}

impl WatchNotes {
    /// Reads the error counters, and reports those that grew, and newly met origins below this one.
    pub(crate) fn look(&mut self, stats: &Stats, nested: &[PathBuf]) {
        let mut news = self.news(stats, Instant::now());
        for path in nested {
            if !self.nested.contains(path) {
                self.nested.push(path.clone());
                news.push(format!(
                    "{} is the origin of another headpond, and its newest data may be in that pool, so this mount does not show it. \
                     To complete it, mount it with its own flash and unmount it",
                    path.display()
                ));
            }
        }
        for line in news {
            log_line(&line);
            self.lines.push_back(format!("{} {line}", utc(unix_seconds())));
        }
        while self.lines.len() > KEPT {
            self.lines.pop_front();
        }
    }

    /// Reports once that another headpond has the origin.
    pub(crate) fn claim_lost(&mut self, how: &str) {
        if !std::mem::replace(&mut self.lost, true) {
            log_line(how);
            self.lines.push_back(format!("{} {how}", utc(unix_seconds())));
        }
    }

    /// The last lines, each with its time.
    pub(crate) fn told(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    fn news(&mut self, stats: &Stats, now: Instant) -> Vec<String> {
        let kinds = [
            (
                stats.flash_failed,
                "a write or sync of the flash failed: the pool caches nothing more, and writes go to the origin",
            ),
            (stats.lost_blocks, "a dirty block is unreadable on flash, and lost"),
            (stats.origin_errors, "an operation of the origin failed"),
            (stats.masked_flash_errors, "a read of the flash failed, but the origin had the data"),
        ];
        let mut lines = Vec::new();
        for ((count, what), (told, at)) in kinds.into_iter().zip(&mut self.told) {
            if count > *told && at.is_none_or(|at| now.duration_since(at) >= EVERY) {
                lines.push(format!("{} times: {what}", count - *told));
                (*told, *at) = (count, Some(now));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_once_and_again_when_it_goes_on() {
        let mut watch = WatchNotes::default();
        let start = Instant::now();
        let stats = |errors| Stats { origin_errors: errors, ..Stats::default() };
        assert!(watch.news(&stats(0), start).is_empty());
        assert_eq!(watch.news(&stats(3), start).len(), 1);
        assert!(watch.news(&stats(3), start + 2 * EVERY).is_empty(), "old news");
        assert!(watch.news(&stats(9), start + EVERY / 2).is_empty(), "too soon");
        assert_eq!(watch.news(&stats(9), start + EVERY), ["6 times: an operation of the origin failed"]);
    }
}
