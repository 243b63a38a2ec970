//! The directory `.headpond` at the top of the mount: texts about the mount, for cat, watch and grep.
//!
//! Invariants
//! - It is in no listing, and nothing in it can be made, changed, renamed or removed: every request
//!   that would is `EROFS`, or `EPERM` where the directory itself is meant.
//! - It takes the place of the directory of that name at the origin, which is headpond's own beside the
//!   data (see [`MARKER_NAME`](crate::MARKER_NAME)): no file of that one is ever seen through the mount.
//! - Its node ids are above all others ([`PANEL`]), so no file of the origin has one of them.
//! - Texts are made by fuser's threads, which may wait, never by the shard's.
//!
//! Each open file is the text as it was at its open. Its size is shown as 0, as in `/proc`: programs read
//! such files to their end. The kernel keeps no page of it.

use std::time::Duration;

use headpond_names::PANEL;

/// The kernel asks for the panel each time: whether it is shown can be changed at any time.
pub(crate) const KEEP: Duration = Duration::ZERO;

/// One text of the panel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sheet {
    /// Its file name.
    pub name: &'static str,
    /// Whether only the daemon's own user may read it: it names files and programs of others.
    pub private: bool,
}

/// What the panel shows.
pub trait Panel: Send + Sync + 'static {
    /// Its texts. Always the same.
    fn sheets(&self) -> &'static [Sheet];

    /// The text of one of them as it is now. May wait.
    fn text(&self, name: &str) -> String;

    /// Whether there is a panel to be seen at this moment.
    fn is_shown(&self) -> bool;
}

/// Whether a node is one of the panel's.
pub(crate) const fn is_panel(node: u64) -> bool {
    node >= PANEL
}
