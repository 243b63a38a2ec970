//! One name for one type: no two public types of the workspace share a name.
//!
//! The crates that others build on are one space of names, and what runs them (the lab, the simulator, the programs)
//! takes none of theirs. Within one of those a type may be named with its module, as in `soak::Options`: no other crate
//! sees it. Tests are left out.

use std::collections::BTreeMap;

use syn::{Item, Visibility};

use super::Complaint;
use crate::tree::SourceFile;

/// Crates of which no part is built into another's interface.
const PROGRAMS: [&str; 4] = ["cli", "fuzz", "lab", "sim"];

/// Names that may be there twice, each with the reason.
const ALLOWED: [(&str, &str); 1] = [("Result", "the language's own word for an alias with a crate's error")];

/// Complains about each public type whose name another has already.
pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut owners: BTreeMap<String, Vec<(&SourceFile, &str)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(name) = crate_of(&file.path) else { continue };
        // The rule of circles reports files that do not parse.
        let Ok(tree) = syn::parse_file(&file.text) else { continue };
        for name_of_type in tree.items.iter().filter_map(public_type) {
            owners.entry(name_of_type).or_default().push((file, name));
        }
    }
    owners.retain(|name, _| ALLOWED.iter().all(|(allowed, _)| allowed != name));
    owners.iter().flat_map(|(name, owners)| of_name(name, owners)).collect()
}

/// The crate of a file that is no test.
fn crate_of(path: &str) -> Option<&str> {
    let (name, within) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = within.split('/').any(|part| part.trim_end_matches(".rs") == "tests");
    (!is_test).then_some(name)
}

fn public_type(item: &Item) -> Option<String> {
    let (visibility, attributes, name) = match item {
        Item::Struct(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Enum(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Union(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Trait(item) => (&item.vis, &item.attrs, &item.ident),
        Item::Type(item) => (&item.vis, &item.attrs, &item.ident),
        _ => return None,
    };
    // What is compiled for some builds only has its like for the others.
    let is_public =
        matches!(visibility, Visibility::Public(_)) && !attributes.iter().any(|one| one.path().is_ident("cfg"));
    is_public.then(|| name.to_string())
}

fn of_name(name: &str, owners: &[(&SourceFile, &str)]) -> Vec<Complaint> {
    let is_program = |owner: &&(&SourceFile, &str)| PROGRAMS.contains(&owner.1);
    let Some((first, _)) = owners.iter().find(|owner| !is_program(owner)) else { return Vec::new() };
    let others = owners.iter().filter(|(file, _)| file.path != first.path);
    let complain = |(file, _): &(&SourceFile, &str)| {
        Complaint::of_file(file, format!("the type '{name}' has the name of one in {}: say which it is", first.path))
    };
    others.map(complain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| SourceFile { path: (*path).to_owned(), text: (*text).to_owned() };
        let files: Vec<SourceFile> = files.iter().map(file).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_public_types_of_one_name_are_found_in_any_two_files_of_the_libraries() {
        let found = complaints(&[
            ("crates/a/src/x.rs", "pub struct Place;\npub enum Other {}"),
            ("crates/a/src/y.rs", "pub trait Place {}"),
            ("crates/b/src/z.rs", "pub type Place = u8;\nstruct Other;"),
        ]);
        let expected =
            |path: &str| format!("{path}: the type 'Place' has the name of one in crates/a/src/x.rs: say which it is");
        assert_eq!(found, [expected("crates/a/src/y.rs"), expected("crates/b/src/z.rs")]);
    }

    #[test]
    fn a_program_has_names_of_its_own_for_each_module_and_takes_none_of_a_library() {
        let own = [("crates/lab/src/x.rs", "pub struct Options;"), ("crates/lab/src/y.rs", "pub struct Options;")];
        assert!(complaints(&own).is_empty());
        let taken = [("crates/lab/src/x.rs", "pub struct Place;"), ("crates/log/src/y.rs", "pub struct Place;")];
        assert!(complaints(&taken)[0].starts_with("crates/lab/src/x.rs: "));
    }

    #[test]
    fn what_is_not_public_and_what_tests_have_is_not_looked_at() {
        let found = complaints(&[
            ("crates/a/src/x.rs", "pub struct Place;\npub type Result = u8;"),
            ("crates/a/src/y.rs", "pub(crate) struct Place;\nmod tests { pub struct Place; }"),
            ("crates/b/src/tests/z.rs", "pub struct Place;"),
            ("crates/b/tests/z.rs", "pub struct Place;"),
            ("crates/b/src/lib.rs", "pub type Result = u16;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
