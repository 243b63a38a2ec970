//! How long the processes of a guest ran, and how long they waited until this machine had a processor for them.
//!
//! Source: `/proc/PID/schedstat`: nanoseconds on a processor, and nanoseconds of waiting for one.

use std::collections::BTreeMap;
use std::fs;

/// Of each process of a process group: nanoseconds that it ran, and that it waited.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessorTime(BTreeMap<u32, (u64, u64)>);

impl ProcessorTime {
    /// As it is now.
    #[must_use]
    pub fn of_group(group: u32) -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let text = |pid: u32, name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let of_group = pids.filter(|pid| group_in(&text(*pid, "stat")) == Some(group));
        Self(of_group.filter_map(|pid| Some((pid, times_in(&text(pid, "schedstat"))?))).collect())
    }

    /// The share that was waiting, of the time in which a process could have run since `before`; none if none could.
    #[must_use]
    pub fn waited_since(&self, before: &Self) -> Option<f64> {
        let (mut ran, mut waited) = (0, 0);
        for (pid, now) in &self.0 {
            // What began meanwhile counts from its beginning; what ended does not count.
            let then = before.0.get(pid).copied().unwrap_or_default();
            ran += now.0.saturating_sub(then.0);
            waited += now.1.saturating_sub(then.1);
        }
        (ran + waited > 0).then(|| waited as f64 / (ran + waited) as f64)
    }
}

/// `PID (NAME) STATE PARENT GROUP ...`; a name may have anything in it.
fn group_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

fn times_in(schedstat: &str) -> Option<(u64, u64)> {
    let mut words = schedstat.split_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_is_told_of_what_could_run() {
        assert_eq!(group_in("41 (a) b) R 7 40 40 0"), Some(40));
        assert_eq!((times_in("30 10 5"), times_in("")), (Some((30, 10)), None));
        let of = |times: &[(u32, (u64, u64))]| ProcessorTime(times.iter().copied().collect());
        let (before, after) = (of(&[(1, (100, 50)), (2, (9, 9))]), of(&[(1, (200, 100)), (3, (50, 0))]));
        assert_eq!(after.waited_since(&before), Some(0.25));
        assert_eq!(before.waited_since(&before), None);
    }

    #[test]
    fn the_group_of_this_very_process_is_found() {
        let own = fs::read_to_string("/proc/self/stat").expect("it is there");
        assert!(!ProcessorTime::of_group(group_in(&own).expect("a group")).0.is_empty());
    }
}
