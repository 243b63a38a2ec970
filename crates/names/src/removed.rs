//! A file that has lost its last name and is still open.

/// A file without a name that is still open here: its space is not free yet.
pub trait Removed: Send + Sync {
    /// A program that had it open has closed it: perhaps that was the last.
    fn is_let_go(&self);
    /// Nobody has it open any more: it is about to be closed.
    fn is_closing(&self);
}
