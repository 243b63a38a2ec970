//! Bytes of a file as they were found, read through the engine or at the origin. They stay in the buffers that they
//! came in.

use headpond_base::Buf;

/// Bytes of a file from a position on, without those that were passed over.
#[derive(Clone, Default)]
pub(crate) struct Found {
    start: u64,
    end: u64,
    /// Each piece with its start. None is empty.
    pieces: Vec<(u64, Buf)>,
}

impl Found {
    /// Pieces in a row from `start` on.
    pub(crate) fn at(start: u64, pieces: Vec<Buf>) -> Self {
        let mut found = Self { start, end: start, pieces: Vec::with_capacity(pieces.len()) };
        pieces.into_iter().for_each(|piece| found.push(piece));
        found
    }

    /// Adds the next piece.
    pub(crate) fn push(&mut self, piece: Buf) {
        if !piece.is_empty() {
            let at = self.end;
            self.end += piece.len() as u64;
            self.pieces.push((at, piece));
        }
    }

    /// Passes over the bytes before `at`.
    pub(crate) fn skip_to(&mut self, at: u64) {
        self.end = self.end.max(at);
    }

    /// Their end in the file.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Their number, with those that were passed over.
    pub(crate) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The found parts of `from..to`, each with its start.
    pub(crate) fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.pieces.partition_point(|(at, piece)| at + piece.len() as u64 <= from);
        self.pieces[first..].iter().take_while(move |(at, _)| *at < to).map(move |(at, piece)| {
            let start = from.max(*at);
            let end = to.min(at + piece.len() as u64);
            (start, &piece[(start - at) as usize..(end - at) as usize])
        })
    }

    /// A copy of the found bytes of `from..to`.
    pub(crate) fn copied(&self, from: u64, to: u64) -> Vec<u8> {
        self.parts(from, to).flat_map(|(_, bytes)| bytes).copied().collect()
    }

    /// Whether both are the same memory, so that both are right or both are wrong.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.start == other.start
            && self.pieces.len() == other.pieces.len()
            && self
                .pieces
                .iter()
                .zip(&other.pieces)
                .all(|((at, one), (there, other))| at == there && one.is_same_view(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::BufMut;

    #[test]
    fn parts_are_what_a_flat_copy_has() {
        let bytes: Vec<u8> = (0..=200).collect();
        let whole = BufMut::copy_of(&bytes).freeze();
        let found = Found::at(1000, vec![whole.slice(0..70), whole.slice(70..70), whole.slice(70..201)]);
        assert_eq!((found.len(), found.end()), (201, 1201));
        for (from, to) in [(1000, 1201), (1069, 1071), (1070, 1080), (1005, 1006), (1100, 9999), (1201, 1300)] {
            let flat = &bytes[from - 1000..to.min(1201).max(from) - 1000];
            assert_eq!(found.copied(from as u64, to as u64), flat);
        }
    }
}
