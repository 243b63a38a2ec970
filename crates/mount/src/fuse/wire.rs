//! The bytes of the few FUSE messages that the mount serves without fuser: the heads of reads, writes and syncs, and
//! of their answers. Layouts are those of the kernel's `linux/fuse.h`.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use crate::caller::Caller;

/// Bytes of every request's head.
pub(crate) const HEAD: usize = 40;

/// Bytes before the data of a write. Only data follows them.
pub(crate) const WRITE_HEAD: usize = HEAD + 40;

/// Bytes of every answer's head.
pub(crate) const ANSWER_HEAD: usize = 16;

/// Bytes of the body of the answer to a write.
pub(crate) const WRITTEN: usize = 8;

/// The mark in the number of a request that is sent again.
pub(crate) const AGAIN: u64 = 1 << 63;

/// The operations that the mount tells apart.
pub(crate) mod opcode {
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;

    const SETATTR: u32 = 4;
    const SYMLINK: u32 = 6;
    const MKNOD: u32 = 8;
    const MKDIR: u32 = 9;
    const UNLINK: u32 = 10;
    const RMDIR: u32 = 11;
    const RENAME: u32 = 12;
    const LINK: u32 = 13;
    const SETXATTR: u32 = 21;
    const REMOVEXATTR: u32 = 24;
    const CREATE: u32 = 35;
    const FALLOCATE: u32 = 43;
    const RENAME2: u32 = 45;

    /// Those that change names, attributes or space at the origin, and that fuser serves. A change of a file's flags
    /// (IOCTL) is the engine's to hold.
    pub(crate) const CHANGES: [u32; 13] = [
        SETATTR,
        SYMLINK,
        MKNOD,
        MKDIR,
        UNLINK,
        RMDIR,
        RENAME,
        LINK,
        SETXATTR,
        REMOVEXATTR,
        CREATE,
        FALLOCATE,
        RENAME2,
    ];
}

/// The kernel writes back pages of a shared mapping, by whichever handle it finds.
const WRITE_CACHE: u32 = 1 << 0;

/// The request names its lock owner: the kernel sets this for direct reads and writes only.
const LOCK_OWNER: u32 = 1 << 1;

/// The caller keeps no set-id bits.
const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// Sync only the data.
const FSYNC_DATA: u32 = 1;

/// The head of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestHead {
    pub(crate) len: usize,
    pub(crate) opcode: u32,
    /// The node id that the request is about.
    pub(crate) node: u64,
    /// The request's number, which its answer repeats.
    pub(crate) unique: u64,
    pub(crate) caller: Caller,
}

/// A read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    /// Bypasses the kernel's pages.
    pub(crate) direct: bool,
}

/// A write, without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) kills_set_id: bool,
    /// The kernel sent it, not the handle's owner: pages of a shared mapping of any process.
    pub(crate) of_mapping: bool,
    /// Bypasses the kernel's pages: the kernel holds none of them meanwhile. The open file's flags do not tell this:
    /// a direct write that meets a page which cannot be dropped goes through the pages.
    pub(crate) direct: bool,
    /// The open file's flags.
    pub(crate) flags: i32,
}

/// A file to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Create {
    /// The flags of the new open file.
    pub(crate) flags: u32,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

/// A sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fsync {
    pub(crate) handle: u64,
    pub(crate) data_only: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The number of the request that a message to the kernel answers. `None` for a message that is no answer.
pub(crate) fn answered(message: &[u8]) -> Option<u64> {
    u64_at(message, 8).filter(|unique| *unique != 0)
}

impl RequestHead {
    /// Reads the body of a message. `None` if the message is too short.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let caller = Caller { uid: u32_at(message, 24)?, gid: u32_at(message, 28)?, pid: u32_at(message, 32)? };
        Some(Self {
            len: u32_at(message, 0)? as usize,
            opcode: u32_at(message, 4)?,
            unique: u64_at(message, 8)?,
            node: u64_at(message, 16)?,
            caller,
        })
    }

    /// A request without a body beyond `body`, as the kernel would send it.
    pub(crate) fn message(opcode: u32, unique: u64, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(HEAD + body.len()).expect("a short message");
        let mut message = Vec::with_capacity(HEAD + body.len());
        message.extend_from_slice(&len.to_ne_bytes());
        message.extend_from_slice(&opcode.to_ne_bytes());
        message.extend_from_slice(&unique.to_ne_bytes());
        message.resize(HEAD, 0);
        message.extend_from_slice(body);
        message
    }
}

impl Read {
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        Some(Self {
            handle: u64_at(message, HEAD)?,
            offset: u64_at(message, HEAD + 8)?,
            size: u32_at(message, HEAD + 16)?,
            direct: u32_at(message, HEAD + 20)? & LOCK_OWNER != 0,
        })
    }
}

impl Write {
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        Some(Self {
            handle: u64_at(message, HEAD)?,
            offset: u64_at(message, HEAD + 8)?,
            size: u32_at(message, HEAD + 16)?,
            kills_set_id: u32_at(message, HEAD + 20)? & WRITE_KILL_SUIDGID != 0,
            of_mapping: u32_at(message, HEAD + 20)? & WRITE_CACHE != 0,
            direct: u32_at(message, HEAD + 20)? & (WRITE_CACHE | LOCK_OWNER) == LOCK_OWNER,
            flags: u32_at(message, HEAD + 32)?.cast_signed(),
        })
    }
}

impl Create {
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let [flags, mode, umask] = [0, 4, 8].map(|at| u32_at(message, HEAD + at));
        Some(Self { flags: flags?, mode: mode?, umask: umask? })
    }
}

impl Fsync {
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        Some(Self { handle: u64_at(message, HEAD)?, data_only: u32_at(message, HEAD + 8)? & FSYNC_DATA != 0 })
    }
}

/// The head of an answer with `body` bytes after it, or of an error.
pub(crate) fn answer_head(unique: u64, body: usize, errno: i32) -> [u8; ANSWER_HEAD] {
    let len = u32::try_from(ANSWER_HEAD + body).expect("answers are about as long as requests at most");
    let mut head = [0; ANSWER_HEAD];
    head[..4].copy_from_slice(&len.to_ne_bytes());
    head[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

/// The message that makes the kernel forget a file's attributes, and a range of its bytes if there is one
/// (`FUSE_NOTIFY_INVAL_INODE`).
pub(crate) fn forget_message(node: u64, range: Option<&Range<u64>>) -> [u8; ANSWER_HEAD + 24] {
    const INVAL_INODE: i32 = 2;
    let mut message = [0; ANSWER_HEAD + 24];
    // An answer to no request, with the notification's code in place of the error.
    message[..ANSWER_HEAD].copy_from_slice(&answer_head(0, 24, -INVAL_INODE));
    message[16..24].copy_from_slice(&node.to_ne_bytes());
    // A negative offset means no bytes.
    let (offset, bytes) = range.map_or((u64::MAX, 0), |range| (range.start, range.end - range.start));
    message[24..32].copy_from_slice(&offset.to_ne_bytes());
    message[32..].copy_from_slice(&bytes.to_ne_bytes());
    message
}

/// The message that makes the kernel forget a name in a directory, and with it a file that nobody uses
/// (`FUSE_NOTIFY_INVAL_ENTRY`).
pub(crate) fn forget_name_message(directory: u64, name: &OsStr) -> Vec<u8> {
    const INVAL_ENTRY: i32 = 3;
    let name = name.as_bytes();
    let mut message = answer_head(0, 16 + name.len() + 1, -INVAL_ENTRY).to_vec();
    message.extend_from_slice(&directory.to_ne_bytes());
    message.extend_from_slice(&u32::try_from(name.len()).expect("names are short").to_ne_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(name);
    message.push(0);
    message
}

/// The message that makes the kernel send again every request that was taken and not answered (`FUSE_NOTIFY_RESEND`,
/// Linux 6.9). Such a request has bit 63 of its number set.
pub(crate) fn resend_message() -> [u8; ANSWER_HEAD] {
    const RESEND: i32 = 7;
    answer_head(0, 0, -RESEND)
}

/// The body of the answer to a write.
pub(crate) fn written_body(size: u32) -> [u8; WRITTEN] {
    let mut body = [0; WRITTEN];
    body[..4].copy_from_slice(&size.to_ne_bytes());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_message_is_no_request() {
        let whole = RequestHead::message(opcode::READ, 7, &[0; 40]);
        assert_eq!((RequestHead::parse(&whole).unwrap().len, whole.len()), (80, 80));
        assert!(Read::parse(&whole).is_some());
        assert_eq!(RequestHead::parse(&whole[..30]), None);
        assert_eq!(Read::parse(&whole[..50]), None);
        assert_eq!(Write::parse(&whole[..70]), None);
        assert_eq!(Fsync::parse(&whole[..44]), None);
    }
}
