//! What the engine has asked for: effects that nobody has taken yet, those that are under way, and what the origin charges.
//!
//! Invariants
//! - Effects are taken in the order in which they were asked for.
//! - Each ticket is given once, and finished once.
//! - All that goes to the origin is timed, so that its costs are those of all of it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use headpond_base::{Buf, Nanos};

use crate::effect::{Effect, Outcome, Ticket};
use crate::origin_cost::OriginCosts;
use crate::purpose::Purpose;
use crate::spread::Spread;
use crate::stats::Stats;

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct Outbox {
    effects: Vec<Effect>,
    under_way: HashMap<Ticket, Purpose, BuildHasherDefault<Spread>>,
    next: u64,
    /// What was asked of flash and origin; nothing else is counted here.
    asked: Stats,
    origin_costs: OriginCosts,
    now: Nanos,
}

impl Outbox {
    /// Tells the time.
    pub(crate) const fn advance(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Asks for an effect that is answered, and says for what.
    pub(crate) fn start(&mut self, purpose: Purpose, effect: impl FnOnce(Ticket) -> Effect) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let effect = effect(ticket);
        count(&mut self.asked, &effect);
        self.origin_costs.started(ticket, &effect, purpose.is_foreground(), self.now);
        self.under_way.insert(ticket, purpose);
        self.effects.push(effect);
    }

    /// Asks for bytes to be written to flash.
    pub(crate) fn write_flash(&mut self, purpose: Purpose, offset: u64, data: Buf) {
        self.start(purpose, |ticket| Effect::FlashWrite { ticket, offset, data });
    }

    /// Asks for an effect that nobody answers.
    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// An effect was answered; what it was for. `None`: no such effect is under way.
    pub(crate) fn finish(&mut self, ticket: Ticket, outcome: &Outcome) -> Option<Purpose> {
        self.origin_costs.done(ticket, !matches!(outcome, Outcome::Failed(_)), self.now);
        self.under_way.remove(&ticket)
    }

    /// What the origin charges.
    pub(crate) const fn origin_costs(&self) -> &OriginCosts {
        &self.origin_costs
    }

    /// Appends what was asked for since the last call.
    pub(crate) fn take(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// These numbers, and what was asked of flash and origin.
    pub(crate) const fn add_to(&self, others: Stats) -> Stats {
        let asked = &self.asked;
        Stats {
            flash_reads: asked.flash_reads,
            flash_read_bytes: asked.flash_read_bytes,
            flash_writes: asked.flash_writes,
            flash_write_bytes: asked.flash_write_bytes,
            flash_syncs: asked.flash_syncs,
            origin_reads: asked.origin_reads,
            origin_read_bytes: asked.origin_read_bytes,
            origin_writes: asked.origin_writes,
            origin_write_bytes: asked.origin_write_bytes,
            origin_syncs: asked.origin_syncs,
            ..others
        }
    }
}

fn count(asked: &mut Stats, effect: &Effect) {
    match effect {
        Effect::FlashRead { len, .. } => {
            asked.flash_reads += 1;
            asked.flash_read_bytes += u64::from(*len);
        }
        Effect::FlashWrite { data, .. } => {
            asked.flash_writes += 1;
            asked.flash_write_bytes += data.len() as u64;
        }
        Effect::FlashSync { .. } => asked.flash_syncs += 1,
        Effect::OriginRead { len, .. } => {
            asked.origin_reads += 1;
            asked.origin_read_bytes += u64::from(*len);
        }
        Effect::OriginWrite { data, .. } => {
            asked.origin_writes += 1;
            asked.origin_write_bytes += data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        }
        Effect::OriginSync { .. } => asked.origin_syncs += 1,
        _ => {}
    }
}
