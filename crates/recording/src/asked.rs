//! One request, as far as a trace keeps it.

use headpond_base::{Class, Nanos, ObjectId};

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedKind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// All that was acknowledged is to be durable.
    Sync,
    /// Bytes become zeros: a hole is punched.
    Discard,
    /// The object ends at the offset.
    Truncate,
    /// The object's last name goes.
    Remove,
}

impl AskedKind {
    /// All of them, in the order of their numbers, which start at 1.
    pub const ALL: [Self; 6] = [Self::Read, Self::Write, Self::Sync, Self::Discard, Self::Truncate, Self::Remove];

    /// Its number in a trace.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Sync => 3,
            Self::Discard => 4,
            Self::Truncate => 5,
            Self::Remove => 6,
        }
    }

    /// The kind with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskedRequest {
    /// When, from the start of the recording.
    pub at: Nanos,
    /// What is asked.
    pub kind: AskedKind,
    /// Of which object: its number in the pool. [`AskedRequest::EVERY_OBJECT`] for a sync of all.
    pub object: ObjectId,
    /// The first byte; the new end for [`AskedKind::Truncate`].
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// The process that asks; 0 if that is not known. A trace numbers the processes anew.
    pub process: u32,
    /// The class of a rule.
    pub class: Class,
    /// A rule sends it past the pool.
    pub past: bool,
    /// A rule sends the write to the origin at once; the pool keeps it as clean.
    pub through: bool,
    /// It counts for no sequential run: it is to be durable at once, or untorn.
    pub alone: bool,
}

impl AskedRequest {
    /// The object of a sync of all objects.
    pub const EVERY_OBJECT: ObjectId = ObjectId(u64::MAX);

    /// The flags of a trace's request.
    pub(crate) fn flags(&self) -> u8 {
        u8::from(self.past) | u8::from(self.through) << 1 | u8::from(self.alone) << 2
    }

    /// Sets what the flags say. `false` if one has no meaning.
    pub(crate) fn set_flags(&mut self, flags: u8) -> bool {
        (self.past, self.through, self.alone) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        flags < 8
    }
}
