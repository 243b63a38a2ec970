//! ARCHITECTURE.md gives the size of each crate, right to a tenth, and leaves no crate out.

use super::Complaint;
use crate::tree::SourceFile;

/// A size is for orientation: it may be off by one in this many lines.
const TOLERANCE: usize = 10;

/// Complains about a row whose size is wrong, and about a crate without a row.
pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let Some(page) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else { return Vec::new() };
    let mut found = Vec::new();
    let mut named = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let Some((name, said)) = row(line) else { continue };
        let is = lines(files, name);
        if is > 0 && said.abs_diff(is) > is / TOLERANCE {
            found.push(Complaint::of_line(page, index, format!("`{name}` has {is} lines, not {said}")));
        }
        named.push(name);
    }
    let crates = files.iter().filter_map(|file| file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
    for missing in crates.filter(|name| !named.contains(name)) {
        found.push(Complaint::of_file(page, format!("the crate `{missing}` has no row in the table of parts")));
    }
    found
}

/// The name and the lines in a row such as "| `base` | 833 | what it is |".
fn row(line: &str) -> Option<(&str, usize)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let name = cells.next()?.strip_suffix('`')?;
    let said = cells.next()?.replace(',', "").parse().ok()?;
    Some((name, said))
}

fn lines(files: &[SourceFile], name: &str) -> usize {
    let inside = format!("crates/{name}/src/");
    let sources = files.iter().filter(|file| file.path.starts_with(&inside) && file.path.ends_with(".rs"));
    sources.map(|file| file.text.lines().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_size_that_is_off_and_a_crate_without_a_row_are_told() {
        let page = "| crate | lines | what |\n| --- | ---: | --- |\n| `a` | 1,000 | x |\n| `b` | 90 | y |\n";
        let files = [
            file("ARCHITECTURE.md", page),
            file("crates/a/src/lib.rs", &"x\n".repeat(700)),
            file("crates/a/src/deep/b.rs", &"x\n".repeat(250)),
            file("crates/b/src/lib.rs", &"x\n".repeat(200)),
            file("crates/c/Cargo.toml", ""),
        ];
        let told: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "ARCHITECTURE.md:4: `b` has 200 lines, not 90",
                "ARCHITECTURE.md: the crate `c` has no row in the table of parts",
            ]
        );
    }
}
