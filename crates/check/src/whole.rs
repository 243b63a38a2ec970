//! The segments of a pool and their copies, read as if they lay one after the other on one device.

use headpond_base::{Buf, BufMut, Errno, Location, MemberId, Result, SegmentId};
use headpond_engine::FlashRead;
use headpond_format::{Address, Geometry, combined};
use headpond_log::Segments;

/// The most copies of a segment, the first included. What a row gives back of it counts as one, the last.
pub(crate) const COPIES: usize = 4;

/// The segments of a pool. A read is of one copy of them: the first, until another is chosen.
pub(crate) trait Copies: FlashRead {
    /// Chooses the copy that reads are of, from 0. Where a segment has no such copy, a read fails.
    fn choose(&mut self, copy: usize);

    /// Whether the chosen copy of a segment is here.
    fn has(&self, segment: SegmentId) -> bool;

    /// Whether the chosen copy of a segment is what the rest of its row comes to.
    fn is_of_row(&self, segment: SegmentId) -> bool;

    /// The chosen copy of a location, by its member and its offset there. Of what a row gives back, that is the parity's.
    fn place(&self, location: Location) -> Place;
}

/// Where something lies.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The member, in a pool of several.
    pub(crate) member: Option<MemberId>,
    pub(crate) offset: u64,
}

impl Place {
    /// The name of something here.
    pub(crate) fn named(&self, what: &str) -> String {
        match self.member {
            Some(member) => format!("member {}: {what}", member.0),
            None => what.to_owned(),
        }
    }
}

/// A pool of one device: each segment once, in order.
pub(crate) struct OneDevice<'a> {
    geometry: Geometry,
    flash: &'a mut dyn FlashRead,
    first: bool,
}

impl<'a> OneDevice<'a> {
    pub(crate) fn new(geometry: Geometry, flash: &'a mut dyn FlashRead) -> Self {
        Self { geometry, flash, first: true }
    }
}

impl FlashRead for OneDevice<'_> {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        self.flash.read(offset, len)
    }
}

impl Copies for OneDevice<'_> {
    fn choose(&mut self, copy: usize) {
        self.first = copy == 0;
    }

    fn has(&self, _: SegmentId) -> bool {
        self.first
    }

    fn is_of_row(&self, _: SegmentId) -> bool {
        false
    }

    fn place(&self, location: Location) -> Place {
        Place { member: None, offset: self.geometry.byte_of(location) }
    }
}

/// A pool of several devices. Offsets are those of the geometry.
pub(crate) struct WholePool<'a, 'd> {
    geometry: Geometry,
    segments: &'a Segments,
    /// The device of each member that is here.
    devices: Vec<(MemberId, &'a mut (dyn FlashRead + 'd))>,
    copy: usize,
}

impl<'a, 'd> WholePool<'a, 'd> {
    pub(crate) fn new(
        geometry: Geometry,
        segments: &'a Segments,
        devices: Vec<(MemberId, &'a mut (dyn FlashRead + 'd))>,
    ) -> Self {
        Self { geometry, segments, devices, copy: 0 }
    }

    /// The segment in whose home the chosen copy lies; of what a row gives back, that of the parity. What is nowhere would
    /// lie in its own, as a free one does.
    fn keeper(&self, segment: SegmentId) -> Option<SegmentId> {
        self.copy_of(segment).or((self.copy == 0).then_some(segment))
    }

    fn copy_of(&self, segment: SegmentId) -> Option<SegmentId> {
        let row = self.segments.parity_of(segment).filter(|_| self.has_rest_of_row(segment));
        self.segments.keepers(segment).chain(row).nth(self.copy)
    }

    fn has_rest_of_row(&self, segment: SegmentId) -> bool {
        let is_here = |keeper: &SegmentId| {
            let member = self.segments.addresses().home(*keeper).member;
            self.devices.iter().any(|(here, _)| *here == member)
        };
        self.segments.row_without(segment).is_some_and(|rest| rest.iter().all(is_here))
    }

    /// The rest of a segment's row, if that is what the chosen copy comes out of.
    fn chosen_row(&self, segment: SegmentId) -> Option<Vec<SegmentId>> {
        self.segments.row_without(segment).filter(|_| self.is_of_row(segment))
    }

    fn read_at(&mut self, at: Address, len: usize) -> Result<Buf> {
        let device = self.devices.iter_mut().find(|(member, _)| *member == at.member).ok_or(Errno::NODEV)?;
        device.1.read(at.offset, len)
    }

    fn address(&self, location: Location) -> Address {
        let segment = self.geometry.segment_of(location);
        self.segments.addresses().within(self.keeper(segment).unwrap_or(segment), location)
    }
}

impl FlashRead for WholePool<'_, '_> {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let beyond = offset.checked_sub(self.geometry.segments_start).ok_or(Errno::INVAL)?;
        let segment_bytes = u64::from(self.geometry.segment_bytes);
        let within = beyond % segment_bytes;
        let segment = SegmentId(u32::try_from(beyond / segment_bytes).map_err(|_| Errno::INVAL)?);
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
        if let Some(rest) = self.chosen_row(segment) {
            let at = |keeper: SegmentId| self.segments.addresses().of_segment(keeper).plus(within);
            let places: Vec<Address> = rest.into_iter().map(at).collect();
            let parts: Vec<Buf> = places.into_iter().map(|at| self.read_at(at, len)).collect::<Result<_>>()?;
            return Ok(combined(parts.iter().map(|part| &part[..]), len));
        }
        let keeper = self.keeper(segment).ok_or(Errno::NODEV)?;
        let at = self.segments.addresses().of_segment(keeper).plus(within);
        let counts = self.has(segment);
        match self.read_at(at, len) {
            // Nothing there counts. On a device that is not here there is nothing to see.
            Err(Errno::NODEV) if !counts => Ok(BufMut::zeroed(len).freeze()),
            read => read,
        }
    }
}

impl Copies for WholePool<'_, '_> {
    fn choose(&mut self, copy: usize) {
        self.copy = copy;
    }

    fn has(&self, segment: SegmentId) -> bool {
        self.copy_of(segment).is_some()
    }

    fn is_of_row(&self, segment: SegmentId) -> bool {
        let chosen = self.copy_of(segment);
        chosen.is_some() && chosen == self.segments.parity_of(segment)
    }

    fn place(&self, location: Location) -> Place {
        let Address { member, offset } = self.address(location);
        Place { member: Some(member), offset }
    }
}
