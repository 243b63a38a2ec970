//! What nobody waits for on its way from the origin.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BufMut, ObjectId, UnixNanos};
use headpond_engine::{Config, OpenFile, Outcome, Reply, Request, RequestId, Treatment};
use headpond_format::Stamp;
use world::World;

const FILE: usize = 128 << 20;

/// Appends that end inside a block, one behind the other, to an origin that takes 10 ms for a read, until something is brought
/// ahead of them and nobody waits for it.
fn until_something_is_on_its_way(world: &mut World, file: ObjectId) {
    for piece in 0..2000 {
        world.starve = Some(0);
        let (id, data) = (RequestId(900_000 + piece), BufMut::copy_of(&[9; 3000]).freeze());
        let (offset, mtime, how) = (piece * 3000, UnixNanos(7), Treatment::default());
        world.engine.submit(id, Request::Write { object: file, offset, data, mtime, durable: false, how });
        world.run();
        if world.replies.contains_key(&id) && !world.starved.is_empty() {
            return;
        }
        world.sleep(10);
        world.serve();
        assert!(matches!(world.replies.remove(&id), Some(Reply::Changed(_))));
    }
    panic!("nothing is brought ahead of a log");
}

/// A file that was closed while something of it was on its way, changed by somebody else, and opened again.
#[test]
fn what_was_on_its_way_when_a_file_was_closed_is_not_taken_for_what_somebody_else_wrote_since() {
    let mut world = World::new(Config { sequential_cutoff: None, ..Config::default() });
    let file = world.open(1, &vec![1; FILE]);
    until_something_is_on_its_way(&mut world, file);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    let (old, (ticket, object, offset, len)) = (world.files[&file].clone(), world.starved[0]);
    assert_eq!(object, file);
    let from = offset as usize;
    world.files.get_mut(&file).unwrap()[from..from + len as usize].fill(2);
    let mtime = UnixNanos(1 << 40);
    let stamp = Stamp { size: FILE as u64, mtime, ctime: mtime };
    let again = OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
    let Reply::Opened { object, .. } = world.ask(Request::Open(again)) else { panic!("not opened") };
    assert_eq!(object, file, "it is known, as what is on its way needs it");
    // The origin's answer is of before.
    let bytes = BufMut::copy_of(&old[from..from + len as usize]).freeze();
    world.starved.clear();
    world.starve = None;
    world.engine.complete(ticket, Outcome::Bytes(bytes));
    world.run();
    assert_eq!(world.read(file, offset, len), vec![2; len as usize]);
}

#[test]
fn a_file_is_let_go_of_only_when_nothing_of_it_is_on_its_way_any_more() {
    let mut world = World::new(Config { sequential_cutoff: None, ..Config::default() });
    let file = world.open(1, &vec![1; FILE]);
    until_something_is_on_its_way(&mut world, file);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    assert_eq!(world.released, []);
    world.serve();
    assert_eq!(world.released, [file]);
}
