//! The two programs of the guest: writers that never end, and the check of what they left.
//!
//! Both speak to the host over their standard output, a line at a time.

use super::ledger::{Ledger, LedgerEntry};
use super::story::{Files, Step, StoryWriter, difference};
use crate::failure::{Failure, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Writers at work at the same time, so that a flush meets other writers' data.
pub const WRITERS: u64 = 4;
/// Said before the first record: the directories are durable.
pub const BEGUN: &str = "BEGUN";
/// Said after a record's last sync, with the writer and the record's number.
pub const DONE: &str = "DONE";
/// Said of each writer that left what it should: where, its load, its number, how many steps of an unacknowledged
/// record are there.
pub const FOUND: &str = "FOUND";
/// Said of whatever is not as it should be.
pub const WRONG: &str = "WRONG";

fn place(root: &Path, load: u64, writer: u64) -> PathBuf {
    root.join(load_name(load)).join(format!("writer-{writer}"))
}

fn load_name(load: u64) -> String {
    format!("load-{load}")
}

/// A writer of a load, before its first record. In every other load all but one sync seldom: then there is more to
/// lose.
fn writer(run: u64, load: u64, writer: u64) -> StoryWriter {
    let seed = run.wrapping_mul(1_000_003).wrapping_add(load * 100 + writer);
    StoryWriter::new(seed, load.is_multiple_of(2) && writer > 0)
}

/// Says a line, in one piece.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()
}

fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Removes what the ledger does not know, and lets the writers of a load work in `root` until the power goes. Returns
/// only with a failure.
pub fn work(root: &Path, ledger: &Ledger, run: u64, load: u64) -> Result<()> {
    let making = || -> io::Result<()> {
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            if !ledger.0.iter().any(|known| entry.file_name() == load_name(known.load).as_str()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        for writer in 0..WRITERS {
            fs::create_dir_all(place(root, load, writer))?;
        }
        sync_names(&root.join(load_name(load)))?;
        sync_names(root)
    };
    making().map_err(Failure::io(format!("making the directories of load {load}")))?;
    say(BEGUN).map_err(Failure::io("saying so"))?;
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let directory = place(root, load, number);
            let mut story = writer(run, load, number);
            std::thread::spawn(move || -> io::Result<()> {
                for record in 1u64.. {
                    story.record().iter().try_for_each(|step| carry_out(step, &directory))?;
                    say(&format!("{DONE} {number} {record}"))?;
                }
                Ok(())
            })
        })
        .collect();
    for (number, writer) in writers.into_iter().enumerate() {
        let ended = writer.join().map_err(|_| Failure::Other(format!("writer {number} panicked")))?;
        ended.map_err(Failure::io(format!("writer {number}, on the mount")))?;
    }
    Ok(())
}

fn carry_out(step: &Step, directory: &Path) -> io::Result<()> {
    let open = |name: &str| File::options().write(true).open(directory.join(name));
    match step {
        Step::Create { name } => File::create_new(directory.join(name)).map(drop),
        Step::Write { name, at, len, number } => {
            open(name)?.write_all_at(&super::story::bytes(*number, *at, *len), *at)
        }
        Step::Resize { name, size } => open(name)?.set_len(*size),
        Step::Rename { from, to } => fs::rename(directory.join(from), directory.join(to)),
        Step::Remove { name } => fs::remove_file(directory.join(name)),
        Step::Sync { name } => open(name)?.sync_all(),
        Step::SyncNames => sync_names(directory),
    }
}

/// Compares everything in the ledger with what is in `root`, which is called `name`, and says what is found. A cut may
/// come between two lines.
pub fn verify(root: &Path, name: &str, ledger: &Ledger, run: u64) -> Result<()> {
    for entry in &ledger.0 {
        let line = match verify_one(root, entry, run)? {
            Ok(steps) => format!("{FOUND} {name} {} {} {steps}", entry.load, entry.writer),
            Err(wrong) => format!(
                "{WRONG} lost at the {name}: load {}, writer {}, {} records acknowledged: {wrong}",
                entry.load, entry.writer, entry.acknowledged
            ),
        };
        say(&line).map_err(Failure::io("saying what was found"))?;
    }
    Ok(())
}

/// How many steps of the record after the acknowledged ones are there, or what is wrong.
fn verify_one(root: &Path, entry: &LedgerEntry, run: u64) -> Result<std::result::Result<usize, String>> {
    let directory = place(root, entry.load, entry.writer);
    let found = match read_all(&directory) {
        Ok(found) => found,
        Err(error) => return Ok(Err(format!("reading it: {error}"))),
    };
    let states = writer(run, entry.load, entry.writer).possible(entry.acknowledged);
    let (first, last) = entry.steps.map_or((0, states.len() - 1), |steps| (steps, steps));
    let due = states.get(first..=last).ok_or_else(|| Failure::Other(format!("the ledger's {entry:?} has no state")))?;
    let there = due.iter().rposition(|state| difference(state, &found).is_none());
    Ok(there.map(|index| first + index).ok_or_else(|| {
        let differences = due.iter().enumerate().filter_map(|(index, state)| {
            difference(state, &found).map(|difference| format!("not as after step {}: {difference}", first + index))
        });
        differences.collect::<Vec<_>>().join("; ")
    }))
}

fn read_all(directory: &Path) -> io::Result<Files> {
    let read = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
    };
    fs::read_dir(directory)?.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory after two records and the first step of the third.
    fn left(root: &Path) -> LedgerEntry {
        let directory = place(root, 1, 0);
        fs::create_dir_all(&directory).expect("a directory");
        let state = &writer(7, 1, 0).possible(2)[1];
        state.iter().for_each(|(name, content)| fs::write(directory.join(name), content).expect("a file"));
        LedgerEntry { load: 1, writer: 0, acknowledged: 2, steps: None }
    }

    #[test]
    fn what_was_left_is_found_and_must_stay() {
        let root = tempfile::tempdir().expect("a directory");
        let entry = left(root.path());
        assert_eq!(verify_one(root.path(), &entry, 7).expect("readable"), Ok(1));
        assert_eq!(verify_one(root.path(), &LedgerEntry { steps: Some(1), ..entry }, 7).expect("readable"), Ok(1));
        assert!(verify_one(root.path(), &LedgerEntry { steps: Some(0), ..entry }, 7).expect("readable").is_err());
    }

    #[test]
    fn a_record_that_was_acknowledged_and_is_gone_is_found() {
        let root = tempfile::tempdir().expect("a directory");
        let entry = left(root.path());
        for acknowledged in 4..20 {
            let later = LedgerEntry { acknowledged, ..entry };
            assert!(verify_one(root.path(), &later, 7).expect("readable").is_err(), "{acknowledged}");
        }
        fs::remove_dir_all(place(root.path(), 1, 0)).expect("it is ours");
        assert!(verify_one(root.path(), &entry, 7).expect("readable").is_err());
    }

    #[test]
    fn steps_on_a_real_directory_come_to_the_same_as_in_memory() {
        let root = tempfile::tempdir().expect("a directory");
        let mut writer = StoryWriter::new(11, true);
        for records in 1..60 {
            writer.record().iter().try_for_each(|step| carry_out(step, root.path())).expect("the file system does it");
            let found = read_all(root.path()).expect("readable");
            assert_eq!(difference(&StoryWriter::new(11, true).possible(records)[0], &found), None, "{records}");
        }
    }
}
