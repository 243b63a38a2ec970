//! Whether a pool and an origin belong together: by the pool's content, and by the files beside the origin.
//!
//! The judgement rests on this:
//! - A pool with dirty data always has a marker beside its origin. The marker names the pool, and has the
//!   origin's key, like the pool's superblock.
//! - A pool without dirty data is safe with any origin: each file is compared before its clean data counts. So after
//!   an orderly unmount the origin needs no trace.
//! - Each use of a pool has a claim: a random number in the superblock and in the marker. If a pool's claim is not the
//!   marker's, the pool is an image from before that use, or a copy that was used elsewhere. The note beside the
//!   marker says what was durable in a use. If the pool's log ends before that, the pool is an image from that use.

use headpond_base::PoolId;

pub use crate::earlier::{Drawn, EarlierClaims};

/// The state of a pool, after its recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The pool's own name.
    pub pool: PoolId,
    /// The origin whose data it has.
    pub origin: Option<Whose>,
    /// The pool's epoch.
    pub epoch: u64,
    /// The claim of the last use; zeros if none was ever drawn.
    pub claim: Drawn,
    /// The counter of its superblock.
    pub counter: u64,
    /// The last host batch that counts.
    pub host_batch: u64,
    /// Whether it has anything that the origin lacks.
    pub dirty: bool,
}

/// The origin that a pool names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whose {
    /// The origin's key.
    pub key: Drawn,
    /// Whether the origin's path was the path of the present origin.
    pub same_path: bool,
}

/// The files beside an origin. They say which pool it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// The pool. `None` if its name cannot be read; then no pool matches.
    pub pool: Option<PoolId>,
    /// The origin's key; `None` if it cannot be read.
    pub key: Option<Drawn>,
    /// The last use. `None` in a marker of a headpond that recorded none.
    pub claim: Option<Use>,
    /// How far the log of a use was durable; `None` if unknown.
    pub durable: Option<Durable>,
}

/// One use of a pool, by the marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The pool's epoch in that use.
    pub epoch: u64,
    /// The claim of the use; `None` if it cannot be read, and then no pool matches.
    pub id: Option<Drawn>,
    /// The pool's claim before that use, as the start found it.
    pub before: Option<Drawn>,
    /// With it, those that other members may have, until the use has begun.
    pub earlier: EarlierClaims,
    /// Whether each member has the claim durably. Until then a crash leaves some with an earlier one.
    pub begun: bool,
    /// The counter of the pool's last superblock, after an orderly stop.
    pub stopped_at: Option<u64>,
}

impl Use {
    /// A start found the pool with the claim `found`, and the marker of this use: the claims that its own marker has to
    /// name.
    #[must_use]
    pub fn earlier_of_next(last: Option<&Self>, durable: Option<Durable>, found: Drawn) -> EarlierClaims {
        let died = last.filter(|last| !last.has_served(durable)).and_then(|last| Some((last.id?, last.earlier)));
        EarlierClaims::after(died, found)
    }

    /// Whether anything may have been served in it. The marker's own word can be missing, as an origin without space takes
    /// none.
    fn has_served(&self, durable: Option<Durable>) -> bool {
        let is_noted = durable.is_some_and(|durable| durable.claim.is_some() && durable.claim == self.id);
        self.begun || self.stopped_at.is_some() || is_noted
    }

    /// Whether a pool with this claim may be as this use left it, which died before it served.
    fn may_leave(&self, claim: Drawn) -> bool {
        self.before == Some(claim) || self.earlier.have(claim)
    }
}

/// How far the log of a use was durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durable {
    /// The use, by its claim.
    pub claim: Option<Drawn>,
    /// The last host batch that was synced then.
    pub host_batch: u64,
}

/// What the operator allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// To overwrite a pool without dirty data.
    pub format: bool,
    /// To drop dirty data that is in the way.
    pub discard_dirty: bool,
}

/// How to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// The pool belongs to this origin, which has this key.
    Same(Drawn),
    /// The pool has nothing dirty. It becomes this origin's under a new key, and keeps what proves to be of the
    /// origin's files.
    TakeOver,
    /// The pool is formatted, under a new key.
    Format,
    /// The pool belonged to this origin, which has this key, but is not as its last use left it. Nothing in it counts
    /// unless the operator says so.
    Image(Drawn, Image),
}

/// How a pool came to differ from the one that the marker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Image {
    /// An earlier state: a copy, a snapshot or a clone was put back.
    Older,
    /// A copy that was used by itself since.
    Elsewhere,
    /// A state of the very use that ended in a crash. Its log ends too early.
    Shorter {
        /// The last host batch in it.
        ends: u64,
        /// A later host batch that was durable.
        durable: u64,
    },
}

/// Why the pool and the origin may not be used together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The origin waits for another pool, or for this one as it was before another origin took it.
    AwaitsAnother,
    /// To format the pool would drop its dirty data.
    WouldDrop,
    /// The pool has dirty data of an origin at this path, and no marker beside the origin.
    NotAwaited,
    /// The pool has dirty data of another origin.
    DirtyElsewhere,
}

/// Compares a pool with the use in the marker; `None` if the pool is as that use left it.
fn image(last: &Use, durable: Option<Durable>, held: &Held) -> Option<Image> {
    let has = Some(held.claim);
    let is_of = if has == last.id {
        if last.stopped_at.is_some_and(|count| held.counter < count) {
            return Some(Image::Older);
        }
        last.id
    } else if last.may_leave(held.claim) && !last.has_served(durable) {
        // A crash came before the pool had the claim.
        has
    } else if has == last.before && held.epoch >= last.epoch {
        // The superblock with the claim is lost. Recovery went by the checkpoint, which has only the epoch.
        last.id
    } else {
        return Some(if held.epoch < last.epoch { Image::Older } else { Image::Elsewhere });
    };
    let durable = durable.filter(|durable| durable.claim == is_of)?.host_batch;
    let ends = held.host_batch;
    (ends < durable).then_some(Image::Shorter { ends, durable })
}

/// Whether the origin waits for this pool because of a take-over that a crash cut short before the pool knew. The pool
/// has nothing dirty, and nothing could come into it since. So the origin may take it over again.
fn is_take_over_cut_short(awaited: &Awaited, held: &Held) -> bool {
    let died = awaited.claim.filter(|last| !last.has_served(awaited.durable));
    awaited.pool == Some(held.pool) && died.is_some_and(|last| last.may_leave(held.claim)) && !held.dirty
}

/// Judges a pool and an origin. No pool: the flash is new, or is formatted whatever it holds.
///
/// # Errors
/// Why they may not be used together.
pub fn judge(awaited: Option<&Awaited>, held: Option<&Held>, allowed: Allowed) -> Result<Ownership, Refused> {
    let dirty = held.is_some_and(|held| held.dirty);
    let proven = match (awaited, held) {
        (Some(awaited), Some(held)) if awaited.pool == Some(held.pool) => match held.origin {
            Some(whose) if Some(whose.key) == awaited.key => Some(whose.key),
            // A crash came after the marker was written and before the superblock: the pool is still empty.
            None => awaited.key,
            Some(_) => None,
        },
        // Without a marker nothing dirty belongs here. The path decides whether to keep the key.
        (None, Some(held)) if !dirty => held.origin.filter(|whose| whose.same_path).map(|whose| whose.key),
        _ => None,
    };
    if let Some(key) = proven {
        let last = awaited.and_then(|awaited| Some((awaited.claim.as_ref()?, awaited.durable)));
        if let Some(image) = last.zip(held).and_then(|((last, durable), held)| image(last, durable, held)) {
            // Do not even format it: the pool that the origin waits for may have dirty data that this one does not
            // know.
            return Ok(if allowed.discard_dirty { Ownership::Format } else { Ownership::Image(key, image) });
        }
        if !allowed.format {
            return Ok(Ownership::Same(key));
        }
        return if dirty && !allowed.discard_dirty { Err(Refused::WouldDrop) } else { Ok(Ownership::Format) };
    }
    let goes_on = awaited.zip(held).is_some_and(|(awaited, held)| is_take_over_cut_short(awaited, held));
    if awaited.is_some() && !goes_on && !allowed.discard_dirty {
        return Err(Refused::AwaitsAnother);
    }
    if dirty && !allowed.discard_dirty {
        let same_path = held.and_then(|held| held.origin).is_some_and(|whose| whose.same_path);
        return Err(if same_path { Refused::NotAwaited } else { Refused::DirtyElsewhere });
    }
    Ok(if dirty || held.is_none() || allowed.format { Ownership::Format } else { Ownership::TakeOver })
}
