//! What can be set in the default policy while it runs, and the settings that it chooses among.

/// Who gets from the window into the main queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gate {
    /// Whoever was used twice in the window, and whoever comes back while it is remembered
    /// (S3-FIFO). Follows what is used now.
    Returning,
    /// Whoever was used more often than the block that the main queue would lose for it
    /// (TinyLFU). Keeps a part of a loop that is larger than the cache.
    Contest,
}

/// A setting of the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tuning {
    /// The window's share of the cache, in 1024ths.
    pub(super) window: u16,
    pub(super) gate: Gate,
    /// Uses in the window that make a block worth the main queue ([`Gate::Returning`]).
    pub(super) uses: u8,
    /// Frequencies are halved once in as many references as there are blocks, times this.
    pub(super) halving: u16,
}

/// The settings to choose among. The first one holds until there is evidence.
///
/// Found by a search among fifty-five for those that a perfect choice would gain most from, over
/// real and made-up loads, and trimmed by hand (docs/policies.md says how). A sixth would gain 0.0003 of
/// miss ratio on the mean.
pub(super) const TUNINGS: [Tuning; 5] = [
    // Loops and stable popularity. Memory between that of the third and of the last: what comes before there
    // is evidence is remembered long enough to become evidence.
    Tuning { window: 102, gate: Gate::Contest, uses: 2, halving: 10 },
    // Mixed loads, at most sizes.
    Tuning { window: 102, gate: Gate::Returning, uses: 2, halving: 5 },
    // Loops just larger than the cache.
    Tuning { window: 31, gate: Gate::Contest, uses: 2, halving: 5 },
    // Mere recency.
    Tuning { window: 410, gate: Gate::Returning, uses: 1, halving: 5 },
    // Long memory, for long loops and small caches.
    Tuning { window: 102, gate: Gate::Contest, uses: 2, halving: 15 },
];
