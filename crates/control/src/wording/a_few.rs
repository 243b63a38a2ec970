//! Long lists in a short text.

use std::fmt;

/// Shows the first few of many things, and how many more there are.
pub(crate) struct AFew<'a, T>(pub &'a [T], pub usize);

impl<T: fmt::Display> fmt::Display for AFew<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.len().min(self.1);
        for item in &self.0[..shown] {
            writeln!(f, "  {item}")?;
        }
        if self.0.len() > shown {
            writeln!(f, "  and {} more", self.0.len() - shown)?;
        }
        Ok(())
    }
}
