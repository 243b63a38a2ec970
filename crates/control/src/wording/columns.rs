//! Pages in columns, as the other documents are.

/// The longest line of a page. Rows of tables and commands stay as they are.
const COLUMNS: usize = 120;

/// The page with its longer lines broken between words. What belongs to a list stays behind its mark.
pub(crate) fn in_columns(page: &str) -> String {
    let mut broken = String::with_capacity(page.len() + page.len() / 64);
    for line in page.split_inclusive('\n') {
        if line.starts_with(['|', ' ']) {
            broken += line;
            continue;
        }
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut columns = 0;
        for word in line.trim_end().split(' ') {
            let len = word.chars().count();
            if columns > 0 && columns + 1 + len > COLUMNS {
                broken += "\n";
                broken += indent;
                columns = indent.len();
            } else if columns > 0 {
                broken += " ";
                columns += 1;
            }
            broken += word;
            columns += len;
        }
        if line.ends_with('\n') {
            broken += "\n";
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_and_nothing_else_changes() {
        let words = ["word"; 60].join(" ");
        let table = format!("| {words} |\n");
        let page = format!("# Head\n\n{words}\n\n- {words}\n\n    {words}\n\n{table}the end");
        let broken = in_columns(&page);
        assert_eq!(broken.split_whitespace().collect::<Vec<_>>(), page.split_whitespace().collect::<Vec<_>>());
        let text = broken.lines().filter(|line| !line.starts_with(['|']) && !line.starts_with("    "));
        assert!(text.clone().all(|line| line.chars().count() <= COLUMNS), "{broken}");
        assert_eq!(
            text.filter(|line| line.starts_with("  word")).count(),
            2,
            "the list goes on behind its mark: {broken}"
        );
        assert!(broken.contains(&table) && broken.ends_with("\nthe end"));
    }
}
