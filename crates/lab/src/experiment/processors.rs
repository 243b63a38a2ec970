//! The processors of a side that may not use all of them.
//!
//! Invariant: a program that starts while a [`Confined`] lives runs only on its processors, and so do its children.
//! After that the lab itself runs where it ran before.

use crate::failure::{Failure, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this thread may use, by their numbers.
pub fn available() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect()
}

/// This thread, and what it starts, kept to some processors.
pub struct Confined {
    before: CpuSet,
    /// Which they are.
    pub numbers: Vec<usize>,
}

impl Confined {
    /// Keeps this thread to the first so many of its processors.
    pub fn to(count: usize) -> Result<Self> {
        let mut numbers = available();
        if numbers.len() < count {
            return Err(Failure::Other(format!(
                "{count} processors are asked for, and there are {}: change `cores` in a copy of the experiment's file",
                numbers.len()
            )));
        }
        numbers.truncate(count);
        let doing = "keeping a side to its processors";
        let before = sched_getaffinity(None).map_err(|error| Failure::io(doing)(error.into()))?;
        let mut set = CpuSet::new();
        numbers.iter().for_each(|number| set.set(*number));
        sched_setaffinity(None, &set).map_err(|error| Failure::io(doing)(error.into()))?;
        Ok(Self { before, numbers })
    }

    /// The same for a shell, before the commands that it is about.
    #[must_use]
    pub fn typed(&self) -> String {
        let list: Vec<String> = self.numbers.iter().map(ToString::to_string).collect();
        format!("taskset --pid --cpu-list {} $$", list.join(","))
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // It was so before: nothing can refuse it but a machine that lost its processors.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_started_meanwhile_has_the_processors_named_and_no_others() {
        let before = available();
        let confined = Confined::to(1).unwrap();
        let started = std::thread::spawn(available).join().unwrap();
        assert_eq!((started, confined.numbers.clone()), (vec![before[0]], vec![before[0]]));
        assert_eq!(confined.typed(), format!("taskset --pid --cpu-list {} $$", before[0]));
        drop(confined);
        assert_eq!(available(), before);
        let error = Confined::to(before.len() + 1).err().expect("there are not so many").to_string();
        assert!(error.contains("`cores`"), "{error}");
    }
}
