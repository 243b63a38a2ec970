//! What is made has nothing of an earlier file with its number.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod bench;

use std::ffi::OsStr;
use std::sync::Arc;

use bench::{FILE, Origin, Told, mount};
use headpond_base::{Errno, ObjectId};
use headpond_engine::Attributes;
use headpond_names::{FileKind, KnownObject, Making, block_on};

fn earlier(origin: &Origin) -> KnownObject {
    KnownObject {
        inode: FILE,
        birth: origin.file().key().birth,
        object: ObjectId(FILE),
        attributes: Attributes { size: 77, ..Attributes::default() },
        path: b"file".to_vec(),
    }
}

#[test]
fn a_file_whose_creation_fails_behind_the_origin_is_not_taken_for_one_that_others_removed() {
    let origin = Arc::new(Origin::without_births());
    let (names, engine) = mount(&origin, &[earlier(&origin)], 9);
    origin.lose_file();
    origin.set_full(true);
    let created = block_on(names.create(names.root(), OsStr::new("file"), 0o644, true, &()));
    assert_eq!(created.err(), Some(Errno::MFILE));
    origin.set_full(false);
    let (inode, found) = block_on(names.look_up(names.root(), OsStr::new("file"))).unwrap();
    assert_eq!(found.size, 0);
    assert!(inode.known().is_none(), "of the earlier one");
    assert_eq!(engine.told(), [Told::Unlinked]);
}

#[test]
fn what_is_made_is_another_inode_than_a_held_one_whose_number_it_has() {
    let origin = Arc::new(Origin::without_births());
    let (names, engine) = mount(&origin, &[earlier(&origin)], 0);
    let (before, _) = block_on(names.look_up(names.root(), OsStr::new("file"))).unwrap();
    assert!(before.slot.get().is_none(), "it cannot be asked whether it is gone");
    origin.lose_file();
    let node = Making::Node { kind: FileKind::File, mode: 0o644, device: 0 };
    let (made, _) = block_on(names.make(names.root(), OsStr::new("file"), &node, &())).unwrap();
    assert!(before.is_replaced());
    assert_ne!(made.generation, before.generation);
    assert_eq!(engine.told(), [Told::Unlinked]);
}
