//! Runs many seeds on all cores, and shows progress. It stops at the first failure, or goes on.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Failure, HistorySums, Options, run_seed};

/// What a campaign found.
#[derive(Debug, Default)]
pub struct CampaignFindings {
    /// Seeds run.
    pub seeds: u64,
    /// Sums over all runs that passed.
    pub total: HistorySums,
    /// Runs that failed, in the order of their seeds.
    pub failures: Vec<Failure>,
}

/// Runs all `seeds`, on `threads` threads. Ends early after `most_failures`. After each run it calls `progress`, from
/// any thread, with the number done and the failure if there was one.
pub fn run_seeds(
    seeds: Range<u64>,
    options: &Options,
    threads: usize,
    most_failures: usize,
    progress: &(dyn Fn(u64, Option<&Failure>) + Sync),
) -> CampaignFindings {
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let findings = Mutex::new(CampaignFindings::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || enough.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = run_caught(seed, options);
                    let mut findings = findings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    findings.seeds += 1;
                    match &result {
                        Ok(summary) => findings.total.add(summary),
                        Err(failure) => findings.failures.push(failure.clone()),
                    }
                    if findings.failures.len() >= most_failures {
                        enough.store(true, Ordering::Relaxed);
                    }
                    progress(findings.seeds, result.as_ref().err());
                }
            });
        }
    });
    let mut findings = findings.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    findings.failures.sort_by_key(|failure| failure.seed);
    findings
}

/// Runs a seed. A panic, such as the engine's failed assertion, is a failure like any other.
///
/// # Errors
/// The first broken promise.
pub fn run_caught(seed: u64, options: &Options) -> Result<HistorySums, Failure> {
    std::panic::catch_unwind(|| run_seed(seed, options))
        .unwrap_or_else(|panic| Err(Failure { seed, options: options.clone(), at: None, what: said(&*panic) }))
}

thread_local! {
    static WHERE: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Hides panics, which are findings here: their place is shown with the seed.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        WHERE.with_borrow_mut(|known| *known = place);
    }));
}

/// The message of a panic.
pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
    format!("panic at {}: {}", WHERE.with_borrow(Clone::clone), said.unwrap_or_default())
}
