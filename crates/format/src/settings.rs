//! The settings of a pool, kept in the pool: a block of text, in two slots that are written in turn.
//!
//! They lie beside the log, not in it. A setting is durable as soon as its block is synced, and moves with the pool to
//! another path, device or host. A torn write leaves the other slot.

use headpond_base::{BLOCK, PoolId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::number::counted_from_one;
use crate::{Damage, VERSION, bytes_checksum};

const MAGIC: [u8; 8] = *b"HPNDSETS";
const WHAT: &str = "settings block";

/// Byte offsets of the two slots. Each lies halfway between a superblock and the next superblock or checkpoint area,
/// so one misdirected or torn write cannot hit two of them.
pub const SETTINGS_SLOTS: [u64; 2] = [16 << 10, 48 << 10];

/// The longest text, in bytes.
pub const SETTINGS_TEXT_MAX: usize = BLOCK - 48;

/// The decoded settings block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsBlock {
    /// The pool whose settings they are.
    pub pool: PoolId,
    /// Grows by one with each write; the larger one counts.
    pub counter: u64,
    /// The settings, as text that the control plane understands (TOML).
    pub text: String,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    /// Over all bytes of the block, with this field as zero.
    checksum: U32,
    version: U32,
    pool: [u8; 16],
    counter: U64,
    text_len: U32,
    zero: U32,
    text: [u8; SETTINGS_TEXT_MAX],
}

const _: () = assert!(size_of::<Raw>() == BLOCK);

/// Encodes a settings block. `None` if the text is too long.
#[must_use]
pub fn encode_settings(settings: &SettingsBlock) -> Option<Vec<u8>> {
    let mut raw = Raw::new_zeroed();
    raw.magic = MAGIC;
    raw.version = VERSION.into();
    raw.pool = settings.pool.0;
    raw.counter = settings.counter.into();
    raw.text_len = u32::try_from(settings.text.len()).ok()?.into();
    raw.text.get_mut(..settings.text.len())?.copy_from_slice(settings.text.as_bytes());
    raw.checksum = bytes_checksum(raw.as_bytes()).into();
    Some(raw.as_bytes().to_vec())
}

/// Reads one slot of the pool `pool`.
///
/// # Errors
/// [`Damage`]; `Missing` where no settings were ever written.
pub fn decode_settings(block: &[u8], pool: PoolId) -> Result<SettingsBlock, Damage> {
    let block = block.get(..BLOCK).ok_or(Damage::Short(WHAT))?;
    let mut raw = Raw::read_from_bytes(block).map_err(|_| Damage::Short(WHAT))?;
    if raw.magic != MAGIC {
        return Err(Damage::Missing(WHAT));
    }
    let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO);
    if bytes_checksum(raw.as_bytes()) != checksum.get() {
        return Err(Damage::Checksum(WHAT));
    }
    if raw.version.get() != VERSION {
        return Err(Damage::Version { found: raw.version.get() });
    }
    if raw.pool != pool.0 {
        return Err(Damage::Foreign(WHAT));
    }
    let senseless = |why| Damage::Senseless(WHAT, why);
    let text = raw.text.get(..raw.text_len.get() as usize).ok_or(senseless("text longer than its room"))?;
    let text = std::str::from_utf8(text).map_err(|_| senseless("text that is no UTF-8"))?.to_owned();
    Ok(SettingsBlock { pool, counter: counted_from_one(WHAT, raw.counter.get())?, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SUPERBLOCK_SLOTS;

    const POOL: PoolId = PoolId([7; 16]);

    fn block(text: &str) -> Option<Vec<u8>> {
        encode_settings(&SettingsBlock { pool: POOL, counter: 3, text: text.to_owned() })
    }

    #[test]
    fn what_is_written_reads_back_for_its_own_pool_only() {
        let bytes = block("mode = \"write-back\"\n").unwrap();
        let read = decode_settings(&bytes, POOL).unwrap();
        assert_eq!((read.counter, read.text.as_str()), (3, "mode = \"write-back\"\n"));
        assert_eq!(decode_settings(&bytes, PoolId([8; 16])), Err(Damage::Foreign(WHAT)));
        assert!(block(&"x".repeat(SETTINGS_TEXT_MAX)).is_some());
        assert!(block(&"x".repeat(SETTINGS_TEXT_MAX + 1)).is_none());
    }

    #[test]
    fn every_flipped_bit_is_noticed_and_garbage_is_no_block() {
        let bytes = block("flush-period = \"10s\"\n").unwrap();
        for bit in (0..BLOCK * 8).step_by(13) {
            let mut spoiled = bytes.clone();
            spoiled[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_settings(&spoiled, POOL).is_err(), "bit {bit}");
        }
        assert_eq!(decode_settings(&[0; BLOCK], POOL), Err(Damage::Missing(WHAT)));
        assert_eq!(decode_settings(&bytes[..100], POOL), Err(Damage::Short(WHAT)));
    }

    #[test]
    fn no_two_of_the_first_blocks_lie_within_16_kib() {
        let mut slots = [SUPERBLOCK_SLOTS, SETTINGS_SLOTS].concat();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[1] - pair[0] >= 16 << 10), "{slots:?}");
        assert!(slots[3] + BLOCK as u64 <= 64 << 10);
    }
}
