//! A made-up repository with results, of which each test makes some old.

use super::*;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

const SETS: &str = "| set | paths |\n| --- | --- |\n| `engine` | `crates/engine/src` `crates/log/src` |\n\n";

/// A repository with an engine, a log, a disk, and results in `docs/results/warm` and `docs/results/cards/fill.json`.
struct Repository {
    root: TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self { root: tempfile::tempdir().unwrap() };
        for source in ["crates/engine/src/lib.rs", "crates/log/src/lib.rs", "crates/models/src/disk.rs"] {
            repository.write(source, "first");
        }
        for figures in ["warm/figures.json", "warm/figures.csv", "cards/fill.json", "pictures/warm.svg"] {
            repository.write(&format!("docs/results/{figures}"), "{}");
        }
        repository.git(&["init", "-q", "-b", "main"]);
        repository.commit();
        repository
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits everything, and names the commit.
    fn commit(&self) -> String {
        self.git(&["add", "-A"]);
        self.git(&["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "one more"]);
        self.git(&["rev-parse", "--short=8", "HEAD"])
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(self.root.path(), arguments)
    }

    fn index(&self, rows: &[String]) {
        self.write(INDEX, &(SETS.to_owned() + &rows.join("\n") + "\n"));
    }

    /// An index of both results, of one commit.
    fn index_of(&self, commit: &str) {
        self.index(&[warm(commit), fill(commit)]);
    }

    fn list(&self, flags: &[&str]) -> Result<String, String> {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        list(self.root.path(), Wanted::from_arguments(&flags).unwrap())
    }
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn warm(commit: &str) -> String {
    format!("| [warm](warm/) | {commit} | 2026-11-25 | `engine` `crates/models/src/disk.rs` | `lab run \"warm\"` |")
}

fn fill(commit: &str) -> String {
    format!("| [cards/fill](cards/fill.json) | {commit} | 2026-11-26 | `engine` | `lab cards fill` |")
}

#[test]
fn a_result_is_fresh_until_a_commit_changes_what_it_measures() {
    let repository = Repository::new();
    let commit = repository.git(&["rev-parse", "--short=8", "HEAD"]);
    repository.index_of(&commit);
    for other in ["crates/cli/src/main.rs", "crates/engine/src/tests/a.rs", "crates/log/src/deep/tests.rs", "docs/a.md"]
    {
        repository.write(other, "no part of what is measured");
    }
    repository.commit();
    let all = repository.list(&[]).unwrap();
    assert!(all.contains(&format!("warm        2026-11-25  {commit}  fresh\n")), "{all}");
    assert!(all.ends_with("2 results: 0 stale, 2 fresh\n"), "{all}");

    repository.write("crates/models/src/disk.rs", "second");
    repository.commit();
    repository.write("crates/log/src/lib.rs", "second");
    repository.commit();
    let all = repository.list(&[]).unwrap();
    assert!(all.contains(&format!("warm        2026-11-25  {commit}  2\n")), "{all}");
    assert!(all.contains(&format!("cards/fill  2026-11-26  {commit}  1\n")), "{all}");
    assert!(all.ends_with("2 results: 2 stale, 0 fresh\n"), "{all}");
}

#[test]
fn only_stale_results_are_shown_when_these_are_asked_for() {
    let repository = Repository::new();
    let old = repository.git(&["rev-parse", "--short=8", "HEAD"]);
    repository.write("crates/engine/src/lib.rs", "second");
    let new = repository.commit();
    repository.index(&[warm(&old), fill(&new)]);

    let stale = repository.list(&["--stale"]).unwrap();
    assert!(stale.contains("warm") && !stale.contains("cards/fill"), "{stale}");
    assert!(stale.ends_with("2 results: 1 stale, 1 fresh\n"), "{stale}");

    repository.index_of(&new);
    assert_eq!(repository.list(&["--stale"]).unwrap(), "2 results: 0 stale, 2 fresh\n");
}

#[test]
fn scripts_get_json_with_every_part_of_a_result() {
    let repository = Repository::new();
    let old = repository.git(&["rev-parse", "--short=8", "HEAD"]);
    repository.write("crates/engine/src/lib.rs", "second");
    let new = repository.commit();
    repository.index(&[warm(&old), fill(&new)]);
    let first = format!(
        "[\n  {{\"result\": \"warm\", \"place\": \"docs/results/warm\", \"day\": \"2026-11-25\", \"commit\": \"{old}\", \
         \"command\": \"lab run \\\"warm\\\"\", \"measures\": [\"crates/engine/src\", \"crates/log/src\", \
         \"crates/models/src/disk.rs\"], \"state\": \"stale\", \"commits_since\": 1}}"
    );
    assert_eq!(repository.list(&["--json", "--stale"]).unwrap(), format!("{first}\n]\n"));
    let all = repository.list(&["--json"]).unwrap();
    assert!(
        all.starts_with(&format!("{first},\n")) && all.contains("\"state\": \"fresh\", \"commits_since\": 0"),
        "{all}"
    );
}

#[test]
fn a_commit_that_a_shallow_clone_lacks_is_told_and_is_no_error() {
    let repository = Repository::new();
    let old = repository.git(&["rev-parse", "--short=8", "HEAD"]);
    repository.write("crates/engine/src/lib.rs", "second");
    let new = repository.commit();
    repository.index(&[warm(&old), fill(&new)]);
    repository.commit();
    repository.write("docs/a.md", "one more commit, so that both others are out of reach");
    repository.commit();

    let clones = tempfile::tempdir().unwrap();
    let source = format!("file://{}", repository.root.path().display());
    git(clones.path(), &["clone", "-q", "--depth", "1", &source, "shallow"]);
    let told = list(&clones.path().join("shallow"), Wanted::default()).unwrap();
    assert!(
        told.contains(&format!("warm        2026-11-25  {old}  unknown: git does not know the commit\n")),
        "{told}"
    );
    assert!(told.contains("2 results: 0 stale, 0 fresh, 2 of a commit that git does not know here"), "{told}");
    let json = list(&clones.path().join("shallow"), Wanted { json: true, stale_only: false }).unwrap();
    assert_eq!(json.matches("\"state\": \"unknown\", \"commits_since\": null").count(), 2, "{json}");
}

#[test]
fn what_has_no_row_and_a_row_that_has_nothing_are_errors() {
    let repository = Repository::new();
    let commit = repository.git(&["rev-parse", "--short=8", "HEAD"]);
    repository.index_of(&commit);
    assert!(repository.list(&[]).is_ok());

    repository.write("docs/results/cold/figures.json", "{}");
    repository.write("docs/results/cold/figures.csv", "");
    repository.write("docs/results/cards/steady.json", "{}");
    repository.write("docs/benchmarks/2026-11-25.json", "{}");
    fs::remove_dir_all(repository.root.path().join("docs/results/warm")).unwrap();
    fs::remove_dir_all(repository.root.path().join("crates/models")).unwrap();
    let wrong = repository.list(&["--stale"]).unwrap_err();
    let lines: Vec<&str> = wrong.lines().collect();
    assert_eq!(
        lines,
        [
            "docs/results/index.md:5: docs/results/warm is not there: publish it, or take the row away",
            "docs/results/index.md:5: crates/models/src/disk.rs is not there: name what the result measures now",
            "docs/results/index.md: no row for docs/benchmarks: add one",
            "docs/results/index.md: no row for docs/results/cards/steady.json: add one",
            "docs/results/index.md: no row for docs/results/cold: add one",
        ]
    );
}

#[test]
fn a_row_that_is_not_understood_is_an_error_and_never_left_out() {
    let repository = Repository::new();
    let commit = repository.git(&["rev-parse", "--short=8", "HEAD"]);
    let good = [warm(&commit), fill(&commit)];
    let wrong = [
        (warm("yesterday"), "'yesterday' is no commit"),
        (warm(&commit).replace("-11-", "/11/"), "'2026/11/25' is no day"),
        (warm(&commit).replace("`engine`", "`motor`"), "there is no set 'motor' above"),
        (warm(&commit).replace("`engine`", "engine"), "write each word in backticks"),
        (warm(&commit).replace("[warm](warm/)", "warm"), "a result begins with [name](place)"),
        (warm(&commit).replace(" | 2026-11-25", ""), "a row has two cells for a set, and five for a result"),
        (good[0].clone(), "there are two results warm"),
    ];
    for (row, why) in wrong {
        repository.index(&[good[0].clone(), good[1].clone(), row]);
        let told = repository.list(&[]).unwrap_err();
        assert!(told.starts_with("docs/results/index.md:7: ") && told.contains(why), "{told}, not {why}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn an_argument_that_is_unknown_is_refused() {
    assert!(Wanted::from_arguments(&["--stale".to_owned(), "--old".to_owned()]).is_none());
}
