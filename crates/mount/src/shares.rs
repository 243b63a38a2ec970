//! A scarce thing of a mount, shared among its users: no user can keep it from the others.
//!
//! Invariants
//! - No user but root has more than a quarter at a time, and all users but root together no more than three quarters.
//!   So root gets some of it whatever the others do.
//! - Dropping a share gives it back.
//!
//! Cost: a lock, held for a moment, to take a share and to give it back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The user whose share has no limit.
const ROOT: u32 = 0;

/// How many of the thing each user has.
#[derive(Clone)]
pub(crate) struct Shares {
    /// How many there are in all.
    all: usize,
    held: Arc<Mutex<BTreeMap<u32, usize>>>,
}

/// One of the things, for as long as this lives.
#[must_use]
pub(crate) struct Share {
    shares: Shares,
    user: u32,
}

impl Shares {
    /// `all` things, none of them taken.
    pub(crate) fn of(all: usize) -> Self {
        Self { all, held: Arc::default() }
    }

    /// Takes one for a user. `None` if too few would be left for the others.
    pub(crate) fn take(&self, user: u32) -> Option<Share> {
        let mut held = self.locked();
        let taken: usize = held.values().sum();
        let own = held.get(&user).copied().unwrap_or(0);
        let fits = if user == ROOT {
            taken < self.all
        } else {
            let of_root = held.get(&ROOT).copied().unwrap_or(0);
            taken < self.all && taken - of_root < self.all / 4 * 3 && own < self.all / 4
        };
        fits.then(|| {
            held.insert(user, own + 1);
            Share { shares: self.clone(), user }
        })
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        // Each change is one assignment.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.locked();
        match held.get_mut(&self.user) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(held.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_gets_what_the_others_need() {
        let shares = Shares::of(64);
        let take = |user| std::iter::from_fn(|| shares.take(user)).collect::<Vec<_>>();
        let (one, two, three, four) = (take(1), take(2), take(3), take(4));
        assert_eq!([one.len(), two.len(), three.len(), four.len()], [16, 16, 16, 0]);
        let root = take(ROOT);
        assert_eq!(root.len(), 16);
        drop(two);
        assert_eq!(take(1).len(), 0, "it has its share");
        assert_eq!(take(4).len(), 16);
        drop((one, three, root));
        assert_eq!(take(ROOT).len(), 64);
        assert!(shares.locked().is_empty());
    }
}
