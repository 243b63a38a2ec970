//! What is told of a round, and of all of them.

use super::events::Event;
use crate::ledger::LedgerFound;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What a round showed.
#[derive(Clone, Debug)]
pub struct Round {
    /// What happened.
    pub event: Event,
    /// The owner then, and the owner now.
    pub hosts: (&'static str, &'static str),
    /// How long the clients had no answer.
    pub pause: Pause,
    /// Transactions that clients saw committed in this round.
    pub committed: u64,
    /// What was found of all rounds so far.
    pub found: LedgerFound,
    /// Tables and indexes that passed the database's own checks.
    pub checked: usize,
}

/// How long nothing was answered.
#[derive(Clone, Copy, Debug)]
pub enum Pause {
    /// The other host took over.
    TakeOver {
        /// From the event to its mount.
        mounted: Duration,
        /// To the first query that the database there answered.
        queried: Duration,
        /// To the first transaction that it answered.
        answered: Duration,
        /// From the last synced write that the old owner answered to the first one of the new owner.
        apart: Duration,
    },
    /// The owner went on: the longest that a client waited for a transaction.
    Longest(Duration),
}

impl Pause {
    /// From the event to the first answer; or, if the owner went on, the longest wait.
    #[must_use]
    pub const fn length(self) -> Duration {
        match self {
            Self::TakeOver { answered, .. } => answered,
            Self::Longest(longest) => longest,
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, hosts: (before, after), committed, found, checked, .. } = self;
        write!(f, "{event}: ")?;
        match self.pause {
            Pause::TakeOver { mounted, queried, answered, apart } => {
                let [mounted, queried, answered, apart] =
                    [mounted, queried, answered, apart].map(|time| time.as_secs_f64());
                write!(
                    f,
                    "{after} follows {before}: mounted after {mounted:.2} s, a query after {queried:.2} s, a transaction \
                     after {answered:.2} s, {apart:.2} s between the synced writes of both"
                )?;
            }
            Pause::Longest(longest) => {
                write!(f, "{before} goes on, a transaction took {:.2} s at most", longest.as_secs_f64())?;
            }
        }
        write!(
            f,
            "; {committed} commits in this round, {} in all rounds, none lost; {checked} tables and indexes whole",
            found.promised
        )
    }
}

/// What all rounds showed: how long nothing was answered, by event.
#[derive(Clone, Debug, Default)]
pub struct HostsTold {
    pauses: BTreeMap<Event, Vec<Duration>>,
    commits: u64,
}

impl HostsTold {
    /// Counts a round in.
    pub fn add(&mut self, round: &Round) {
        self.pauses.entry(round.event).or_default().push(round.pause.length());
        self.commits += round.committed;
    }

    /// How many rounds there were of each event.
    #[must_use]
    pub fn rounds(&self) -> BTreeMap<Event, usize> {
        self.pauses.iter().map(|(event, pauses)| (*event, pauses.len())).collect()
    }
}

impl fmt::Display for HostsTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<36} {:>6} {:>9} {:>9}", "event", "rounds", "median, s", "longest, s")?;
        let mut take_overs = Vec::new();
        for (event, pauses) in &self.pauses {
            line(f, event, pauses)?;
            if event.deposes() {
                take_overs.extend(pauses);
            }
        }
        line(f, "all take-overs", &take_overs)?;
        write!(f, "{} transactions, none lost or torn; no two hosts served at once", self.commits)
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: impl fmt::Display, pauses: &[Duration]) -> fmt::Result {
    let mut sorted = pauses.to_vec();
    sorted.sort_unstable();
    let Some(longest) = sorted.last() else { return Ok(()) };
    let median = sorted[sorted.len() / 2];
    let [median, longest] = [median, *longest].map(|time| time.as_secs_f64());
    writeln!(f, "{name:<36} {:>6} {median:>9.2} {longest:>9.2}", sorted.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_told_by_event_and_take_overs_together() {
        let mut told = HostsTold::default();
        let round = |event, millis| Round {
            event,
            hosts: ("db1", "db2"),
            pause: Pause::Longest(Duration::from_millis(millis)),
            committed: 7,
            found: LedgerFound::default(),
            checked: 1,
        };
        for (event, millis) in
            [(Event::OwnerLost, 4000), (Event::OwnerLost, 9000), (Event::OwnerLost, 5000), (Event::PeerKilled, 20_000)]
        {
            told.add(&round(event, millis));
        }
        let text = told.to_string();
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().rev().take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line("owner killed, its flash lost"), ["9.00", "5.00", "3"]);
        assert_eq!(line("all take-overs"), ["9.00", "5.00", "3"], "{text}");
        assert_eq!(line("peer killed"), ["20.00", "20.00", "1"]);
        assert!(text.ends_with("28 transactions, none lost or torn; no two hosts served at once"), "{text}");
    }
}
