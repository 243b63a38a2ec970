//! A process dies, and another takes over: what it acknowledged is in memory that outlives it (`outliving.rs`), or on
//! flash.
//!
//! The stricter promise, while that memory stays: every change that was acknowledged is there, not only those that a
//! sync covered. Once a takeover has written it to flash and synced, a power cut keeps it, too.
//!
//! Keeps true: it draws by itself, so that the rest of a seed stays what it was.

use std::collections::BTreeSet;

use headpond_base::MemberId;
use headpond_engine::{LeftBehind, newest_superblock};

use crate::devices::AsIs;
use crate::flash::{Cut, WriteFate};
use crate::sim::Sim;

/// Tickets of writes that no engine asked for.
pub(crate) const REDO_TICKETS: u64 = 1 << 60;

impl Sim<'_> {
    /// Lets the process die in the midst of a step, now and then.
    pub(crate) fn light_fuse(&mut self) {
        let Some(outliving) = &self.world.outliving else { return };
        outliving.fuse.put_out();
        if self.deaths.chance(40) {
            outliving.fuse.light(self.deaths.below_one_of(&[3, 20, 60]));
        }
    }

    /// Starts another process if the last has died in the midst of a step.
    pub(crate) fn follow_a_death(&mut self) -> Result<(), String> {
        if let Some(outliving) = &self.world.outliving {
            outliving.fuse.put_out();
        }
        if !self.world.killed || self.over {
            return Ok(());
        }
        let mut rng = self.deaths.clone();
        self.deaths.next();
        self.crash(&mut rng)
    }

    /// The process is gone. Without power, so is its memory.
    pub(crate) fn outlives(&mut self, power: bool) {
        let stays = !power && self.world.outliving.is_some();
        // What is known of the files is older than an end that nobody has looked at yet.
        let known = !std::mem::replace(&mut self.unseen_end, true);
        let promised = if known { Some(self.model.last_logged()) } else { self.outlived };
        self.outlived = promised.filter(|_| stays);
    }

    /// What is left belongs to the last use of the pool: by that a start knows that the pool did not go on without it.
    fn check_use(&self, left: &LeftBehind) -> Result<(), String> {
        let flash = &self.world.flash;
        let devices = flash.here().into_iter().map(|index| &flash.all()[index].flash);
        let superblocks: Vec<_> = devices.map(|device| newest_superblock(&mut AsIs(device), device.bytes())).collect();
        if superblocks.iter().flatten().any(|found| left.belongs_to(found)) || self.damaged {
            return Ok(());
        }
        Err(format!("{left:?} is not of the last use of the pool with {superblocks:?}"))
    }

    /// Does on flash what the last process left. It may die over it, and the power may fail.
    pub(crate) fn redo(&mut self) -> Result<(), String> {
        while let Some(outliving) = &mut self.world.outliving {
            let left = outliving.left()?;
            if let Err(why) = self.check_use(&left) {
                if self.brings_back_missing(&why) {
                    continue;
                }
                return Err(why);
            }
            self.world
                .trace(|| format!("redo  {:?}", left.writes.iter().map(|write| &write.places).collect::<Vec<_>>()));
            let mut refused: BTreeSet<MemberId> = BTreeSet::new();
            let mut failing = self.deaths.chance(150).then(|| self.deaths.below(left.writes.len() as u64 + 1));
            for (index, write) in (0..).zip(&left.writes) {
                for (ticket, at) in (REDO_TICKETS..).zip(&write.places) {
                    self.world.flash.start_write(*at, ticket, write.data.clone())?;
                }
                if failing == Some(index) {
                    break;
                }
                for (ticket, at) in (REDO_TICKETS..).zip(&write.places) {
                    let rng = &mut self.deaths;
                    let done = self.world.flash.finish_write(at.member, ticket, WriteFate::Done, rng)?;
                    refused.extend(done.is_err().then_some(at.member));
                    self.world.trace(|| format!("redone at {at:?}: {done:?}"));
                }
            }
            if failing.take().is_none() {
                for member in self.world.flash.members() {
                    self.world.flash.start_sync(member, REDO_TICKETS)?;
                    let done = self.world.flash.finish_sync(member, REDO_TICKETS, false, &mut self.deaths)?;
                    self.world.trace(|| format!("redone on {member:?}: {done:?}"));
                    refused.extend(done.is_err().then_some(member));
                }
                if left.writes.iter().any(|write| write.places.iter().all(|at| refused.contains(&at.member))) {
                    // As control does: the memory stays as it is, and the start is refused.
                    let why = "no device took what is left in memory";
                    if self.mends_refusing(why) || self.brings_back_missing(why) {
                        continue;
                    }
                    return Err("no device takes what is left in memory, and no fault can explain it".to_owned());
                }
                if let Some(outlived) = self.outlived.take() {
                    self.model.raise_floor(outlived);
                }
                self.summary.takeovers += u64::from(!left.writes.is_empty());
                break;
            }
            self.summary.crashes += 1;
            if self.deaths.chance(300) {
                self.world.trace(|| "power cut while it is done again".into());
                self.world.flash.power_cut(Cut::Random, &mut self.deaths);
                outliving_is_lost(self);
            } else {
                self.world.trace(|| "killed while it is done again".into());
                self.world.flash.daemon_killed(&mut self.deaths);
            }
        }
        Ok(())
    }
}

/// What was in memory that outlives processes is gone.
pub(crate) fn outliving_is_lost(sim: &mut Sim<'_>) {
    if let Some(outliving) = &sim.world.outliving {
        outliving.lose();
    }
    sim.outlived = None;
}
