//! Jobs on all processors. In virtual time neighbours do not disturb each other.
//!
//! Keeps true: results come in the order of the jobs, whichever ends first.

use crate::failure::{Result, check_interrupt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does every job, and tells of each that ends.
pub fn side_by_side<J: Sync, R: Send>(
    jobs: &[J],
    name: impl Fn(&J) -> String + Sync,
    work: impl Fn(&J) -> R + Sync,
) -> Result<Vec<R>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(jobs.iter().map(|_| None).collect::<Vec<_>>());
    let worker = || -> Result<()> {
        while let Some((index, job)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(index).map(|job| (index, job))
        } {
            check_interrupt()?;
            let result = work(job);
            eprintln!("[{}/{}] {}", done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len(), name(job));
            // A poisoned lock means that another worker panicked, and then no result is used.
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[index] = Some(result);
        }
        Ok(())
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..20).rev().collect();
        let found = side_by_side(&jobs, u64::to_string, |job| {
            thread::sleep(std::time::Duration::from_micros(job * 50));
            job * 2
        });
        assert_eq!(found.unwrap(), (0..20).rev().map(|job| job * 2).collect::<Vec<u64>>());
    }
}
