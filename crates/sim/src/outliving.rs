//! Memory that outlives a simulated process: the second tail of its log.
//!
//! A process dies at an effect's border, or between any two stores inside a step of the engine (`Fuse`). Then the
//! engine is gone, and this memory is as the last store left it. A power cut loses the memory too.
//!
//! Keeps true: real memory of this kind is never freed, so this one is not either. A run that ends gives it to the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use headpond_base::Lender;
use headpond_engine::{Effect, LastAcknowledged, LeftBehind, LeftError, SecondTail, TailSlots, left_by};

/// What unwinds out of an engine whose process dies.
pub(crate) struct Killed;

/// Lets the process die before a store of the second tail.
#[derive(Clone, Default)]
pub(crate) struct Fuse(Arc<AtomicU64>);

impl Fuse {
    /// The process dies before the store after the next `stores`.
    pub(crate) fn light(&self, stores: u64) {
        self.0.store(stores + 1, Ordering::Relaxed);
    }

    /// The process lives on.
    pub(crate) fn put_out(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn burn(&self) {
        match self.0.load(Ordering::Relaxed) {
            0 => {}
            1 => {
                self.put_out();
                std::panic::resume_unwind(Box::new(Killed));
            }
            left => self.0.store(left - 1, Ordering::Relaxed),
        }
    }
}

/// Words and slots that no run uses.
struct Spare {
    slots: TailSlots,
    words: &'static [AtomicU64],
    memory: Vec<&'static mut [u8]>,
}

static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

/// The memory of one run.
pub(crate) struct OutlivingMemory {
    slots: TailSlots,
    words: &'static [AtomicU64],
    /// The slots, unless an engine has them.
    memory: Vec<&'static mut [u8]>,
    lender: Option<Lender>,
    pub(crate) fuse: Fuse,
}

impl OutlivingMemory {
    pub(crate) fn new(slots: TailSlots) -> Self {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spare.iter().position(|spare| spare.slots == slots).map(|at| spare.swap_remove(at));
        drop(spare);
        let Spare { words, memory, .. } = found.unwrap_or_else(|| {
            let words = (0..slots.words()).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
            // Aligned as mapped memory is.
            let room = vec![0; slots.bytes() + 4096].leak();
            let skip = room.as_ptr().align_offset(4096);
            Spare { slots, words, memory: slots.split(&mut room[skip..]) }
        });
        let new = Self { slots, words, memory, lender: None, fuse: Fuse::default() };
        new.lose();
        new
    }

    /// The power fails. Bytes of slots stay, which say nothing without the words.
    pub(crate) fn lose(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Takes the slots back from an engine that is gone.
    fn take_back(&mut self) -> Result<(), String> {
        if let Some(lender) = self.lender.take() {
            self.memory = lender.take_back().ok_or("the engine is gone, and a slot of the second tail is in use")?;
        }
        Ok(())
    }

    /// The last host batch that an engine acknowledged.
    pub(crate) fn last_acknowledged(&mut self) -> Result<Option<LastAcknowledged>, String> {
        self.left().map(|left| left.last_acknowledged)
    }

    /// What the engine that is gone left.
    pub(crate) fn left(&mut self) -> Result<LeftBehind, String> {
        self.take_back()?;
        let left = left_by(self.words, &self.memory).map_err(|error: LeftError| error.to_string())?;
        if left.unreadable > 0 {
            return Err(format!("{} rows of the second tail make no sense", left.unreadable));
        }
        Ok(left)
    }

    /// The second tail of the next engine. What was left must be durable.
    pub(crate) fn second_tail(&mut self) -> Result<SecondTail, String> {
        self.take_back()?;
        let tail = SecondTail::new(self.words, self.slots, std::mem::take(&mut self.memory));
        self.lender = Some(tail.lender());
        let fuse = self.fuse.clone();
        Ok(tail.watched(Box::new(move || fuse.burn())))
    }
}

impl Drop for OutlivingMemory {
    fn drop(&mut self) {
        // A run that failed may still use slots. Then the memory is left alone.
        if self.take_back().is_ok() {
            let (slots, words, memory) = (self.slots, self.words, std::mem::take(&mut self.memory));
            SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(Spare { slots, words, memory });
        }
    }
}

/// The effect with memory of its own: simulated devices keep what they were given, and slots must come home.
pub(crate) fn in_own_memory(effect: Effect) -> Effect {
    let own = |data: headpond_base::Buf| match data.slot() {
        Some(_) => headpond_base::BufMut::copy_of(&data).freeze(),
        None => data,
    };
    match effect {
        Effect::FlashWrite { ticket, at, data } => Effect::FlashWrite { ticket, at, data: own(data) },
        Effect::OriginWrite { ticket, object, offset, data, user, written_out } => {
            let data = data.into_iter().map(own).collect();
            Effect::OriginWrite { ticket, object, offset, data, user, written_out }
        }
        effect => effect,
    }
}
