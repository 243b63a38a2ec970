//! What servers call an error in their logs.

use crate::failure::{Failure, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The words of MariaDB and PostgreSQL.
const ERRORS: [&str; 5] = ["[ERROR]", " ERROR:  ", " FATAL:  ", " PANIC:  ", "Operating system error"];

/// Watches the logs in a directory.
pub(crate) struct ServerErrors {
    run: PathBuf,
    /// How long they were.
    lengths: BTreeMap<PathBuf, usize>,
}

impl ServerErrors {
    /// What they say from now on counts.
    pub(crate) fn from_now_on(run: &Path) -> Result<Self> {
        let lengths = logs(run)?.into_iter().map(|(path, text)| (path, text.len())).collect();
        Ok(Self { run: run.to_owned(), lengths })
    }

    /// Fails if a server has written of an error since.
    pub(crate) fn none(&self) -> Result<()> {
        for (path, text) in logs(&self.run)? {
            let new = text.get(self.lengths.get(&path).copied().unwrap_or(0)..).unwrap_or_default();
            if let Some(line) = new.lines().find(|line| ERRORS.iter().any(|error| line.contains(error))) {
                return Err(Failure::Other(format!("{} says: {line}", path.display())));
            }
        }
        Ok(())
    }
}

fn logs(run: &Path) -> Result<Vec<(PathBuf, String)>> {
    let reading = || Failure::io(format!("reading the logs in {}", run.display()));
    let entries = fs::read_dir(run).and_then(Iterator::collect::<std::io::Result<Vec<_>>>).map_err(reading())?;
    let paths = entries.into_iter().map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .map(|path| {
            let text = fs::read(&path).map_err(reading())?;
            Ok((path, String::from_utf8_lossy(&text).into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn an_error_in_a_log_counts_from_when_it_is_watched() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join("mariadb.log");
        fs::write(&path, "2026-11-26 [ERROR] an old one\n").unwrap();
        let errors = ServerErrors::from_now_on(run.path()).unwrap();
        errors.none().unwrap();
        let mut log = fs::File::options().append(true).open(&path).unwrap();
        log.write_all(b"[Warning] Aborted connection\n").unwrap();
        errors.none().unwrap();
        log.write_all(b"[ERROR] InnoDB: Operating system error number 103\n").unwrap();
        assert!(errors.none().unwrap_err().to_string().contains("103"));
        // A log that came later counts, too.
        fs::write(run.path().join("postgres.log"), "PANIC\n2026 UTC [7] PANIC:  could not fsync\n").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(errors.none().unwrap_err().to_string().contains("fsync"));
    }
}
