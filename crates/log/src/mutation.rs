//! Bugs that can be planted, so that the simulator can show that it would find them.
//!
//! Only programs built with the feature `planted-bugs` have them: the simulator, the fuzzer, and the workspace as the tests
//! build it. From `cargo build --package headpond` the compiler leaves them out.

/// A planted bug. None is ever set outside of tests: the simulator's, and those of a mount made with
/// `--test-fault accept-torn-batch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A sync is answered without asking the flash.
    SkipSync,
    /// Recovery takes batches whose payload does not match, and reads give what is there.
    AcceptTornBatch,
    /// Blocks count as clean before the origin's sync.
    CleanBeforeOriginSync,
    /// A segment's lives are not told apart: checksums are not bound to them, and recovery takes
    /// batches that an earlier life left behind, whatever the checkpoint says of them.
    ForgetGeneration,
    /// Recovery replays entries in the order of their place on flash.
    ReplayOutOfOrder,
    /// Clean blocks that wait in memory stay there when they are changed.
    KeepMemoryWindow,
    /// Writes that are asked for as one are batches of their own.
    SplitTogether,
    /// Recovery does not look whether the batch before one is missing.
    ForgetChain,
    /// A file is let go of before the log's word that it is clean is durable.
    LetGoEarly,
    /// A sync waits for the writes of one segment alone: the one in which its last batch lies.
    SyncOneSegment,
    /// Recovery takes of each segment what comes before its first torn batch, whatever is missing in others.
    ChainBySegment,
    /// A sync is answered when the first of several devices is done. The bug is in what carries syncs out, not in the
    /// log.
    SyncOneDevice,
}

impl Mutation {
    /// Whether this program was built with the bugs.
    pub const CAN_BE_PLANTED: bool = cfg!(feature = "planted-bugs");

    /// Whether this one is the planted one.
    #[must_use]
    pub fn is_planted(self, planted: Option<Self>) -> bool {
        Self::CAN_BE_PLANTED && planted == Some(self)
    }

    /// Every one, with its name for the command line.
    pub const ALL: [(&'static str, Self); 12] = [
        ("skip-sync", Self::SkipSync),
        ("accept-torn-batch", Self::AcceptTornBatch),
        ("clean-before-origin-sync", Self::CleanBeforeOriginSync),
        ("forget-generation", Self::ForgetGeneration),
        ("replay-out-of-order", Self::ReplayOutOfOrder),
        ("keep-memory-window", Self::KeepMemoryWindow),
        ("split-together", Self::SplitTogether),
        ("forget-chain", Self::ForgetChain),
        ("let-go-early", Self::LetGoEarly),
        ("sync-one-segment", Self::SyncOneSegment),
        ("chain-by-segment", Self::ChainBySegment),
        ("sync-one-device", Self::SyncOneDevice),
    ];
}
