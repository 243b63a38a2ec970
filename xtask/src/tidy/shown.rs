//! A document that names a test names one that is there.

use super::Complaint;
use crate::tree::SourceFile;

/// Complains about names of tests, in commands of documents, that no function has.
pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let rust = files.iter().filter(|file| file.is_rust());
    let functions: Vec<&str> = rust.flat_map(|file| functions(&file.text)).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (index, line) in file.text.lines().enumerate() {
            // As cargo does: a part of a name will do.
            let missing = named(line).filter(|name| !functions.iter().any(|function| function.contains(name)));
            found.extend(missing.map(|name| Complaint::of_line(file, index, format!("there is no test {name}"))));
        }
    }
    found
}

/// The names of functions in a text.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).map(|rest| rest.split(|c: char| !is_of_name(c)).next().unwrap_or_default())
}

/// The names of tests in the commands of a line. Shorter words are names of crates, files and modules.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let commands = line.split('`').skip(1).step_by(2).filter(|code| code.starts_with("cargo test"));
    let words = commands.flat_map(|code| code.split([' ', ':']));
    words.filter(|word| word.matches('_').count() >= 3 && word.chars().all(is_of_name))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_test_has_is_found() {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let rust = file("a.rs", "#[test]\nfn the_pool_is_there_after_all() {}\n");
        let document =
            "See `the_pool_is_here`, `cargo test -p x module::the_pool_is_there` and\n`cargo test the_pool_is_here`";
        let complaints = check(&[rust, file("a.md", document)]);
        assert_eq!(complaints.len(), 1);
        assert_eq!(complaints[0].to_string(), "a.md:2: there is no test the_pool_is_here");
    }
}
