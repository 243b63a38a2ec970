//! A file that is served at the pace of a throttle, over FUSE and past the page cache.
//!
//! Until a throttle is set, requests are served at once. Then they are put in order of when they may end. A few threads
//! wait for that, do the I/O on the image behind the file, and answer. A sync is answered at once: the image need not
//! survive the machine, and all writes that it could cover were made before they were answered.
//!
//! Invariant: with the drop of [`ServedFile`] the mount is gone and the threads have ended. If the mount stays, the
//! threads go on: a request without an answer would stop its caller for ever.

use super::throttle::{Throttle, ThrottleSchedule};
use crate::failure::{Failure, Result};
use crate::mount_point;
use crate::one_file::OneFile;
use fuser::{
    Config, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use headpond_base::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The file's name.
const NAME: &str = "disk";
/// The largest request, in bytes: FUSE's own limit.
const REQUEST_MAX: u32 = 1 << 20;
/// Requests that the kernel may have under way.
const UNDER_WAY_MAX: u16 = 256;
/// Enough for the I/O of the fastest throttle: the image is in memory, or nearly.
const THREADS: usize = 4;

/// What is to be done, and how it is answered.
enum Work {
    Read { offset: u64, bytes: usize, reply: ReplyData },
    Write { offset: u64, data: Vec<u8>, reply: ReplyWrite },
}

impl Work {
    fn bytes(&self) -> u64 {
        match self {
            Self::Read { bytes, .. } => *bytes as u64,
            Self::Write { data, .. } => data.len() as u64,
        }
    }

    /// Does it and answers.
    fn carry_out(self, image: &File) {
        let refused = |error: &io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_i32);
        match self {
            Self::Read { offset, bytes, reply } => {
                let mut data = vec![0; bytes];
                match image.read_exact_at(&mut data, offset) {
                    Ok(()) => reply.data(&data),
                    Err(error) => reply.error(refused(&error)),
                }
            }
            Self::Write { offset, data, reply } => match image.write_all_at(&data, offset) {
                Ok(()) => reply.written(data.len() as u32),
                Err(error) => reply.error(refused(&error)),
            },
        }
    }
}

/// What waits until it may end.
struct Waiting {
    end: Nanos,
    /// For equal ends: the order in which they came.
    number: u64,
    work: Work,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.end, self.number).cmp(&(other.end, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

struct Queue {
    schedule: ThrottleSchedule,
    waiting: BinaryHeap<Reverse<Waiting>>,
    number: u64,
    over: bool,
}

/// What the threads share.
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    image: File,
    file: OneFile,
    since: Instant,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A thread that panicked left at most a request without an answer.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(self.since.elapsed().as_nanos() as u64)
    }

    fn add(&self, work: Work) {
        let now = self.now();
        let mut queue = self.queue();
        let end = queue.schedule.end_of(work.bytes(), now);
        queue.number += 1;
        let number = queue.number;
        queue.waiting.push(Reverse(Waiting { end, number, work }));
        drop(queue);
        self.changed.notify_one();
    }

    /// Carries out what is due, until it is over.
    fn serve(&self) {
        let mut queue = self.queue();
        while !queue.over {
            let now = self.since.elapsed();
            let left = queue.waiting.peek().map(|next| Duration::from_nanos(next.0.end.0).saturating_sub(now));
            match left {
                Some(left) if left.is_zero() => {
                    let next = queue.waiting.pop();
                    drop(queue);
                    if let Some(Reverse(next)) = next {
                        next.work.carry_out(&self.image);
                    }
                    queue = self.queue();
                }
                Some(left) => {
                    let waited = self.changed.wait_timeout(queue, left);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The file system with the one file.
struct Served(Arc<Shared>);

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel does not know it goes without; then less is under way at once.
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(UNDER_WAY_MAX);
        let _ = config.set_congestion_threshold(UNDER_WAY_MAX);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.file.lookup(name, reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.0.file.getattr(inode, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.0.add(Work::Read { offset, bytes: self.0.file.within(offset, size), reply });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if offset.saturating_add(data.len() as u64) > self.0.file.size {
            return reply.error(Errno::EFBIG);
        }
        self.0.add(Work::Write { offset, data: data.to_vec(), reply });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// A file that is served.
pub struct ServedFile {
    path: PathBuf,
    shared: Arc<Shared>,
    session: Option<fuser::BackgroundSession>,
    threads: Vec<JoinHandle<()>>,
}

impl ServedFile {
    /// Serves `image`, of which `directory`, an empty one, then shows the file.
    ///
    /// # Errors
    /// When the image cannot be opened, or FUSE refuses the mount.
    pub fn serve(image: &Path, directory: &Path) -> Result<Self> {
        let doing = || format!("serving {}", image.display());
        let file = File::options().read(true).write(true).open(image).map_err(Failure::io(doing()))?;
        let size = file.metadata().map_err(Failure::io(doing()))?.len();
        let queue = Queue {
            schedule: ThrottleSchedule::new(&Throttle::default(), Nanos(0)),
            waiting: BinaryHeap::new(),
            number: 0,
            over: false,
        };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            image: file,
            file: OneFile { name: NAME, size, permissions: (0o600, 0o700) },
            since: Instant::now(),
        });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("headpond-lab".to_owned()), MountOption::NoExec];
        let session = fuser::spawn_mount(Served(Arc::clone(&shared)), directory, &config);
        let session = session.map_err(Failure::io(doing()))?;
        let serving = |shared: Arc<Shared>| std::thread::spawn(move || shared.serve());
        let threads = (0..THREADS).map(|_| serving(Arc::clone(&shared))).collect();
        Ok(Self { path: directory.join(NAME), shared, session: Some(session), threads })
    }

    /// Serves at this pace from now on.
    pub fn throttle(&self, throttle: &Throttle) {
        let now = self.shared.now();
        self.shared.queue().schedule = ThrottleSchedule::new(throttle, now);
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ServedFile {
    fn drop(&mut self) {
        let (Some(session), Some(directory)) = (self.session.take(), self.path.parent()) else { return };
        if let Err(error) = mount_point::let_go(directory) {
            eprintln!("headpond-lab: {} stays mounted: {error}", directory.display());
            return;
        }
        // The session ends when no namespace has the mount any more. The kernel asks for what is left before it lets the
        // mount go, so the threads end last.
        let _ = session.join();
        self.shared.queue().over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has told so.
            let _ = thread.join();
        }
    }
}
