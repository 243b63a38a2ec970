//! An origin in memory: a few files that carry out each request at once.

use std::collections::BTreeMap;

use headpond_base::{Buf, BufMut, Errno, ObjectId, UnixNanos};
use headpond_engine::{OpenFile, Outcome};
use headpond_format::Stamp;

/// The longest file: a forged size must not take all memory.
const FILE_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    mtime: UnixNanos,
    ctime: UnixNanos,
}

/// The files, by inode number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    files: BTreeMap<u64, File>,
    /// The file of each object.
    pub(crate) objects: BTreeMap<ObjectId, u64>,
    clock: i64,
}

impl Origin {
    pub(crate) fn new(files: &BTreeMap<u64, Vec<u8>>) -> Self {
        let times = |bytes: &Vec<u8>| File { bytes: bytes.clone(), mtime: UnixNanos(1), ctime: UnixNanos(1) };
        Self { files: files.iter().map(|(inode, bytes)| (*inode, times(bytes))).collect(), clock: 1, ..Self::default() }
    }

    /// A time later than all earlier ones.
    pub(crate) fn tick(&mut self) -> UnixNanos {
        self.clock += 1000;
        UnixNanos(self.clock)
    }

    pub(crate) fn inodes(&self) -> Vec<u64> {
        self.files.keys().copied().collect()
    }

    /// A file as a front door describes it.
    pub(crate) fn describe(&self, inode: u64) -> Option<OpenFile> {
        let file = self.files.get(&inode)?;
        Some(OpenFile {
            inode,
            birth: UnixNanos(i64::try_from(inode).unwrap_or(0)),
            path: format!("file-{inode}").into_bytes(),
            stamp: file.stamp(),
            created: false,
            allocated: file.bytes.len() as u64,
        })
    }

    fn file(&mut self, object: ObjectId) -> Option<&mut File> {
        self.files.get_mut(self.objects.get(&object)?)
    }

    fn change(&mut self, object: ObjectId, change: impl FnOnce(&mut Vec<u8>) -> bool) -> Outcome {
        let now = self.tick();
        let Some(file) = self.file(object) else { return Outcome::Failed(Errno::BADF) };
        if !change(&mut file.bytes) {
            return Outcome::Failed(Errno::FBIG);
        }
        (file.mtime, file.ctime) = (now, now);
        Outcome::Done
    }

    pub(crate) fn read(&mut self, object: ObjectId, offset: u64, len: u32) -> Outcome {
        let Some(file) = self.file(object) else { return Outcome::Failed(Errno::BADF) };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.bytes.len());
        let end = start.saturating_add(len as usize).min(file.bytes.len());
        Outcome::Bytes(BufMut::copy_of(&file.bytes[start..end]).freeze())
    }

    pub(crate) fn write(&mut self, object: ObjectId, offset: u64, data: &[Buf]) -> Outcome {
        let len: usize = data.iter().map(|piece| piece.len()).sum();
        self.change(object, |bytes| {
            let Some((start, end)) = span(offset, len as u64) else { return false };
            bytes.resize(bytes.len().max(end), 0);
            let mut at = start;
            for piece in data {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            true
        })
    }

    pub(crate) fn zero(&mut self, object: ObjectId, offset: u64, len: u64) -> Outcome {
        self.change(object, |bytes| {
            let Some((start, end)) = span(offset, len) else { return false };
            let end = end.min(bytes.len());
            bytes[start.min(end)..end].fill(0);
            true
        })
    }

    pub(crate) fn resize(&mut self, object: ObjectId, size: u64) -> Outcome {
        self.change(object, |bytes| {
            let Some((_, end)) = span(size, 0) else { return false };
            bytes.resize(end, 0);
            true
        })
    }

    pub(crate) fn stamp(&mut self, object: ObjectId, mtime: UnixNanos) -> Outcome {
        let now = self.tick();
        let Some(file) = self.file(object) else { return Outcome::Failed(Errno::BADF) };
        (file.mtime, file.ctime) = (mtime, now);
        Outcome::Stamp(file.stamp())
    }
}

impl File {
    const fn stamp(&self) -> Stamp {
        Stamp { size: self.bytes.len() as u64, mtime: self.mtime, ctime: self.ctime }
    }
}

fn span(offset: u64, len: u64) -> Option<(usize, usize)> {
    let end = usize::try_from(offset.checked_add(len)?).ok()?;
    (end <= FILE_BYTES_MAX).then_some((usize::try_from(offset).ok()?, end))
}
