//! Planted bugs: with them the simulator shows that it finds such bugs.
//!
//! Only programs built with the feature `planted-bugs` have them: the simulator, the fuzzer, and the workspace as the
//! tests build it. `cargo build --package headpond` leaves them out.

/// A planted bug. Only tests set one: those of the simulator, and those of a mount with `--test-fault
/// accept-torn-batch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// The log answers a sync without asking the flash.
    SkipSync,
    /// Recovery takes batches whose payload does not match, and reads return what flash has.
    AcceptTornBatch,
    /// Blocks count as clean before the origin is synced.
    CleanBeforeOriginSync,
    /// Lives of a segment are not told apart. Checksums are not bound to them, and recovery takes batches of an
    /// earlier life, whatever the checkpoint says of them.
    ForgetGeneration,
    /// Recovery replays entries in the order of their place on flash.
    ReplayOutOfOrder,
    /// Changed blocks stay in the memory window with their old content.
    KeepMemoryWindow,
    /// Writes that belong together become batches of their own.
    SplitTogether,
    /// Recovery does not notice a missing batch.
    ForgetChain,
    /// The engine lets go of a file before the entry that it is clean is durable.
    LetGoEarly,
    /// A sync waits only for writes to the segment of its last batch.
    SyncOneSegment,
    /// Recovery takes, of each segment, the batches before its first torn one, whatever is missing in others.
    ChainBySegment,
    /// A range of zeros that went to the origin counts as clean with what was written into it meanwhile.
    CleanWrittenZeros,
    /// A sync is answered when the first of several members is done. The bug is in the engine, which asks for syncs.
    SyncOneDevice,
    /// A write counts as completed when one of its two copies is.
    OneCopySync,
    /// A device that the list of members calls gone is believed.
    BelieveOldMember,
    /// What has one copy after a loss counts as protected, and gets no second one.
    RebuildSkips,
    /// After a member is lost, the pool goes on without a list that says so.
    LossUntold,
    /// Syncs of batches with fewer copies than a superblock says are answered before another one says so.
    CopiesUntold,
    /// What is durable on this host counts as durable everywhere.
    HereForAll,
    /// A start goes on however many members are missing, if it has all blocks that a checkpoint calls dirty.
    StartWithFewer,
    /// The witness of a volume is not compared: what the door says of it is what the pool knows. The bug is in the
    /// door.
    BelieveVolumes,
    /// What was appended is published in the second tail only with the next append: after the answer.
    PublishLate,
    /// Each entry is published in the second tail by itself, also in the midst of several that belong together.
    PublishInPart,
    /// A slot of the second tail is free as soon as its batch is submitted, and not once it is written.
    FreeSlotEarly,
    /// Answers leave although a batch is in no slot and not written.
    AnswerUncovered,
    /// A segment of a row is filled again while others need the parity.
    RowOpenedAgain,
    /// The copies of a row's segments are given up before a checkpoint that names the row counts.
    CopiesGoEarly,
    /// What a row gives back is not compared with the checksums.
    RowUnverified,
    /// A row that lost a place counts as whole.
    RebuildSkipsRows,
    /// A start leaves dirty blocks in those of their places where a crash left them. The bug is in the engine.
    LeaveDiffering,
}

impl Mutation {
    /// Whether this program was built with the bugs.
    pub const CAN_BE_PLANTED: bool = cfg!(feature = "planted-bugs");

    /// Whether this is the planted bug.
    #[must_use]
    pub fn is_planted(self, planted: Option<Self>) -> bool {
        Self::CAN_BE_PLANTED && planted == Some(self)
    }

    /// All bugs, with their names for the command line.
    pub const ALL: [(&'static str, Self); 30] = [
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
        ("one-copy-sync", Self::OneCopySync),
        ("believe-old-member", Self::BelieveOldMember),
        ("rebuild-skips", Self::RebuildSkips),
        ("loss-untold", Self::LossUntold),
        ("copies-untold", Self::CopiesUntold),
        ("here-for-all", Self::HereForAll),
        ("start-with-fewer", Self::StartWithFewer),
        ("clean-written-zeros", Self::CleanWrittenZeros),
        ("believe-volumes", Self::BelieveVolumes),
        ("publish-late", Self::PublishLate),
        ("publish-in-part", Self::PublishInPart),
        ("free-slot-early", Self::FreeSlotEarly),
        ("answer-uncovered", Self::AnswerUncovered),
        ("row-opened-again", Self::RowOpenedAgain),
        ("copies-go-early", Self::CopiesGoEarly),
        ("row-unverified", Self::RowUnverified),
        ("rebuild-skips-rows", Self::RebuildSkipsRows),
        ("leave-differing", Self::LeaveDiffering),
    ];
}
