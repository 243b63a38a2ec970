//! Who asks a peer, for which member, and the peer's answer to that.

use std::fmt;

use headpond_base::PoolId;

use crate::bad_frame::BadFrame;

/// The versions of the protocol that an end speaks. The first frame of each side has the layout of the oldest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

impl Versions {
    /// Those of this headpond. A release speaks its own version and the one before, so that hosts can be upgraded one after
    /// the other.
    pub const SPOKEN: Self = Self { oldest: 1, newest: 1 };

    /// All from `oldest` to `newest`. None if there are none, or `oldest` is 0.
    #[must_use]
    pub const fn between(oldest: u16, newest: u16) -> Option<Self> {
        if oldest == 0 || oldest > newest { None } else { Some(Self { oldest, newest }) }
    }

    /// The newest that both speak.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Whether this one is spoken.
    #[must_use]
    pub const fn have(self, version: u16) -> bool {
        self.oldest <= version && version <= self.newest
    }

    /// Whether the other end is of an earlier headpond.
    #[must_use]
    pub const fn are_later_than(self, other: Self) -> bool {
        self.newest > other.newest
    }

    fn encode(self, into: &mut Vec<u8>) {
        into.extend(self.newest.to_le_bytes());
        into.extend(self.oldest.to_le_bytes());
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest { write!(f, "version {newest}") } else { write!(f, "versions {oldest} to {newest}") }
    }
}

/// The name of a member, as its row in the pool's list has it.
pub type MemberNamed = [u8; 16];

/// The first frame of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// What the owner speaks.
    pub versions: Versions,
    /// A sync shall be on the peer's disk before its answer.
    pub durable: bool,
    /// The pool.
    pub pool: PoolId,
    /// The member's name; zeros for whatever the peer keeps.
    pub member: MemberNamed,
    /// The owner's number.
    pub owner: u64,
    /// The epoch of the pool.
    pub epoch: u64,
    /// Bytes of the empty member that is wanted; 0 for the one that the peer keeps.
    pub bytes: u64,
    /// A copy that the owner has beside the wanted one; zeros if it has none. A peer that keeps this one would lose it.
    pub beside: MemberNamed,
}

/// A peer's answer: it serves the member from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The version that both speak from now on.
    pub version: u16,
    /// Syncs are on the peer's disk.
    pub durable: bool,
    /// Bytes of the member.
    pub bytes: u64,
    /// The member's name.
    pub member: MemberNamed,
}

/// Why a peer refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It speaks another version.
    Version = 1,
    /// It knows a larger owner's number.
    Owner = 2,
    /// It knows a larger epoch of this owner's number.
    Epoch = 3,
    /// It keeps nothing of this pool that counts.
    NotKept = 4,
    /// It has no room for so much.
    NoRoom = 5,
    /// Another process on its host has the copy.
    InUse = 6,
    /// It cannot read or write its store.
    Failing = 7,
    /// It keeps the copy that the owner has beside: it is one peer, by two addresses.
    Same = 8,
    /// It makes no copies, as its operator drains it.
    Draining = 9,
}

/// A peer's answer: it does not serve this owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloRefused {
    /// Why.
    pub reason: Reason,
    /// What the peer speaks.
    pub versions: Versions,
    /// The largest owner's number that it knows; 0 if none.
    pub owner: u64,
    /// The largest epoch that it knows of that.
    pub epoch: u64,
    /// Bytes that it would give.
    pub bytes: u64,
}

pub(crate) const HELLO_BYTES: usize = 88;
pub(crate) const ACCEPTED_BYTES: usize = 32;
pub(crate) const REFUSED_BYTES: usize = 32;

const DURABLE: u32 = 1;

/// Reads fields one behind the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadFrame> {
        let (field, rest) = self.0.split_first_chunk().ok_or(BadFrame::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    fn versions(&mut self) -> Result<Versions, BadFrame> {
        let [newest, oldest] = [self.take().map(u16::from_le_bytes)?, self.take().map(u16::from_le_bytes)?];
        Versions::between(oldest, newest).ok_or(BadFrame::Field)
    }

    fn u32(&mut self) -> Result<u32, BadFrame> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BadFrame> {
        self.take().map(u64::from_le_bytes)
    }

    fn durable(&mut self) -> Result<bool, BadFrame> {
        match self.u32()? {
            flags if flags & !DURABLE == 0 => Ok(flags == DURABLE),
            _ => Err(BadFrame::Field),
        }
    }

    /// Bytes without a meaning must be zero, so that a frame has one encoding.
    fn zeros<const N: usize>(&mut self) -> Result<(), BadFrame> {
        if self.take::<N>()? == [0; N] { Ok(()) } else { Err(BadFrame::Field) }
    }
}

impl Hello {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        self.versions.encode(into);
        into.extend(u32::from(self.durable).to_le_bytes());
        into.extend(self.pool.0);
        into.extend(self.member);
        into.extend(self.owner.to_le_bytes());
        into.extend(self.epoch.to_le_bytes());
        into.extend(self.bytes.to_le_bytes());
        into.extend(self.beside);
        into.extend([0; 8]);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut fields = Fields(bytes);
        let hello = Self {
            versions: fields.versions()?,
            durable: fields.durable()?,
            pool: PoolId(fields.take()?),
            member: fields.take()?,
            owner: fields.u64()?,
            epoch: fields.u64()?,
            bytes: fields.u64()?,
            beside: fields.take()?,
        };
        fields.zeros::<8>()?;
        // No pool has this name, and a take-over adds one to the number.
        if hello.pool == PoolId([0; 16]) || hello.owner == u64::MAX {
            return Err(BadFrame::Field);
        }
        Ok(hello)
    }
}

impl Accepted {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.extend(u32::from(self.version).to_le_bytes());
        into.extend(u32::from(self.durable).to_le_bytes());
        into.extend(self.bytes.to_le_bytes());
        into.extend(self.member);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut fields = Fields(bytes);
        let version = u16::try_from(fields.u32()?).map_err(|_| BadFrame::Field)?;
        let durable = fields.durable()?;
        Ok(Self { version, durable, bytes: fields.u64()?, member: fields.take()? })
    }
}

impl HelloRefused {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.extend((self.reason as u32).to_le_bytes());
        self.versions.encode(into);
        into.extend(self.owner.to_le_bytes());
        into.extend(self.epoch.to_le_bytes());
        into.extend(self.bytes.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut fields = Fields(bytes);
        let reason = match fields.u32()? {
            1 => Reason::Version,
            2 => Reason::Owner,
            3 => Reason::Epoch,
            4 => Reason::NotKept,
            5 => Reason::NoRoom,
            6 => Reason::InUse,
            7 => Reason::Failing,
            8 => Reason::Same,
            9 => Reason::Draining,
            _ => return Err(BadFrame::Field),
        };
        let versions = fields.versions()?;
        Ok(Self { reason, versions, owner: fields.u64()?, epoch: fields.u64()?, bytes: fields.u64()? })
    }
}
