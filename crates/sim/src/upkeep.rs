//! The operator's upkeep in the midst of a history (`--upkeep`): scrubs, and devices that are taken offline.
//!
//! Everything else that is judged must hold as without it. And a scrub that found all dirty data mirrored, and bits
//! rotten on one member alone, must not call any block lost. A device that was taken offline is pulled out as soon as
//! that is answered.

use headpond_engine::{MembersChange, Request};
use headpond_timed::Rng;

use crate::devices::Health;
use crate::roster::Change;
use crate::sim::{Asked, Sim};

impl Sim<'_> {
    /// Now and then the operator does something.
    pub(crate) fn look_after_pool(&mut self, rng: &mut Rng) -> Result<(), String> {
        if self.world.core.is_none() || self.stopping || !rng.chance(40) {
            return Ok(());
        }
        if self.options.members && rng.chance(250) { self.take_one_offline(rng) } else { self.scrub(rng) }
    }

    fn take_one_offline(&mut self, rng: &mut Rng) -> Result<(), String> {
        let busy = self.requests.values().any(|asked| matches!(asked, Asked::Members { .. }));
        let member = *rng.pick(&self.world.flash.members());
        let device = self.world.flash.device_of(member)?;
        let well = self.world.flash.all()[device].health == Health::Well;
        // Without a second copy of everything it is refused, sooner or later.
        if busy || !well || !self.world.is_covered() || !self.world.lose(device) {
            return Ok(());
        }
        self.ask_change(Change::Offline { member }, MembersChange::Offline(member))
    }

    fn scrub(&mut self, rng: &mut Rng) -> Result<(), String> {
        let (asked, request) = if rng.chance(150) {
            (Asked::CancelScrub, Request::CancelScrub)
        } else {
            (Asked::Scrub { mirrors: self.world.is_covered() && !self.damaged }, Request::Scrub)
        };
        self.ask(asked, request).map(drop)
    }

    /// A scrub has read everything.
    pub(crate) fn scrubbed(&mut self, mirrors: bool) -> Result<(), String> {
        self.summary.scrubs += 1;
        let lost = self.world.core.as_ref().map_or(0, |core| core.scrub_lost_blocks());
        let covered = mirrors && self.world.is_covered() && !self.world.injected.excuses_errors();
        if covered && lost > 0 { Err(format!("{lost} blocks are lost, though each has a good copy")) } else { Ok(()) }
    }
}
