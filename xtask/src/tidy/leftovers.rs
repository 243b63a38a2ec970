//! The tree keeps nothing half-done and nothing of one machine.

use super::Complaint;
use crate::tree::SourceFile;

/// Marks that no source file may have. They are written in halves, so that this file does not find itself.
const MARKS: [&str; 7] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// Directories that exist on one machine only.
const PLACES: [&str; 4] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Complains about leftover marks, and about paths of one machine.
pub fn check(file: &SourceFile) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if file.is_rust() || file.is_script() {
            let mark = MARKS.iter().find(|mark| is_word(line, mark));
            found.extend(mark.map(|mark| Complaint::of_line(file, index, format!("leftover {mark}"))));
        }
        let place = PLACES.iter().find(|place| starts_path(line, place));
        found.extend(place.map(|place| Complaint::of_line(file, index, format!("{place} is a path of one machine"))));
    }
    found
}

/// Whether `mark` stands in `line` and not inside a longer word.
fn is_word(line: &str, mark: &str) -> bool {
    let inside = |text: Option<char>| text.is_some_and(char::is_alphanumeric);
    line.match_indices(mark).any(|(at, _)| {
        let open_ended = mark.ends_with('(');
        !inside(line[..at].chars().next_back()) && (open_ended || !inside(line[at + mark.len()..].chars().next()))
    })
}

/// Whether an absolute path in `line` begins with `place`.
fn starts_path(line: &str, place: &str) -> bool {
    line.match_indices(place)
        .any(|(at, _)| !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "._-/~>}".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: String) -> usize {
        check(&SourceFile { path: path.to_owned(), text }).len()
    }

    #[test]
    fn a_leftover_mark_is_found_and_a_longer_word_is_not() {
        assert_eq!(complaints("a.rs", format!("    {}\"later\");", MARKS[0])), 1);
        assert_eq!(complaints("a.rs", format!("// {}: later", MARKS[3])), 1);
        assert_eq!(complaints("a.rs", format!("let a = {}ED;", MARKS[6])), 0);
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_relative_one_is_not() {
        assert_eq!(complaints("a.md", format!("see {}notes", PLACES[0])), 1);
        assert_eq!(complaints("a.md", format!("see docs{}notes", PLACES[0])), 0);
    }
}
