//! A directory in which a case works, and its notes.

use std::fmt::Debug;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

pub struct Place<'a> {
    pub directory: &'a Path,
    pub log: Vec<String>,
}

/// A result without what differs between two file systems by nature: descriptors.
pub trait Shown {
    fn shown(&self) -> String;
}

impl<T: Debug> Shown for Result<T, Errno> {
    fn shown(&self) -> String {
        match self {
            Ok(value) => format!("Ok({value:?})"),
            Err(error) => format!("Err({})", name(*error)),
        }
    }
}

fn name(error: Errno) -> String {
    let known = [
        (Errno::ACCESS, "ACCESS"),
        (Errno::PERM, "PERM"),
        (Errno::NOENT, "NOENT"),
        (Errno::EXIST, "EXIST"),
        (Errno::INVAL, "INVAL"),
        (Errno::OPNOTSUPP, "OPNOTSUPP"),
    ];
    known.iter().find(|(known, _)| *known == error).map_or_else(|| format!("{error:?}"), |(_, name)| (*name).to_owned())
}

impl<'a> Place<'a> {
    pub fn new(directory: &'a Path) -> Self {
        Self { directory, log: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn note(&mut self, what: impl AsRef<str>, result: impl Shown) {
        self.log.push(format!("{}: {}", what.as_ref(), result.shown()));
    }

    pub fn say(&mut self, what: &str, value: impl Debug) {
        self.log.push(format!("{what}: {value:?}"));
    }

    /// Opens, and notes whether that went well.
    pub fn open(&mut self, name: &str, flags: OFlags) -> Option<File> {
        let opened = rustix::fs::open(self.path(name), flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644));
        self.note(format!("open {name} {flags:?}"), opened.as_ref().map(|_| ()).map_err(|error| *error));
        opened.ok().map(File::from)
    }

    /// A file with some content, open for reading and writing.
    pub fn file(&mut self, name: &str, content: &[u8]) -> File {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(self.path(name)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, content, 0).unwrap();
        file
    }

    pub fn stat(&self, name: &str) -> Result<Stat, Errno> {
        rustix::fs::statat(CWD, self.path(name), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Notes everything about a file that has to be the same.
    pub fn look(&mut self, name: &str) {
        let looked = self.stat(name).map(|found| {
            let kind = FileType::from_raw_mode(found.st_mode);
            let size = if kind == FileType::Directory { 0 } else { found.st_size };
            format!(
                "{kind:?} mode {:o} links {} owner {}:{} size {size} device {:x} block {}",
                found.st_mode & 0o7777,
                found.st_nlink,
                found.st_uid,
                found.st_gid,
                found.st_rdev,
                found.st_blksize,
            )
        });
        self.note(format!("look {name}"), looked);
    }

    /// Notes a file's content, in short.
    pub fn content(&mut self, name: &str) {
        let content = std::fs::read(self.path(name))
            .map(|bytes| (bytes.len(), sum(&bytes), bytes.iter().take(8).copied().collect::<Vec<_>>()))
            .map_err(|error| Errno::from_io_error(&error).unwrap());
        self.note(format!("content {name}"), content);
    }
}

/// Tells contents apart.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Bytes that are different everywhere.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .collect()
}

/// The result without the descriptor.
pub fn opened(result: Result<OwnedFd, Errno>) -> Result<(), Errno> {
    result.map(drop)
}
