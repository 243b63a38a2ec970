//! Identifiers and positions. Each is a newtype, so that the compiler tells a segment from a block.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl $name {
            /// The next one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
    };
}

number! {
    /// A file or a volume, for as long as a pool remembers it. Never used twice in one pool.
    ObjectId(u64)
}
number! {
    /// A 4 KiB block's position inside an object: byte offset / 4096.
    Block(u64)
}
number! {
    /// A segment's position in the pool, from 0.
    SegmentId(u32)
}
number! {
    /// A device of a pool, numbered from 0 in the order in which they came. Never used twice in one pool.
    MemberId(u16)
}
number! {
    /// The owner of a pool and its origin: only it may write to them. The number goes up when another host takes over,
    /// and at no other time. A smaller number is refused.
    OwnerNumber(u64)
}
number! {
    /// Counts the openings of segments of one pool. A segment gets a new one each time it is reused, so bytes of an
    /// earlier life are recognised.
    Generation(u64)
}
number! {
    /// Orders every entry of the log, over all streams. Replay follows it.
    Sequence(u64)
}
number! {
    /// Orders batches by their submission to flash, over all streams.
    BatchNumber(u64)
}
number! {
    /// Counts the uses of a pool. What an earlier epoch left behind its last checkpoint is never replayed in a later
    /// one.
    Epoch(u64)
}

impl Block {
    /// The byte at which the block starts.
    #[must_use]
    pub const fn byte(self) -> u64 {
        self.0 * crate::BLOCK_U64
    }

    /// The block that holds byte `offset`.
    #[must_use]
    pub const fn holding(offset: u64) -> Self {
        Self(offset / crate::BLOCK_U64)
    }

    /// The block `count` further on.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

/// Where a block's bytes are on flash, in blocks from the start of the pool's first segment.
///
/// It has 40 bits, so a map slot takes eleven bytes and a pool reaches 4 PiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location(pub u64);

impl Location {
    /// Every place comes before this one.
    pub const END: Self = Self((1 << 40) - 1);

    /// Decodes five bytes from flash, little-endian.
    #[must_use]
    pub const fn from_bytes([a, b, c, d, e]: [u8; 5]) -> Self {
        Self(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }

    /// The five bytes on flash, little-endian.
    #[must_use]
    pub const fn bytes(self) -> [u8; 5] {
        let [a, b, c, d, e, ..] = self.0.to_le_bytes();
        [a, b, c, d, e]
    }

    /// The location `count` blocks further on. Only within one segment.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count as u64)
    }
}

/// The random name of a pool, drawn when the pool is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PoolId(pub [u8; 16]);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolId({self})")
    }
}

/// The share of the pool that a block uses. 0 is everybody's. 1 to 15 stand for rules that pin or give a share.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// The number of classes: four bits on flash and in the map.
    pub const COUNT: usize = 16;
    /// The class of requests without such a rule.
    pub const EVERYBODY: Self = Self(0);

    /// The class with this number; `None` from [`Class::COUNT`] on.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// The class in the lowest four bits of a byte from flash.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0x0f)
    }

    /// The class's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The class's place in an array with one element for each class.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What kind of data a segment holds. Data that dies together lies together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Stream {
    /// Host writes, and everything whose order matters. Only this stream is chained.
    Host = 0,
    /// Clean blocks that were used again after they came in.
    Hot = 1,
    /// Clean blocks just read from the origin.
    Cold = 2,
}

impl Stream {
    /// All streams, in the order of their numbers on flash.
    pub const ALL: [Self; 3] = [Self::Host, Self::Hot, Self::Cold];

    /// The stream with this number on flash; `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Host),
            1 => Some(Self::Hot),
            2 => Some(Self::Cold),
            _ => None,
        }
    }

    /// The stream's place in an array with one element for each stream.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
