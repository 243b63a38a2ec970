//! The processor time that a process has used: all its threads, those that have ended, and the kernel's work on its
//! behalf in them.

use std::fs;
use std::path::Path;

/// Processor time of a process up to now, in ticks. 0 if there is no such process.
#[must_use]
pub fn ticks_of(pid: u32) -> u64 {
    used(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default())
}

/// So many ticks in seconds.
#[must_use]
pub fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Processor time of the present threads of a process up to now, in nanoseconds, or of those of this name. 0 if there is
/// none, or if the kernel does not tell.
#[must_use]
pub fn nanos_of_threads(pid: u32, name: Option<&str>) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let named = |path: &Path| name.is_none_or(|name| read(path.join("comm")).trim_end() == name);
    let threads = threads.map(|thread| thread.path()).filter(|path| named(path));
    threads.filter_map(|path| read(path.join("schedstat")).split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// Reads `pid (name) state ... utime stime ...`: fields 14 and 15. The name may hold anything.
fn used(stat: &str) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_that_of_its_own_code_and_of_the_kernel_for_it() {
        let process = "17 (a (b) c) S 1 17 17 0 -1 4194304 100 0 0 0 30 12 5 5 20 0 3 0 9999 1 1";
        assert_eq!(used(process), 42);
        assert_eq!(ticks_of(0), 0, "there is no such process");
    }
}
