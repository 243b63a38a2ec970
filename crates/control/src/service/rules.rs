//! Rules of a running mount: what a client's words mean here and now, and how a change takes effect.
//!
//! Invariants
//! - A change is in force for every request that comes after its answer, and the pool keeps it.
//! - A rule on a process number means the process that has the number now, not a later one.

use headpond_base::{BLOCK_U64, Nanos};
use headpond_engine::{Class, ClassLimit, Config, Request, Stats};
use headpond_rules::{Action, Direction, Mask, Pid, Process, Rule, RuleSet};

use super::commands::Service;
use super::protocol::Answer;
use super::shown::{Decision, RuleShown};
use super::socket::Client;
use crate::history::EventKind;
use crate::refusal::Refusal;
use crate::settings::{RULES_TEXT_MAX, Settings, ValueKind, rules_room};
use crate::wording::clock::unix_seconds;
use crate::wording::{Size, clock};

/// Words and values, as a client sends them.
pub(crate) type Words = [(String, String)];

/// The shortest and longest time for which a rule may last.
const FOR: ValueKind = ValueKind::Duration { min: 1_000_000_000, max: 366 * 86_400_000_000_000, can_be_off: false };

/// A user's number, given as a number or a name.
fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())?
    });
    found.ok_or_else(|| format!("user: /etc/passwd has no '{text}'. Give the number (id -u {text})"))
}

/// Makes a rule of a client's words. `user` may be a name, `for` gives the rule's time, and a `pid` means that
/// process alone.
fn read(words: &Words, born: impl Fn(u32) -> Option<u64>) -> Result<Rule, String> {
    let mut plain = Vec::new();
    for (key, value) in words {
        match key.as_str() {
            "user" => plain.push((key.clone(), user(value)?.to_string())),
            "for" => {
                let nanos = FOR.parse(value).map_err(|why| format!("for: {why}"))?;
                plain.push(("until".to_owned(), (unix_seconds() + nanos / 1_000_000_000).to_string()));
            }
            "class" | "born" => return Err(format!("unknown key '{key}'")),
            _ => plain.push((key.clone(), value.clone())),
        }
    }
    let mut rule = Rule::from_pairs(&plain)?;
    if let Some(pid) = &mut rule.pid {
        pid.born = born(pid.number).ok_or_else(|| format!("pid: there is no process {}", pid.number))?;
    }
    Ok(rule)
}

/// Each device of several is asked so often whether it is still there. The next to fail should find the second copies
/// made; a read in 5 s costs nothing, also of a peer.
const PROBE_PERIOD: Nanos = Nanos(5 * Nanos::SECOND.0);

/// The settings in the engine's form, with what the rules say about its classes.
pub(crate) fn config(settings: &Settings, rules: &RuleSet, capacity_bytes: u64) -> Config {
    let mut config = settings.config();
    config.probe_period = Some(PROBE_PERIOD);
    for rule in rules.rules() {
        let (Some(class), Some(quota)) = (rule.class.and_then(Class::new), rule.action.quota()) else { continue };
        config.classes[class.index()] = ClassLimit {
            blocks: quota.bytes_of(capacity_bytes) / BLOCK_U64,
            pinned: matches!(rule.action, Action::Pin(_)),
        };
    }
    config
}

impl Service {
    /// Gives the engine the settings in force.
    pub(crate) fn configure(&self) {
        self.insight.set_counting(self.settings().counts());
        self.freeze.with_destage_held(|held| self.handle.submit(self.configuration(held), Box::new(drop)));
    }

    /// The settings in force for the engine, with destage held or not.
    pub(super) fn configuration(&self, destage_held: bool) -> Request {
        let capacity = self.handle.stats().engine.pool_blocks * BLOCK_U64;
        let config = config(&self.settings(), &self.rules().now(), capacity);
        Request::Configure(Box::new(Config { destage_held, ..config }))
    }

    /// All rules.
    pub(crate) fn shown_rules(&self) -> Vec<RuleShown> {
        let (set, engine) = (self.rules().now(), self.handle.stats().engine);
        (0..set.rules().len()).map(|index| self.shown(&set, index, &engine)).collect()
    }

    fn shown(&self, set: &RuleSet, index: usize, engine: &Stats) -> RuleShown {
        let rule = &set.rules()[index];
        let counted = set.counted(index);
        let is_there = |pid: Pid| self.insight.born(pid.number) == Some(pid.born);
        // The setting may be lower by now than when the rule was added.
        let (asked, wanted) = (usize::from(rule.copies.unwrap_or(0)), self.copies_wanted());
        let state = match (rule.until, rule.pid) {
            _ if rule.is_over(unix_seconds()) => "expired".to_owned(),
            (_, Some(pid)) if !is_there(pid) => "its process has ended".to_owned(),
            (Some(until), _) => format!("until {}", clock::utc(until)),
            _ => String::new(),
        };
        let lacks = (asked > wanted)
            .then(|| format!("{}: while it asks for more, its syncs may wait for the origin", kept_copies(wanted)));
        let state: Vec<String> = [state].into_iter().filter(|said| !said.is_empty()).chain(lacks).collect();
        let plain = Rule { class: None, until: None, pid: rule.pid.map(|pid| Pid { born: 0, ..pid }), ..rule.clone() };
        let held = rule.class.and_then(Class::new).map(|class| engine.class_blocks[class.index()] * BLOCK_U64);
        RuleShown {
            number: index + 1,
            rule: plain.to_string(),
            requests: counted.requests,
            bytes: counted.bytes,
            state: state.join("; "),
            held_bytes: held,
            quota_bytes: rule.action.quota().map(|quota| quota.bytes_of(engine.pool_blocks * BLOCK_U64)),
        }
    }

    /// Adds a rule before the one with number `before`, or at the end.
    pub(crate) fn add_rule(&self, words: &Words, before: Option<usize>, dry_run: bool, client: Client) {
        let place = before.map(|number| number.saturating_sub(1));
        let made = read(words, |number| self.insight.born(number))
            .and_then(|rule| self.can_have_copies(rule))
            .and_then(|rule| self.rules().now().with(rule, place).map_err(|error| error.to_string()));
        match made {
            Ok(set) => self.change_rules(set, RuleChange::Added(place), dry_run, client),
            Err(why) => client.refuse(&Refusal::Usage(format!("{why}\n  Nothing was changed."))),
        }
    }

    /// Refuses a rule that asks for more copies than there are to be: each of its syncs would wait for the origin.
    fn can_have_copies(&self, rule: Rule) -> Result<Rule, String> {
        let (asked, wanted) = (usize::from(rule.copies.unwrap_or(0)), self.copies_wanted());
        if asked <= wanted {
            return Ok(rule);
        }
        let (kept, mnt) = (kept_copies(wanted), self.mountpoint());
        Err(format!(
            "copies={asked}: {kept}. To have more: headpond set {mnt} copies={asked}, and headpond pool add {mnt} --peer HOST:PORT",
            mnt = mnt.display()
        ))
    }

    /// Removes the rule with this number.
    pub(crate) fn remove_rule(&self, number: usize, dry_run: bool, client: Client) {
        match self.rules().now().without(number.wrapping_sub(1)) {
            Ok(set) => self.change_rules(set, RuleChange::Removed(number), dry_run, client),
            Err(error) => client.refuse(&Refusal::Usage(format!("{error}. To see the rules: headpond rules list"))),
        }
    }

    fn change_rules(&self, set: RuleSet, change: RuleChange, dry_run: bool, client: Client) {
        let room = rules_room(&set);
        if room > RULES_TEXT_MAX {
            let why = format!(
                "the rules take {room} bytes, more than the {RULES_TEXT_MAX} that a pool keeps. Nothing was changed. Remove some \
                 rules, or use shorter patterns."
            );
            return client.refuse(&Refusal::Usage(why));
        }
        let index = match change {
            RuleChange::Added(place) => Some(place.unwrap_or(set.rules().len() - 1)),
            RuleChange::Removed(_) => None,
        };
        let rule = index.map(|index| self.shown(&set, index, &self.handle.stats().engine));
        if dry_run {
            let seen = index.map_or_else(Vec::new, |index| self.would_match(&set, index));
            return client.answer(&Answer::Rule { rule, seen, not_kept: None });
        }
        // Not its words: the page may be open to users who must not see them (see `panel.rs`).
        let said = match (change, index) {
            (RuleChange::Removed(number), _) => format!("rule {number} removed; {} left", set.rules().len()),
            (_, index) => format!("rule {} added; {} in all", index.unwrap_or(0) + 1, set.rules().len()),
        };
        self.rules().replace(set);
        self.configure();
        self.history.note(EventKind::Rule, 1, &said);
        self.keep_aside(move |kept| {
            let not_kept = kept.err().map(|error| error.to_string());
            client.answer(&Answer::Rule { rule, seen: Vec::new(), not_kept });
        });
    }

    /// The recent files that a rule would match, or if there are none the processes.
    fn would_match(&self, set: &RuleSet, index: usize) -> Vec<String> {
        const MOST: usize = 32;
        let bit = |mask: Mask| mask.0 >> index & 1 == 1;
        let rule = &set.rules()[index];
        let mut seen = Vec::new();
        if rule.path.is_some() || rule.extension.is_some() {
            let files = self.insight.files(MOST).into_iter().filter(|file| bit(set.for_path(&file.path)));
            seen.extend(files.map(|file| String::from_utf8_lossy(&file.path).into_owned()));
        }
        if rule.asks_for_process() && rule.user.is_none() {
            for used in self.insight.processes(MOST) {
                let process = self.insight.process(used.pid, 0);
                if process.as_ref().is_some_and(|process| rule.fits_process(Some(process))) {
                    seen.push(format!("process {} ({})", used.pid, used.name));
                }
            }
        }
        seen
    }

    /// What headpond would do with a request like this.
    pub(crate) fn test_rules(&self, words: &Words) -> Result<Answer, Refusal> {
        let question = Question::read(words, |pid, user| self.insight.process(pid, user)).map_err(Refusal::Usage)?;
        let set = self.rules().now();
        let process = set.for_process(question.process.as_ref());
        let path = set.for_path(question.path.as_bytes());
        let found = set.decide(path, process, question.size, question.direction, unix_seconds());
        let action = found.map_or(Action::Cache, |index| set.rules()[index].action);
        let decided_by = found.map(|index| self.shown(&set, index, &self.handle.stats().engine));
        Ok(Answer::Decision(Decision { decided_by, action: action.word().to_owned() }))
    }
}

fn kept_copies(wanted: usize) -> String {
    match wanted {
        0 => "this mount keeps no copy on another host".to_owned(),
        1 => "this mount keeps 1 copy".to_owned(),
        more => format!("this mount keeps {more} copies"),
    }
}

/// How the rules change.
#[derive(Clone, Copy, Debug)]
enum RuleChange {
    /// One comes to this place, or to the end.
    Added(Option<usize>),
    /// The one with this number goes.
    Removed(usize),
}

/// A request to try on the rules.
#[derive(Debug)]
struct Question {
    process: Option<Process>,
    path: String,
    size: u64,
    direction: Direction,
}

impl Question {
    fn read(words: &Words, find: impl Fn(u32, u32) -> Option<Process>) -> Result<Self, String> {
        let mut question = Self { process: None, path: String::new(), size: 16 << 10, direction: Direction::Read };
        let value = |wanted: &str| words.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
        let asks_as = value("user").map_or(Ok(0), user)?;
        if let Some(text) = value("pid") {
            let number = text.parse().ok().and_then(|number| find(number, asks_as));
            question.process = Some(number.ok_or_else(|| format!("pid: there is no process {text}"))?);
        }
        for (key, value) in words {
            let described = || Process {
                pid: Pid { number: 0, born: 0 },
                name: String::new(),
                command: None,
                user: asks_as,
                cgroup: "/".to_owned(),
            };
            match key.as_str() {
                "pid" => {}
                "user" => question.process.get_or_insert_with(described).user = asks_as,
                "name" => value.clone_into(&mut question.process.get_or_insert_with(described).name),
                "command" => question.process.get_or_insert_with(described).command = Some(value.clone()),
                "cgroup" => value.clone_into(&mut question.process.get_or_insert_with(described).cgroup),
                "path" => value.trim_start_matches('/').clone_into(&mut question.path),
                "size" => question.size = value.parse::<Size>().map_err(|why| format!("size: {why}"))?.0,
                "direction" => {
                    question.direction = match value.as_str() {
                        "read" => Direction::Read,
                        "write" => Direction::Write,
                        _ => return Err(format!("direction: '{value}' is not read or write")),
                    }
                }
                _ => {
                    return Err(format!(
                        "unknown key '{key}'. A request has: pid, name, command, user, cgroup, path, size, direction"
                    ));
                }
            }
        }
        Ok(question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[(&str, &str)]) -> Vec<(String, String)> {
        text.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn names_of_users_times_and_processes_become_numbers() {
        let rule = read(&words(&[("user", "root"), ("for", "1h"), ("action", "bypass")]), |_| None).unwrap();
        assert_eq!(rule.user, Some(0));
        assert!(rule.until.unwrap().abs_diff(unix_seconds() + 3600) < 60);
        let rule = read(&words(&[("pid", "7"), ("action", "bypass")]), |number| Some(u64::from(number) * 10)).unwrap();
        assert_eq!(rule.pid, Some(Pid { number: 7, born: 70 }));
        for (wrong, says) in [
            (words(&[("pid", "7"), ("action", "bypass")]), "no process 7"),
            (words(&[("user", "nobody-like-this"), ("action", "bypass")]), "id -u"),
            (words(&[("for", "soon"), ("action", "bypass")]), "1s to 366d"),
            (words(&[("class", "3"), ("action", "bypass")]), "unknown key"),
        ] {
            let error = read(&wrong, |_| None).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn quotas_become_limits_of_classes() {
        let rules = RuleSet::parse("path=a action=pin quota=8K\npath=b action=share quota=50%\n").unwrap();
        let config = config(&Settings::default(), &rules, 100 * BLOCK_U64);
        assert_eq!(config.classes[1], ClassLimit { blocks: 2, pinned: true });
        assert_eq!(config.classes[2], ClassLimit { blocks: 50, pinned: false });
        assert_eq!(config.classes[0], ClassLimit::default());
    }

    #[test]
    fn a_request_can_be_described_without_there_being_one() {
        let asked = words(&[("name", "mysqldump"), ("path", "/db/t1.ibd"), ("size", "1M"), ("direction", "write")]);
        let question = Question::read(&asked, |_, _| None).unwrap();
        assert_eq!(
            (question.path.as_str(), question.size, question.direction),
            ("db/t1.ibd", 1 << 20, Direction::Write)
        );
        assert_eq!(question.process.unwrap().name, "mysqldump");
        for (wrong, says) in
            [(("colour", "red"), "unknown key"), (("direction", "up"), "read or write"), (("pid", "9"), "no process")]
        {
            let error = Question::read(&words(&[wrong]), |_, _| None).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
