//! Writes trouble to the log when it begins, and not each time it shows.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headpond_engine::Stats;

use crate::history::{EventKind, History};
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
    silent: bool,
}

impl WatchNotes {
    /// Reads the error counters, and reports those that grew, and newly met origins below this one. The history also
    /// gets an origin that begins to be silent.
    ///
    /// `is_ours`: no other host and no other headpond has the origin.
    pub(crate) fn look(
        &mut self,
        stats: &Stats,
        is_ours: bool,
        nested: &[PathBuf],
        silent_seconds: u64,
        history: &History,
    ) {
        let was_silent = std::mem::replace(&mut self.silent, silent_seconds > 0);
        if self.silent && !was_silent {
            history.note(EventKind::OriginSilent, 1, "the origin gives no answer; the pool still serves what it has");
        }
        let troubles = self.news(stats, is_ours, Instant::now());
        troubles.iter().for_each(|(kind, count, what)| history.note(*kind, *count, what));
        let told = troubles.into_iter().map(|(_, count, what)| format!("{count} times: {what}"));
        let mut news: Vec<String> = told.collect();
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
    pub(crate) fn claim_lost(&mut self, how: &str, history: &History) {
        if !std::mem::replace(&mut self.lost, true) {
            history.note(EventKind::ClaimLost, 1, how);
            log_line(how);
            self.lines.push_back(format!("{} {how}", utc(unix_seconds())));
        }
    }

    /// The last lines, each with its time.
    pub(crate) fn told(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    /// The kinds of trouble that grew, by how much, and what they are.
    fn news(&mut self, stats: &Stats, is_ours: bool, now: Instant) -> Vec<(EventKind, u64, &'static str)> {
        let kinds = [
            (
                EventKind::FlashFailed,
                stats.flash_failed,
                if is_ours {
                    "a write or sync of the flash failed: the pool caches nothing more, and writes go to the origin"
                } else {
                    "a write or sync of the flash failed: the pool takes nothing more, and nothing goes to the origin, which \
                     is another's by now"
                },
            ),
            (EventKind::Lost, stats.lost_blocks, "a dirty block is unreadable on flash, and lost"),
            (EventKind::OriginFailed, stats.origin_errors, "an operation of the origin failed"),
            (
                EventKind::FlashMasked,
                stats.masked_flash_errors,
                "a read of the flash failed, but the origin had the data",
            ),
        ];
        let mut lines = Vec::new();
        for ((kind, count, what), (told, at)) in kinds.into_iter().zip(&mut self.told) {
            if count > *told && at.is_none_or(|at| now.duration_since(at) >= EVERY) {
                lines.push((kind, count - *told, what));
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
        assert!(watch.news(&stats(0), true, start).is_empty());
        assert_eq!(watch.news(&stats(3), true, start).len(), 1);
        assert!(watch.news(&stats(3), true, start + 2 * EVERY).is_empty(), "old news");
        assert!(watch.news(&stats(9), true, start + EVERY / 2).is_empty(), "too soon");
        assert_eq!(
            watch.news(&stats(9), true, start + EVERY),
            [(EventKind::OriginFailed, 6, "an operation of the origin failed")]
        );
    }

    #[test]
    fn who_has_lost_the_origin_is_not_told_that_writes_go_there() {
        let failed = Stats { flash_failed: 1, ..Stats::default() };
        let said = |is_ours| {
            let news = WatchNotes::default().news(&failed, is_ours, Instant::now());
            let [(EventKind::FlashFailed, 1, what)] = news[..] else { panic!("{news:?}") };
            what
        };
        assert!(said(true).contains("writes go to the origin"));
        assert!(said(false).contains("nothing goes to the origin"));
    }
}
