//! The crates that the program contains, and the texts of their licences, which must go wherever the program goes.

use super::output;
use crate::tree::cargo;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A list of the crates, each with version and licence, and below it each text once, for all crates that have it.
///
/// # Errors
/// If cargo does not list them, or one has no text.
pub(super) fn licences() -> Result<String, String> {
    let listed = output(cargo().args([
        "tree",
        "--package",
        "headpond",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}\t{l}",
    ]))?;
    // cargo marks what it has listed before, and what runs in the compiler.
    let mut crates: Vec<String> = listed
        .lines()
        .filter(|line| !line.starts_with("headpond"))
        .map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", ""))
        .collect();
    crates.sort_unstable();
    crates.dedup();
    let sources = sources(&output(cargo().args(["metadata", "--format-version", "1"]))?);
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in &crates {
        let name = line.split('\t').next().unwrap_or(line);
        let directory = sources.get(&name.replacen(" v", "-", 1)).ok_or_else(|| format!("{name}: no source"))?;
        let mut found = Vec::new();
        collect(directory, DEPTH, &mut found);
        if found.is_empty() {
            found.push("Its source has no text of its licence.\n".to_owned());
        }
        found.into_iter().for_each(|text| texts.entry(text).or_default().push(name));
    }
    let mut page = format!("headpond contains these crates:\n\n{}\n", crates.join("\n"));
    for (text, names) in texts {
        page.push_str(&format!("\n==== {}\n\n{text}", names.join(", ")));
    }
    Ok(page)
}

/// Where the source of each crate lies, by the name of its directory, which has the version.
fn sources(metadata: &str) -> BTreeMap<String, PathBuf> {
    let manifests = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let directories = manifests.filter_map(|manifest| Path::new(manifest).parent());
    directories.filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path.to_owned()))).collect()
}

/// How deep the source of a library in C lies in the crate that brings it (`liblz4/lib`).
const DEPTH: usize = 2;

/// Directories of such a library that a crate does not build, some under other licences.
const NOT_BUILT: [&str; 5] = ["contrib", "examples", "ossfuzz", "programs", "tests"];

/// How the names of such texts begin.
const TEXTS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The texts in a directory, and in those below it.
fn collect(directory: &Path, below: usize, found: &mut Vec<String>) {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if below > 0 && !NOT_BUILT.contains(&name.as_str()) {
                collect(&path, below - 1, found);
            }
        } else if TEXTS.iter().any(|text| name.to_uppercase().starts_with(text))
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_a_crate_and_of_the_library_in_it_are_there_once() {
        let page = licences().unwrap();
        for part in ["\nclap v", "\nlz4-sys v", "Yann Collet", "\tMIT"] {
            assert!(page.contains(part), "{part}");
        }
        let apache = page.matches("TERMS AND CONDITIONS FOR USE, REPRODUCTION").count();
        assert!((1..20).contains(&apache), "{apache} copies of one licence");
        assert!(!page.contains("headpond v"));
    }
}
