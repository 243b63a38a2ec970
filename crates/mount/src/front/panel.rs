//! The panel as the kernel's requests find it: see [`Panel`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo, ReplyDirectory};
use headpond_ledger::{HandleKind, MountLedger};
use headpond_names::{PANEL, ROOT};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::front::Front;
use crate::handles::{Handles, Opening};
use crate::outcome::ReplyOutcome;
use crate::panel::{Panel, Sheet, is_panel};
use crate::tree::Inode;

/// The longest answer in bytes: it goes through the socket to and from fuser in one message.
const READ_MAX: usize = 64 << 10;

/// A node of the panel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    /// The directory.
    Directory,
    /// A text.
    Sheet(Sheet),
}

/// The panel as the kernel's requests find it.
pub(crate) struct Shown {
    panel: Arc<dyn Panel>,
    open: Handles<String>,
}

impl Shown {
    pub(crate) fn new(panel: Arc<dyn Panel>, ledger: Option<&Arc<MountLedger>>) -> Self {
        Self { panel, open: Handles::new(ledger, HandleKind::Sheet) }
    }
}

impl Front {
    /// The panel, while it is shown.
    fn panel(&self) -> ReplyOutcome<&Shown> {
        self.panel.as_ref().filter(|shown| shown.panel.is_shown()).ok_or(Errno::NOENT)
    }

    /// The panel's directory, if `name` in `parent` means it.
    pub(crate) fn panel_by_name(&self, parent: u64, name: &OsStr) -> Option<ReplyOutcome<FileAttr>> {
        if parent == ROOT {
            let named = name.as_bytes() == crate::MARKER_NAME.as_bytes();
            return (named && self.panel().is_ok()).then(|| Ok(attributes(PANEL, Spot::Directory)));
        }
        is_panel(parent).then(|| {
            let sheets = self.panel()?.panel.sheets();
            let index = sheets.iter().position(|sheet| sheet.name.as_bytes() == name.as_bytes());
            let index = index.filter(|_| parent == PANEL).ok_or(Errno::NOENT)?;
            Ok(attributes(PANEL + 1 + index as u64, Spot::Sheet(sheets[index])))
        })
    }

    /// Whether a name at the top is the panel's, and the panel shows. The name then cannot be changed.
    pub(crate) fn is_panel_name(&self, parent: &Inode, name: &OsStr) -> bool {
        Self::is_marker(parent, name) && self.panel().is_ok()
    }

    fn spot(&self, node: u64) -> ReplyOutcome<(&Shown, Spot)> {
        let shown = self.panel()?;
        if node == PANEL {
            return Ok((shown, Spot::Directory));
        }
        let index = usize::try_from(node - PANEL - 1).map_err(|_| Errno::NOENT)?;
        let sheet = shown.panel.sheets().get(index).ok_or(Errno::NOENT)?;
        Ok((shown, Spot::Sheet(*sheet)))
    }

    /// The attributes of a node of the panel.
    pub(crate) fn panel_attributes(&self, node: u64) -> ReplyOutcome<FileAttr> {
        self.spot(node).map(|(_, spot)| attributes(node, spot))
    }

    /// Opens a text of the panel, as it is now.
    pub(crate) fn panel_open(&self, node: u64, flags: OFlags) -> ReplyOutcome<u64> {
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            return Err(Errno::ROFS);
        }
        match self.spot(node)? {
            (_, Spot::Directory) => Err(Errno::ISDIR),
            (shown, Spot::Sheet(sheet)) => Ok(shown.open.insert(shown.panel.text(sheet.name), Opening::default())),
        }
    }

    /// Reads an open text of the panel.
    pub(crate) fn panel_read(&self, node: u64, handle: u64, offset: u64, size: u32) -> ReplyOutcome<Vec<u8>> {
        // An open text can be read to its end, even if the panel is hidden by now.
        let open = &self.panel.as_ref().ok_or(Errno::BADF)?.open;
        let text = match (open.get(handle), &self.ledger) {
            // It was opened in the life of a process before.
            (Err(_), Some(_)) => {
                let (shown, Spot::Sheet(sheet)) = self.spot(node)? else { return Err(Errno::BADF) };
                open.put(handle, shown.panel.text(sheet.name), None);
                open.get(handle)?
            }
            (text, _) => text?,
        };
        let from = usize::try_from(offset).map_or(text.len(), |from| from.min(text.len()));
        let to = text.len().min(from + (size as usize).min(READ_MAX));
        Ok(text.as_bytes()[from..to].to_vec())
    }

    /// The last descriptor of an open text was closed.
    pub(crate) fn panel_release(&self, handle: u64) {
        if let Some(shown) = &self.panel {
            shown.open.remove(handle);
        }
    }

    /// Lists the panel's texts from the entry after `offset` on.
    pub(crate) fn panel_list(&self, offset: u64, reply: &mut ReplyDirectory) -> ReplyOutcome<()> {
        let sheets = self.panel()?.panel.sheets();
        let dots = [(PANEL, FileType::Directory, "."), (ROOT, FileType::Directory, "..")];
        let texts = sheets.iter().zip(PANEL + 1..).map(|(sheet, node)| (node, FileType::RegularFile, sheet.name));
        for ((node, kind, name), next) in dots.into_iter().chain(texts).zip(1..).skip(offset as usize) {
            if reply.add(INodeNo(node), next, kind, name) {
                break;
            }
        }
        Ok(())
    }
}

fn attributes(node: u64, spot: Spot) -> FileAttr {
    let (kind, perm, nlink) = match spot {
        Spot::Directory => (FileType::Directory, 0o555, 2),
        Spot::Sheet(Sheet { private: true, .. }) => (FileType::RegularFile, 0o400, 1),
        Spot::Sheet(Sheet { private: false, .. }) => (FileType::RegularFile, 0o444, 1),
    };
    let now = SystemTime::now();
    FileAttr {
        ino: INodeNo(node),
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm,
        nlink,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
