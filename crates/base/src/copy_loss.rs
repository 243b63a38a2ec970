//! Copies on other hosts: how many there may be, and what happens while they are lost.

/// The most copies of a pool on other hosts.
pub const COPIES_MAX: u8 = 2;

/// What a sync waits for while the pool misses its copy on another host. Once another copy is there, it has all that is
/// dirty, and syncs are as before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CopyLoss {
    /// The origin has the data of the file, too. So the loss of this host takes nothing that was synced.
    #[default]
    WriteThrough,
    /// The flash here, alone.
    GoOn,
    /// Another copy. Until then no sync is answered.
    Freeze,
}

impl CopyLoss {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::WriteThrough, Self::GoOn, Self::Freeze];

    /// The name on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::GoOn => "go-on",
            Self::Freeze => "freeze",
        }
    }
}
