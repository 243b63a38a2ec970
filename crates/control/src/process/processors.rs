//! The processors on which a worker runs.
//!
//! Keeps true: all threads of a worker run there, those of the kernel that serve its rings as well, and what they
//! allocate lies near. A thread inherits the processors of the one that starts it, so they are chosen before the first.
//! The holder does no work worth a place, and is left alone.

use std::fmt;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::refusal::Refusal;

/// Some processors, by their numbers: none twice, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processors(Vec<usize>);

impl Processors {
    /// Beyond this the kernel's set has no place.
    const MOST: usize = CpuSet::MAX_CPU;

    /// Those on which this thread may run.
    fn allowed() -> Result<Self, Refusal> {
        let set = sched_getaffinity(None).map_err(|error| Refusal::Failed {
            doing: "ask for the processors of this process".to_owned(),
            error: error.into(),
        })?;
        Ok(Self((0..Self::MOST).filter(|number| set.is_set(*number)).collect()))
    }

    /// This thread, and those that it starts from now on, run on these processors only.
    ///
    /// # Errors
    /// If this process may not run on one of them.
    pub fn keep_to(&self) -> Result<(), Refusal> {
        let allowed = Self::allowed()?;
        if let Some(missing) = self.0.iter().find(|number| !allowed.0.contains(number)) {
            return Err(Refusal::Usage(format!(
                "--processors {self}: this process cannot run on processor {missing}. It can on {allowed}"
            )));
        }
        let mut set = CpuSet::new();
        self.0.iter().for_each(|number| set.set(*number));
        sched_setaffinity(None, &set)
            .map_err(|error| Refusal::Failed { doing: format!("run on the processors {self}"), error: error.into() })
    }
}

impl FromStr for Processors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' names no processors. Give numbers and ranges, such as 0-7 or 0-3+8-11");
        let number = |part: &str| part.trim().parse::<usize>().ok().filter(|number| *number < Self::MOST);
        let mut numbers = Vec::new();
        for part in text.split([',', '+']) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
            if first > last {
                return Err(wrong());
            }
            numbers.extend(first..=last);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self(numbers))
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<String> = self
            .0
            .chunk_by(|one, next| one + 1 == *next)
            .map(|run| match run {
                [first, .., last] => format!("{first}-{last}"),
                [only] => only.to_string(),
                [] => String::new(),
            })
            .collect();
        f.write_str(&runs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read_in_any_order_and_shown_in_order() {
        for (text, shown) in [("3", "3"), ("0-2", "0-2"), ("8-9,0+1", "0-1,8-9"), ("4,4,5", "4-5"), (" 1 , 7 ", "1,7")]
        {
            assert_eq!(text.parse::<Processors>().unwrap().to_string(), shown);
        }
        for wrong in ["", "a", "3-1", "1-", "-1", "1,,2", "0-99999999999", "1024"] {
            assert!(wrong.parse::<Processors>().unwrap_err().contains("0-7"), "{wrong}");
        }
    }

    #[test]
    fn a_thread_and_those_that_it_starts_run_where_they_are_told() {
        let ran = std::thread::spawn(|| {
            let first = Processors(vec![Processors::allowed().unwrap().0[0]]);
            first.keep_to().unwrap();
            let later = std::thread::spawn(|| Processors::allowed().unwrap()).join().unwrap();
            let refusal = Processors(vec![first.0[0], Processors::MOST - 1]).keep_to().unwrap_err().to_string();
            (first, later, refusal)
        });
        let (first, later, refusal) = ran.join().unwrap();
        assert_eq!(first, later);
        assert!(refusal.contains("cannot run on processor 1023. It can on"), "{refusal}");
    }
}
