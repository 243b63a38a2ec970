//! What the engine has asked for: effects that nobody has taken yet, and those that are under way.
//!
//! Invariants
//! - Effects are taken in the order in which they were asked for.
//! - Each ticket is given once, and finished once.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::effect::{Effect, Ticket};
use crate::spread::Spread;
use crate::stats::Stats;

/// Owned by the engine. `P` is what an effect is for.
pub(crate) struct Outbox<P> {
    effects: Vec<Effect>,
    under_way: HashMap<Ticket, P, BuildHasherDefault<Spread>>,
    next: u64,
    /// What was asked of flash and origin; nothing else is counted here.
    asked: Stats,
}

impl<P> Default for Outbox<P> {
    fn default() -> Self {
        Self { effects: Vec::new(), under_way: HashMap::default(), next: 0, asked: Stats::default() }
    }
}

impl<P> Outbox<P> {
    /// Asks for an effect that is answered.
    pub(crate) fn start(&mut self, purpose: P, effect: impl FnOnce(Ticket) -> Effect) -> (Ticket, &Effect) {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.under_way.insert(ticket, purpose);
        let effect = effect(ticket);
        count(&mut self.asked, &effect);
        self.effects.push(effect);
        (ticket, &self.effects[self.effects.len() - 1])
    }

    /// Asks for an effect that nobody answers.
    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// An effect was answered; what it was for. `None`: no such effect is under way.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> Option<P> {
        self.under_way.remove(&ticket)
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
