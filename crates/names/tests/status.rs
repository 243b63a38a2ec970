//! Changes of a file's status, by an ordinary user's daemon.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod bench;

use std::ffi::OsString;
use std::sync::Arc;

use bench::{FILE, Origin, Told, mount};
use headpond_base::ObjectId;
use headpond_engine::Attributes;
use headpond_names::{KnownObject, Pinned, block_on};

#[test]
fn a_file_that_cannot_be_opened_again_as_it_is_left_is_kept_open_while_the_log_says_that_it_changes() {
    let origin = Arc::new(Origin::with_mode(0o644));
    let (names, engine) = mount(&origin, &[], 9);
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
        let (names, engine) = mount(&origin, std::slice::from_ref(&brought_back), 9);
        block_on(names.adopt(&[brought_back]));
        let now = Told::Ends(Some(origin.file().stamp().ctime));
        let told = if kept_open { vec![Told::Begins, Told::KeptOpen, now] } else { Vec::new() };
        assert_eq!(engine.told(), told, "{mode:o}");
        assert_eq!(origin.file().mode, mode);
    }
}
