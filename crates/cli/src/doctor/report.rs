//! The report as text.

use std::fmt;

use super::{Condition, DoctorReport, FoundDatabase, WholeReport};

impl fmt::Display for WholeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "io_uring on this machine\n{}", self.io_uring)?;
        for (title, findings) in [("this host", Some(&self.host)), ("origin and flash", self.places.as_ref())] {
            let Some(findings) = findings else { continue };
            writeln!(f, "\n{title}")?;
            findings.iter().try_for_each(|finding| write!(f, "{finding}"))?;
        }
        self.data.as_ref().map_or(Ok(()), |data| write!(f, "\n{data}"))
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mount {
            None => writeln!(f, "{}: not on a headpond mount", self.path.display())?,
            Some(mount) => writeln!(
                f,
                "{}: on the headpond mount {}, in {}: {}",
                self.path.display(),
                mount.mountpoint.display(),
                mount.mode,
                if mount.whole_writes { "writes of up to 1 MiB are untorn" } else { "writes can tear" }
            )?,
        }
        if self.databases.is_empty() {
            writeln!(f, "\nfound no MariaDB, MySQL, PostgreSQL or SQLite database there")?;
        }
        self.databases.iter().try_for_each(|database| write!(f, "\n{database}"))
    }
}

impl fmt::Display for FoundDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.database)?;
        if let Some(version) = &self.version {
            write!(f, " {version}")?;
        }
        write!(f, " in {}", self.at.display())?;
        if let Some(bytes) = self.page_bytes {
            write!(f, ", pages of {} KiB", f64::from(bytes) / 1024.0)?;
        }
        writeln!(f, "\n  now       {}\n  can       {}", self.now, self.could)?;
        for (index, line) in self.lines.iter().enumerate() {
            writeln!(f, "  {:<9} {line}", if index == 0 { "how" } else { "" })?;
        }
        for (index, condition) in self.conditions.iter().enumerate() {
            writeln!(f, "  {:<9} {condition}", if index == 0 { "only if" } else { "" })?;
        }
        writeln!(f, "  verify    {}\n  undo      {}", self.check, self.back)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = match self.met {
            Some(true) => "[yes]",
            Some(false) => "[NO]",
            None => "[check]",
        };
        write!(f, "{met:<11} {}", self.what)
    }
}
