//! Changes of a file's status, by an ordinary user's daemon: over an origin and an engine that are a few lines each.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headpond_base::{Errno, ObjectId, Result, UnixNanos};
use headpond_engine::{Attributes, Namespace, Reply, Request};
use headpond_names::{
    Access, Again, Found, Freshness, Kind, KnownObject, Leaving, Making, Moment, Names, Operation, Pinned, Pond,
    Removed, RenameFlags, See, Settings, Tree, block_on,
};

const USER: u32 = 1000;
const ROOT_INODE: u64 = 2;
const FILE: u64 = 12;

/// An origin with one file, called `file`. Paths and open files are inode numbers.
struct Origin(Mutex<BTreeMap<u64, Found>>);

impl Origin {
    fn with_mode(mode: u32) -> Self {
        let root = Found { inode: ROOT_INODE, kind: Kind::Directory, mode: 0o755, links: 2, ..Found::default() };
        let file = Found { inode: FILE, birth: Some(Moment { seconds: 1, nanos: 0 }), mode, links: 1, ..root };
        let file = Found { kind: Kind::File, uid: USER, ctime: Moment { seconds: 5, nanos: 0 }, ..file };
        Self(Mutex::new(BTreeMap::from([(ROOT_INODE, root), (FILE, file)])))
    }

    fn found(&self, inode: u64) -> Result<Found> {
        self.0.lock().unwrap().get(&inode).copied().ok_or(Errno::NOENT)
    }

    fn file(&self) -> Found {
        self.found(FILE).unwrap()
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
        if name == "file" { self.found(FILE) } else { Err(Errno::NOENT) }
    }

    async fn look_at(&self, file: &u64) -> Result<Found> {
        self.found(*file)
    }

    async fn find(&self, directory: &u64, name: &OsStr) -> Result<u64> {
        self.look_in(directory, name).await.map(|found| found.inode)
    }

    async fn path_of(&self, file: &u64) -> Result<u64> {
        Ok(*file)
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

    async fn create(&self, _: &u64, _: &OsStr, _: u32, (): &()) -> Result<u64> {
        Err(Errno::ROFS)
    }

    async fn make(&self, _: &u64, _: &OsStr, _: &Making, (): &()) -> Result<()> {
        Err(Errno::ROFS)
    }

    async fn link(&self, _: &u64, _: &u64, _: &OsStr) -> Result<()> {
        Err(Errno::ROFS)
    }

    async fn unlink(&self, _: &u64, _: &OsStr, _: bool) -> Result<()> {
        Err(Errno::ROFS)
    }

    async fn rename(&self, _: (&u64, &OsStr), _: (&u64, &OsStr), _: RenameFlags) -> Result<()> {
        Err(Errno::ROFS)
    }

    async fn set_mode(&self, path: &u64, mode: u32) -> Result<()> {
        let mut files = self.0.lock().unwrap();
        let file = files.get_mut(path).ok_or(Errno::NOENT)?;
        (file.mode, file.ctime.seconds) = (mode, file.ctime.seconds + 1);
        Ok(())
    }
}

/// What an engine was told of a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Begins,
    Ends(Option<UnixNanos>),
    KeptOpen,
}

/// An engine that knows each file by its inode number, and closes it at once.
#[derive(Default)]
struct Engine {
    told: Mutex<Vec<Told>>,
    again: Mutex<Option<Again<Origin>>>,
}

impl Engine {
    fn told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    fn hears(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }
}

impl Pond<Origin> for Engine {
    async fn ask(&self, request: Request, see: See) -> Reply {
        let reply = match request {
            Request::Open(file) => Reply::Opened { object: ObjectId(file.inode), attributes: Attributes::default() },
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

    async fn namespace(&self, _: Option<Namespace>, operation: Operation) -> Result<()> {
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
        None
    }

    async fn sync_origin(&self, _: ObjectId) -> Result<()> {
        Ok(())
    }

    fn name_changed(&self, _: ObjectId, _: u64) {}

    fn when_let_go(&self, _: Box<dyn Fn(ObjectId) + Send + Sync>) {}

    fn removed(&self, _: Option<ObjectId>) -> Option<Box<dyn Removed>> {
        None
    }
}

fn mount(origin: &Arc<Origin>, recovered: &[KnownObject]) -> (Names<Origin, Engine>, Arc<Engine>) {
    let engine = Arc::new(Engine::default());
    let settings = Settings { descriptors: 9, remembered: None, read_only: false, hides_open_files: false };
    let names = block_on(Names::new(origin.clone(), ROOT_INODE, engine.clone(), recovered, settings)).unwrap();
    (names, engine)
}

#[test]
fn a_file_that_cannot_be_opened_again_as_it_is_left_is_kept_open_while_the_log_says_that_it_changes() {
    let origin = Arc::new(Origin::with_mode(0o644));
    let (names, engine) = mount(&origin, &[]);
    let (inode, _) = block_on(names.look_up(names.root(), &OsString::from("file"))).unwrap();
    let pinned = block_on(Pinned::for_writing(&inode)).unwrap();
    let handle = block_on(names.open(pinned, false)).unwrap();
    engine.told();
    block_on(names.set_mode(&inode, 0o600)).unwrap();
    let now = || Told::Ends(Some(origin.file().stamp().ctime));
    assert_eq!(engine.told(), [Told::Begins, now()], "its owner may open it");
    block_on(names.set_mode(&inode, 0o400)).unwrap();
    assert_eq!(engine.told(), [Told::Begins, Told::KeptOpen, now()]);
    assert_eq!(origin.file().mode, 0o400, "it was opened, and is as it was");
    block_on(names.release(handle));
}

#[test]
fn a_file_that_was_brought_back_and_cannot_be_opened_as_it_is_is_kept_open_with_word_to_the_log() {
    for (mode, kept_open) in [(0o644, false), (0o400, true)] {
        let origin = Arc::new(Origin::with_mode(mode));
        let brought_back = KnownObject {
            inode: FILE,
            birth: origin.file().key().birth,
            object: ObjectId(FILE),
            attributes: Attributes::default(),
            path: b"file".to_vec(),
        };
        let (names, engine) = mount(&origin, std::slice::from_ref(&brought_back));
        block_on(names.adopt(&[brought_back]));
        let now = Told::Ends(Some(origin.file().stamp().ctime));
        let told = if kept_open { vec![Told::Begins, Told::KeptOpen, now] } else { Vec::new() };
        assert_eq!(engine.told(), told, "{mode:o}");
        assert_eq!(origin.file().mode, mode);
    }
}
