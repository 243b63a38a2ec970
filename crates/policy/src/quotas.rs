//! Classes of blocks: pins and shares of the pool, each with a quota.
//!
//! A class is *pinned*, a *share*, or not in use; the blocks of an unused class belong to everybody. The replacement
//! policy ([`Cache`](crate::Cache)) has all blocks in one order. The quotas say beside it which blocks may not go
//! (pinned), and which must go (those of a full share).
//!
//! - **The class of a block** is that of the request that brought it in. If two requests use a block, the class that
//!   serves it better wins: a pin before everybody, everybody before a share. So a backup with a share that reads the
//!   database's blocks takes none of them along. A block that the backup brought in becomes the database's with its
//!   first use there.
//! - **A full pin** takes no more. What its requests bring in beyond belongs to everybody, and competes like all else.
//! - **A full share** gives up its least recently used clean block for each new one. It is a bound, not a reserve:
//!   everybody may use what a share leaves, and its blocks compete with all others below the bound, too.
//! - **Dirty blocks** never have to go, so written blocks may take a share beyond its quota. As they become clean,
//!   they are dropped down to the quota.
//!
//! Invariants:
//! - A block gets a pinned class only while that class is below its limit, and all pins together below
//!   [`Quotas::pins_max`].
//! - Only clean blocks of the share itself are given up for its quota.
//! - Once [`Quotas::joins`] was called for every block of a share, its clean blocks are at most its quota.

use headpond_base::Class;

use crate::{Admitted, Host, Insertion, Key, Lru, Replacement};

/// The limit of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassLimit {
    /// The most blocks of 4 KiB; `u64::MAX` for no limit but the pool's.
    pub blocks: u64,
    /// Blocks are not evicted while the class is within its limit.
    pub pinned: bool,
}

impl Default for ClassLimit {
    fn default() -> Self {
        Self { blocks: u64::MAX, pinned: false }
    }
}

impl ClassLimit {
    /// Whether a rule uses the class: it then has a pin or a limit.
    const fn in_use(self) -> bool {
        self.pinned || self.blocks != u64::MAX
    }
}

/// The owner of the blocks. It knows their classes.
pub trait BlockOwner {
    /// The block's class; `None` if the block does not exist.
    fn class(&self, key: Key) -> Option<Class>;

    /// Blocks of a class, dirty ones included.
    fn held(&self, class: Class) -> u64;

    /// Whether the block is clean.
    fn is_clean(&self, key: Key) -> bool;

    /// Drops the block now.
    fn give_up(&mut self, key: Key);
}

/// The limits of all classes, and the order of use of each share's blocks.
pub struct Quotas {
    limits: [ClassLimit; Class::COUNT],
    shares: [Option<Lru>; Class::COUNT],
    /// A bit for each pinned class, and one for each share: each use of a block asks for them.
    pinned: u16,
    shared: u16,
    /// Blocks of the pool. No share has more.
    pool: u64,
    pins_max: u64,
}

impl Quotas {
    /// Quotas for a pool of `pool` blocks. All classes together may pin `pins_max` of them.
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

    /// Changes the limits. If one differs, look at every block of a class again ([`Quotas::belongs`] and
    /// [`Quotas::joins`]), in any order and at any pace.
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

    /// A bit for each pinned class.
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

    /// Blocks of all pins together.
    #[must_use]
    pub fn pinned(&self, held: impl Fn(Class) -> u64) -> u64 {
        if self.pinned == 0 {
            return 0;
        }
        (1..).map_while(Class::new).filter(|class| self.is_pinned(*class)).map(held).sum()
    }

    /// The class of a block after a request of class `asks` used it. `now` is its class before; `None` if it is new.
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

    /// The class of a clean block that the policy does not keep. It may be dropped at any time, so it cannot be
    /// pinned.
    #[must_use]
    pub const fn unkept(&self, class: Class) -> Class {
        if self.is_pinned(class) { Class::EVERYBODY } else { class }
    }

    /// The class that a block may keep. If its class is no longer in use, or a pin over its limit, it becomes
    /// everybody's.
    #[must_use]
    pub fn belongs(&self, class: Class, owner: &dyn BlockOwner) -> Class {
        let limit = self.limits[class.index()];
        let over = limit.pinned
            && (owner.held(class) > limit.blocks || self.pinned(|class| owner.held(class)) > self.pins_max);
        if !limit.in_use() || over { Class::EVERYBODY } else { class }
    }

    /// Notes that a block of this class is used or comes in. A full share gives up another block for it. `false` if
    /// all others are dirty, so there is no place: then drop the block as soon as it is clean.
    pub fn joins(&mut self, key: Key, class: Class, owner: &mut dyn BlockOwner) -> bool {
        if !self.is_share(class) {
            return true;
        }
        let Some(share) = &mut self.shares[class.index()] else { return false };
        share.touch(key) || share.admit(key, Insertion::OnFlash, &mut Own { class, owner }) != Admitted::Refused
    }

    /// Whether the share of this class knows the block. True if the class is no share.
    #[must_use]
    pub fn knows(&self, key: Key, class: Class) -> bool {
        !self.is_share(class) || self.shares[class.index()].as_ref().is_some_and(|share| share.contains(key))
    }

    /// Notes that a block of this class became clean. `false` if there is no place for it.
    pub fn cleaned(&mut self, key: Key, class: Class, owner: &mut dyn BlockOwner) -> bool {
        match &mut self.shares[class.index()] {
            Some(share) if share.contains(key) => {
                share.release(key);
                true
            }
            _ => self.joins(key, class, owner),
        }
    }

    /// Notes that a block is no longer of this class, or did not come in.
    pub fn leaves(&mut self, key: Key, class: Class) {
        if let Some(share) = &mut self.shares[class.index()] {
            share.forget(key);
        }
    }

    /// Notes that a block is gone.
    pub fn gone(&mut self, key: Key) {
        for share in self.shares.iter_mut().flatten() {
            share.forget(key);
        }
    }

    /// Bytes of memory that full shares take.
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
        // If the block is gone or has another class, only its name must go.
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
