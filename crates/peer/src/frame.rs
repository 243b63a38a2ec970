//! A frame as bytes, and back.
//!
//! Invariant: what [`PeerFrame::decode`] returns keeps every bound of the protocol, so a receiver can make room for it.

use headpond_base::{BLOCK, Errno};

use crate::bad_frame::BadFrame;
use crate::hello::{ACCEPTED_BYTES, Accepted, HELLO_BYTES, Hello, HelloRefused, REFUSED_BYTES};

/// Bytes before the payload.
pub const FRAME_HEAD: usize = 32;

/// The most bytes of one read or write.
pub const PAYLOAD_MAX: usize = 1 << 20;

/// The most bytes of one trim.
pub const TRIM_MAX: u32 = 1 << 31;

const MAGIC: [u8; 4] = *b"HPpr";

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said<'a> {
    /// The owner's first.
    Hello(Hello),
    /// The peer serves it.
    Accepted(Accepted),
    /// The peer does not.
    Refused(HelloRefused),
    /// Read `len` bytes at `offset`.
    Read {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// What was read.
    Data(&'a [u8]),
    /// Write these bytes at `offset`.
    Write {
        /// The first byte.
        offset: u64,
        /// What to write.
        data: &'a [u8],
    },
    /// Make sure of all writes before.
    Sync,
    /// Nobody needs these bytes.
    Trim {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// A write or sync is done.
    Done,
    /// A request failed.
    Failed(Errno),
    /// The peer knows this larger owner's number.
    Deposed(u64),
    /// The peer is there, and at a request that takes its time. Of no request.
    Working,
    /// The peer's host is to keep no copies any more. Of no request.
    Draining,
    /// The pool has no member here any more.
    LetGo,
}

/// What a frame says, about the request of this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerFrame<'a> {
    /// The request.
    pub tag: u64,
    /// What is said.
    pub said: Said<'a>,
}

/// Whether a run of bytes is one of whole blocks.
fn is_of_blocks(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK) && len > 0 && offset < 1 << 62
}

impl<'a> PeerFrame<'a> {
    /// Appends the frame.
    ///
    /// # Panics
    /// When what it says breaks the protocol's bounds.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let start = into.len();
        let (kind, errno, offset, len) = match self.said {
            Said::Hello(_) => (1, 0, 0, HELLO_BYTES),
            Said::Accepted(_) => (2, 0, 0, ACCEPTED_BYTES),
            Said::Refused(_) => (3, 0, 0, REFUSED_BYTES),
            Said::Read { offset, len } => (4, 0, offset, len as usize),
            Said::Data(data) => (5, 0, 0, data.len()),
            Said::Write { offset, data } => (6, 0, offset, data.len()),
            Said::Sync => (7, 0, 0, 0),
            Said::Trim { offset, len } => (8, 0, offset, len as usize),
            Said::Done => (9, 0, 0, 0),
            Said::Failed(errno) => (10, u16::try_from(errno.0).unwrap_or(5), 0, 0),
            Said::Deposed(_) => (11, 0, 0, 8),
            Said::Working => (12, 0, 0, 0),
            Said::Draining => (13, 0, 0, 0),
            Said::LetGo => (14, 0, 0, 0),
        };
        into.extend(MAGIC);
        into.extend([kind, 0]);
        into.extend(errno.to_le_bytes());
        into.extend(self.tag.to_le_bytes());
        into.extend(offset.to_le_bytes());
        into.extend(u32::try_from(len).expect("bounded by the protocol").to_le_bytes());
        into.extend([0; 4]);
        match self.said {
            Said::Hello(hello) => hello.encode(into),
            Said::Accepted(accepted) => accepted.encode(into),
            Said::Refused(refused) => refused.encode(into),
            Said::Data(data) | Said::Write { data, .. } => {
                assert!(data.len() <= PAYLOAD_MAX, "a payload is bounded");
                into.extend_from_slice(data);
            }
            Said::Deposed(owner) => into.extend(owner.to_le_bytes()),
            _ => {}
        }
        let sum = checksum(&into[start..]).to_le_bytes();
        into[start + 28..start + 32].copy_from_slice(&sum);
    }

    /// How many bytes the frame has that begins here. `None` if that is not told yet.
    ///
    /// # Errors
    /// [`BadFrame`].
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, BadFrame> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(BadFrame::Magic);
        }
        let Some(head) = bytes.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let len = field_u32(head, 24) as usize;
        let payload = match head[4] {
            1 if len == HELLO_BYTES => len,
            2 if len == ACCEPTED_BYTES => len,
            3 if len == REFUSED_BYTES => len,
            4..=6 if len > PAYLOAD_MAX => return Err(BadFrame::Length),
            5 | 6 => len,
            8 if len > TRIM_MAX as usize => return Err(BadFrame::Length),
            4 | 8 => 0,
            7 | 9 | 10 | 12..=14 if len == 0 => 0,
            11 if len == 8 => 8,
            1..=14 => return Err(BadFrame::Length),
            kind => return Err(BadFrame::Kind(kind)),
        };
        Ok(Some(FRAME_HEAD + payload))
    }

    /// Reads the frame that begins here, and tells its bytes. `None` if it is not whole yet.
    ///
    /// # Errors
    /// [`BadFrame`].
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, BadFrame> {
        let Some(whole) = Self::length(bytes)? else { return Ok(None) };
        let Some(bytes) = bytes.get(..whole) else { return Ok(None) };
        if checksum(bytes) != field_u32(bytes, 28) {
            return Err(BadFrame::Checksum);
        }
        let (tag, offset, len) = (field_u64(bytes, 8), field_u64(bytes, 16), field_u32(bytes, 24));
        let errno = u16::from_le_bytes([bytes[6], bytes[7]]);
        let payload = &bytes[FRAME_HEAD..];
        let kind = bytes[4];
        let has_place = matches!(kind, 4 | 6 | 8);
        if bytes[5] != 0 || (errno != 0) != (kind == 10) || (!has_place && offset != 0) {
            return Err(BadFrame::Field);
        }
        let of_blocks = kind == 5 && is_of_blocks(0, len as usize) || has_place && is_of_blocks(offset, len as usize);
        if matches!(kind, 4..=6 | 8) && !of_blocks {
            return Err(BadFrame::Length);
        }
        let said = match kind {
            1 => Said::Hello(Hello::decode(payload)?),
            2 => Said::Accepted(Accepted::decode(payload)?),
            3 => Said::Refused(HelloRefused::decode(payload)?),
            4 => Said::Read { offset, len },
            5 => Said::Data(payload),
            6 => Said::Write { offset, data: payload },
            7 => Said::Sync,
            8 => Said::Trim { offset, len },
            9 => Said::Done,
            10 => Said::Failed(Errno(errno.into())),
            11 => Said::Deposed(field_u64(payload, 0)),
            12 => Said::Working,
            13 => Said::Draining,
            _ => Said::LetGo,
        };
        Ok(Some((Self { tag, said }, whole)))
    }
}

fn field_u32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |field| u32::from_le_bytes(*field))
}

fn field_u64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |field| u64::from_le_bytes(*field))
}

/// Of a frame, its own four bytes taken as zero.
fn checksum(frame: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&frame[..28]);
    digest.update(&[0; 4]);
    digest.update(&frame[FRAME_HEAD..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use headpond_base::PoolId;
    use proptest::prelude::*;

    use super::*;
    use crate::hello::{Reason, Versions};

    fn encoded(frame: &PeerFrame<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    }

    /// One frame of each kind.
    fn all(data: &[u8]) -> Vec<PeerFrame<'_>> {
        let hello = Hello {
            versions: Versions::between(3, 4).unwrap(),
            durable: true,
            pool: PoolId([7; 16]),
            member: [8; 16],
            owner: 3,
            epoch: 9,
            bytes: 64 << 20,
            beside: [6; 16],
        };
        let accepted = Accepted { version: 1, durable: false, bytes: 64 << 20, member: [8; 16] };
        let refused = HelloRefused { reason: Reason::Owner, versions: Versions::SPOKEN, owner: 4, epoch: 10, bytes: 0 };
        let said = [
            Said::Hello(hello),
            Said::Accepted(accepted),
            Said::Refused(refused),
            Said::Read { offset: 8192, len: 4096 },
            Said::Data(data),
            Said::Write { offset: 4096, data },
            Said::Sync,
            Said::Trim { offset: 0, len: TRIM_MAX },
            Said::Done,
            Said::Failed(Errno::IO),
            Said::Deposed(5),
            Said::Working,
            Said::Draining,
            Said::LetGo,
        ];
        (1..).zip(said).map(|(tag, said)| PeerFrame { tag, said }).collect()
    }

    #[test]
    fn each_kind_reads_back_and_no_part_of_one_is_taken_for_a_whole() {
        let data = vec![5; 8192];
        for frame in all(&data) {
            let bytes = encoded(&frame);
            assert_eq!(PeerFrame::decode(&bytes), Ok(Some((frame, bytes.len()))));
            for cut in (0..bytes.len()).step_by(if bytes.len() > 200 { 97 } else { 1 }) {
                assert_eq!(PeerFrame::decode(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn each_flipped_bit_of_each_kind_is_found() {
        let data = vec![5; 4096];
        for frame in all(&data) {
            let bytes = encoded(&frame);
            for bit in (0..bytes.len() * 8).step_by(if bytes.len() > 200 { 61 } else { 1 }) {
                let mut forged = bytes.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                let read = PeerFrame::decode(&forged);
                assert!(!matches!(read, Ok(Some(_))), "bit {bit} of {frame:?}: {read:?}");
            }
        }
    }

    /// Forged with a right checksum: the bounds alone refuse it.
    fn forge(frame: &PeerFrame<'_>, change: impl Fn(&mut Vec<u8>)) -> Result<Option<usize>, BadFrame> {
        let mut bytes = encoded(frame);
        change(&mut bytes);
        let sum = checksum(&bytes).to_le_bytes();
        bytes[28..32].copy_from_slice(&sum);
        PeerFrame::decode(&bytes).map(|read| read.map(|(_, len)| len))
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_before_anybody_makes_room_for_it() {
        let read = PeerFrame { tag: 1, said: Said::Read { offset: 0, len: 4096 } };
        let len = |len: u32| move |bytes: &mut Vec<u8>| bytes[24..28].copy_from_slice(&len.to_le_bytes());
        assert_eq!(forge(&read, len(PAYLOAD_MAX as u32)), Ok(Some(FRAME_HEAD)));
        for bad in [0, 4095, PAYLOAD_MAX as u32 + 4096, u32::MAX] {
            assert_eq!(forge(&read, len(bad)), Err(BadFrame::Length), "{bad}");
        }
        assert_eq!(forge(&read, |bytes| bytes[16] = 1), Err(BadFrame::Length));
        assert_eq!(forge(&read, |bytes| bytes[23] = 0xff), Err(BadFrame::Length));
        assert_eq!(forge(&read, |bytes| bytes[4] = 15), Err(BadFrame::Kind(15)));
        assert_eq!(forge(&read, |bytes| bytes[5] = 1), Err(BadFrame::Field));
        assert_eq!(forge(&read, |bytes| bytes[6] = 1), Err(BadFrame::Field));
        let sync = PeerFrame { tag: 1, said: Said::Sync };
        assert_eq!(forge(&sync, |bytes| bytes[16] = 1), Err(BadFrame::Field));
        assert_eq!(forge(&sync, len(4096)), Err(BadFrame::Length));
        // Known by its first 32 bytes: nobody waits for four gigabytes.
        let mut huge = encoded(&PeerFrame { tag: 1, said: Said::Write { offset: 0, data: &[0; 4096] } });
        huge[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(PeerFrame::decode(&huge[..FRAME_HEAD]), Err(BadFrame::Length));
    }

    proptest! {
        #[test]
        fn whatever_comes_in_is_read_refused_or_waited_for(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut framed = encoded(&PeerFrame { tag: 0, said: Said::Done })[..4].to_vec();
            framed.extend(&bytes);
            for input in [&bytes, &framed] {
                if let Ok(Some((frame, len))) = PeerFrame::decode(input) {
                    prop_assert_eq!(encoded(&frame), &input[..len]);
                }
            }
        }

        #[test]
        fn what_decodes_with_a_forged_head_encodes_to_the_same_bytes(
            index in 0_usize..14,
            forged in prop::collection::vec((0_usize..104, any::<u8>()), 0..4),
        ) {
            let data = [1; 4096];
            let mut bytes = encoded(&all(&data)[index]);
            for (at, byte) in forged {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let sum = checksum(&bytes).to_le_bytes();
            bytes[28..32].copy_from_slice(&sum);
            if let Ok(Some((frame, len))) = PeerFrame::decode(&bytes) {
                prop_assert_eq!(encoded(&frame), &bytes[..len]);
            }
        }
    }
}
