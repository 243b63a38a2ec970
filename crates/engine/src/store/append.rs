//! Appends records. With compression on, a record is packed if that saves something, and blank if it is zeros.
//!
//! Invariants:
//! - The data of one host request stays in one batch. A packed record takes no more of a batch than the plain one,
//!   neither payload nor entries, so room reserved with [`headpond_log::Log::together`] is enough.
//!
//! The price is the shard's time: see docs/compression.md.

use headpond_base::{BLOCK, BufMut, Class, Compression, ObjectId, Stream};
use headpond_format::{Entry, PACKED_BLOCKS_MAX, UNIT, is_blank, pack};
use headpond_log::{DataRecord, Placed, PlacedPacked};
use headpond_map::{PackedPlace, Slot};

use crate::store::Store;

/// What comes from the origin, or moves on as clean, is packed in units of so many blocks, which begin at a multiple of
/// that: the page of the databases with large ones. It was read along with others, and is asked for by itself.
const CLEAN_UNIT: u64 = 4;

/// Some blocks of a record, as they are to be stored.
struct Part {
    blocks: u32,
    form: StoredForm,
}

/// How they are stored.
enum StoredForm {
    Plain,
    Packed(Vec<u8>),
    Blank,
}

impl StoredForm {
    fn of(compression: Compression, plain: &[u8]) -> Self {
        if is_blank(plain) {
            return Self::Blank;
        }
        pack(compression, plain).map_or(Self::Plain, Self::Packed)
    }

    /// Whether neighbours of both are one part.
    const fn joins(&self, next: &Self) -> bool {
        matches!((self, next), (Self::Plain, Self::Plain) | (Self::Blank, Self::Blank))
    }
}

impl Part {
    fn entry_bytes(&self) -> usize {
        match self.form {
            StoredForm::Plain => Entry::data_len(self.blocks as usize),
            StoredForm::Packed(_) => Entry::PACKED_LEN,
            StoredForm::Blank => Entry::BLANK_LEN,
        }
    }
}

impl Store {
    /// A request says how its file is to be packed from now on, whatever appends to it: the log, a read that lets it
    /// in, or reclaim. `None` is as the settings say.
    pub(crate) fn pack_as(&mut self, id: ObjectId, compression: Option<Compression>) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.compression = compression;
            self.packing.note_asked(compression);
        }
    }

    fn compression_of(&self, id: ObjectId) -> Compression {
        self.packing.of_file(self.get(id).and_then(|object| object.compression))
    }

    /// Appends a record and points the map to it. Its blocks are of the given class, which is the record's own but for
    /// blocks whose class shows only when they are there.
    pub(crate) fn append_data(&mut self, record: DataRecord, kept: bool, class: Class, fill: impl FnOnce(&mut [u8])) {
        let compression = self.compression_of(record.object);
        if compression == Compression::Off {
            return self.append_plain(record, kept, class, fill);
        }
        let len = record.blocks as usize * BLOCK;
        let mut plain = if record.whole { BufMut::unwritten(len) } else { BufMut::zeroed(len) };
        fill(&mut plain);
        let codec = self.packing.with_stored(compression, self.sums.stored_units());
        let parts = parts(codec, &record, &plain);
        let entry_bytes: usize = parts.iter().map(Part::entry_bytes).sum();
        let whole = DataRecord { whole: true, ..record };
        if record.stream == Stream::Host {
            if entry_bytes > Entry::data_len(record.blocks as usize) {
                return self.append_plain(whole, kept, class, |payload| payload.copy_from_slice(&plain));
            }
            let payload =
                parts.iter().filter(|part| !matches!(part.form, StoredForm::Blank)).map(|part| part.blocks).sum();
            self.log.together(record.stream, entry_bytes, payload);
        }
        let mut at = 0;
        for part in parts {
            let record = DataRecord { first: record.first.plus(at as u64), blocks: part.blocks, ..whole };
            let bytes = &plain[at * BLOCK..(at + part.blocks as usize) * BLOCK];
            at += part.blocks as usize;
            match part.form {
                StoredForm::Plain => self.append_plain(record, kept, class, |payload| payload.copy_from_slice(bytes)),
                StoredForm::Packed(packed) => self.append_packed(record, kept, class, packed),
                StoredForm::Blank => self.append_blank(record, kept, class),
            }
        }
    }

    fn append_plain(&mut self, record: DataRecord, kept: bool, class: Class, fill: impl FnOnce(&mut [u8])) {
        let Placed { location, checksums, .. } = self.log.append_data(record, fill);
        for (index, checksum) in (0_u32..).zip(checksums) {
            let location = location.plus(index);
            let slot = Slot { location, checksum, packed: false, dirty: record.dirty, kept, class };
            self.set_slot(record.object, record.first.plus(u64::from(index)), slot);
        }
        self.packing.appended(record.blocks, u64::from(record.blocks) * BLOCK as u64);
    }

    fn append_packed(&mut self, record: DataRecord, kept: bool, class: Class, mut packed: Vec<u8>) {
        let PlacedPacked { location, unit, units, checksum, .. } = self.log.append_packed(record, &mut packed);
        let blocks = u8::try_from(record.blocks).expect("a packed record is bounded");
        for index in 0..blocks {
            let place = PackedPlace::new(unit, units, blocks, index, checksum);
            let slot = Slot { location, checksum: place.word(), packed: true, dirty: record.dirty, kept, class };
            self.set_slot(record.object, record.first.plus(u64::from(index)), slot);
        }
        self.packing.appended(record.blocks, u64::from(units) * UNIT as u64);
    }

    /// Appends a record of zeros to a pool that may have blank ones, whatever its file is to be packed like.
    pub(crate) fn append_blank(&mut self, record: DataRecord, kept: bool, class: Class) {
        let batch = self.log.append_blank(record);
        for block in 0..u64::from(record.blocks) {
            self.set_slot(record.object, record.first.plus(block), Slot::blank(batch, record.dirty, kept, class));
        }
        self.packing.appended(record.blocks, 0);
    }
}

/// A record in the parts in which it is stored. Neighbours that are stored as they are are one, and so are blank ones.
fn parts(compression: Compression, record: &DataRecord, plain: &[u8]) -> Vec<Part> {
    let host = record.stream == Stream::Host;
    let mut parts: Vec<Part> = Vec::new();
    let (mut block, end) = (record.first.0, record.first.0 + u64::from(record.blocks));
    while block < end {
        let next = if host { block + PACKED_BLOCKS_MAX as u64 } else { (block + 1).next_multiple_of(CLEAN_UNIT) };
        let next = next.min(end);
        let at = |block: u64| usize::try_from(block - record.first.0).expect("a record is bounded") * BLOCK;
        let form = StoredForm::of(compression, &plain[at(block)..at(next)]);
        let blocks = u32::try_from(next - block).expect("a record is bounded");
        match parts.last_mut() {
            Some(last) if last.form.joins(&form) => last.blocks += blocks,
            _ => parts.push(Part { blocks, form }),
        }
        block = next;
    }
    parts
}
