//! What can be set in the default policy while it runs, and the settings that it chooses among.

/// Who gets from the window into the main queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WindowGate {
    /// A block that was used in the window, or comes back while it is remembered (S3-FIFO).
    /// Follows what is used now.
    Returning,
    /// A block that was used more often than the block that the main queue would lose for it
    /// (TinyLFU). Keeps a part of a loop that is larger than the cache.
    Contest,
    /// A block that either of these lets in. Between the two on nearly every load.
    Either,
    /// A block that was used in the window, or comes back sooner after its last use than the
    /// block that the main queue would lose was last used (LIRS). That one gets a second chance
    /// in the window. Follows hot spots that move.
    Recency,
}

/// A setting of the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tuning {
    /// The window's share of the cache, in 1024ths.
    pub(super) window: u16,
    pub(super) gate: WindowGate,
    /// Uses in the window that make a block worth the main queue, but for [`WindowGate::Contest`].
    pub(super) uses: u8,
    /// Frequencies are halved once in as many references as there are blocks, times this.
    pub(super) halving: u16,
}

impl Tuning {
    const fn new(gate: WindowGate, window: u16, uses: u8, halving: u16) -> Self {
        Self { window, gate, uses, halving }
    }
}

/// The settings to choose among. The first one holds until there is evidence.
///
/// docs/policies.md says how they were found.
pub(super) const TUNINGS: [Tuning; 6] = [
    // Mixed loads: by itself within a hundredth of the best for most of them, so that little is
    // lost before there is evidence.
    Tuning::new(WindowGate::Either, 102, 3, 30),
    // Loops just larger than the cache.
    Tuning::new(WindowGate::Contest, 31, 2, 5),
    // Hot spots that move.
    Tuning::new(WindowGate::Recency, 102, 2, 5),
    // Mere recency.
    Tuning::new(WindowGate::Returning, 410, 2, 5),
    // Long memory, for long loops and small caches.
    Tuning::new(WindowGate::Contest, 31, 2, 15),
    // Scans between uses that are close together: S3-FIFO.
    Tuning::new(WindowGate::Returning, 102, 3, 5),
];
