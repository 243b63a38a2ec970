//! The index of the published results, and whether it fits the tree.
//!
//! It is a Markdown table, for people as for this program. A row that begins with `` `name` `` is a set of paths, one that
//! begins with `[name](place)` a result.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// Where it lies.
pub const INDEX: &str = "docs/results/index.md";

/// Where results lie, each file of which belongs to an entry.
const RESULTS: [&str; 2] = ["docs/results", "docs/benchmarks"];

/// What documents show of results; drawn from figures that have an entry.
const PICTURES: &str = "docs/results/pictures";

/// One result.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its directory, file or document, below the root.
    pub place: String,
    /// The commit of the program that made it.
    pub commit: String,
    /// When.
    pub day: String,
    /// The paths below the root whose change makes it old.
    pub paths: Vec<String>,
    /// What makes it anew.
    pub command: String,
    line: usize,
}

/// What is wrong with the index.
pub struct Fault {
    /// Counted from one; zero: the whole index.
    pub line: usize,
    /// What, and what to do.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{INDEX}: {}", self.what),
            line => write!(f, "{INDEX}:{line}: {}", self.what),
        }
    }
}

/// Everything that is wrong with the index of the tree at `root`.
pub fn check(root: &Path) -> Vec<Fault> {
    let (index, mut faults) = Index::read(root);
    for entry in &index.entries {
        let mut complain = |what: String| faults.push(Fault { line: entry.line, what });
        if !root.join(&entry.place).exists() {
            complain(format!("{} is not there: publish it, or take the row away", entry.place));
        }
        for path in entry.paths.iter().filter(|path| !root.join(path).exists()) {
            complain(format!("{path} is not there: name what the result measures now"));
        }
        if index.entries.iter().any(|other| other.line < entry.line && other.name == entry.name) {
            complain(format!("there are two results {}", entry.name));
        }
    }
    let missing = |what| Fault { line: 0, what: format!("no row for {what}: add one") };
    faults.extend(index.without_entry(root).into_iter().map(missing));
    faults
}

/// All results that are published.
#[derive(Default)]
pub struct Index {
    /// In the order of the table.
    pub entries: Vec<Entry>,
}

impl Index {
    /// Reads the index of the tree at `root`, and says which rows it does not understand.
    pub fn read(root: &Path) -> (Self, Vec<Fault>) {
        match fs::read_to_string(root.join(INDEX)) {
            Ok(text) => Self::parse(&text),
            Err(error) => (Self::default(), vec![Fault { line: 0, what: format!("reading it: {error}") }]),
        }
    }

    fn parse(text: &str) -> (Self, Vec<Fault>) {
        let mut sets = BTreeMap::new();
        let mut index = Self::default();
        let mut faults = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let Some(row) = line.strip_prefix('|') else { continue };
            let cells: Vec<&str> = row.trim_end().trim_end_matches('|').split('|').map(str::trim).collect();
            let read = match cells[..] {
                ["set" | "result" | "---", ..] => Ok(()),
                [name, paths] => set(name, paths).map(|(name, paths)| drop(sets.insert(name, paths))),
                [link, commit, day, old, command] => {
                    entry([link, commit, day, old, command], &sets, at + 1).map(|entry| index.entries.push(entry))
                }
                _ => Err("a row has two cells for a set, and five for a result".to_owned()),
            };
            faults.extend(read.err().map(|what| Fault { line: at + 1, what }));
        }
        (index, faults)
    }

    /// Files of results that no entry has: by their directory, if none has any of it.
    fn without_entry(&self, root: &Path) -> Vec<String> {
        let has = |path: &str| self.entries.iter().any(|entry| entry.place == path);
        let mut missing = Vec::new();
        for path in files(root) {
            let Some((directory, _)) = path.rsplit_once('/') else { continue };
            let inside = format!("{directory}/");
            let has_others = self.entries.iter().any(|entry| entry.place.starts_with(&inside));
            if !has(&path) && !has(directory) {
                missing.push(if has_others { path } else { directory.to_owned() });
            }
        }
        missing.dedup();
        missing
    }
}

/// Every file of a result, below the root and in order.
fn files(root: &Path) -> Vec<String> {
    fn walk(root: &Path, directory: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(root.join(directory)).into_iter().flatten().flatten() {
            let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                walk(root, &path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    RESULTS.iter().for_each(|directory| walk(root, directory, &mut found));
    // The documents lie beside the directories of results.
    found.retain(|path| !path.ends_with(".md") && !path.starts_with(PICTURES));
    found.sort();
    found
}

fn set(name: &str, paths: &str) -> Result<(String, Vec<String>), String> {
    let paths = quoted(paths)?;
    match quoted(name)?[..] {
        [name] if paths.iter().all(|path| path.contains('/')) => {
            Ok((name.to_owned(), paths.into_iter().map(str::to_owned).collect()))
        }
        _ => Err("a set has one name, and paths below the root".to_owned()),
    }
}

fn entry(cells: [&str; 5], sets: &BTreeMap<String, Vec<String>>, line: usize) -> Result<Entry, String> {
    let [link, commit, day, old, command] = cells;
    let linked = link.strip_prefix('[').and_then(|link| link.strip_suffix(')')).and_then(|link| link.split_once("]("));
    let (name, target) = linked.ok_or("a result begins with [name](place)")?;
    if !(7..=40).contains(&commit.len()) || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("'{commit}' is no commit"));
    }
    let is_day = |(at, byte): (usize, u8)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    if day.len() != 10 || !day.bytes().enumerate().all(is_day) {
        return Err(format!("'{day}' is no day: write it as 2026-11-25"));
    }
    let [command] = quoted(command)?[..] else { return Err("a result has one command".to_owned()) };
    let mut paths = Vec::new();
    for word in quoted(old)? {
        match sets.get(word) {
            Some(set) => paths.extend_from_slice(set),
            None if word.contains('/') => paths.push(word.to_owned()),
            None => return Err(format!("there is no set '{word}' above")),
        }
    }
    let [name, commit, day, command] = [name, commit, day, command].map(str::to_owned);
    Ok(Entry { name, place: below_root(target), commit, day, paths, command, line })
}

/// The words of a cell that consists of words in backticks. There is at least one.
fn quoted(cell: &str) -> Result<Vec<&str>, String> {
    let parts: Vec<&str> = cell.split('`').collect();
    let words: Vec<&str> = parts.iter().copied().skip(1).step_by(2).collect();
    let is_quoted = parts.len() % 2 == 1 && parts.iter().step_by(2).all(|between| between.trim().is_empty());
    if is_quoted && !words.is_empty() { Ok(words) } else { Err(format!("'{cell}': write each word in backticks")) }
}

/// The target of a link in the index, as a path below the root.
fn below_root(target: &str) -> String {
    let file = target.split('#').next().unwrap_or(target).trim_end_matches('/');
    file.strip_prefix("../").map_or_else(|| format!("{}/{file}", RESULTS[0]), |file| format!("docs/{file}"))
}
