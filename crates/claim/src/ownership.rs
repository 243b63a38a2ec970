//! Whether a pool and an origin belong together: from what the pool holds, and what is written beside the origin.
//!
//! What it rests on:
//! - A pool with dirty data always has a marker beside its origin that names it, with the origin's key, which the pool's
//!   superblock has too.
//! - A pool without dirty data is safe with any origin: each file is compared before its clean data counts. So after an
//!   orderly unmount no trace is needed at the origin.
//! - Each use of a pool has a claim, drawn at random, in the superblock and in the marker. A pool with another claim than the
//!   marker's is an image from before that use, or a copy that was used elsewhere. One whose log ends before what was durable
//!   in its use, as the note beside the marker says, is an image from that use.

use headpond_base::PoolId;

/// Sixteen bytes drawn at random: an origin's key, or the claim of a use.
pub type Drawn = [u8; 16];

/// What a pool holds, after its recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The pool's own name.
    pub pool: PoolId,
    /// Whose data it has.
    pub origin: Option<Whose>,
    /// Counts its uses.
    pub epoch: u64,
    /// The claim of the last use: zeros if none was ever drawn.
    pub claim: Drawn,
    /// The count of its superblock.
    pub counter: u64,
    /// The last batch of the host stream that counts.
    pub host_batch: u64,
    /// Whether it has anything that the origin has not.
    pub dirty: bool,
}

/// The origin that a pool names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whose {
    /// Its key.
    pub key: Drawn,
    /// Whether its path was that of the origin that is asked about.
    pub same_path: bool,
}

/// What is written beside the origin of the pool that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// Which pool. `None` if that cannot be read as a pool's name: then it is no pool's.
    pub pool: Option<PoolId>,
    /// The origin's key, if it can be read.
    pub key: Option<Drawn>,
    /// The last use. `None` in a marker of a headpond that knew none.
    pub claim: Option<Use>,
    /// How far the log of a use was durable, if that is known.
    pub durable: Option<Durable>,
}

/// One use of a pool, as the marker has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The pool's epoch then.
    pub epoch: u64,
    /// Its claim; `None` if it cannot be read, which is no pool's.
    pub id: Option<Drawn>,
    /// The claim of the use before, as the pool had it.
    pub before: Option<Drawn>,
    /// The pool has the claim, durably. Until then a crash leaves it with the one before.
    pub begun: bool,
    /// The count of the pool's last superblock, after a stop in order.
    pub stopped_at: Option<u64>,
}

/// How far the log of a use was durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durable {
    /// The use, by its claim.
    pub claim: Option<Drawn>,
    /// The last batch of the host stream that was synced then.
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
    /// The pool is this origin's, whose key this is.
    Same(Drawn),
    /// The pool has nothing dirty: it becomes this origin's under a new key, and keeps what turns out to be its files'.
    TakeOver,
    /// The pool is made anew, under a new key.
    Format,
    /// The pool was this origin's, whose key this is, but is not as the origin left it: nothing in it is believed unless the
    /// operator says so.
    Image(Drawn, Image),
}

/// How a pool came to be another than the one that the marker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Image {
    /// It is as it was once: a copy, a snapshot or a clone was put back.
    Older,
    /// It is a copy that was used by itself since.
    Elsewhere,
    /// It is from the very use that ended by a crash, and its log ends too early.
    Shorter {
        /// The last host batch that it has.
        ends: u64,
        /// One that was durable later.
        durable: u64,
    },
}

/// Why the pool and the origin may not be used together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The origin waits for another pool, or for this one as it was before it was given to another origin.
    AwaitsAnother,
    /// To make the pool anew would drop its dirty data.
    WouldDrop,
    /// The pool has dirty data of an origin at this path, and nothing beside the origin says so.
    NotAwaited,
    /// The pool has dirty data of another origin.
    DirtyElsewhere,
}

/// Compares a pool with the use that the marker tells of; `None` if it is as that use left it.
fn image(last: &Use, durable: Option<Durable>, held: &Held) -> Option<Image> {
    let has = Some(held.claim);
    let is_of = if has == last.id {
        if last.stopped_at.is_some_and(|count| held.counter < count) {
            return Some(Image::Older);
        }
        last.id
    } else if has == last.before && !last.begun {
        // A crash before the pool had the claim.
        last.before
    } else if has == last.before && held.epoch >= last.epoch {
        // The superblock that had it is lost, and recovery went by the checkpoint, which has the epoch alone.
        last.id
    } else {
        return Some(if held.epoch < last.epoch { Image::Older } else { Image::Elsewhere });
    };
    let durable = durable.filter(|durable| durable.claim == is_of)?.host_batch;
    let ends = held.host_batch;
    (ends < durable).then_some(Image::Shorter { ends, durable })
}

/// Whether the origin waits for this pool because it was about to take it over, and a crash came before the pool knew. As
/// nothing dirty is in it, and nothing could come into it since, it may be taken over again.
fn is_take_over_cut_short(awaited: &Awaited, held: &Held) -> bool {
    let waits_since = awaited.claim.filter(|last| !last.begun).and_then(|last| last.before);
    awaited.pool == Some(held.pool) && waits_since == Some(held.claim) && !held.dirty
}

/// Judges a pool (none: the flash is new, or to be formatted whatever it holds) and an origin.
///
/// # Errors
/// Why they may not be used together.
pub fn judge(awaited: Option<&Awaited>, held: Option<&Held>, allowed: Allowed) -> Result<Ownership, Refused> {
    let dirty = held.is_some_and(|held| held.dirty);
    let proven = match (awaited, held) {
        (Some(awaited), Some(held)) if awaited.pool == Some(held.pool) => match held.origin {
            Some(whose) if Some(whose.key) == awaited.key => Some(whose.key),
            // A crash after the marker was written and before the pool was: nothing is in it yet.
            None => awaited.key,
            Some(_) => None,
        },
        // No marker, so nothing dirty belongs here. The path tells whether to keep the key.
        (None, Some(held)) if !dirty => held.origin.filter(|whose| whose.same_path).map(|whose| whose.key),
        _ => None,
    };
    if let Some(key) = proven {
        let last = awaited.and_then(|awaited| Some((awaited.claim.as_ref()?, awaited.durable)));
        if let Some(image) = last.zip(held).and_then(|((last, durable), held)| image(last, durable, held)) {
            // Not even to make it anew: what it does not know of may be dirty in the one that is awaited.
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
