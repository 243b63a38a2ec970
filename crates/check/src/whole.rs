//! The segments of a pool of several devices, read as if they lay one after the other on one device.

use headpond_base::{Buf, BufMut, Errno, MemberId, Result, SegmentId};
use headpond_engine::FlashRead;
use headpond_format::Geometry;
use headpond_log::Segments;

/// All segments. Offsets are those of the geometry.
pub(crate) struct WholePool<'a, 'd> {
    pub(crate) geometry: Geometry,
    pub(crate) segments: &'a Segments,
    /// The device of each member that is here.
    pub(crate) devices: Vec<(MemberId, &'a mut (dyn FlashRead + 'd))>,
}

impl WholePool<'_, '_> {
    fn read_in(&mut self, keeper: SegmentId, within: u64, len: usize) -> Option<Result<Buf>> {
        let at = self.segments.addresses().of_segment(keeper).plus(within);
        let (_, device) = self.devices.iter_mut().find(|(member, _)| *member == at.member)?;
        Some(device.read(at.offset, len))
    }
}

impl FlashRead for WholePool<'_, '_> {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let beyond = offset.checked_sub(self.geometry.segments_start).ok_or(Errno::INVAL)?;
        let segment_bytes = u64::from(self.geometry.segment_bytes);
        let (segment, within) = (beyond / segment_bytes, beyond % segment_bytes);
        let segment = SegmentId(u32::try_from(segment).map_err(|_| Errno::INVAL)?);
        if segment.0 >= self.geometry.segments {
            return Err(Errno::INVAL);
        }
        // A run of blocks may go on in the next segment, which lies elsewhere.
        let here = usize::try_from(segment_bytes - within).unwrap_or(len).min(len);
        if here < len {
            let (first, rest) = (self.read(offset, here)?, self.read(offset + here as u64, len - here)?);
            let mut whole = BufMut::zeroed(len);
            whole[..here].copy_from_slice(&first);
            whole[here..].copy_from_slice(&rest);
            return Ok(whole.freeze());
        }
        let keepers: Vec<SegmentId> = self.segments.keepers(segment).collect();
        let mut failed = None;
        for keeper in &keepers {
            match self.read_in(*keeper, within, len) {
                Some(Ok(bytes)) => return Ok(bytes),
                Some(Err(errno)) => failed = Some(errno),
                None => {}
            }
        }
        if !keepers.is_empty() {
            return Err(failed.unwrap_or(Errno::NODEV));
        }
        // Nothing there counts. On a device that is not here there is nothing to see.
        self.read_in(segment, within, len).unwrap_or_else(|| Ok(BufMut::zeroed(len).freeze()))
    }
}
