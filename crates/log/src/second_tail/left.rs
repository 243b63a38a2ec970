//! What a process left in the second tail: the writes that its successor does again.
//!
//! Nothing read here is trusted. A row that makes no sense is counted and left out, and nothing here panics for what it
//! reads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use headpond_base::{BLOCK, BatchNumber, Buf, BufMut, Epoch, PoolId};
use headpond_format::{
    Address, BATCH_PAYLOAD_BLOCKS_MAX, BLOCK_UNITS, BatchHead, Entry, Superblock, UNIT, decode_batch, encode_batch,
};

use super::acknowledged::LastAcknowledged;
use super::rows::{self, FACTS, LAYOUT, RowState, TailSlots, head_of, state_of};
use crate::open::HEAD_BYTES;

/// A host batch that may not be on flash.
#[derive(Debug)]
pub struct LeftWrite {
    /// The pool that it belongs to.
    pub pool: PoolId,
    /// The use of the pool in which it was made.
    pub epoch: Epoch,
    /// Its number.
    pub number: BatchNumber,
    /// Where it belongs: one place, or two.
    pub places: Vec<Address>,
    /// The batch, with its head.
    pub data: Buf,
}

/// All that a process left.
#[derive(Debug)]
pub struct LeftBehind {
    /// The batches, in order. If [`LeftBehind::belongs_to`] says so, write them all, then sync, then recover the pool.
    pub writes: Vec<LeftWrite>,
    /// Rows that make no sense. A process that dies leaves none.
    pub unreadable: usize,
    /// The last host batch that was acknowledged, whether it is here or was written.
    pub last_acknowledged: Option<LastAcknowledged>,
}

impl LeftBehind {
    /// Whether all of it was made in the last use of the pool with this superblock, the newest. If not, the pool was
    /// used or made anew since, and its places hold other things now: nothing may be written there.
    ///
    /// Nothing is published in a use whose first superblock is not durable, so that superblock is there.
    #[must_use]
    pub fn belongs_to(&self, superblock: &Superblock) -> bool {
        self.writes.iter().all(|write| (write.pool, write.epoch) == (superblock.pool, superblock.epoch))
    }
}

/// Why what is left cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeftError {
    /// Another version of headpond left it.
    #[error("memory of another version of headpond (layout {found:x}, this program knows {LAYOUT:x})")]
    Layout {
        /// Its layout.
        found: u64,
    },
    /// It is divided otherwise.
    #[error("memory divided otherwise: {found:?}")]
    Slots {
        /// The division that it names.
        found: TailSlots,
    },
}

/// The host batches that a process left in this memory. Memory of zeros holds none. `slots` is what
/// [`TailSlots::split`] made.
///
/// It changes nothing. [`super::SecondTail::new`] frees the memory; until then this can be repeated.
///
/// # Errors
/// [`LeftError`]: another program must do this.
pub fn left_by(words: &[AtomicU64], slots: &[impl AsRef<[u8]>]) -> Result<LeftBehind, LeftError> {
    let word = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
    let (layout, found) = (word(0), TailSlots::from_number(word(1)));
    match layout {
        0 => return Ok(LeftBehind { writes: Vec::new(), unreadable: 0, last_acknowledged: None }),
        LAYOUT => {}
        found => return Err(LeftError::Layout { found }),
    }
    if !found.are(slots) || words.len() < found.words() {
        return Err(LeftError::Slots { found });
    }
    let mut unreadable = 0;
    // A process may have died while a batch moved from one slot to another: both have it.
    let mut writes: BTreeMap<Vec<Address>, LeftWrite> = BTreeMap::new();
    for (slot, bytes) in slots.iter().enumerate() {
        let state = state_of(word(rows::state_at(slot)));
        let facts: [u64; FACTS] = std::array::from_fn(|fact| word(rows::fact_at(slot, fact)));
        let write = match state {
            Some(RowState::Free) => continue,
            Some(state) => head_of(&facts).and_then(|(places, head)| batch_in(bytes.as_ref(), state, places, &head)),
            None => None,
        };
        match write {
            Some(write) => {
                writes.entry(write.places.clone()).or_insert(write);
            }
            None => unreadable += 1,
        }
    }
    let mut writes: Vec<LeftWrite> = writes.into_values().collect();
    writes.sort_by_key(|write| write.number);
    Ok(LeftBehind { writes, unreadable, last_acknowledged: LastAcknowledged::in_title(words) })
}

/// The batch in a slot, with its head.
fn batch_in(slot: &[u8], state: RowState, places: Vec<Address>, head: &BatchHead) -> Option<LeftWrite> {
    let data = match state {
        RowState::Free => return None,
        RowState::Closed { blocks } => BufMut::copy_of(slot.get(..blocks as usize * BLOCK)?),
        RowState::Filling { entry_bytes, units } => {
            let payload_blocks = units.div_ceil(BLOCK_UNITS);
            if payload_blocks as usize > BATCH_PAYLOAD_BLOCKS_MAX {
                return None;
            }
            let entries = slot.get(HEAD_BYTES..BLOCK)?.get(..entry_bytes as usize)?;
            let payload = slot.get(BLOCK..BLOCK + units as usize * UNIT)?;
            let mut data = BufMut::zeroed((1 + payload_blocks as usize) * BLOCK);
            data[BLOCK..BLOCK + payload.len()].copy_from_slice(payload);
            encode_batch(&BatchHead { payload_blocks, ..*head }, entries, &mut data[..BLOCK]);
            data
        }
    };
    let (found, entries) = decode_batch(data.get(..BLOCK)?).ok()?;
    let same = BatchHead { payload_blocks: found.payload_blocks, ..*head } == found;
    let whole = data.len() == (1 + found.payload_blocks as usize) * BLOCK;
    let entries = Entry::decode_all(entries).ok()?;
    let units = entries.iter().fold(0_u32, |next, (_, entry)| entry.payload_units(next).end);
    let filled = units.div_ceil(BLOCK_UNITS) == found.payload_blocks;
    (same && whole && filled).then(|| LeftWrite {
        pool: found.pool,
        epoch: found.epoch,
        number: found.number,
        places,
        data: data.freeze(),
    })
}
