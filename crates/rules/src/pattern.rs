//! Patterns of names, paths and command lines.
//!
//! `*` stands for any letters, `?` for one. In paths neither stands for `/`, but `**` does.
//!
//! A match costs at most the pattern's letters times the text's, without recursion. So no pattern takes for ever.

use std::fmt;

/// A pattern, as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(String);

/// One piece of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    Letter(u8),
    One,
    /// Any letters except `/`.
    Some,
    /// Any letters.
    Any,
}

/// Bytes of the longest pattern.
const LEN_MAX: usize = 256;

impl Pattern {
    /// Makes a pattern. `None` if it is empty, too long, or has control characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= LEN_MAX && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches a whole text. No letter of the text is special.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.run(text, false)
    }

    /// Like [`Pattern::matches`], for a path: `*` and `?` do not match `/`.
    #[must_use]
    pub fn matches_path(&self, path: &[u8]) -> bool {
        self.run(path, true)
    }

    fn pieces(&self) -> Vec<Piece> {
        let bytes = self.0.as_bytes();
        let mut pieces = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let stars = bytes[at..].iter().take_while(|byte| **byte == b'*').count();
            pieces.push(match (stars, bytes[at]) {
                (0, b'?') => Piece::One,
                (0, letter) => Piece::Letter(letter),
                (1, _) => Piece::Some,
                _ => Piece::Any,
            });
            at += stars.max(1);
        }
        pieces
    }

    /// Tracks which places in the pattern each letter of the text can reach.
    fn run(&self, text: &[u8], slash_is_special: bool) -> bool {
        let pieces = self.pieces();
        let wide = |piece: Piece, letter: u8| piece == Piece::Any || !slash_is_special || letter != b'/';
        let mut here = vec![false; pieces.len() + 1];
        here[0] = true;
        skip_stars(&pieces, &mut here);
        for &letter in text {
            let mut next = vec![false; pieces.len() + 1];
            for (at, piece) in pieces.iter().enumerate().filter(|(at, _)| here[*at]) {
                match piece {
                    Piece::Letter(wanted) => next[at + 1] |= *wanted == letter,
                    Piece::One => next[at + 1] |= wide(*piece, letter),
                    Piece::Some | Piece::Any => next[at] |= wide(*piece, letter),
                }
            }
            skip_stars(&pieces, &mut next);
            here = next;
        }
        here[pieces.len()]
    }
}

/// Adds the places behind stars: a star may stand for nothing.
fn skip_stars(pieces: &[Piece], places: &mut [bool]) {
    for (at, piece) in pieces.iter().enumerate() {
        if places[at] && matches!(piece, Piece::Some | Piece::Any) {
            places[at + 1] = true;
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    #[test]
    fn stars_stop_at_a_slash_in_paths_and_two_do_not() {
        for (text, path, matches) in [
            ("db/*.ibd", "db/t1.ibd", true),
            ("db/*.ibd", "db/sub/t1.ibd", false),
            ("db/**.ibd", "db/sub/t1.ibd", true),
            ("**/t1.ibd", "db/sub/t1.ibd", true),
            ("ibdata?", "ibdata1", true),
            ("ibdata?", "ibdata", false),
            ("a?b", "a/b", false),
            ("**", "", true),
            ("db", "db/t1", false),
        ] {
            assert_eq!(pattern(text).matches_path(path.as_bytes()), matches, "{text} {path}");
        }
        assert!(pattern("*backup*").matches(b"/usr/bin/xtrabackup --target-dir=/x"));
        assert!(pattern("mysql?ump").matches(b"mysqldump") && !pattern("mysql").matches(b"mysqld"));
    }

    #[test]
    fn a_pattern_of_many_stars_is_no_trap() {
        let evil = pattern(&"*a".repeat(120));
        assert!(!evil.matches(&[b'a'; 100]));
        assert!(evil.matches(&[b'a'; 120]));
    }

    #[test]
    fn senseless_patterns_are_none() {
        assert!(Pattern::new("").is_none() && Pattern::new("a\nb").is_none());
        assert!(Pattern::new(&"x".repeat(LEN_MAX + 1)).is_none());
    }
}
