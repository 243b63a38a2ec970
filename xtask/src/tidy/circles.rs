//! Modules of a crate use each other in one direction only. So you can read each with those below it, and without
//! those above.
//!
//! The rule looks at each folder by itself. Its files and its folders are the parts, and everything within a part
//! counts for it. A module and its own children may use each other: they are one part of the folder above. Tests do
//! not count.
//!
//! The arguments of macros do not count, because they need not be Rust.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

use super::Complaint;
use crate::tree::SourceFile;

/// Circles that are still to be untied: the folder, and the most parts in one circle. These numbers only become
/// smaller.
const KNOWN: [(&str, usize); 1] = [("crates/names/src", 3)];

/// A path to a module, from the root of its crate.
type Path = Vec<String>;

/// One module: what it uses of its crate, and what it re-exports.
#[derive(Default)]
struct Module {
    /// The paths that it uses, as written.
    uses: Vec<Path>,
    /// Its re-exports: the name here, and where it comes from.
    passes_on: BTreeMap<String, Path>,
}

/// Complains about modules that use each other in a circle.
pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some((root, _)) = file.path.split_once("/src/") {
            crates.entry(root).or_default().push(file);
        }
    }
    crates.into_iter().flat_map(|(root, files)| of_crate(root, &files)).collect()
}

fn of_crate(root: &str, files: &[&SourceFile]) -> Vec<Complaint> {
    let mut modules: BTreeMap<Path, Module> = BTreeMap::new();
    let mut found = Vec::new();
    for file in files {
        let Some(place) = place(root, &file.path) else { continue };
        match syn::parse_file(&file.text) {
            // A library and a program of one package are one root.
            Ok(tree) => modules.entry(place).or_default().visit_file(&tree),
            Err(error) => found.push(Complaint::of_file(file, format!("not Rust: {error}"))),
        }
    }
    for (folder, parts) in folders(&modules) {
        let name = format!("{root}/src/{}", folder.join("/"));
        let known = KNOWN.iter().find(|(known, _)| *known == name.trim_end_matches('/')).map_or(0, |(_, most)| *most);
        for circle in circles(&parts).into_iter().filter(|circle| circle.len() > known) {
            let what = format!("these modules use each other in a circle: {}", circle.join(", "));
            found.push(Complaint { path: name.clone(), line: 0, what });
        }
    }
    found
}

/// The module of a file. `None` for tests.
fn place(root: &str, path: &str) -> Option<Path> {
    let path = path.strip_prefix(root)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
    let mut place: Path = path.split('/').map(str::to_owned).collect();
    if place.iter().any(|part| part == "tests") {
        return None;
    }
    if place.last().is_some_and(|last| last == "mod") || ["lib", "main"].contains(&path) {
        place.pop();
    }
    Some(place)
}

/// By folder and part: the other parts that the part uses.
fn folders(modules: &BTreeMap<Path, Module>) -> BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> {
    let mut folders: BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (user, module) in modules {
        for path in &module.uses {
            let Some(used) = resolve(modules, user, path, 0) else { continue };
            let common = user.iter().zip(&used).take_while(|(one, other)| one == other).count();
            // A module within the other does not count.
            if let (Some(from), Some(to)) = (user.get(common), used.get(common)) {
                let parts = folders.entry(user[..common].to_vec()).or_default();
                parts.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    folders
}

/// More steps from one module to the next are a mistake of this rule.
const STEPS_MAX: usize = 8;

/// The module that a path leads to, from the module with the path. `None`: out of the crate.
fn resolve(modules: &BTreeMap<Path, Module>, from: &Path, path: &[String], steps: usize) -> Option<Path> {
    let mut rest = path;
    let mut at = match rest.first()?.as_str() {
        "crate" => {
            rest = &rest[1..];
            Path::new()
        }
        "self" | "super" => {
            let mut at = from.clone();
            while let Some(first) = rest.first().filter(|first| ["self", "super"].contains(&first.as_str())) {
                if first == "super" {
                    at.pop();
                }
                rest = &rest[1..];
            }
            at
        }
        first => {
            let child: Path = from.iter().cloned().chain([first.to_owned()]).collect();
            modules.contains_key(&child).then(|| from.clone())?
        }
    };
    while let Some(next) = rest.first() {
        at.push(next.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
        rest = &rest[1..];
    }
    let passed_on = rest.first().and_then(|name| modules.get(&at)?.passes_on.get(name));
    match passed_on.filter(|_| steps < STEPS_MAX) {
        Some(path) => resolve(modules, &at, path, steps + 1).or(Some(at)),
        None => Some(at),
    }
}

/// The parts that reach each other, by a walk from each: there are few.
fn circles(parts: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(part) = next.pop() {
            next.extend(parts.get(part).into_iter().flatten().filter(|used| reached.insert((*used).clone())));
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = parts.keys().map(|part| (part, reach(part))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (part, from_here) in &reached {
        let circle: Vec<String> = from_here
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*part)))
            .cloned()
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// Whether an item is for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(ItemMod { attrs, .. }) | Item::Use(ItemUse { attrs, .. }) => attrs.as_slice(),
            Item::Fn(function) => &function.attrs,
            Item::Impl(block) => &block.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let passes_on = !matches!(item.vis, Visibility::Inherited);
        self.take(&item.tree, &mut Path::new(), passes_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.uses.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

impl Module {
    fn take(&mut self, tree: &UseTree, before: &mut Path, passes_on: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take(&path.tree, before, passes_on);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|item| self.take(item, before, passes_on)),
            UseTree::Name(name) => self.found(before, &name.ident.to_string(), &name.ident.to_string(), passes_on),
            UseTree::Rename(renamed) => {
                self.found(before, &renamed.ident.to_string(), &renamed.rename.to_string(), passes_on);
            }
            UseTree::Glob(_) => self.uses.push(before.clone()),
        }
    }

    fn found(&mut self, before: &Path, name: &str, here: &str, passes_on: bool) {
        let mut path = before.clone();
        if name != "self" {
            path.push(name.to_owned());
        }
        if passes_on {
            self.passes_on.insert(here.to_owned(), path.clone());
        }
        self.uses.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let file =
            |(path, text): &(&str, &str)| SourceFile { path: format!("crates/a/src/{path}"), text: (*text).to_owned() };
        let files: Vec<SourceFile> = files.iter().map(file).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_circle_is_found_over_any_number_of_modules_and_through_what_is_passed_on() {
        let lib = ("lib.rs", "mod b; mod c; mod d; pub use b::B;");
        let ring = [lib, ("b.rs", "use crate::c::C;"), ("c.rs", "fn c() -> crate::d::D {}"), ("d.rs", "use crate::B;")];
        let found = complaints(&ring);
        assert_eq!(found, ["crates/a/src/: these modules use each other in a circle: b, c, d"]);
        assert!(complaints(&ring[..3]).is_empty(), "without d there is none");
    }

    #[test]
    fn a_module_and_its_children_may_use_each_other_and_siblings_may_not() {
        let up_and_down = [("b/mod.rs", "mod c; use c::C;"), ("b/c.rs", "use super::B;"), ("lib.rs", "mod b;")];
        assert!(complaints(&up_and_down).is_empty());
        let across = [("b/mod.rs", "mod c; mod d;"), ("b/c.rs", "use super::d::D;"), ("b/d.rs", "use super::c::C;")];
        assert_eq!(complaints(&across), ["crates/a/src/b: these modules use each other in a circle: c, d"]);
        let folder = [("b/mod.rs", "mod c;"), ("b/c.rs", "use crate::d::D;"), ("d.rs", "use crate::b::B;")];
        assert_eq!(complaints(&folder).len(), 1, "what a child uses its folder uses");
    }

    #[test]
    fn tests_and_other_crates_do_not_count() {
        let tests = "#[cfg(test)]\nmod tests { use crate::b::B; }";
        assert!(
            complaints(&[("b.rs", "use crate::c::C;"), ("c.rs", tests), ("c/tests.rs", "use crate::b::B;")]).is_empty()
        );
        assert!(complaints(&[("b.rs", "use crate::c::C;"), ("c.rs", "use std::b::B; use other::b::B;")]).is_empty());
    }
}
