//! The program under the names by which `mount` and `umount` look for a helper: `mount.headpond` and
//! `mount.fuse.headpond`, `umount.headpond` and `umount.fuse.headpond`. The type of a mount in the kernel's table is
//! `fuse.headpond`, so `umount` takes the last one.
//!
//! Invariant: a helper does what `headpond mount --background` and `headpond unmount` do. It ends with the statuses of
//! mount(8), for the programs that call it.

mod mount;
mod options;
mod umount;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use headpond_control::{ExitStatus, Refusal, log_line};

/// What a helper does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// `mount.TYPE ORIGIN MOUNTPOINT [-sfnv] [-o OPTIONS]`
    Mount,
    /// `umount.TYPE MOUNTPOINT [-flnrv]`
    Umount,
}

/// Why a helper did nothing.
#[derive(Debug)]
enum Failure {
    /// Its arguments make no sense.
    Usage(String),
    /// headpond refused.
    Refused(Refusal),
    /// `headpond mount` refused, with this status, and said why.
    Said(Option<i32>),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Helper {
    /// The helper whose name this program was started by.
    ///
    /// Behind the name, a helper gets paths and short options. A long option first is from headpond itself, which
    /// starts itself by its file: that may have only the helper's name.
    pub fn called(name: &OsStr, first: Option<&OsString>) -> Option<Self> {
        if first.is_some_and(|first| first.as_encoded_bytes().starts_with(b"--")) {
            return None;
        }
        match Path::new(name).file_name()?.to_str()? {
            "mount.headpond" | "mount.fuse.headpond" => Some(Self::Mount),
            "umount.headpond" | "umount.fuse.headpond" => Some(Self::Umount),
            _ => None,
        }
    }

    /// Runs it to its end.
    pub fn run(self, arguments: &[OsString]) -> ExitCode {
        let result = match self {
            Self::Mount => mount::run(arguments),
            Self::Umount => umount::run(arguments),
        };
        let Err(failure) = result else { return ExitCode::SUCCESS };
        match &failure {
            Failure::Usage(what) => log_line(format_args!("{what}\n{}", self.usage())),
            Failure::Refused(refusal) => log_line(refusal),
            Failure::Said(_) => {}
        }
        ExitCode::from(failure.status())
    }

    const fn usage(self) -> &'static str {
        match self {
            Self::Mount => "usage: mount -t headpond ORIGIN MOUNTPOINT -o flash=FILE_OR_DEVICE[,OPTION...]",
            Self::Umount => "usage: umount [-l] [-f] MOUNTPOINT",
        }
    }
}

impl Failure {
    /// The status that mount(8) gives a failure.
    fn status(&self) -> u8 {
        const USAGE: u8 = 1;
        const INTERRUPTED: u8 = 8;
        const REFUSED: u8 = 32;
        let status = match self {
            Self::Usage(_) => Some(i32::from(ExitStatus::Usage.code())),
            Self::Refused(refusal) => Some(i32::from(refusal.status().code())),
            Self::Said(status) => *status,
        };
        match status {
            Some(status) if status == i32::from(ExitStatus::Usage.code()) => USAGE,
            Some(status) if status == i32::from(ExitStatus::Interrupted.code()) => INTERRUPTED,
            Some(_) => REFUSED,
            // By a signal, such as ctrl-C.
            None => INTERRUPTED,
        }
    }
}

/// The arguments of a helper: paths, flags without a value, and the value of each `-o`.
#[derive(Default, PartialEq, Eq, Debug)]
struct Arguments {
    paths: Vec<OsString>,
    flags: String,
    options: Vec<OsString>,
}

impl Arguments {
    /// Takes these flags, alone or together (`-fv`); `-o` and `-t` have a value, and that of `-t` says nothing new.
    fn parse(arguments: &[OsString], known: &str) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(flags) = argument.to_str().and_then(|text| text.strip_prefix('-')).filter(|it| !it.is_empty())
            else {
                parsed.paths.push(argument.clone());
                continue;
            };
            for flag in flags.chars() {
                match flag {
                    'o' | 't' => {
                        let value = rest.next().ok_or_else(|| Failure::Usage(format!("-{flag} needs a value")))?;
                        if flag == 'o' {
                            parsed.options.push(value.clone());
                        }
                    }
                    flag if known.contains(flag) => parsed.flags.push(flag),
                    flag => return Err(Failure::Usage(format!("unknown option -{flag}"))),
                }
            }
        }
        Ok(parsed)
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_name_decides_unless_headpond_started_itself() {
        let path = OsString::from("/slow");
        for (name, helper) in [
            ("/sbin/mount.headpond", Some(Helper::Mount)),
            ("mount.fuse.headpond", Some(Helper::Mount)),
            ("/sbin/umount.fuse.headpond", Some(Helper::Umount)),
            ("umount.headpond", Some(Helper::Umount)),
            ("/usr/bin/headpond", None),
            ("mount.fuse", None),
        ] {
            assert_eq!(Helper::called(OsStr::new(name), Some(&path)), helper, "{name}");
        }
        let mark = OsString::from("--background-child");
        assert_eq!(Helper::called(OsStr::new("/sbin/mount.headpond"), Some(&mark)), None);
    }

    #[test]
    fn flags_stand_alone_or_together_and_an_unknown_one_is_named() {
        let parsed = Arguments::parse(&words("/o /m -sf -v -t headpond -o a,b -o c"), "sfnv").unwrap();
        assert_eq!(parsed.paths, words("/o /m"));
        assert_eq!(parsed.options, words("a,b c"));
        assert!(parsed.has('s') && parsed.has('f') && parsed.has('v') && !parsed.has('n'));
        for (line, says) in [("/m -x", "-x"), ("/m -o", "-o needs a value")] {
            let Err(Failure::Usage(what)) = Arguments::parse(&words(line), "sfnv") else { panic!("{line}") };
            assert!(what.contains(says), "{what}");
        }
    }

    #[test]
    fn statuses_are_those_of_mount() {
        assert_eq!(Failure::Usage(String::new()).status(), 1);
        assert_eq!(Failure::Said(Some(2)).status(), 1, "headpond's own");
        assert_eq!(Failure::Said(Some(50)).status(), 32);
        assert_eq!(Failure::Said(None).status(), 8);
        assert_eq!(Failure::Refused(Refusal::Interrupted(String::new())).status(), 8);
        assert_eq!(Failure::Refused(Refusal::NotMounted { path: "/m".into(), hint: String::new() }).status(), 32);
    }
}
