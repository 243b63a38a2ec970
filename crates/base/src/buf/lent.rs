//! Buffers in memory that outlives the process, or that another part of the program owns.
//!
//! The memory comes in slots. A slot is lent to one buffer, and comes home when the last view of that buffer is gone.
//!
//! Invariants:
//! - A slot is at home or in a buffer, never both.
//! - Lending and coming home change no byte. What a buffer held stays in its slot until the next buffer writes there.
//! - Of the slots that are large enough the smallest are lent first, and of these the last that came home: its memory
//!   is warm, and memory that was never used is never touched.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zerocopy::{FromBytes, IntoBytes};

use super::{BufMut, Page, Pages};
use crate::BLOCK;

/// A slot at home.
struct Slot {
    number: usize,
    pages: &'static mut [Page],
}

/// The slots of one size that are at home. The last came home last.
struct SizeClass {
    blocks: usize,
    slots: Vec<Slot>,
}

/// The slots at home, the smallest size first.
type Home = Mutex<Vec<SizeClass>>;

fn at_home(home: &Home) -> MutexGuard<'_, Vec<SizeClass>> {
    home.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lends slots of memory as buffers. Clones lend the same slots.
#[derive(Clone)]
pub struct Lender {
    home: Arc<Home>,
    slots: usize,
}

impl Lender {
    /// A lender of these slots. Each has the number of its place in `memory`.
    ///
    /// # Panics
    /// When a slot is not whole blocks, aligned to a block. Mapped memory is.
    #[must_use]
    pub fn new(memory: Vec<&'static mut [u8]>) -> Self {
        let slots = memory.len();
        let mut classes: Vec<SizeClass> = Vec::new();
        for (number, bytes) in memory.into_iter().enumerate().rev() {
            let pages = <[Page]>::mut_from_bytes(bytes).unwrap_or_else(|_| panic!("slot {number} is no whole blocks"));
            let blocks = pages.len();
            let slot = Slot { number, pages };
            match classes.binary_search_by_key(&blocks, |class| class.blocks) {
                Ok(class) => classes[class].slots.push(slot),
                Err(class) => classes.insert(class, SizeClass { blocks, slots: vec![slot] }),
            }
        }
        Self { home: Arc::new(Mutex::new(classes)), slots }
    }

    /// A buffer to be overwritten, of all bytes of a slot of `len` bytes or more. Until then they are what the slot held
    /// before. `None` if no slot at home is large enough.
    #[must_use]
    pub fn lend(&self, len: usize) -> Option<BufMut> {
        let mut home = at_home(&self.home);
        let fitting = home.iter_mut().filter(|class| class.blocks * BLOCK >= len);
        let Slot { number, pages } = fitting.filter_map(|class| class.slots.pop()).next()?;
        let len = pages.len() * BLOCK;
        let lent = LentPages { number, pages, home: self.home.clone() };
        Some(BufMut { pages: Pages::Lent(lent), len })
    }

    /// Ends the lending. Returns the memory as it was given, or `None` while a slot is lent.
    #[must_use]
    pub fn take_back(&self) -> Option<Vec<&'static mut [u8]>> {
        let mut home = at_home(&self.home);
        if home.iter().map(|class| class.slots.len()).sum::<usize>() < self.slots {
            return None;
        }
        let mut slots: Vec<Slot> = home.drain(..).flat_map(|class| class.slots).collect();
        slots.sort_by_key(|slot| slot.number);
        Some(slots.into_iter().map(|slot| slot.pages.as_mut_bytes()).collect())
    }
}

/// The memory of a buffer that lies in a slot.
pub(super) struct LentPages {
    number: usize,
    pages: &'static mut [Page],
    home: Arc<Home>,
}

impl LentPages {
    /// The slot's number.
    pub(super) const fn number(&self) -> usize {
        self.number
    }
}

impl Drop for LentPages {
    fn drop(&mut self) {
        let slot = Slot { number: self.number, pages: std::mem::take(&mut self.pages) };
        let blocks = slot.pages.len();
        let mut home = at_home(&self.home);
        if let Some(class) = home.iter_mut().find(|class| class.blocks == blocks) {
            class.slots.push(slot);
        }
    }
}

impl Deref for LentPages {
    type Target = [Page];

    #[inline]
    fn deref(&self) -> &[Page] {
        self.pages
    }
}

impl DerefMut for LentPages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Page] {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of these many blocks.
    fn lender(sizes: &[usize]) -> Lender {
        let slot = |blocks: &usize| vec![Page([0; BLOCK]); *blocks].leak().as_mut_bytes();
        Lender::new(sizes.iter().map(slot).collect())
    }

    #[test]
    fn a_slot_comes_home_with_its_last_view_and_keeps_its_bytes() {
        let lender = lender(&[2, 1]);
        let mut buf = lender.lend(5000).expect("a slot of two blocks");
        assert_eq!((buf.slot(), buf.len(), buf.room()), (Some(0), 2 * BLOCK, 2 * BLOCK));
        buf.fill(7);
        let whole = buf.freeze();
        let part = whole.slice(10..20);
        drop(whole);
        assert_eq!(part.slot(), Some(0));
        assert!(lender.lend(5000).is_none() && lender.take_back().is_none(), "there is a view");
        drop(part);
        let slots = lender.take_back().expect("all are at home");
        assert_eq!(slots.iter().map(|slot| slot.len() / BLOCK).collect::<Vec<_>>(), [2, 1]);
        assert!(slots[0].iter().all(|byte| *byte == 7) && slots[1].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_smallest_slot_that_fits_is_lent_and_of_these_the_last_used() {
        let lender = lender(&[3, 1, 1]);
        let (one, other) = (lender.lend(1).expect("one"), lender.lend(BLOCK).expect("one"));
        assert_eq!((one.slot(), other.slot()), (Some(1), Some(2)));
        drop(one);
        drop(other);
        let again = lender.lend(1).expect("one");
        assert_eq!(again.slot(), Some(2));
        assert_eq!(lender.lend(2 * BLOCK).expect("the large one").slot(), Some(0));
        assert!(lender.lend(4 * BLOCK).is_none());
    }

    #[test]
    fn a_clone_lends_the_same_slots_and_other_memory_is_in_no_slot() {
        let lender = lender(&[1]);
        let lent = lender.clone().lend(1);
        assert!(lent.is_some() && lender.lend(1).is_none());
        assert_eq!((BufMut::unwritten(1).slot(), BufMut::zeroed(1).freeze().slot()), (None, None));
    }
}
