//! Examples in documentation comments, which only `cargo test --doc` compiles and runs.

use crate::tree;
use std::path::Path;

/// Whether a crate's documentation has an example that would be run.
pub fn are_there(root: &Path) -> bool {
    tree::files(root).iter().any(|file| file.is_rust() && has_example(&file.text))
}

/// A block of code without a word behind its fence, or with `rust` or another of rustdoc's, is one.
fn has_example(text: &str) -> bool {
    let mut is_open = false;
    text.lines().any(|line| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(word) = comment.and_then(|comment| comment.trim().strip_prefix("```")) else { return false };
        is_open = !is_open;
        is_open && word != "text"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_code_is_an_example_and_one_of_text_is_not() {
        let block = |fence: &str| {
            format!("    /// Before.\n    ///\n    /// {fence}\n    /// a -> b\n    /// ```\n    fn f() {{}}\n")
        };
        assert!(has_example(&block("```")) && has_example(&block("```no_run")));
        assert!(!has_example(&block("```text")));
        assert!(has_example(&(block("```text") + &block("```"))), "the end of one is not the beginning of another");
        assert!(!has_example("// ```\nlet a = \"```\";\n"), "no documentation");
    }
}
