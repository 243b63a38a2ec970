//! A mount whose worker can be killed, and is not gone: a lookup has the lock of a directory and waits for an answer, and a
//! thread of the worker waits for that lock to tell the kernel of an entry.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use fuser::{Config, Filesystem, INodeNo, ReplyEntry, Request, Session};
use rustix::mount::{UnmountFlags, unmount};

/// Answers no lookup, and says that one came.
struct Silent(Sender<ReplyEntry>);

impl Filesystem for Silent {
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        let _ = self.0.send(reply);
    }
}

/// Returns once a thread of this process waits for the lock. Nothing can end it but [`abort`].
#[expect(clippy::zombie_processes, reason = "it outlives this process")]
pub fn stick(mount: &Path) {
    fs::create_dir(mount).unwrap();
    let (came, lookups) = channel();
    let session = Session::new(Silent(came), mount, &Config::default()).unwrap();
    let notifier = session.notifier();
    std::mem::forget(session.spawn().unwrap());
    // Another process: a thread of this one that waits for the answer would not be gone either.
    let held = mount.join("held");
    Command::new("stat").arg(held).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::mem::forget(lookups.recv().unwrap());
    std::thread::spawn(move || notifier.inval_entry(INodeNo(1), OsStr::new("other")));
    let waits =
        |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") D "));
    while !fs::read_dir("/proc/self/task").unwrap().flatten().any(waits) {
        std::thread::yield_now();
    }
}

/// Ends the connection of such a mount: who waits for an answer gets an error.
pub fn abort(mount: &Path) {
    unmount(mount, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
}
