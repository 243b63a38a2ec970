//! A file that has lost its last name and is still open.

/// A file without a name that is still open here: its space is not free yet.
pub trait Removed: Send + Sync {
    /// A program has closed it: perhaps that was the last one.
    fn is_let_go(&self);
    /// No program has it open any more. It is about to be closed.
    fn is_closing(&self);
}
