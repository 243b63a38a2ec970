//! Bugs that histories of hosts must find. They are planted in the model's glue, or between it and the real decisions.

/// A bug planted in a history of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedHosts {
    /// A sync is answered once the list without the lost copy is on flash, before the registry has it.
    AnswersBeforeRecord,
    /// A lease counts from the answer that granted it.
    LeaseFromAnswer,
    /// The peer compares no owner's number, and a take-over does not wait for its server.
    NumberNotKept,
    /// The peer carries out what a dead connection of the same owner still brings.
    GapAccepted,
    /// A guard takes a copy that the owner went on without.
    TakesAnyCopy,
    /// Changes of the origin pass without a look at the lease.
    DestagesAfterLease,
    /// A guard does not run the program that fences.
    FenceSkipped,
    /// The record names the heir with its lease already. One that begins again, after a lost answer or a crash, fences the
    /// node in the record: itself.
    FencesItself,
    /// An owner knows of the registry's record only what an answer said.
    BelievesAnswersOnly,
    /// A guard takes a copy from which no mount would start.
    TakesPartOfCopy,
    /// A guard whose lease was gone takes it again, and goes on where it was.
    FollowsAgain,
    /// A start tells the registry of a list of members that it has read and that is not on disk.
    TellsUnsynced,
    /// A sync is answered once the flash here has it, whatever the copies have.
    AnswersAfterOne,
    /// A copy at a host that is being drained is let go before another one has everything.
    LetsGoEarly,
    /// A copy gets no more records from when it is to go, and not from when the list without it counts.
    LeavesBeforeRecord,
    /// A use is said to have begun before the list without a lost copy counts: that copy alone could go on, and is refused.
    BeginsEarly,
    /// A start leaves dirty blocks on the peers that alone have them after a crash, and says that they are in the pool.
    LeavesDiffering,
}

impl PlantedHosts {
    /// All bugs, by their names on the command line.
    pub const ALL: [(&'static str, Self); 17] = [
        ("answers-before-record", Self::AnswersBeforeRecord),
        ("lease-from-answer", Self::LeaseFromAnswer),
        ("number-not-kept", Self::NumberNotKept),
        ("gap-accepted", Self::GapAccepted),
        ("takes-any-copy", Self::TakesAnyCopy),
        ("destages-after-lease", Self::DestagesAfterLease),
        ("fence-skipped", Self::FenceSkipped),
        ("fences-itself", Self::FencesItself),
        ("believes-answers-only", Self::BelievesAnswersOnly),
        ("takes-part-of-copy", Self::TakesPartOfCopy),
        ("follows-again", Self::FollowsAgain),
        ("tells-unsynced", Self::TellsUnsynced),
        ("answers-after-one", Self::AnswersAfterOne),
        ("lets-go-early", Self::LetsGoEarly),
        ("leaves-before-record", Self::LeavesBeforeRecord),
        ("begins-early", Self::BeginsEarly),
        ("leaves-differing", Self::LeavesDiffering),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, planted)| *planted == self).map_or("unknown", |(name, _)| name)
    }
}
