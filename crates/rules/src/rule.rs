//! One rule: its conditions, which must all hold, and what happens then.

use std::fmt;

use headpond_base::{COPIES_MAX, Compression};

use crate::action::{Action, Quota};
use crate::pattern::Pattern;
use crate::words::{quote, show_size, size, split};

/// Whether a request reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// A process by its number and its start: numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pid {
    /// The number of the whole process, not of a thread.
    pub number: u32,
    /// When it started, in the kernel's ticks since the machine's start. In a rule 0 means any process with that
    /// number.
    pub born: u64,
}

/// What is known of a process that makes requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process.
    pub pid: Pid,
    /// Its name, as `ps` shows it.
    pub name: String,
    /// Its command line, words separated by blanks; `None` if it could not be read.
    pub command: Option<String>,
    /// The user of its requests, by number.
    pub user: u32,
    /// Its control group, as a path.
    pub cgroup: String,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// A process.
    pub pid: Option<Pid>,
    /// The name of a process.
    pub name: Option<Pattern>,
    /// The command line of a process.
    pub command: Option<Pattern>,
    /// A user, by number.
    pub user: Option<u32>,
    /// The control group of a process.
    pub cgroup: Option<Pattern>,
    /// The file's path below the mount, without a `/` at its start.
    pub path: Option<Pattern>,
    /// The file's extension, without the dot.
    pub extension: Option<String>,
    /// The least bytes of a request.
    pub min_size: Option<u64>,
    /// The most bytes of a request.
    pub max_size: Option<u64>,
    /// Only reads, or only writes.
    pub direction: Option<Direction>,
    /// When the rule ends, in seconds since 1970.
    pub until: Option<u64>,
    /// What happens to matching requests.
    pub action: Action,
    /// How the file is compressed, whatever the settings say.
    pub compression: Option<Compression>,
    /// On how many other hosts a sync of the file must be before it is answered: 0 to 2.
    pub copies: Option<u8>,
    /// The class of blocks of a pin or share, from 1. `None` if it has none yet.
    pub class: Option<u8>,
}

/// Why a text is not a rule, and what would be accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError(pub String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

const KEYS: &str = "pid, name, command, user, cgroup, path, ext, min-size, max-size, direction, for, action, quota, compression, copies";

impl Rule {
    /// A rule without conditions.
    #[must_use]
    pub const fn all(action: Action) -> Self {
        Self {
            pid: None,
            name: None,
            command: None,
            user: None,
            cgroup: None,
            path: None,
            extension: None,
            min_size: None,
            max_size: None,
            direction: None,
            until: None,
            action,
            compression: None,
            copies: None,
            class: None,
        }
    }

    /// Parses a rule: words `key=value`, each key once.
    ///
    /// # Errors
    /// What is wrong with the line, and what would be accepted.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        Self::from_pairs(&split(line).map_err(ParseError)?).map_err(ParseError)
    }

    /// Like [`Rule::parse`], from the pairs of keys and values of a command line.
    ///
    /// # Errors
    /// Those of [`Rule::parse`].
    pub fn from_pairs(pairs: &[(String, String)]) -> Result<Self, String> {
        let mut rule = Self::all(Action::Cache);
        let (mut action, mut quota, mut born) = (None, None, None);
        for (index, (key, value)) in pairs.iter().enumerate() {
            if pairs[..index].iter().any(|(earlier, _)| earlier == key) {
                return Err(format!("{key} appears twice"));
            }
            let refused = |takes: &str| format!("{key}: '{value}' is not {takes}");
            let pattern = || Pattern::new(value).ok_or_else(|| refused("a pattern of up to 256 characters"));
            match key.as_str() {
                "pid" => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    rule.pid = Some(Pid { number: number.ok_or_else(|| refused("a process number"))?, born: 0 });
                }
                "born" => born = Some(value.parse().map_err(|_| refused("a number of ticks"))?),
                "name" => rule.name = Some(pattern()?),
                "command" => rule.command = Some(pattern()?),
                "user" => rule.user = Some(value.parse().map_err(|_| refused("a user number"))?),
                "cgroup" if value.starts_with(['/', '*', '?']) => rule.cgroup = Some(pattern()?),
                "cgroup" => return Err(refused("the path of a control group, which begins with /")),
                // Paths of files begin below the mount. People write them with and without the slash.
                "path" => {
                    let below = value.trim_start_matches('/');
                    // `db/` is a directory, with all below it.
                    let all = if below.ends_with('/') { "**" } else { "" };
                    let below = Pattern::new(&format!("{below}{all}"));
                    rule.path = Some(below.ok_or_else(|| refused("a pattern of up to 256 characters"))?);
                }
                "ext" => {
                    let sound = |text: &&String| Pattern::new(text).is_some() && !text.contains(['/', '*', '?']);
                    let text = Some(value).filter(sound).ok_or_else(|| refused("an extension, such as ibd"))?;
                    rule.extension = Some(text.strip_prefix('.').unwrap_or(text).to_owned());
                }
                "min-size" => rule.min_size = Some(size(value).ok_or_else(|| refused("a size, such as 1M"))?),
                "max-size" => rule.max_size = Some(size(value).ok_or_else(|| refused("a size, such as 1M"))?),
                "direction" => {
                    rule.direction = Some(match value.as_str() {
                        "read" => Direction::Read,
                        "write" => Direction::Write,
                        _ => return Err(refused("read or write")),
                    });
                }
                "until" => rule.until = Some(value.parse().map_err(|_| refused("a number of seconds since 1970"))?),
                "action" => action = Some(value),
                "quota" => {
                    quota = Some(Quota::parse(value).ok_or_else(|| refused("a size such as 2G, or 1% to 100%"))?)
                }
                "compression" => {
                    let compression = Compression::parse(value).ok_or_else(|| refused(Compression::WORDS))?;
                    rule.compression = Some(compression);
                }
                "copies" => {
                    let copies = value.parse().ok().filter(|copies| *copies <= COPIES_MAX);
                    rule.copies = Some(copies.ok_or_else(|| refused("a number of copies, 0 to 2"))?);
                }
                "class" => rule.class = Some(value.parse().map_err(|_| refused("a number"))?),
                _ => return Err(format!("unknown key '{key}': one of {KEYS}")),
            }
        }
        let says_more = rule.compression.is_some() || rule.copies.is_some();
        rule.action = match action {
            Some(action) => Action::parse(action, quota)?,
            None if says_more && quota.is_none() => Action::Cache,
            None => return Err(format!("a rule needs an action: action={}", Action::WORDS.join("|"))),
        };
        if rule.compression.is_some() && matches!(rule.action, Action::Bypass) {
            return Err("compression does not go with action=bypass, which lets no data into the pool".to_owned());
        }
        if rule.copies.is_some() {
            rule.may_ask_for_copies()?;
        }
        match (&mut rule.pid, born) {
            (Some(pid), Some(born)) => pid.born = born,
            (None, Some(_)) => return Err("born needs pid".to_owned()),
            _ => {}
        }
        if let (Some(min), Some(max)) = (rule.min_size, rule.max_size)
            && min > max
        {
            return Err(format!("min-size {} is above max-size {}", show_size(min), show_size(max)));
        }
        Ok(rule)
    }

    /// Copies are of what the log has, and for a sync, which has no size.
    fn may_ask_for_copies(&self) -> Result<(), String> {
        if matches!(self.action, Action::Bypass | Action::ReadOnly | Action::WriteThrough) {
            let action = self.action.word();
            return Err(format!("copies do not go with action={action}, which sends writes to the origin"));
        }
        if self.min_size.is_some() || self.max_size.is_some() || self.direction.is_some() {
            let why = "copies do not go with min-size, max-size or direction: a sync is of a whole file";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// Whether it has a condition on processes.
    #[must_use]
    pub const fn asks_for_process(&self) -> bool {
        self.pid.is_some()
            || self.name.is_some()
            || self.command.is_some()
            || self.cgroup.is_some()
            || self.user.is_some()
    }

    /// Whether its conditions on processes hold. Without a process none holds.
    #[must_use]
    pub fn fits_process(&self, process: Option<&Process>) -> bool {
        let Some(process) = process else { return !self.asks_for_process() };
        let pid =
            |wanted: Pid| wanted.number == process.pid.number && (wanted.born == 0 || wanted.born == process.pid.born);
        let command = |wanted: &Pattern| process.command.as_ref().is_some_and(|text| wanted.matches(text.as_bytes()));
        self.pid.is_none_or(pid)
            && self.name.as_ref().is_none_or(|wanted| wanted.matches(process.name.as_bytes()))
            && self.command.as_ref().is_none_or(command)
            && self.user.is_none_or(|wanted| wanted == process.user)
            && self.cgroup.as_ref().is_none_or(|wanted| wanted.matches_path(process.cgroup.as_bytes()))
    }

    /// Whether its conditions on files hold.
    #[must_use]
    pub fn fits_path(&self, path: &[u8]) -> bool {
        self.path.as_ref().is_none_or(|wanted| wanted.matches_path(path))
            && self.extension.as_ref().is_none_or(|wanted| extension(path) == Some(wanted.as_bytes()))
    }

    /// Whether its conditions on the request hold, at `now` in seconds since 1970.
    #[must_use]
    pub fn fits_request(&self, size: u64, direction: Direction, now: u64) -> bool {
        self.min_size.is_none_or(|least| size >= least)
            && self.max_size.is_none_or(|most| size <= most)
            && self.direction.is_none_or(|wanted| wanted == direction)
            && !self.is_over(now)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}

fn extension(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    (dot > 0).then(|| &name[dot + 1..])
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        let mut word =
            |key: &str, value: Option<String>| words.extend(value.map(|value| format!("{key}={}", quote(&value))));
        let text = |pattern: &Option<Pattern>| pattern.as_ref().map(Pattern::to_string);
        word("pid", self.pid.map(|pid| pid.number.to_string()));
        word("born", self.pid.filter(|pid| pid.born != 0).map(|pid| pid.born.to_string()));
        word("name", text(&self.name));
        word("command", text(&self.command));
        word("user", self.user.map(|user| user.to_string()));
        word("cgroup", text(&self.cgroup));
        word("path", text(&self.path));
        word("ext", self.extension.clone());
        word("min-size", self.min_size.map(show_size));
        word("max-size", self.max_size.map(show_size));
        word(
            "direction",
            self.direction.map(|direction| if direction == Direction::Read { "read" } else { "write" }.to_owned()),
        );
        word("until", self.until.map(|until| until.to_string()));
        word("action", Some(self.action.word().to_owned()));
        word("quota", self.action.quota().map(|quota| quota.to_string()));
        word("compression", self.compression.map(|compression| compression.to_string()));
        word("copies", self.copies.map(|copies| copies.to_string()));
        word("class", self.class.map(|class| class.to_string()));
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_rules_are_refused_with_what_would_be_taken() {
        for (line, says) in [
            ("", "needs an action"),
            ("name=x", "action=cache|bypass"),
            ("action=fast", "one of cache, bypass"),
            ("colour=red action=cache", "one of pid, name"),
            ("name=x name=y action=cache", "name appears twice"),
            ("action=pin", "quota=2G"),
            ("action=cache quota=2G", "only pin and share"),
            ("action=pin quota=0%", "1% to 100%"),
            ("pid=0 action=bypass", "process number"),
            ("born=3 action=bypass", "needs pid"),
            ("ext=a/b action=bypass", "such as ibd"),
            ("min-size=2M max-size=1M action=bypass", "above max-size 1M"),
            ("direction=both action=bypass", "read or write"),
            ("compression=gzip action=cache", "off, lz4, zstd"),
            ("compression=lz4 action=bypass", "does not go with action=bypass"),
            ("copies=3 action=cache", "0 to 2"),
            ("copies=all", "0 to 2"),
            ("copies=1 action=write-through", "sends writes to the origin"),
            ("copies=1 min-size=4K", "of a whole file"),
            ("copies=1 quota=2G", "needs an action"),
            ("backup action=bypass", "KEY=VALUE"),
            ("name=\"x action=bypass", "quote is not closed"),
        ] {
            let error = Rule::parse(line).unwrap_err();
            assert!(error.0.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn an_extension_is_what_follows_the_last_dot_of_the_name() {
        for (path, wanted) in
            [("a/b.ibd", Some("ibd")), ("b.tar.gz", Some("gz")), ("a.d/b", None), (".hidden", None), ("x.", Some(""))]
        {
            assert_eq!(extension(path.as_bytes()), wanted.map(str::as_bytes), "{path}");
        }
        assert!(Rule::parse("ext=.ibd action=cache").unwrap().fits_path(b"db/t.ibd"));
    }

    #[test]
    fn a_path_is_one_with_and_without_the_slash_and_a_control_group_has_one() {
        assert!(Rule::parse("path=/shop/** action=bypass").unwrap().fits_path(b"shop/orders"));
        let refused = Rule::parse("cgroup=system.slice action=bypass").unwrap_err();
        assert!(refused.0.contains("begins with /"), "{refused}");
    }

    #[test]
    fn a_rule_that_says_for_how_many_copies_a_sync_waits_needs_no_action() {
        let rule = Rule::parse("path=db/ copies=2").unwrap();
        assert_eq!((rule.action, rule.copies), (Action::Cache, Some(2)));
        assert!(rule.fits_path(b"db/a/b.ibd") && rule.fits_path(b"db/c") && !rule.fits_path(b"dbs/c"));
        assert_eq!(rule.to_string(), "path=db/** action=cache copies=2");
        assert_eq!(Rule::parse(&rule.to_string()).unwrap(), rule);
    }

    #[test]
    fn a_rule_on_a_process_passes_over_requests_of_nobody() {
        for line in ["pid=7 action=bypass", "name=* action=bypass", "user=0 action=bypass", "cgroup=** action=bypass"] {
            assert!(!Rule::parse(line).unwrap().fits_process(None), "{line}");
        }
        assert!(Rule::parse("path=** action=bypass").unwrap().fits_process(None));
    }

    #[test]
    fn a_number_that_another_process_has_now_is_not_the_one_that_was_meant() {
        let rule = Rule::parse("pid=7 born=100 action=bypass").unwrap();
        let process = |born| Process {
            pid: Pid { number: 7, born },
            name: "backup".into(),
            command: None,
            user: 0,
            cgroup: "/".into(),
        };
        assert!(rule.fits_process(Some(&process(100))) && !rule.fits_process(Some(&process(101))));
    }
}
