//! The bytes of a device, in pages that copies of it share, and neighbours that are alike: the exhaustive cases copy a whole
//! device for each way that a crash may go, and change little of it.

use std::rc::Rc;

use headpond_base::{BLOCK, Buf, BufMut};

type Page = [u8; BLOCK];

/// All bytes of a device. Cloning costs a pointer for each page.
#[derive(Clone)]
pub(crate) struct Pages {
    pages: Vec<Rc<Page>>,
}

impl Pages {
    /// `bytes` zeros, a multiple of the block.
    pub(crate) fn zeroed(bytes: u64) -> Self {
        let zeros = Rc::new([0; BLOCK]);
        Self { pages: (0..bytes as usize / BLOCK).map(|_| zeros.clone()).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len() * BLOCK
    }

    /// The bytes from `offset` on.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Buf {
        let mut bytes = BufMut::unwritten(len);
        let mut at = offset as usize;
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let (page, inside) = (at / BLOCK, at % BLOCK);
            let take = (BLOCK - inside).min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&self.pages[page][inside..inside + take]);
            (at, rest) = (at + take, later);
        }
        bytes.freeze()
    }

    /// Writes `data` at `offset`, all of it within the device.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset as usize;
        let mut rest = data;
        while !rest.is_empty() {
            let (page, inside) = (at / BLOCK, at % BLOCK);
            let take = (BLOCK - inside).min(rest.len());
            if take == BLOCK {
                let like = |other: usize| rest[..take] == self.pages[other][..];
                if page > 0 && like(page - 1) {
                    self.pages[page] = self.pages[page - 1].clone();
                } else if !like(page) {
                    let mut whole = [0; BLOCK];
                    whole.copy_from_slice(&rest[..take]);
                    self.pages[page] = Rc::new(whole);
                }
            } else {
                Rc::make_mut(&mut self.pages[page])[inside..inside + take].copy_from_slice(&rest[..take]);
            }
            (at, rest) = (at + take, &rest[take..]);
        }
    }

    /// Makes a range the same as in `other`.
    pub(crate) fn copy_range(&mut self, other: &Self, offset: u64, len: usize) {
        let bytes = other.read(offset, len);
        self.write(offset, &bytes);
    }

    /// Changes one byte.
    pub(crate) fn flip(&mut self, offset: u64, bits: u8) {
        Rc::make_mut(&mut self.pages[offset as usize / BLOCK])[offset as usize % BLOCK] ^= bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_later_writes() {
        let mut pages = Pages::zeroed(4 * BLOCK as u64);
        pages.write(100, &[1; 5000]);
        let copy = pages.clone();
        pages.write(0, &[2; 3 * BLOCK]);
        pages.flip(4 * BLOCK as u64 - 1, 8);
        assert_eq!(copy.read(98, 4)[..], [0, 0, 1, 1]);
        assert_eq!(copy.read(5098, 4)[..], [1, 1, 0, 0]);
        assert_eq!(pages.read(98, 3)[..], [2; 3]);
        assert_eq!((&pages.read(4 * BLOCK as u64 - 1, 1)[..], pages.len()), (&[8][..], 4 * BLOCK));
    }
}
