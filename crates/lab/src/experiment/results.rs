//! A session on disk: its experiment, and every run that ended.
//!
//! ```text
//! session.json       the experiment, the targets, the machine, the versions, the seed
//! runs/0007.json     a run
//! logs/0007.txt      what its load printed
//! ```
//!
//! Invariant: the file of a run exists whole or not at all, so that a session continues after any interruption.

use super::{Definition, Plan, Record, Target};
use crate::failure::{Failure, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The version of these files.
const FORMAT: u32 = 1;

/// What a session is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The version of these files.
    pub format: u32,
    /// The experiment, as it is run.
    pub definition: Definition,
    /// The targets, as the user wrote them.
    pub targets: Vec<String>,
    /// Decides all that is random.
    pub seed: u64,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// What it runs on and with.
    pub about: Vec<(String, String)>,
}

/// The directory of a session.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    directory: PathBuf,
    session: Session,
}

impl Results {
    /// Begins a session in a new directory.
    pub fn begin(directory: &Path, mut session: Session) -> Result<Self> {
        session.format = FORMAT;
        if fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::Other(format!(
                "{} is not empty: name a new directory with --out, or go on with `headpond lab resume {}`",
                directory.display(),
                directory.display()
            )));
        }
        for part in ["runs", "logs"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(Failure::io(format!("making {}", path.display())))?;
        }
        write(&directory.join("session.json"), &session)?;
        Ok(Self { directory: directory.to_path_buf(), session })
    }

    /// Opens a session that was begun.
    pub fn open(directory: &Path) -> Result<Self> {
        let session: Session = read(&directory.join("session.json"))?;
        if session.format != FORMAT {
            return Err(Failure::Other(format!(
                "{}: format {}, and this headpond reads {FORMAT}",
                directory.display(),
                session.format
            )));
        }
        Ok(Self { directory: directory.to_path_buf(), session })
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it is.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The plan, as it was when it began.
    pub fn plan(&self) -> Result<Plan> {
        let targets = self.session.targets.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>>>()?;
        Plan::of(self.session.definition.clone(), targets)
    }

    fn run_file(&self, number: u32) -> PathBuf {
        self.directory.join(format!("runs/{number:04}.json"))
    }

    /// Where the output of a run's load goes.
    #[must_use]
    pub fn log(&self, number: u32) -> PathBuf {
        self.directory.join(format!("logs/{number:04}.txt"))
    }

    /// Whether a run has ended.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.run_file(number).exists()
    }

    /// Keeps a run.
    pub fn keep(&self, record: &Record) -> Result<()> {
        write(&self.run_file(record.number), record)
    }

    /// All runs that ended, in their order.
    pub fn records(&self) -> Result<Vec<Record>> {
        let plan = self.plan()?;
        (1..=plan.runs() as u32).filter(|number| self.has(*number)).map(|number| read(&self.run_file(number))).collect()
    }
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(Failure::io(format!("reading {}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
}

fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
    let (part, doing) = (path.with_extension("part"), || format!("writing {}", path.display()));
    fs::write(&part, text).map_err(Failure::io(doing()))?;
    fs::rename(&part, path).map_err(Failure::io(doing()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let definition = Definition::find("fill").unwrap().quick();
        Session {
            format: 0,
            definition,
            targets: vec!["model:tachion".to_owned()],
            seed: 5,
            began: 9,
            about: vec![("machine".to_owned(), "a".to_owned())],
        }
    }

    #[test]
    fn a_session_is_found_again_and_never_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("one");
        let results = Results::begin(&directory, session()).unwrap();
        assert_eq!(Results::open(&directory).unwrap(), results);
        assert_eq!((results.has(1), results.records().unwrap().len()), (false, 0));
        // The part of a run that was being written when the machine stopped is no run.
        fs::write(directory.join("runs/0001.part"), "{").unwrap();
        assert!(!results.has(1));
        let error = Results::begin(&directory, session()).expect_err("it is taken").to_string();
        assert!(error.contains("resume"), "{error}");
        assert!(Results::open(place.path()).is_err());
    }
}
