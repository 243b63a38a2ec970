//! Changes that take each other's space.
//!
//! When a program overwrites one block that files share, XFS reserves 32. Near the end of space XFS gives the surplus
//! back, but not from a file with unwritten pages. With several changes at once there is always such a file, and one
//! change gets "no space" while there is plenty. So a refused change runs once more while no other change runs. By
//! then the kernel has written those pages.
//!
//! Price: on a full origin each refusal waits for the changes under way, and new changes wait for its second answer.

use std::sync::{PoisonError, RwLock};

use headpond_base::{Errno, Result};

/// All changes of one origin.
#[derive(Default)]
pub(crate) struct Crowd {
    together: RwLock<()>,
}

impl Crowd {
    /// Calls `ask`, which needs space. If it finds none and other changes may be `in_the_way`, calls it again without
    /// them.
    pub(crate) fn or_alone<T>(&self, in_the_way: bool, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        if !in_the_way {
            return ask();
        }
        let result = {
            let _with_others = self.together.read().unwrap_or_else(PoisonError::into_inner);
            ask()
        };
        if !matches!(result, Err(Errno::NOSPC | Errno::DQUOT)) {
            return result;
        }
        let _alone = self.together.write().unwrap_or_else(PoisonError::into_inner);
        ask()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    /// An origin that has space for one change at a time.
    #[derive(Default)]
    struct Disk {
        within: AtomicU32,
        asked: AtomicU32,
    }

    impl Disk {
        fn take(&self, meanwhile: impl FnOnce()) -> Result<()> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let others = self.within.fetch_add(1, Ordering::SeqCst);
            meanwhile();
            self.within.fetch_sub(1, Ordering::SeqCst);
            if others == 0 { Ok(()) } else { Err(Errno::NOSPC) }
        }
    }

    /// Two changes that meet in the disk. Returns the answer of each.
    fn at_once(in_the_way: bool) -> ([Result<()>; 2], u32) {
        let (crowd, disk, met) = (Crowd::default(), Disk::default(), Barrier::new(2));
        let ask = || {
            let mut first = true;
            crowd.or_alone(in_the_way, || {
                let first = std::mem::take(&mut first);
                disk.take(|| {
                    if first {
                        met.wait();
                    }
                })
            })
        };
        let told = thread::scope(|scope| {
            let other = scope.spawn(ask);
            [ask(), other.join().unwrap()]
        });
        (told, disk.asked.into_inner())
    }

    #[test]
    fn who_finds_no_space_because_of_another_gets_it_alone() {
        assert_eq!(at_once(true), ([Ok(()), Ok(())], 3));
    }

    #[test]
    fn where_nobody_is_in_the_way_no_space_is_no_space() {
        let (told, asked) = at_once(false);
        assert_eq!((told.contains(&Err(Errno::NOSPC)), asked), (true, 2));
    }

    #[test]
    fn who_finds_none_alone_is_told_so_and_other_errors_are_told_at_once() {
        for (errno, asks) in [(Errno::NOSPC, 2), (Errno::DQUOT, 2), (Errno::IO, 1)] {
            let (crowd, mut asked) = (Crowd::default(), 0);
            let told = crowd.or_alone(true, || {
                asked += 1;
                Err::<(), _>(errno)
            });
            assert_eq!((told, asked), (Err(errno), asks));
        }
    }
}
