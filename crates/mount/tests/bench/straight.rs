//! A stand-in for the engine that keeps files straight in the origin: one thread answers one
//! request at a time, as a shard does, and knows nothing of caching. What goes wrong over it is
//! the mount's own fault.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use headpond_base::{BufMut, Errno, ObjectId, Result, UnixNanos};
use headpond_engine::{Attributes, Namespace, OpenFile, OpenObject, Reply, Request, Served};
use headpond_mount::{Done, Operation, Pond};
use rustix::fs::{FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};

#[derive(Default)]
struct Files {
    objects: HashMap<(u64, UnixNanos), ObjectId>,
    files: HashMap<ObjectId, (Arc<File>, bool)>,
    opens: HashMap<ObjectId, i64>,
    sizes: Vec<usize>,
}

enum Job {
    Ask(Request, Done),
    Change(Operation, Sender<Result<()>>),
}

/// See the module.
pub struct Straight {
    queue: Mutex<Sender<Job>>,
    files: Arc<Mutex<Files>>,
}

impl Straight {
    pub fn start() -> Arc<Self> {
        let (queue, jobs) = mpsc::channel();
        let files = Arc::new(Mutex::new(Files::default()));
        let table = files.clone();
        thread::spawn(move || {
            for job in jobs {
                match job {
                    Job::Ask(request, done) => {
                        let reply = answer(&table, request).unwrap_or_else(Reply::Failed);
                        done(reply);
                    }
                    Job::Change(operation, done) => {
                        let _ = done.send(operation().map(|_| ()));
                    }
                }
            }
        });
        Arc::new(Self { queue: Mutex::new(queue), files })
    }

    /// Sizes of the reads and writes since they were forgotten.
    pub fn sizes(&self) -> Vec<usize> {
        self.files.lock().unwrap().sizes.clone()
    }

    pub fn forget_sizes(&self) {
        self.files.lock().unwrap().sizes.clear();
    }

    /// How many handles are counted in all.
    pub fn open_handles(&self) -> i64 {
        self.files.lock().unwrap().opens.values().sum()
    }
}

impl Pond for Straight {
    fn submit(&self, request: Request, done: Done) {
        self.queue.lock().unwrap().send(Job::Ask(request, done)).unwrap();
    }

    fn namespace(&self, _: Option<Namespace>, operation: Operation) -> Result<()> {
        let (done, wait) = mpsc::channel();
        self.queue.lock().unwrap().send(Job::Change(operation, done)).unwrap();
        wait.recv().unwrap()
    }

    fn attach(&self, object: ObjectId, file: File) {
        let writable = rustix::fs::fcntl_getfl(&file).unwrap().contains(rustix::fs::OFlags::RDWR);
        let mut files = self.files.lock().unwrap();
        let stays = files.files.get(&object).is_some_and(|(_, old)| *old || !writable);
        if !stays {
            files.files.insert(object, (Arc::new(file), writable));
        }
    }

    fn sync_origin(&self, object: ObjectId) -> Result<()> {
        let file = self.files.lock().unwrap().files.get(&object).ok_or(Errno::BADF)?.0.clone();
        Ok(file.sync_all()?)
    }
}

fn answer(files: &Mutex<Files>, request: Request) -> Result<Reply> {
    let file = |object: &ObjectId| -> Result<Arc<File>> {
        Ok(files.lock().unwrap().files.get(object).ok_or(Errno::BADF)?.0.clone())
    };
    match request {
        Request::Open(OpenObject::File(OpenFile { inode, birth, stamp, .. })) => {
            let mut files = files.lock().unwrap();
            let next = ObjectId(files.objects.len() as u64 + 1);
            let object = *files.objects.entry((inode, birth)).or_insert(next);
            *files.opens.entry(object).or_default() += 1;
            let attributes = match files.files.get(&object) {
                Some((file, _)) => attributes(file)?,
                None => Attributes { size: stamp.size, mtime: stamp.mtime, ctime: stamp.ctime },
            };
            Ok(Reply::Opened { object, attributes })
        }
        Request::Close { object } => {
            *files.lock().unwrap().opens.entry(object).or_default() -= 1;
            Ok(Reply::Done)
        }
        Request::Read { object, offset, len, .. } => {
            files.lock().unwrap().sizes.push(len as usize);
            let file = file(&object)?;
            let mut buf = BufMut::zeroed(len as usize);
            let mut filled = 0;
            while filled < buf.len() {
                match file.read_at(&mut buf[filled..], offset + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            buf.truncate(filled);
            let whole = buf.freeze();
            // In two pieces, as an engine may.
            let half = whole.len() / 2;
            Ok(Reply::Data(vec![whole.slice(0..half), whole.slice(half..whole.len())], Served::default()))
        }
        Request::Write { object, offset, data, mtime, durable, .. } => {
            files.lock().unwrap().sizes.push(data.len());
            let file = file(&object)?;
            file.write_all_at(&data, offset)?;
            if durable {
                file.sync_data()?;
            }
            changed(&file, mtime)
        }
        Request::Truncate { object, size, mtime } => {
            let file = file(&object)?;
            file.set_len(size)?;
            changed(&file, mtime)
        }
        Request::Zero { object, offset, len, extend, mtime } => {
            let file = file(&object)?;
            let flags = if extend {
                FallocateFlags::ZERO_RANGE
            } else {
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
            };
            rustix::fs::fallocate(&file, flags, offset, len).map_err(errno)?;
            changed(&file, mtime)
        }
        Request::Allocate { object, offset, len, extend, mtime, .. } => {
            let file = file(&object)?;
            let flags = if extend { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
            rustix::fs::fallocate(&file, flags, offset, len).map_err(errno)?;
            changed(&file, mtime)
        }
        Request::SetMtime { object, mtime, .. } => changed(&*file(&object)?, mtime),
        Request::Sync { object, .. } => {
            file(&object)?.sync_all()?;
            Ok(Reply::Done)
        }
        Request::Seek { object, offset, data } => {
            let from = if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
            Ok(Reply::Offset(rustix::fs::seek(&*file(&object)?, from).map_err(errno)?))
        }
        _ => Ok(Reply::Done),
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

fn attributes(file: &File) -> Result<Attributes> {
    let found = file.metadata()?;
    let time = |seconds, nanos| UnixNanos(seconds * 1_000_000_000 + nanos);
    let (mtime, ctime) = (time(found.mtime(), found.mtime_nsec()), time(found.ctime(), found.ctime_nsec()));
    Ok(Attributes { size: found.len(), mtime, ctime })
}

fn changed(file: &File, mtime: UnixNanos) -> Result<Reply> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: mtime.0.div_euclid(1_000_000_000),
            tv_nsec: mtime.0.rem_euclid(1_000_000_000),
        },
    };
    rustix::fs::futimens(file, &times).map_err(errno)?;
    Ok(Reply::Changed(attributes(file)?))
}
