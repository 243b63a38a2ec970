//! Where a modelled disk keeps each object: the data set fills the disk from edge to edge.
//!
//! Objects get ranges of addresses one after the other, in the order in which they come and grow. The span of all
//! ranges counts as the whole way of the arm. So a small data set costs the seeks of a large one, as on the disk that
//! it stands for.
//!
//! Invariant: ranges do not overlap.

use std::collections::HashMap;

use headpond_base::ObjectId;

/// Bytes by which a file grows, behind the newest range: as file systems do.
const GROWTH: u64 = 8 << 20;

/// The addresses of all objects.
#[derive(Default)]
pub(crate) struct ObjectLayout {
    objects: HashMap<ObjectId, Vec<Range>>,
    free: Vec<Range>,
    end: u64,
}

/// A part of an object, and its address.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    address: u64,
    len: u64,
}

impl ObjectLayout {
    /// All addresses in use lie below this.
    pub(crate) const fn span(&self) -> u64 {
        self.end
    }

    /// Makes room for an object of `size` bytes.
    pub(crate) fn grow(&mut self, object: ObjectId, size: u64) {
        let ranges = self.objects.entry(object).or_default();
        let has = ranges.last().map_or(0, |last| last.offset + last.len);
        if size <= has {
            return;
        }
        let len = if has == 0 { size } else { (size - has).next_multiple_of(GROWTH) };
        // An object that closes and opens again probably finds its old place.
        let fit = |fits: fn(u64, u64) -> bool| self.free.iter().position(|free| fits(free.len, len));
        if let Some(index) = fit(|free, len| free == len).or_else(|| fit(|free, len| free > len)) {
            let free = &mut self.free[index];
            ranges.push(Range { offset: has, address: free.address, len });
            (free.address, free.len) = (free.address + len, free.len - len);
            if free.len == 0 {
                self.free.swap_remove(index);
            }
            return;
        }
        match ranges.last_mut() {
            Some(last) if last.address + last.len == self.end => last.len += len,
            _ => ranges.push(Range { offset: has, address: self.end, len }),
        }
        self.end += len;
    }

    /// The address of an object's byte.
    pub(crate) fn address(&mut self, object: ObjectId, offset: u64) -> u64 {
        self.grow(object, offset + 1);
        let ranges = self.objects.get(&object).map_or(&[][..], Vec::as_slice);
        let index = ranges.partition_point(|range| range.offset <= offset).saturating_sub(1);
        ranges.get(index).map_or(0, |range| range.address + (offset - range.offset))
    }

    /// Frees the room of an object.
    pub(crate) fn release(&mut self, object: ObjectId) {
        self.free.extend(self.objects.remove(&object).into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn objects_have_disjoint_ranges_in_order_of_coming_that_together_fill_the_disk() {
        let mut layout = ObjectLayout::default();
        let (a, b, c) = (ObjectId(5), ObjectId(2), ObjectId(9));
        layout.grow(a, 10 * MIB);
        layout.grow(b, 20 * MIB);
        assert_eq!((layout.address(a, 0), layout.address(b, 0), layout.span()), (0, 10 * MIB, 30 * MIB));
        // It grows at the end of all; the last range simply gets longer.
        assert_eq!(layout.address(a, 10 * MIB + 5), 30 * MIB + 5);
        assert_eq!(layout.address(a, 30 * MIB), 50 * MIB);
        assert_eq!(layout.address(a, 9 * MIB), 9 * MIB);
        layout.release(b);
        let span = layout.span();
        layout.grow(c, 15 * MIB);
        assert_eq!((layout.address(c, 0), layout.span()), (10 * MIB, span));
    }
}
