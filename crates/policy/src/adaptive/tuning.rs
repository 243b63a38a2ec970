//! What can be set in the default policy while it runs, and the settings it chooses among.

/// Which blocks get from the window into the main queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WindowGate {
    /// A block that was used in the window, or comes back while its name is remembered (S3-FIFO). Follows present use.
    Returning,
    /// A block that was used clearly more often than the one that the main queue would lose: at least `times` as often,
    /// and `more` uses on top (TinyLFU). Keeps a part of a loop that is larger than the cache.
    ///
    /// All blocks of a loop are used equally often, but their counts differ: the window's block has just been used, the
    /// other one soon will be, and one of the two may have been halved already. Each exchange for such a difference
    /// costs a miss and a flash write.
    Contest { times: u8, more: u8 },
    /// A block that came back, or was used more often at all. Between the two on nearly every load.
    Either,
    /// A block that was used in the window, or that returns soon: its pause is shorter than the time since the last
    /// use of the block that the main queue would lose (LIRS). That block gets a second chance in the window. Follows
    /// moving hot spots.
    Recency,
}

impl WindowGate {
    /// Whether a block used this often may take the place of another one in the main queue.
    pub(super) const fn prefers(self, frequency: u8, other: u8) -> bool {
        match self {
            Self::Contest { times, more } => frequency >= times * other + more,
            Self::Either => frequency > other,
            Self::Returning | Self::Recency => false,
        }
    }
}

/// A setting of the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tuning {
    /// The window's share of the cache, in 1024ths.
    pub(super) window: u16,
    pub(super) gate: WindowGate,
    /// Uses in the window that make a block worth the main queue. Unused with [`WindowGate::Contest`].
    pub(super) uses: u8,
    /// Frequencies are halved once in this many references, times the number of blocks.
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
    // Mixed loads. For most of them it is within a hundredth of the best, so little is lost before there is evidence.
    Tuning::new(WindowGate::Either, 102, 3, 30),
    // Stable popularity. The window is a hundredth, because a loop has no use for more.
    Tuning::new(WindowGate::Contest { times: 1, more: 3 }, 10, 2, 4),
    // Moving hot spots.
    Tuning::new(WindowGate::Recency, 102, 2, 5),
    // Mere recency.
    Tuning::new(WindowGate::Returning, 410, 2, 5),
    // Loops larger than the cache: long memory, and few exchanges.
    Tuning::new(WindowGate::Contest { times: 2, more: 2 }, 10, 2, 20),
    // Scans between uses close together: S3-FIFO.
    Tuning::new(WindowGate::Returning, 102, 3, 5),
];
