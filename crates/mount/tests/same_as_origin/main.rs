//! Every file operation that databases and ordinary programs use, done twice: on a mount, and
//! straight on the file system of its origin. Results, errors, contents and attributes have to
//! be the same. Where they are not, the difference is written down in the table with its reason,
//! and is tested too.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod attributes;
#[path = "../bench/mod.rs"]
mod bench;
mod contents;
mod names;
mod place;
mod space;
mod special;
mod users;

use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

use bench::{Behind, Bench};
use headpond_base::CacheMode;
use place::Place;

/// Held while a case runs, by whichever test runs it. A child that one test starts has, until it runs its own program,
/// what the others have open: a whole-file lock outlives its close by that moment, and a program that was just written
/// is busy.
static TURN: Mutex<()> = Mutex::new(());

/// One line of the table.
struct Case {
    /// The operations, as a name.
    name: &'static str,
    /// Does them and notes what came of it.
    run: fn(&mut Place<'_>),
    /// What is different on a mount, and why.
    differs: &'static [Difference],
    /// The mode in which it does not hold, and why.
    where_else: Option<Elsewhere>,
}

/// A mode in which a case is not compared.
struct Elsewhere {
    mode: CacheMode,
    why: &'static str,
}

const NOTHING: Case = same("nothing", |_| {});

/// A note that is not the same.
struct Difference {
    plain: &'static str,
    mount: &'static str,
    #[allow(dead_code, reason = "for whoever reads the table")]
    why: &'static str,
}

const fn same(name: &'static str, run: fn(&mut Place<'_>)) -> Case {
    Case { name, run, differs: &[], where_else: None }
}

const CASES: &[Case] = &[
    same("creating and opening by every flag", contents::open_flags),
    same("a file without a name", contents::unnamed),
    same("reads and writes of any alignment", contents::alignment),
    Case {
        name: "direct reads and writes",
        run: contents::direct,
        differs: &[Difference {
            plain: "unaligned direct write: Err(INVAL)",
            mount: "unaligned direct write: Ok(100)",
            why: "the engine takes any alignment",
        }],
        ..NOTHING
    },
    same("writes with O_SYNC, O_DSYNC and per-write flags", contents::durable_writes),
    same("appends from two handles", contents::appends),
    same("vectored reads and writes", contents::vectored),
    same("syncs of files, directories and the file system", contents::syncs),
    same("content of unlinked and replaced open files", contents::unlinked),
    same("copying ranges in the kernel", contents::copy_range),
    same("errors of reads and writes", contents::errors),
    same("truncation by handle and by path", space::truncation),
    same("truncation beyond the largest file", space::too_large),
    same("plain and size-keeping allocation", space::allocation),
    same("punched and zeroed ranges", space::zeroing),
    Case {
        name: "ranges collapsed and inserted",
        run: space::shifting,
        differs: &[
            Difference {
                plain: "collapse: Ok(())",
                mount: "collapse: Err(OPNOTSUPP)",
                why: "the kernel does not pass it to FUSE",
            },
            Difference {
                plain: "insert: Ok(())",
                mount: "insert: Err(OPNOTSUPP)",
                why: "the kernel does not pass it to FUSE",
            },
        ],
        ..NOTHING
    },
    same("finding data and holes", space::holes),
    Case {
        name: "finding exactly the origin's holes",
        run: space::exact_holes,
        where_else: Some(Elsewhere {
            mode: CacheMode::WriteBack,
            why: "while data is in the pool only, all of its file counts as data, as POSIX allows",
        }),
        ..NOTHING
    },
    same("free space", space::room),
    same("modes", attributes::modes),
    same("times, far and near", attributes::times),
    same("which times move", attributes::which_times_move),
    same("extended attributes", attributes::extended),
    same("extended attributes of links and special files", attributes::extended_special),
    same("directories", names::directories),
    same("listing many names", names::listing),
    same("hard links", names::hard_links),
    same("symbolic links", names::symlinks),
    same("renames, replacing, not replacing and exchanging", names::renames),
    same("renames of directories with open files", names::moved_below),
    same("names too long and strange", names::strange_names),
    same("pipes, sockets and nodes", special::nodes),
    same("a pipe between two threads", special::pipe),
    same("a socket", special::socket),
    same("flock", special::whole_file_locks),
    same("fcntl locks between processes", special::record_locks),
    same("a shared writable mapping", special::mapping),
    same("a program run from the mount", special::program),
    same("files of other users", users::permissions),
    same("a sticky directory", users::sticky),
    same("owners of new files", users::new_owners),
    same("supplementary groups", users::groups),
    same("set-user-id taken away", users::set_user_id),
    same("set-user-id taken away at once", users::set_user_id_at_once),
    same("set-group-id without execute", users::set_group_id_without_execute),
    same("set-user-id and the root of a name space", users::root_of_a_name_space),
    same("changing owners", users::owners),
    same("umask and default access lists", users::access_lists),
    same("access lists and set-group-id", users::access_lists_and_set_group_id),
];

#[test]
fn every_operation_does_what_it_does_on_the_origin() {
    let bench = Bench::straight(|_| {});
    assert_same(&bench, None);
    let Behind::Straight(pond) = &bench.behind else { unreachable!() };
    // The kernel gives handles back a moment after the last close.
    for _ in 0..1000 {
        if pond.open_handles() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} handles were never closed in the engine", pond.open_handles());
}

#[test]
fn every_operation_does_what_it_does_on_the_origin_with_write_back() {
    with_engine(CacheMode::WriteBack);
}

#[test]
fn every_operation_does_what_it_does_on_the_origin_with_write_through() {
    with_engine(CacheMode::WriteThrough);
}

#[test]
fn every_operation_does_what_it_does_on_the_origin_with_write_around() {
    with_engine(CacheMode::WriteAround);
}

#[test]
fn every_operation_does_what_it_does_on_the_origin_passed_through() {
    with_engine(CacheMode::PassThrough);
}

fn with_engine(mode: CacheMode) {
    let mut bench = Bench::engine(mode);
    assert_same(&bench, Some(mode));
    bench.finish();
    // Without the product, the origin is what the mount was.
    let (plain, origin) = (listed(&bench.plain), listed(&bench.origin));
    assert!(plain.len() > 100);
    for (plain, origin) in plain.iter().zip(&origin) {
        assert_eq!(plain, origin, "after the unmount");
    }
    assert_eq!(plain.len(), origin.len());
}

/// Another process, for locks that are a process's.
#[test]
#[ignore = "run by the table, as another process"]
fn try_lock_as_another_process() {
    let path = std::env::var_os("LOCKED_FILE").expect("the table sets it");
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let lock = rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(lock, Ok(()), "the lock is another process's");
}

/// Every file below a directory, with what has to be the same.
fn listed(base: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![base.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() { place::sum(&std::fs::read(&path).unwrap()) } else { 0 };
        let size = if metadata.is_dir() { 0 } else { metadata.len() };
        let relative = path.strip_prefix(base).unwrap().to_owned();
        found.push(format!(
            "{relative:?} {:o} {}:{} {} size {size} content {content}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            if metadata.is_dir() { 0 } else { metadata.nlink() },
        ));
        if metadata.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

fn assert_same(bench: &Bench, mode: Option<CacheMode>) {
    let mut failures = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        if let Some(elsewhere) = case.where_else.as_ref().filter(|elsewhere| Some(elsewhere.mode) == mode) {
            eprintln!("NOT COMPARED with {}: {}: {}", elsewhere.mode, case.name, elsewhere.why);
            continue;
        }
        let name = format!("case-{number}");
        let mut logs = [&bench.plain, &bench.mountpoint].map(|base| {
            let directory = base.join(&name);
            std::fs::create_dir(&directory).unwrap();
            let mut place = Place::new(&directory);
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            (case.run)(&mut place);
            place.log
        });
        for difference in case.differs {
            for (log, line) in logs.iter_mut().zip([difference.plain, difference.mount]) {
                match log.iter().position(|noted| noted == line) {
                    Some(at) => drop(log.remove(at)),
                    None => failures.push(format!("{}: expected the difference \"{line}\"", case.name)),
                }
            }
        }
        let [plain, mount] = logs;
        assert!(!plain.is_empty() || !case.differs.is_empty(), "{}: nothing was noted", case.name);
        if plain != mount {
            for (plain, mount) in plain.iter().zip(&mount).filter(|(plain, mount)| plain != mount) {
                failures.push(format!("{}:\n    origin: {plain}\n    mount:  {mount}", case.name));
            }
            if plain.len() != mount.len() {
                failures.push(format!("{}: {} notes and {}", case.name, plain.len(), mount.len()));
            }
        }
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}
