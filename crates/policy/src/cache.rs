//! The policy in use, and its change while blocks are kept.
//!
//! Invariants:
//! - A change drops nothing. Each call moves a few blocks, coldest first, so no call waits for all of them. Until the
//!   end both policies hold a part, together no more than the capacity.
//! - Written blocks always come in, whatever the admission says.

use std::fmt;
use std::str::FromStr;

use crate::ghosts::Ghosts;
use crate::{Adaptive, Admitted, Evicted, Fifo, Host, Insertion, Key, Lru, Replacement, S3Fifo, WTinyLfu};

/// Blocks that each call moves during a change.
const MOVES: usize = 4;

/// The policies, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// [`Fifo`].
    Fifo,
    /// [`Lru`].
    Lru,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`WTinyLfu`].
    WTinyLfu,
    /// [`Adaptive`].
    #[default]
    Adaptive,
}

impl Policy {
    /// All of them, simplest first.
    pub const ALL: [Self; 5] = [Self::Fifo, Self::Lru, Self::S3Fifo, Self::WTinyLfu, Self::Adaptive];

    /// The name on command lines and in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::S3Fifo => "s3-fifo",
            Self::WTinyLfu => "w-tinylfu",
            Self::Adaptive => "adaptive",
        }
    }

    /// Makes a policy that keeps up to `capacity` blocks, `memory` of them only in memory.
    #[must_use]
    pub fn make(self, capacity: usize, memory: usize) -> Box<dyn Replacement + Send> {
        match self {
            Self::Fifo => Box::new(Fifo::new(capacity)),
            Self::Lru => Box::new(Lru::new(capacity)),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::WTinyLfu => Box::new(WTinyLfu::new(capacity)),
            Self::Adaptive => Box::new(Adaptive::new(capacity, memory)),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No policy has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown policy '{0}': one of fifo, lru, s3-fifo, w-tinylfu, adaptive")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

/// Which reads come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Admission {
    /// All that the policy wants.
    #[default]
    Always,
    /// Only returning blocks. A block's first miss leaves its name. A second miss while the name is remembered brings
    /// it in.
    Returning,
}

/// The policy in use.
pub struct Cache {
    policy: Policy,
    admission: Admission,
    capacity: usize,
    memory: usize,
    used: Box<dyn Replacement + Send>,
    /// The policy before a change, while it still holds blocks.
    before: Option<Box<dyn Replacement + Send>>,
    names: Option<Ghosts>,
}

impl Cache {
    /// Keeps up to `capacity` blocks, `memory` of them only in memory.
    #[must_use]
    pub fn new(policy: Policy, admission: Admission, capacity: usize, memory: usize) -> Self {
        let mut cache = Self {
            policy,
            admission: Admission::Always,
            capacity,
            memory,
            used: policy.make(capacity, memory),
            before: None,
            names: None,
        };
        cache.set_admission(admission);
        cache
    }

    /// The policy in use.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Changes the policy. The contents stay. If an earlier change is under way, this call first moves the rest of it
    /// at once: only a caller that changes policies by the second pays for that.
    pub fn set_policy(&mut self, policy: Policy, host: &mut dyn Host) {
        if policy == self.policy {
            return;
        }
        while self.before.is_some() {
            self.move_over(host);
        }
        self.policy = policy;
        self.before = Some(std::mem::replace(&mut self.used, policy.make(self.capacity, self.memory)));
    }

    /// Keeps up to `capacity` blocks from now on, like [`Cache::new`]. The contents stay as far as they fit. `false`,
    /// with nothing done, while an earlier change is under way.
    pub fn resize(&mut self, capacity: usize, memory: usize) -> bool {
        if self.before.is_some() {
            return false;
        }
        (self.capacity, self.memory) = (capacity, memory);
        self.before = Some(std::mem::replace(&mut self.used, self.policy.make(capacity, memory)));
        if self.names.is_some() {
            self.names = Some(Ghosts::new(capacity));
        }
        true
    }

    /// The most blocks kept.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes which reads come in.
    pub fn set_admission(&mut self, admission: Admission) {
        if admission != self.admission {
            self.admission = admission;
            self.names = (admission == Admission::Returning).then(|| Ghosts::new(self.capacity));
        }
    }

    /// How many blocks are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len() + self.before.as_ref().map_or(0, |before| before.len())
    }

    /// Whether no blocks are kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this block is kept.
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.used.contains(key) || self.before.as_ref().is_some_and(|before| before.contains(key))
    }

    /// Counts a use of the block. `false` if it is not kept.
    pub fn touch(&mut self, key: Key, host: &mut dyn Host) -> bool {
        self.move_over(host);
        if self.used.touch(key) {
            return true;
        }
        let Some(taken) = self.before.as_mut().and_then(|before| before.forget(key)) else { return false };
        self.adopt(taken, host) && self.used.touch(key)
    }

    /// Lets the block in, after [`Cache::touch`] returned `false`.
    pub fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted {
        self.move_over(host);
        if insertion == Insertion::Read
            && let Some(names) = &mut self.names
            && names.remove(key).is_none()
        {
            names.insert(key, 0);
            return Admitted::Refused;
        }
        if self.before.is_some() && self.len() >= self.capacity && self.evict(host).is_none() {
            return Admitted::Refused;
        }
        self.used.admit(key, insertion, host)
    }

    /// Notes that a kept block was overwritten. If it was only in memory, it is on flash now.
    pub fn wrote(&mut self, key: Key) {
        self.both(|policy| policy.wrote(key));
    }

    /// Evicts one block. `None` if none may go.
    pub fn evict(&mut self, host: &mut dyn Host) -> Option<Key> {
        // Blocks that have not moved yet are colder than those that have, or were used after the change.
        let before = self.before.as_mut().and_then(|before| before.evict(host));
        before.or_else(|| self.used.evict(host))
    }

    /// Notes that a block can be evicted now. Harmless for any other block. If nothing could go for a block on flash,
    /// the cache refused it and does not know it. When it may go, its owner admits it again or drops it.
    pub fn release(&mut self, key: Key) {
        self.both(|policy| policy.release(key));
    }

    /// Forgets a block that is gone: its file was removed or cut, or it was lost.
    pub fn forget(&mut self, key: Key) {
        self.both(|policy| {
            policy.forget(key);
        });
    }

    /// Bytes of memory that the cache takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.memory());
        self.used.memory() + before + self.names.as_ref().map_or(0, Ghosts::memory)
    }

    fn both(&mut self, mut what: impl FnMut(&mut dyn Replacement)) {
        what(self.used.as_mut());
        if let Some(before) = &mut self.before {
            what(before.as_mut());
        }
    }

    fn move_over(&mut self, host: &mut dyn Host) {
        for _ in 0..MOVES {
            let Some(before) = &mut self.before else { return };
            match before.take() {
                Some(taken) => {
                    self.adopt(taken, host);
                }
                None => self.before = None,
            }
        }
    }

    /// Takes in a block from the policy before. `false` if it could not be kept.
    fn adopt(&mut self, taken: Evicted, host: &mut dyn Host) -> bool {
        let insertion = if taken.in_memory { Insertion::Read } else { Insertion::OnFlash };
        let kept = self.used.admit(taken.key, insertion, host) != Admitted::Refused;
        // A block that may not go is not dropped: it is unknown until its owner says that it may go.
        if !kept && host.evictable(taken.key) {
            host.evicted(taken.key);
        }
        kept
    }
}
