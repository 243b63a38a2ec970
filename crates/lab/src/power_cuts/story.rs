//! What a writer does, record by record, and the states of its directory that a power cut may leave.
//!
//! A record is a few system calls that end with a sync, and then it is acknowledged. All of it follows from the
//! writer's number, so a checker needs only the number of acknowledged records.
//!
//! Invariants
//! - After a cut every acknowledged record is there. Of the next record a prefix of its steps is there, each whole.
//! - A write begins at a page, or counts as two steps: the kernel may make two requests of one that begins inside a
//!   page.

use crate::random::{below, next};
use std::collections::BTreeMap;

/// The kernel's page.
const PAGE: u64 = 4096;
/// No file grows beyond this.
const FILE_MAX: u64 = 1 << 20;
/// The longest write: with any start it is one request of the kernel.
const WRITE_MAX: u64 = 256 << 10;
/// So many files a writer keeps.
const FILES: usize = 6;
/// The name of a file that is about to replace another.
const NEW: &str = "new";

/// A writer's directory: the content of each file.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A step of a record: one system call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Step {
    Create {
        name: String,
    },
    Write {
        name: String,
        at: u64,
        len: u64,
        number: u64,
    },
    Resize {
        name: String,
        size: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    /// fsync of a file.
    Sync {
        name: String,
    },
    /// fsync of the directory.
    SyncNames,
}

impl Step {
    /// Does the same to the files in memory.
    pub fn apply(&self, files: &mut Files) {
        let file = |files: &'_ mut Files, name: &str| files.remove(name).unwrap_or_default();
        match self {
            Self::Create { name } => {
                files.insert(name.clone(), Vec::new());
            }
            Self::Write { name, at, len, number } => {
                let mut content = file(files, name);
                let end = (at + len) as usize;
                content.resize(content.len().max(end), 0);
                content[*at as usize..end].copy_from_slice(&bytes(*number, *at, *len));
                files.insert(name.clone(), content);
            }
            Self::Resize { name, size } => {
                let mut content = file(files, name);
                content.resize(*size as usize, 0);
                files.insert(name.clone(), content);
            }
            Self::Rename { from, to } => {
                let content = file(files, from);
                files.insert(to.clone(), content);
            }
            Self::Remove { name } => {
                files.remove(name);
            }
            Self::Sync { .. } | Self::SyncNames => {}
        }
    }

    /// What the kernel may make of it.
    fn requests(&self) -> Vec<Self> {
        match self {
            Self::Write { name, at, len, number }
                if !at.is_multiple_of(PAGE) && at + len > at.next_multiple_of(PAGE) =>
            {
                let middle = at.next_multiple_of(PAGE);
                let part = |at: u64, end: u64| Self::Write { name: name.clone(), at, len: end - at, number: *number };
                vec![part(*at, middle), part(middle, at + len)]
            }
            Self::Sync { .. } | Self::SyncNames => Vec::new(),
            step => vec![step.clone()],
        }
    }
}

/// The bytes that the write with this number puts at this place.
#[must_use]
pub fn bytes(number: u64, at: u64, len: u64) -> Vec<u8> {
    let words = at / 8..(at + len).div_ceil(8);
    let all: Vec<u8> = words.flat_map(|word| next(&mut (number ^ word)).to_le_bytes()).collect();
    let skip = (at % 8) as usize;
    all[skip..skip + len as usize].to_vec()
}

/// A writer: its files as they are after every record so far.
#[derive(Clone)]
pub struct StoryWriter {
    random: u64,
    /// The most writes of a record.
    burst: u64,
    names: u64,
    files: Files,
}

impl StoryWriter {
    /// A writer at its start, with an empty directory. A patient one writes much before it syncs.
    #[must_use]
    pub fn new(seed: u64, patient: bool) -> Self {
        Self { random: seed, burst: if patient { 64 } else { 8 }, names: 0, files: Files::new() }
    }

    /// The steps of the next record, which it counts as done.
    pub fn record(&mut self) -> Vec<Step> {
        let steps = match below(&mut self.random, 100) {
            _ if self.files.is_empty() => self.create(),
            0..45 => self.burst(),
            45..60 => self.append(),
            60..70 => self.resize(),
            70..82 => self.create(),
            82..94 => self.replace(),
            _ => self.remove(),
        };
        steps.iter().for_each(|step| step.apply(&mut self.files));
        steps
    }

    fn below(&mut self, limit: u64) -> u64 {
        below(&mut self.random, limit)
    }

    fn any(&mut self) -> String {
        let index = below(&mut self.random, self.files.len() as u64) as usize;
        self.files.keys().nth(index).cloned().unwrap_or_default()
    }

    fn write(&mut self, name: &str, size: u64) -> Step {
        let longest = [1, 1, 2, 4, 16, 16, WRITE_MAX / PAGE][self.below(7) as usize];
        let len = (1 + self.below(longest)) * PAGE;
        let at = self.below(size.div_ceil(PAGE) + 1) * PAGE;
        Step::Write { name: name.to_owned(), at: at.min(FILE_MAX - len), len, number: next(&mut self.random) }
    }

    /// Several writes to two files, and a sync of one of them: it covers both.
    fn burst(&mut self) -> Vec<Step> {
        let names = [self.any(), self.any()];
        let mut sizes = [0, 1].map(|file| self.files[&names[file]].len() as u64);
        let mut steps = Vec::new();
        for _ in 0..=self.below(self.burst) {
            let file = self.below(2) as usize;
            let step = self.write(&names[file], sizes[file]);
            if let Step::Write { at, len, .. } = &step {
                sizes[file] = sizes[file].max(at + len);
            }
            steps.push(step);
        }
        let synced = self.below(2) as usize;
        steps.push(Step::Sync { name: names[synced].clone() });
        steps
    }

    fn append(&mut self) -> Vec<Step> {
        let name = self.any();
        let at = self.files[&name].len() as u64;
        let len = (1 + self.below(20_000)).min(FILE_MAX - at);
        if len == 0 {
            return self.resize();
        }
        let number = next(&mut self.random);
        vec![Step::Write { name: name.clone(), at, len, number }, Step::Sync { name }]
    }

    fn resize(&mut self) -> Vec<Step> {
        let name = self.any();
        let size = self.below(self.files[&name].len() as u64 + 64 * 1024).min(FILE_MAX);
        vec![Step::Resize { name: name.clone(), size }, Step::Sync { name }]
    }

    fn create(&mut self) -> Vec<Step> {
        if self.files.len() >= FILES {
            return self.remove();
        }
        self.names += 1;
        let name = format!("file-{}", self.names);
        let mut steps = vec![Step::Create { name: name.clone() }];
        steps.extend((0..=self.below(3)).map(|_| self.write(&name, 0)));
        steps.extend([Step::Sync { name }, Step::SyncNames]);
        steps
    }

    /// As a program saves a file: half of the time without a sync before the rename.
    fn replace(&mut self) -> Vec<Step> {
        let (to, from) = (self.any(), NEW.to_owned());
        let mut steps = vec![Step::Create { name: from.clone() }];
        steps.extend((0..=self.below(3)).map(|_| self.write(NEW, 0)));
        if self.below(2) == 0 {
            steps.push(Step::Sync { name: from.clone() });
        }
        steps.extend([Step::Rename { from, to: to.clone() }, Step::Sync { name: to }, Step::SyncNames]);
        steps
    }

    /// Half of the time by another name: a cut may take both changes back.
    fn remove(&mut self) -> Vec<Step> {
        let (name, aside) = (self.any(), "aside".to_owned());
        if self.below(2) == 0 {
            return vec![Step::Remove { name }, Step::SyncNames];
        }
        vec![Step::Rename { from: name, to: aside.clone() }, Step::Remove { name: aside }, Step::SyncNames]
    }

    /// Every state that a cut may leave after so many further records: without the next record, and after each of its
    /// steps.
    #[must_use]
    pub fn possible(mut self, acknowledged: u64) -> Vec<Files> {
        for _ in 0..acknowledged {
            self.record();
        }
        let mut states = vec![self.files.clone()];
        for step in self.record().iter().flat_map(Step::requests) {
            let mut files = states[states.len() - 1].clone();
            step.apply(&mut files);
            states.push(files);
        }
        states
    }
}

/// How two directories differ, in words; `None` if they do not.
#[must_use]
pub fn difference(due: &Files, found: &Files) -> Option<String> {
    for name in due.keys().chain(found.keys()) {
        match (due.get(name), found.get(name)) {
            (Some(due), Some(found)) if due == found => {}
            (Some(due), Some(found)) => {
                let same = due.iter().zip(found).take_while(|(due, found)| due == found).count();
                let wrong = due.iter().zip(found).filter(|(due, found)| due != found).count();
                let sizes = (due.len(), found.len());
                return Some(format!(
                    "{name} has {} bytes and should have {}; {wrong} bytes differ, the first at {same}",
                    sizes.1, sizes.0
                ));
            }
            (Some(_), None) => return Some(format!("{name} is missing")),
            _ => return Some(format!("{name} should not be there")),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_the_same_for_the_same_number_and_does_all_that_it_can() {
        let (mut one, mut other) = (StoryWriter::new(5, false), StoryWriter::new(5, false));
        let mut kinds = std::collections::HashSet::new();
        for _ in 0..500 {
            let steps = one.record();
            assert_eq!(steps, other.record());
            assert!(matches!(steps.last(), Some(Step::Sync { .. } | Step::SyncNames)), "a record ends with a sync");
            kinds.extend(steps.iter().map(std::mem::discriminant));
            assert!(one.files.len() <= FILES && one.files.values().all(|file| file.len() as u64 <= FILE_MAX));
        }
        assert_eq!(kinds.len(), 7);
    }

    #[test]
    fn the_states_of_a_cut_lead_from_one_record_to_the_next() {
        for acknowledged in [0, 1, 7, 40] {
            let states = StoryWriter::new(3, true).possible(acknowledged);
            let next = StoryWriter::new(3, true).possible(acknowledged + 1);
            assert!(states.len() > 1 && states[states.len() - 1] == next[0]);
        }
    }

    #[test]
    fn a_write_from_inside_a_page_counts_as_two() {
        let write = |at, len| Step::Write { name: "a".to_owned(), at, len, number: 9 };
        assert_eq!(write(100, 8000).requests(), [write(100, 3996), write(4096, 4004)]);
        assert_eq!(write(100, 50).requests(), [write(100, 50)]);
        assert_eq!(write(8192, 8192).requests(), [write(8192, 8192)]);
        let (mut whole, mut parts) = (Files::new(), Files::new());
        write(100, 8000).apply(&mut whole);
        write(100, 8000).requests().iter().for_each(|step| step.apply(&mut parts));
        assert_eq!(difference(&whole, &parts), None);
    }

    #[test]
    fn a_byte_a_size_and_a_name_that_differ_are_found() {
        let files = |name: &str, content: &[u8]| Files::from([(name.to_owned(), content.to_vec())]);
        let due = files("a", b"abcd");
        for found in [files("a", b"abcx"), files("a", b"abc"), files("b", b"abcd"), Files::new()] {
            assert!(difference(&due, &found).is_some(), "{found:?}");
        }
    }
}
