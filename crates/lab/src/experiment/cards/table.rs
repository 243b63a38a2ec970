//! A table as Markdown.

/// A table: a head, and rows that are as long.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// As Markdown, with a line for each row.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("| {} |\n", vec!["---"; self.head.len()].join(" | "));
        line(&self.head) + &rule + &self.rows.iter().map(|row| line(row)).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_its_head_one_below_it_and_one_for_each_row() {
        let mut table = Table::new(["used, %", "bare"]);
        table.row(["20", "990"]);
        assert_eq!(table.markdown(), "| used, % | bare |\n| --- | --- |\n| 20 | 990 |\n");
    }
}
