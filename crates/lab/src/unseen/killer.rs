//! Kills the worker of a mount, at random moments, and sees that another one takes over.
//!
//! A worker counts as killed once. Until the holder has noticed its death it is still there, and can be killed in vain.
//!
//! The holder gives up a mount whose workers die one after the other. So after a few that did not live long, the next
//! one may.
//!
//! Now and then a worker is killed during an upgrade, whichever worker that is then. The upgrade may fail. The mount
//! must not.

use super::{Options, failed};
use crate::failure::Result;
use crate::loaded_database::{Look, watch};
use crate::pond::Mount;
use crate::random::below;
use std::time::{Duration, Instant};

/// How long a take-over may take, on a slow and busy machine, before it counts as stuck.
const TAKE_OVER_MAX: Duration = Duration::from_secs(120);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(10);
/// Workers in a row that do not live long: a fifth that does not come up would end the mount.
const SHORT_LIVES: u32 = 4;
/// A long life: the holder calls one of 1 s long.
const LONG_LIFE: Duration = Duration::from_millis(1200);
/// With [`Pace::Again`], a worker that has not begun to serve is killed at most so long after its start.
const AGAIN: u64 = 250;

/// One kill in so many comes during an upgrade, and the last one.
const UPGRADED: u32 = 8;
/// It comes at most so many milliseconds after the command to upgrade was started.
const ASKED: u64 = 300;

/// When workers are killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Pace {
    /// After 2 to 10 s.
    Seldom,
    /// After 0.5 to 1.5 s.
    Often,
    /// The same, and every other one before or while it takes over.
    Again,
}

impl Pace {
    /// How long a worker serves.
    fn life(self, random: &mut u64) -> Duration {
        let (least, most) = match self {
            Self::Seldom => (2000, 10_000),
            Self::Often | Self::Again => (500, 1500),
        };
        Duration::from_millis(least + below(random, most - least))
    }
}

/// Ends one worker after the other.
pub(super) struct Killer<'a> {
    mount: &'a Mount,
    pace: Pace,
    random: u64,
    spares: bool,
    kills: u64,
    /// Of these, so many during an upgrade.
    during_upgrades: u64,
    /// Workers that ended for a program that took over.
    upgrades: u64,
    /// The worker that was killed last.
    last: Option<u32>,
    /// Workers in a row that did not live long.
    short_lives: u32,
}

impl<'a> Killer<'a> {
    pub(super) fn new(mount: &'a Mount, options: &Options) -> Self {
        let Options { pace, seed, spares, .. } = *options;
        let (kills, during_upgrades, upgrades) = (0, 0, 0);
        Self { mount, pace, random: seed, spares, kills, during_upgrades, upgrades, last: None, short_lives: 0 }
    }

    /// Kills that many workers, lets one be replaced half-way, and waits until the last one serves. If it spares them,
    /// it takes the same time.
    pub(super) fn run(&mut self, kills: u32, look: Look<'_>) -> Result<()> {
        for number in 0..kills {
            if self.spares {
                watch(self.pace.life(&mut self.random), look)?;
                continue;
            }
            if number == kills / 2 {
                self.upgrade(look)?;
            }
            if number % UPGRADED == UPGRADED - 1 || (number > 0 && number == kills - 1) {
                self.kill_during_upgrade(look)?;
                continue;
            }
            let again =
                self.pace == Pace::Again && self.last.is_some() && self.short_lives < SHORT_LIVES && self.coin();
            if again {
                self.kill_again(look)?;
            } else {
                self.kill_serving(look)?;
            }
        }
        self.served(look)
    }

    pub(super) const fn kills(&self) -> u64 {
        self.kills
    }

    pub(super) const fn during_upgrades(&self) -> u64 {
        self.during_upgrades
    }

    pub(super) const fn upgrades(&self) -> u64 {
        self.upgrades
    }

    fn coin(&mut self) -> bool {
        below(&mut self.random, 2) == 0
    }

    /// Kills the worker when it has served for a while.
    fn kill_serving(&mut self, look: Look<'_>) -> Result<()> {
        self.served(look)?;
        let mut life = self.pace.life(&mut self.random);
        if self.short_lives >= SHORT_LIVES {
            life = life.max(LONG_LIFE);
        }
        self.short_lives = if life < LONG_LIFE { self.short_lives + 1 } else { 0 };
        watch(life, look)?;
        self.kill(look)
    }

    /// Kills the successor of a worker that was killed just now, a moment after its start.
    fn kill_again(&mut self, look: Look<'_>) -> Result<()> {
        let start = Instant::now();
        while self.last == Some(self.mount.pid()) && start.elapsed() < TAKE_OVER_MAX {
            watch(LOOK, look)?;
        }
        self.short_lives += 1;
        let moment = Duration::from_millis(below(&mut self.random, AGAIN));
        watch(moment, look)?;
        self.kill(look)
    }

    fn kill(&mut self, look: Look<'_>) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < TAKE_OVER_MAX {
            if self.last != Some(self.mount.pid())
                && let Some(killed) = self.mount.kill_worker()
            {
                self.last = Some(killed);
                self.kills += 1;
                return Ok(());
            }
            watch(LOOK, look)?;
        }
        Err(failed(format!("no worker comes after {} kills", self.kills)))
    }

    fn upgrade(&mut self, look: Look<'_>) -> Result<()> {
        self.served(look)?;
        let replaced = self.mount.pid();
        self.mount.upgrade()?;
        (self.last, self.upgrades) = (Some(replaced), self.upgrades + 1);
        self.served(look)
    }

    /// Kills the worker a moment after an upgrade was asked for: before it was told, while it hands over, or the one
    /// that takes over.
    fn kill_during_upgrade(&mut self, look: Look<'_>) -> Result<()> {
        self.served(look)?;
        let upgrade = self.mount.begin_upgrade()?;
        let moment = Duration::from_millis(below(&mut self.random, ASKED));
        watch(moment, look)?;
        self.kill(look)?;
        self.during_upgrades += 1;
        self.short_lives += 1;
        let start = Instant::now();
        while upgrade.is_running() {
            if start.elapsed() > 2 * TAKE_OVER_MAX {
                return Err(failed("an upgrade during which the worker was killed does not end"));
            }
            watch(LOOK, look)?;
        }
        // Now that the command has ended, no more workers end for it.
        let known = self.kills + self.upgrades;
        loop {
            match self.mount.lives() {
                Ok(lives) if (known..=known + 1).contains(&lives.takeovers) => {
                    self.upgrades += lives.takeovers - known;
                    return self.served(look);
                }
                Ok(lives) if lives.takeovers > known => {
                    return Err(failed(format!(
                        "{} workers ended, of which {known} are accounted for, and an upgrade ends one at most",
                        lives.takeovers
                    )));
                }
                Err(failure) if start.elapsed() > 2 * TAKE_OVER_MAX => return Err(failure),
                Ok(_) if start.elapsed() > 2 * TAKE_OVER_MAX => {
                    return Err(failed("no worker serves after a kill during an upgrade"));
                }
                Ok(_) | Err(_) => watch(LOOK, look)?,
            }
        }
    }

    /// Waits until the worker serves that came after the last death. Fails if there were more deaths than kills.
    pub(super) fn served(&mut self, look: Look<'_>) -> Result<()> {
        let due = self.kills + self.upgrades;
        let start = Instant::now();
        loop {
            look()?;
            if !self.mount.is_held() {
                return Err(failed(format!("the holder has ended, after {due} deaths of workers")));
            }
            match self.mount.lives() {
                Ok(lives) if lives.takeovers == due => return Ok(()),
                Ok(lives) if lives.takeovers > due => {
                    return Err(failed(format!(
                        "{} workers ended, and only {} were killed and {} replaced",
                        lives.takeovers, self.kills, self.upgrades
                    )));
                }
                Err(failure) if start.elapsed() > TAKE_OVER_MAX => return Err(failure),
                Ok(lives) if start.elapsed() > TAKE_OVER_MAX => {
                    return Err(failed(format!("after {due} deaths the status still tells of {}", lives.takeovers)));
                }
                Ok(_) | Err(_) => watch(LOOK, look)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_as_long_as_its_pace_says() {
        let mut random = 7;
        for (pace, least, most) in [(Pace::Seldom, 2000, 10_000), (Pace::Often, 500, 1500), (Pace::Again, 500, 1500)] {
            let lives: Vec<_> = (0..500).map(|_| pace.life(&mut random).as_millis()).collect();
            assert!(lives.iter().all(|life| (least..most).contains(life)));
            assert!(lives.iter().max() > lives.iter().min());
        }
    }
}
