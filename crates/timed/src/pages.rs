//! The bytes of a device or of a file, in pages. Copies share pages; so do equal neighbours, and the buffers of writes and
//! reads of whole pages. So bytes that do not change are not copied on their way.
//!
//! The price: a page keeps alive all of the buffer that it is part of.

use headpond_base::{BLOCK, Buf, BufMut};

/// A page may keep alive a buffer of up to this many times its size. A smaller part of a large buffer is copied
/// instead.
const ROOM_MOST: usize = 8;

/// Bytes in pages. Cloning costs a pointer for each page.
#[derive(Clone, Debug)]
pub struct PagedBytes {
    /// Each a view of one block.
    pages: Vec<Buf>,
    zeros: Buf,
}

impl PagedBytes {
    /// `bytes` zeros, a multiple of the block.
    pub fn zeroed(bytes: u64) -> Self {
        let mut pages = Self { pages: Vec::new(), zeros: BufMut::zeroed(BLOCK).freeze() };
        pages.resize(bytes as usize);
        pages
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.pages.len() * BLOCK
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Cuts off the bytes after `bytes`, a multiple of the block, or appends zeros up to it.
    pub fn resize(&mut self, bytes: usize) {
        self.pages.resize_with(bytes / BLOCK, || self.zeros.clone());
    }

    /// Views of the bytes from `offset` on, as few as possible without a copy.
    pub fn views(&self, offset: u64, len: usize) -> Vec<Buf> {
        let mut views: Vec<Buf> = Vec::new();
        for (page, inside, take) in touched(offset, len) {
            let page = &self.pages[page];
            // Only the first can begin within its page.
            if !views.last_mut().is_some_and(|last| last.extend(page, take)) {
                views.push(page.slice(inside..inside + take));
            }
        }
        views
    }

    /// The bytes from `offset` on.
    pub fn read(&self, offset: u64, len: usize) -> Buf {
        let mut views = self.views(offset, len);
        if views.len() <= 1 {
            return views.pop().unwrap_or_else(Buf::empty);
        }
        let mut bytes = BufMut::unwritten(len);
        let mut at = 0;
        for view in views {
            bytes[at..at + view.len()].copy_from_slice(&view);
            at += view.len();
        }
        bytes.freeze()
    }

    /// Writes `data` at `offset`, all of it within the device.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        for (page, inside, take) in touched(offset, data.len()) {
            if take == BLOCK {
                let like = |other: usize| rest[..take] == self.pages[other][..];
                if page > 0 && like(page - 1) {
                    self.pages[page] = self.pages[page - 1].clone();
                } else if !like(page) {
                    self.pages[page] = BufMut::copy_of(&rest[..take]).freeze();
                }
            } else {
                self.change(page, |bytes| bytes[inside..inside + take].copy_from_slice(&rest[..take]));
            }
            rest = &rest[take..];
        }
    }

    /// The same, but whole pages stay where `data` has them.
    pub fn put(&mut self, offset: u64, data: &Buf) {
        if data.room() > data.len() * ROOM_MOST {
            return self.write(offset, data);
        }
        let mut at = 0;
        for (page, _, take) in touched(offset, data.len()) {
            if take == BLOCK {
                self.pages[page] = data.slice(at..at + take);
            } else {
                self.write(offset + at as u64, &data[at..at + take]);
            }
            at += take;
        }
    }

    /// Makes a range zeros.
    pub fn clear(&mut self, offset: u64, len: usize) {
        for (page, inside, take) in touched(offset, len) {
            if take == BLOCK {
                self.pages[page] = self.zeros.clone();
            } else {
                self.change(page, |bytes| bytes[inside..inside + take].fill(0));
            }
        }
    }

    /// Whether a page is zeros.
    pub fn is_zeros(&self, page: usize) -> bool {
        self.pages[page].is_same_view(&self.zeros) || self.pages[page].iter().all(|byte| *byte == 0)
    }

    /// Makes a range the same as in `other`.
    pub fn copy_range(&mut self, other: &Self, offset: u64, len: usize) {
        let mut at = offset;
        for view in other.views(offset, len) {
            self.put(at, &view);
            at += view.len() as u64;
        }
    }

    /// Changes one byte.
    pub fn flip(&mut self, offset: u64, bits: u8) {
        self.change(offset as usize / BLOCK, |bytes| bytes[offset as usize % BLOCK] ^= bits);
    }

    fn change(&mut self, page: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = BufMut::copy_of(&self.pages[page]);
        change(&mut bytes);
        self.pages[page] = bytes.freeze();
    }
}

/// The pages that a range touches: each with its first touched byte, and the number of bytes.
fn touched(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let (mut at, end) = (offset as usize, offset as usize + len);
    std::iter::from_fn(move || {
        let (page, inside) = (at / BLOCK, at % BLOCK);
        let take = (BLOCK - inside).min(end - at);
        at += take;
        (take > 0).then_some((page, inside, take))
    })
}

/// The bytes of a file. After its end, the rest of the last page is zeros.
#[derive(Clone, Debug)]
pub struct FileBytes {
    pages: PagedBytes,
    len: u64,
}

impl FileBytes {
    /// A file without a byte.
    pub fn empty() -> Self {
        Self { pages: PagedBytes::zeroed(0), len: 0 }
    }

    /// Its size.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no byte.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the size of the file.
    pub fn resize(&mut self, len: u64) {
        if len < self.len {
            self.pages.clear(len, (self.len.min(len.next_multiple_of(BLOCK as u64)) - len) as usize);
        }
        self.pages.resize((len as usize).next_multiple_of(BLOCK));
        self.len = len;
    }

    /// Makes a range zeros; the size stays.
    pub fn clear(&mut self, offset: u64, len: u64) {
        let start = offset.min(self.len);
        self.pages.clear(start, ((offset + len).min(self.len) - start) as usize);
    }

    /// Writes pieces one after the other.
    pub fn put(&mut self, offset: u64, pieces: &[Buf]) {
        let mut at = offset;
        for piece in pieces {
            let end = at + piece.len() as u64;
            if end > self.len {
                self.resize(end);
            }
            self.pages.put(at, piece);
            at = end;
        }
    }

    /// Reads; shorter at the end.
    pub fn read(&self, offset: u64, len: usize) -> Buf {
        let start = offset.min(self.len);
        self.pages.read(start, (len as u64).min(self.len - start) as usize)
    }

    /// All bytes, without a copy.
    pub fn views(&self) -> Vec<Buf> {
        self.pages.views(0, self.len as usize)
    }

    /// The blocks that are not zeros.
    pub fn with_data(&self) -> impl Iterator<Item = u64> {
        (0..self.pages.pages.len()).filter(|page| !self.pages.is_zeros(*page)).map(|page| page as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn a_copy_does_not_see_later_writes() {
        let mut pages = PagedBytes::zeroed(4 * BLOCK as u64);
        pages.write(100, &[1; 5000]);
        let copy = pages.clone();
        pages.write(0, &[2; 3 * BLOCK]);
        pages.flip(4 * BLOCK as u64 - 1, 8);
        assert_eq!(copy.read(98, 4)[..], [0, 0, 1, 1]);
        assert_eq!(copy.read(5098, 4)[..], [1, 1, 0, 0]);
        assert_eq!(pages.read(98, 3)[..], [2; 3]);
        assert_eq!((&pages.read(4 * BLOCK as u64 - 1, 1)[..], pages.len()), (&[8][..], 4 * BLOCK));
    }

    #[test]
    fn what_is_shared_with_a_buffer_is_read_without_a_copy_and_does_not_change_it() {
        let data = BufMut::copy_of(&[5; 3 * BLOCK]).freeze();
        let mut pages = PagedBytes::zeroed(4 * BLOCK as u64);
        pages.put(BLOCK as u64, &data);
        assert!(pages.read(BLOCK as u64, 3 * BLOCK).is_same_view(&data));
        pages.flip(2 * BLOCK as u64, 1);
        assert_eq!((data[BLOCK], pages.read(2 * BLOCK as u64, 1)[0]), (5, 4));
    }

    #[test]
    fn a_file_in_pages_holds_what_a_flat_one_does() {
        let mut rng = Rng::new(5);
        let (mut file, mut flat) = (FileBytes::empty(), Vec::<u8>::new());
        for step in 0..3000_u64 {
            let (offset, len) = (rng.below(5 * BLOCK as u64), rng.below(3 * BLOCK as u64));
            let (from, to) = (offset as usize, (offset + len) as usize);
            match rng.below(4) {
                0 => {
                    file.resize(offset);
                    flat.resize(from, 0);
                }
                1 => {
                    file.clear(offset, len);
                    let end = to.min(flat.len());
                    flat[from.min(end)..end].fill(0);
                }
                _ => {
                    let whole = BufMut::copy_of(&vec![step as u8; len as usize]).freeze();
                    let cut = rng.below(len + 1) as usize;
                    file.put(offset, &[whole.slice(0..cut), whole.slice(cut..whole.len())]);
                    if len > 0 {
                        flat.resize(flat.len().max(to), 0);
                        flat[from..to].fill(step as u8);
                    } else {
                        flat.resize(flat.len().max(from), 0);
                    }
                }
            }
            assert_eq!(file.len(), flat.len() as u64);
            assert_eq!(file.read(0, usize::MAX)[..], flat[..]);
            assert_eq!(file.read(offset, len as usize)[..], flat[from.min(flat.len())..to.min(flat.len())]);
            let written = flat.chunks(BLOCK).zip(0..).filter(|(data, _)| data.iter().any(|byte| *byte > 0));
            assert!(file.with_data().eq(written.map(|(_, at)| at)));
        }
    }
}
