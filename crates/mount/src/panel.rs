//! The directory `.headpond` at the top of the mount: texts about the mount, for cat, watch and grep.
//!
//! Invariants
//! - No listing shows it. Nothing in it can be made, changed, renamed or removed: such a request gets `EROFS`, or
//!   `EPERM` if it means the directory itself.
//! - It takes the place of the origin's directory of that name, which is headpond's own beside the data (see
//!   [`MARKER_NAME`](crate::MARKER_NAME)). The mount never shows a file of that directory.
//! - Its node ids are above all others ([`PANEL`]), so no file of the origin has one of them.
//! - fuser's threads make the texts, because they may wait; the shard's thread never does.
//!
//! Each open file is the text as it was at its open. Its size shows as 0, as in `/proc`: programs read such files to
//! their end. The kernel keeps no page of it.

use std::time::Duration;

use headpond_names::PANEL;

/// The kernel asks for the panel each time, because it may appear or vanish at any time.
pub(crate) const KEEP: Duration = Duration::ZERO;

/// One text of the panel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sheet {
    /// Its file name.
    pub name: &'static str,
    /// Whether only the daemon's own user may read it, because it names files and programs of others.
    pub private: bool,
}

/// What the panel shows.
pub trait Panel: Send + Sync + 'static {
    /// Its texts. Always the same.
    fn sheets(&self) -> &'static [Sheet];

    /// The present text of one of them. May wait.
    fn text(&self, name: &str) -> String;

    /// Whether the panel shows at this moment.
    fn is_shown(&self) -> bool;
}

/// Whether a node is one of the panel's.
pub(crate) const fn is_panel(node: u64) -> bool {
    node >= PANEL
}
