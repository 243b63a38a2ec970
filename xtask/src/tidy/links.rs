//! Every relative link in a document leads somewhere, and so does its heading.

use super::Complaint;
use crate::tree::SourceFile;
use std::path::Path;

/// Complains about links that lead nowhere.
pub fn check(root: &Path, file: &SourceFile) -> Vec<Complaint> {
    if !file.is_markdown() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            if let Some(what) = broken(root, file, target) {
                found.push(Complaint::of_line(file, index, what));
            }
        }
    }
    found
}

/// The targets of `[text](target)` and `<img src="target">` on this line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let images = line.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    inline.chain(images)
}

fn broken(root: &Path, file: &SourceFile, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let directory = root.join(&file.path).parent()?.to_path_buf();
    let full = if path.is_empty() { root.join(&file.path) } else { directory.join(path) };
    if !full.exists() {
        return Some(format!("link to {target}: there is no such file"));
    }
    if heading.is_empty() || full.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let text = std::fs::read_to_string(&full).ok()?;
    let there = text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
    (!there).then(|| format!("link to {target}: there is no such heading"))
}

/// The anchor of a heading: lower case, dashes for spaces, other marks left out.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_linked_to_by_its_words() {
        assert_eq!(anchor("## 4. Architecture: a pure core"), "4-architecture-a-pure-core");
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_is_found() {
        let text = "[a](nowhere.md) [b](https://example.org/) [c](#here)\n\n# Here\n```\n[d](nowhere.md)\n```\n";
        let root = crate::tree::root();
        let file = SourceFile { path: "xtask/nothing.md".to_owned(), text: text.to_owned() };
        let found: Vec<String> = check(&root, &file).iter().map(ToString::to_string).collect();
        assert_eq!(found[0], "xtask/nothing.md:1: link to nowhere.md: there is no such file");
    }
}
