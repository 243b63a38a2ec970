//! `cargo xtask results`: which published results are older than the last change of what they measure.
//!
//! Invariant: `docs/results/index.md` alone says which results there are, and git alone how old they are. A result that is
//! old is no error; an index that does not fit the tree is one.

mod age;
mod index;

use age::Age;
use index::{Entry, Index};
use std::fmt::Write;
use std::path::Path;

pub use index::{INDEX, check};

/// A result, and how old it is.
struct Aged {
    entry: Entry,
    age: Age,
}

/// What is printed, and how.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    /// Only results that are old.
    pub stale_only: bool,
    /// For scripts.
    pub json: bool,
}

impl Wanted {
    /// The arguments of the command, or nothing if there is one that it has not.
    pub fn from_arguments(arguments: &[String]) -> Option<Self> {
        arguments.iter().try_fold(Self::default(), |wanted, argument| match argument.as_str() {
            "--stale" => Some(Self { stale_only: true, ..wanted }),
            "--json" => Some(Self { json: true, ..wanted }),
            _ => None,
        })
    }
}

/// The list of results.
///
/// # Errors
/// What is wrong with the index, a line for each fault.
pub fn list(root: &Path, wanted: Wanted) -> Result<String, String> {
    let faults = check(root);
    if !faults.is_empty() {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        return Err(lines.join("\n"));
    }
    let (index, _) = Index::read(root);
    let aged: Vec<Aged> = index.entries.into_iter().map(|entry| Aged { age: Age::of(root, &entry), entry }).collect();
    let shown = aged.iter().filter(|result| !wanted.stale_only || matches!(result.age, Age::Stale(_)));
    Ok(if wanted.json { json(shown) } else { table(shown) + &sum(&aged) })
}

fn table<'a>(shown: impl Iterator<Item = &'a Aged>) -> String {
    let rows: Vec<[String; 4]> = shown
        .map(|Aged { entry, age }| [entry.name.clone(), entry.day.clone(), entry.commit.clone(), age.to_string()])
        .collect();
    let head = ["result", "day", "program", "commits since then that changed what it measures"].map(str::to_owned);
    let lines: Vec<&[String; 4]> =
        if rows.is_empty() { Vec::new() } else { std::iter::once(&head).chain(&rows).collect() };
    let width = |column: usize| lines.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [name_width, day_width, commit_width] = [0, 1, 2].map(width);
    lines.iter().fold(String::new(), |mut text, [name, day, commit, age]| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:name_width$}  {day:day_width$}  {commit:commit_width$}  {age}");
        text
    })
}

/// The last line of the table: how many are what.
fn sum(aged: &[Aged]) -> String {
    let count = |is: fn(&Age) -> bool| aged.iter().filter(|result| is(&result.age)).count();
    let unknown = count(|age| matches!(age, Age::Unknown));
    let (stale, fresh) = (count(|age| matches!(age, Age::Stale(_))), count(|age| matches!(age, Age::Fresh)));
    let mut text = format!("{} results: {stale} stale, {fresh} fresh", aged.len());
    if unknown > 0 {
        let _ = write!(text, ", {unknown} of a commit that git does not know here: `git fetch --unshallow` gets all");
    }
    text + "\n"
}

fn json<'a>(shown: impl Iterator<Item = &'a Aged>) -> String {
    let objects: Vec<String> = shown
        .map(|Aged { entry, age }| {
            let (state, commits) = match age {
                Age::Fresh => ("fresh", "0".to_owned()),
                Age::Stale(commits) => ("stale", commits.to_string()),
                Age::Unknown => ("unknown", "null".to_owned()),
            };
            let paths: Vec<String> = entry.paths.iter().map(|path| quoted(path)).collect();
            format!(
                "  {{\"result\": {}, \"place\": {}, \"day\": {}, \"commit\": {}, \"command\": {}, \"measures\": [{}], \
                 \"state\": \"{state}\", \"commits_since\": {commits}}}",
                quoted(&entry.name),
                quoted(&entry.place),
                quoted(&entry.day),
                quoted(&entry.commit),
                quoted(&entry.command),
                paths.join(", ")
            )
        })
        .collect();
    format!("[\n{}\n]\n", objects.join(",\n"))
}

/// A text as JSON has it. A line of the index has no control characters but tabs.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\t', "\\t"))
}

#[cfg(test)]
mod tests;
