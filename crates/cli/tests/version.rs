//! `headpond --version` names the commit of the program, or says that it knows none.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

#[path = "../build.rs"]
#[expect(dead_code, reason = "cargo alone runs it as a program")]
mod build;

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A tree with a source and a document, in a repository of one commit.
fn repository() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "crates/a.rs", "a");
    write(root.path(), "docs/a.md", "a");
    git(root.path(), &["init", "-q", "-b", "main"]);
    commit_all(root.path());
    root
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn commit_all(root: &Path) {
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "--allow-empty", "-m", "one more"]);
}

fn git(root: &Path, arguments: &[&str]) -> String {
    let person = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    let output = Command::new("git").arg("-C").arg(root).args(person).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The names and contents of the files that are watched: what cargo sees a change of.
fn seen(root: &Path) -> Vec<(String, Vec<u8>)> {
    fn add(path: &Path, files: &mut Vec<(String, Vec<u8>)>) {
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| add(&entry.unwrap().path(), files));
        } else {
            files.push((path.display().to_string(), fs::read(path).unwrap()));
        }
    }
    let mut files = Vec::new();
    build::watched(root).iter().for_each(|path| add(path, &mut files));
    files.sort();
    files
}

#[test]
fn a_release_build_names_its_commit_and_whether_its_sources_changed_since() {
    let root = repository();
    let commit = git(root.path(), &["rev-parse", "HEAD"]);
    assert_eq!(build::commit(root.path()).as_deref(), Some(&commit[..8]));

    write(root.path(), "docs/a.md", "b");
    assert_eq!(build::commit(root.path()).as_deref(), Some(&commit[..8]), "a document is no part of the program");

    write(root.path(), "crates/a.rs", "b");
    assert_eq!(build::commit(root.path()), Some(format!("{}, changed", &commit[..8])));
    write(root.path(), "crates/a.rs", "a");
    write(root.path(), "crates/new.rs", "a");
    assert_eq!(build::commit(root.path()), Some(format!("{}, changed", &commit[..8])));

    commit_all(root.path());
    let next = git(root.path(), &["rev-parse", "HEAD"]);
    assert_ne!(next, commit);
    assert_eq!(build::commit(root.path()).as_deref(), Some(&next[..8]));
}

#[test]
fn a_source_archive_names_no_commit_also_within_the_repository_of_another_project() {
    let archive = tempfile::tempdir().unwrap();
    write(archive.path(), "crates/a.rs", "a");
    assert_eq!(build::commit(archive.path()), None);

    let other = repository();
    write(other.path(), "vendor/headpond/crates/a.rs", "a");
    assert_eq!(build::commit(&other.path().join("vendor/headpond")), None);
}

#[test]
fn each_commit_changes_something_that_cargo_watches() {
    let main = repository();
    let worktree = main.path().join("worktrees/other");
    git(main.path(), &["worktree", "add", "-q", "-b", "a/branch", worktree.to_str().unwrap()]);
    for root in [main.path(), &worktree] {
        for before in [&["status"][..], &["pack-refs", "--all"], &["checkout", "-q", "--detach"]] {
            git(root, before);
            let watched = build::watched(root);
            assert!(watched.iter().all(|path| path.exists()), "{watched:?}");
            let seen_before = seen(root);
            git(root, &["commit", "-q", "--allow-empty", "-m", "no file changes"]);
            assert_ne!(seen(root), seen_before, "{before:?} in {}", root.display());
        }
    }
}

#[test]
fn a_debug_build_says_that_it_is_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_headpond")).arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let version = concat!("headpond ", env!("CARGO_PKG_VERSION"));
    if cfg!(debug_assertions) {
        assert_eq!(said, format!("{version} (debug build)\n"));
    } else {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let commit = build::commit(&root).map(|commit| format!(" ({commit})")).unwrap_or_default();
        assert_eq!(said, format!("{version}{commit}\n"));
    }
}
