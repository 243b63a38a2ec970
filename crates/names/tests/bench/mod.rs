//! What tests of the name layer work on: an origin and an engine that are a few lines each.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use headpond_base::{Errno, ObjectId, Result, UnixNanos};
use headpond_engine::{Attributes, Namespace, OpenObject, Reply, Request};
use headpond_names::{
    Access, Again, ContentStore, FileKind, Found, Freshness, KnownObject, Leaving, Making, Moment, MountSettings,
    Names, Removed, RenameFlags, See, Tree, TreeOperation, block_on,
};

const USER: u32 = 1000;
const ROOT_INODE: u64 = 2;
pub const FILE: u64 = 12;

/// An origin that has one file at a time, called `file` or by some names. Paths and open files are inode numbers.
pub struct Origin {
    files: Mutex<BTreeMap<u64, Found>>,
    /// Of the file, in the root.
    names: Mutex<Vec<&'static str>>,
    /// The next search for a name waits for this.
    held: Mutex<Option<Arc<AtomicBool>>>,
    refuses_removal: AtomicBool,
    /// No descriptor is left for the path of an open file.
    is_full: AtomicBool,
}

impl Origin {
    pub fn with_mode(mode: u32) -> Self {
        Self::with_names(mode, &["file"])
    }

    pub fn with_names(mode: u32, names: &[&'static str]) -> Self {
        let links = u32::try_from(names.len()).unwrap();
        let root = Found { inode: ROOT_INODE, kind: FileKind::Directory, mode: 0o755, links: 2, ..Found::default() };
        let file = Found { inode: FILE, birth: Some(Moment { seconds: 1, nanos: 0 }), mode, links, ..root };
        let file = Found { kind: FileKind::File, uid: USER, ctime: Moment { seconds: 5, nanos: 0 }, ..file };
        let files = BTreeMap::from([(ROOT_INODE, root), (FILE, file)]);
        Self {
            files: Mutex::new(files),
            names: Mutex::new(names.to_vec()),
            held: Mutex::default(),
            refuses_removal: AtomicBool::default(),
            is_full: AtomicBool::default(),
        }
    }

    /// It keeps no birth times.
    pub fn without_births() -> Self {
        let origin = Self::with_mode(0o644);
        origin.files.lock().unwrap().get_mut(&FILE).unwrap().birth = None;
        origin
    }

    /// Others remove the file.
    pub fn lose_file(&self) {
        self.names.lock().unwrap().clear();
        self.files.lock().unwrap().remove(&FILE);
    }

    /// Leaves no descriptor for the path of an open file, or some.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    fn found(&self, inode: u64) -> Result<Found> {
        self.files.lock().unwrap().get(&inode).copied().ok_or(Errno::NOENT)
    }

    pub fn file(&self) -> Found {
        self.found(FILE).unwrap()
    }

    /// Has the next search for a name wait until the result is set.
    pub fn hold_next_search(&self) -> Arc<AtomicBool> {
        self.held.lock().unwrap().insert(Arc::default()).clone()
    }

    /// Has the next removal of a name fail.
    pub fn refuse_next_removal(&self) {
        self.refuses_removal.store(true, Ordering::SeqCst);
    }
}

impl Tree for Origin {
    type Path = u64;
    type File = u64;
    type Caller = ();
    type OfInode = ();
    type OfKnown = ();

    fn now(&self) -> UnixNanos {
        UnixNanos(0)
    }

    fn user(&self) -> u32 {
        USER
    }

    async fn pause(&self, _: Duration) {}

    async fn look(&self, path: &u64, _: Freshness) -> Result<Found> {
        self.found(*path)
    }

    async fn look_in(&self, _: &u64, name: &OsStr) -> Result<Found> {
        let is_its = self.names.lock().unwrap().iter().any(|its| name == *its);
        if is_its { self.found(FILE) } else { Err(Errno::NOENT) }
    }

    async fn look_at(&self, file: &u64) -> Result<Found> {
        self.found(*file)
    }

    async fn find(&self, directory: &u64, name: &OsStr) -> Result<u64> {
        let held = self.held.lock().unwrap().take();
        if let Some(goes_on) = held {
            poll_fn(|_| if goes_on.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }).await;
        }
        self.look_in(directory, name).await.map(|found| found.inode)
    }

    async fn path_of(&self, file: &u64) -> Result<u64> {
        if self.is_full.load(Ordering::SeqCst) { Err(Errno::MFILE) } else { Ok(*file) }
    }

    async fn name_of(&self, path: &u64) -> Vec<u8> {
        if *path == FILE { b"file".to_vec() } else { Vec::new() }
    }

    async fn open(&self, path: &u64, access: Access) -> Result<u64> {
        let found = self.found(*path)?;
        let needed = if access == Access::Write { 0o600 } else { 0o400 };
        if found.mode & needed == needed { Ok(*path) } else { Err(Errno::ACCESS) }
    }

    async fn allocated(&self, _: &u64, _: &Found) -> u64 {
        0
    }

    /// The file, once there is none: without a birth time, and with the number of the one before.
    async fn create(&self, _: &u64, _: &OsStr, mode: u32, (): &()) -> Result<u64> {
        let mut files = self.files.lock().unwrap();
        if files.contains_key(&FILE) {
            return Err(Errno::EXIST);
        }
        let ctime = Moment { seconds: 9, nanos: 0 };
        let file = Found { inode: FILE, kind: FileKind::File, mode, links: 1, uid: USER, ctime, ..Found::default() };
        files.insert(FILE, file);
        self.names.lock().unwrap().push("file");
        Ok(FILE)
    }

    async fn make(&self, directory: &u64, name: &OsStr, _: &Making, caller: &()) -> Result<()> {
        self.create(directory, name, 0o644, caller).await.map(drop)
    }

    async fn link(&self, _: &u64, _: &u64, _: &OsStr) -> Result<()> {
        Err(Errno::ROFS)
    }

    async fn unlink(&self, _: &u64, name: &OsStr, _: bool) -> Result<()> {
        if self.refuses_removal.swap(false, Ordering::SeqCst) {
            return Err(Errno::IO);
        }
        self.names.lock().unwrap().retain(|its| name != *its);
        self.files.lock().unwrap().get_mut(&FILE).unwrap().links -= 1;
        Ok(())
    }

    async fn rename(&self, _: (&u64, &OsStr), _: (&u64, &OsStr), _: RenameFlags) -> Result<()> {
        Err(Errno::ROFS)
    }

    async fn set_mode(&self, path: &u64, mode: u32) -> Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.get_mut(path).ok_or(Errno::NOENT)?;
        (file.mode, file.ctime.seconds) = (mode, file.ctime.seconds + 1);
        Ok(())
    }
}

/// What an engine was told of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Begins,
    Ends(Option<UnixNanos>),
    KeptOpen,
    /// Its last name is gone.
    Unlinked,
    /// It is no more: whatever is open of it is closed.
    Gone,
}

/// An engine that knows each file by its inode number, and closes it at once.
#[derive(Default)]
pub struct Engine {
    told: Arc<Mutex<Vec<Told>>>,
    again: Mutex<Option<Again<Origin>>>,
}

impl Engine {
    /// All that it was told since the last call.
    pub fn told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    fn hears(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }
}

impl ContentStore<Origin> for Engine {
    async fn ask(&self, request: Request, see: See) -> Reply {
        let reply = match request {
            Request::Open(OpenObject::File(file)) => {
                Reply::Opened { object: ObjectId(file.inode), attributes: Attributes::default() }
            }
            Request::StatusBegins { .. } => {
                self.hears(Told::Begins);
                Reply::Done
            }
            _ => Reply::Done,
        };
        see(&reply);
        reply
    }

    fn tell(&self, request: Request) {
        if let Request::StatusEnds { stamp, .. } = request {
            self.hears(Told::Ends(stamp.map(|stamp| stamp.ctime)));
        }
    }

    async fn namespace(&self, change: Option<Namespace>, operation: TreeOperation) -> Result<()> {
        if matches!(change, Some(Namespace::Unlink { .. })) {
            self.hears(Told::Unlinked);
        }
        operation.await.map(drop)
    }

    async fn attach(&self, _: ObjectId, _: u64, again: Option<Again<Origin>>) {
        *self.again.lock().unwrap() = again;
    }

    async fn keep_open(&self, _: ObjectId) {
        let again = self.again.lock().unwrap().take();
        if let Some(again) = again {
            assert_eq!(again.open(true).await, Ok(FILE));
            self.hears(Told::KeptOpen);
        }
    }

    fn reopened_by(&self, _: ObjectId, again: Again<Origin>) {
        *self.again.lock().unwrap() = Some(again);
    }

    async fn leaving(&self, _: ObjectId) -> Option<Box<dyn Leaving>> {
        Some(Box::new(Leaves(self.told.clone())))
    }

    async fn sync_origin(&self, _: ObjectId) -> Result<()> {
        Ok(())
    }

    fn name_changed(&self, _: ObjectId, _: u64) {}

    fn when_let_go(&self, _: Box<dyn Fn(ObjectId) + Send + Sync>) {}

    fn removed(&self, _: Option<ObjectId>) -> Option<Box<dyn Removed>> {
        Some(Box::new(Nameless))
    }
}

/// The file, on its way out.
struct Leaves(Arc<Mutex<Vec<Told>>>);

impl Leaving for Leaves {
    fn gone(self: Box<Self>) {
        self.0.lock().unwrap().push(Told::Gone);
    }
}

/// The file, without a name.
struct Nameless;

impl Removed for Nameless {
    fn is_let_go(&self) {}

    fn is_closing(&self) {}
}

/// The names of an origin, with so many open paths.
pub fn mount(
    origin: &Arc<Origin>,
    recovered: &[KnownObject],
    descriptors: usize,
) -> (Names<Origin, Engine>, Arc<Engine>) {
    let engine = Arc::new(Engine::default());
    let settings = MountSettings { descriptors, remembered: None, read_only: false, hides_open_files: false };
    let names = block_on(Names::new(origin.clone(), ROOT_INODE, engine.clone(), recovered, settings)).unwrap();
    (names, engine)
}
