//! Classes of blocks: pins and shares of the pool, each with a quota.
//!
//! A class is *pinned*, a *share*, or not in use, in which case its blocks are everybody's. All blocks are in the one
//! order of the replacement policy ([`Cache`](crate::Cache)); what is here says beside it which blocks may not go
//! (pinned), and which have to (a share's own, when it is full).
//!
//! - **Which class a block has.** That of the request which brought it in. Of two that use a block it is the one that
//!   serves it better: a pin before everybody, everybody before a share. So a backup that has a share and reads the
//!   database's blocks takes none of them along, and a block that it brought in is the database's from its first use there.
//! - **A full pin** takes no more: what its requests bring in beyond is everybody's, and competes as all else does.
//! - **A full share** gives up its own least recently used block that is clean, for each new one. It is a bound, no
//!   reserve: what a share does not use is everybody's, and its blocks compete with all others below it, too.
//! - **Dirty blocks** are never asked to go, so written ones may take a share beyond its quota; they are dropped
//!   as they become clean, up to what it may have.
//!
//! Invariants:
//! - No block gets a pinned class while that class has as many as it may, or pins together [`Quotas::pins_max`].
//! - Only clean blocks of the share itself are given up for its quota.
//! - Once every block of a share was told of ([`Quotas::joins`]), its clean ones are at most its quota.

use headpond_base::Class;

use crate::{Admitted, Host, Insertion, Key, Lru, Replacement};

/// What may be kept for a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassLimit {
    /// Blocks of 4 KiB at most; `u64::MAX` for no limit but the pool's.
    pub blocks: u64,
    /// What is kept is not evicted while the class is within its limit.
    pub pinned: bool,
}

impl Default for ClassLimit {
    fn default() -> Self {
        Self { blocks: u64::MAX, pinned: false }
    }
}

impl ClassLimit {
    /// Of a rule's class, there is one of the two.
    const fn in_use(self) -> bool {
        self.pinned || self.blocks != u64::MAX
    }
}

/// The owner of the blocks, which knows their classes.
pub trait BlockOwner {
    /// The block's class; `None` if there is no such block.
    fn class(&self, key: Key) -> Option<Class>;

    /// Blocks of a class now, dirty ones included.
    fn held(&self, class: Class) -> u64;

    /// Whether the block is clean.
    fn is_clean(&self, key: Key) -> bool;

    /// The block goes now, and is no more.
    fn give_up(&mut self, key: Key);
}

/// The limits of all classes, and the order of use of each share's blocks.
pub struct Quotas {
    limits: [ClassLimit; Class::COUNT],
    shares: [Option<Lru>; Class::COUNT],
    /// A bit for each class that is pinned, and for each share: asked for at each use of a block.
    pinned: u16,
    shared: u16,
    /// Blocks of the pool: no share has more.
    pool: u64,
    pins_max: u64,
}

impl Quotas {
    /// For a pool of so many blocks, of which `pins_max` may be pinned by all classes together.
    #[must_use]
    pub fn new(limits: [ClassLimit; Class::COUNT], pool: u64, pins_max: u64) -> Self {
        let mut quotas = Self {
            limits: [ClassLimit::default(); Class::COUNT],
            shares: Default::default(),
            pinned: 0,
            shared: 0,
            pool,
            pins_max,
        };
        quotas.set(limits);
        quotas
    }

    /// Changes the limits. If any is another, every block of a class has to be looked at again
    /// ([`Quotas::belongs`] and [`Quotas::joins`]), in any order and at any pace.
    pub fn set(&mut self, limits: [ClassLimit; Class::COUNT]) {
        for (index, limit) in limits.into_iter().enumerate().skip(1) {
            if std::mem::replace(&mut self.limits[index], limit) != limit {
                let most = usize::try_from(limit.blocks.min(self.pool)).unwrap_or(usize::MAX);
                let share = limit.in_use() && !limit.pinned;
                self.shares[index] = (share && most > 0).then(|| Lru::new(most));
                let others = !(1 << index);
                self.pinned = self.pinned & others | u16::from(limit.pinned) << index;
                self.shared = self.shared & others | u16::from(share) << index;
            }
        }
    }

    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> [ClassLimit; Class::COUNT] {
        self.limits
    }

    /// Whether any class has a limit.
    #[must_use]
    pub const fn in_use(&self) -> bool {
        self.pinned | self.shared != 0
    }

    /// A bit for each class that is pinned.
    #[must_use]
    pub const fn pins(&self) -> u16 {
        self.pinned
    }

    /// Whether blocks of this class may not be evicted.
    #[must_use]
    pub const fn is_pinned(&self, class: Class) -> bool {
        self.pinned >> class.number() & 1 == 1
    }

    /// Whether this class is a share.
    #[must_use]
    pub const fn is_share(&self, class: Class) -> bool {
        self.shared >> class.number() & 1 == 1
    }

    /// Blocks that all pins have together.
    #[must_use]
    pub fn pinned(&self, held: impl Fn(Class) -> u64) -> u64 {
        if self.pinned == 0 {
            return 0;
        }
        (1..).map_while(Class::new).filter(|class| self.is_pinned(*class)).map(held).sum()
    }

    /// The class that a block has from now on: it has `now`, or none if it is new, and a request of class `asks`
    /// uses it.
    #[must_use]
    pub fn after_use(&self, now: Option<Class>, asks: Class, owner: &dyn BlockOwner) -> Class {
        let in_use = self.pinned | self.shared;
        let known = |class: Class| if in_use >> class.number() & 1 == 1 { class } else { Class::EVERYBODY };
        let (now, asks) = (now.map(known), known(asks));
        match now {
            Some(now) if self.rank(now) >= self.rank(asks) => now,
            _ if self.is_pinned(asks) && !self.has_room(asks, owner) => Class::EVERYBODY,
            _ => asks,
        }
    }

    /// The class that is left of one for a block that may be dropped at any time, as the policy does not keep it and it
    /// is clean: no pin.
    #[must_use]
    pub const fn unkept(&self, class: Class) -> Class {
        if self.is_pinned(class) { Class::EVERYBODY } else { class }
    }

    /// The class that a block which has one may keep: of a class that is not in use any more, or of a pin that has
    /// more than it may, it becomes everybody's.
    #[must_use]
    pub fn belongs(&self, class: Class, owner: &dyn BlockOwner) -> Class {
        let limit = self.limits[class.index()];
        let over = limit.pinned
            && (owner.held(class) > limit.blocks || self.pinned(|class| owner.held(class)) > self.pins_max);
        if !limit.in_use() || over { Class::EVERYBODY } else { class }
    }

    /// A block of this class is used or comes in: a share that is full gives up another for it. `false` if there is no
    /// place for it, as all others are dirty: it must go as soon as it is clean.
    pub fn joins(&mut self, key: Key, class: Class, owner: &mut dyn BlockOwner) -> bool {
        if !self.is_share(class) {
            return true;
        }
        let Some(share) = &mut self.shares[class.index()] else { return false };
        share.touch(key) || share.admit(key, Insertion::OnFlash, &mut Own { class, owner }) != Admitted::Refused
    }

    /// Whether a block of this class was told of, if that matters.
    #[must_use]
    pub fn knows(&self, key: Key, class: Class) -> bool {
        !self.is_share(class) || self.shares[class.index()].as_ref().is_some_and(|share| share.contains(key))
    }

    /// A block of this class became clean. `false` if there is no place for it.
    pub fn cleaned(&mut self, key: Key, class: Class, owner: &mut dyn BlockOwner) -> bool {
        match &mut self.shares[class.index()] {
            Some(share) if share.contains(key) => {
                share.release(key);
                true
            }
            _ => self.joins(key, class, owner),
        }
    }

    /// A block is not of this class any more, or was not let in after all.
    pub fn leaves(&mut self, key: Key, class: Class) {
        if let Some(share) = &mut self.shares[class.index()] {
            share.forget(key);
        }
    }

    /// A block is gone.
    pub fn gone(&mut self, key: Key) {
        for share in self.shares.iter_mut().flatten() {
            share.forget(key);
        }
    }

    /// Bytes of memory that the shares take when they are full.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.shares.iter().flatten().map(Replacement::memory).sum()
    }

    const fn rank(&self, class: Class) -> u8 {
        match (self.is_pinned(class), self.is_share(class)) {
            (true, _) => 2,
            (false, true) => 0,
            (false, false) => 1,
        }
    }

    fn has_room(&self, class: Class, owner: &dyn BlockOwner) -> bool {
        owner.held(class) < self.limits[class.index()].blocks && self.pinned(|class| owner.held(class)) < self.pins_max
    }
}

/// A share's own blocks, as its order of use sees them.
struct Own<'a> {
    class: Class,
    owner: &'a mut dyn BlockOwner,
}

impl Host for Own<'_> {
    fn evictable(&mut self, key: Key) -> bool {
        // One that is gone, or another's, is only a name that has to go.
        self.owner.class(key) != Some(self.class) || self.owner.is_clean(key)
    }

    fn fill(&mut self, _: Key) -> bool {
        true
    }

    fn evicted(&mut self, key: Key) {
        if self.owner.class(key) == Some(self.class) {
            self.owner.give_up(key);
        }
    }
}
