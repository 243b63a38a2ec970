//! Names that go while others use the file.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod bench;

use std::ffi::OsStr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bench::{Origin, Told, mount};
use headpond_base::Errno;
use headpond_names::{Pinned, block_on};

#[test]
fn a_file_that_is_being_opened_again_while_one_of_its_names_goes_is_found() {
    let origin = Arc::new(Origin::with_names(0o644, &["file", "other"]));
    let (names, _engine) = mount(&origin, &[], 0);
    let (inode, _) = block_on(names.look_up(names.root(), OsStr::new("file"))).unwrap();
    assert!(inode.slot.get().is_none(), "its path is closed");
    let goes_on = origin.hold_next_search();
    let mut looking = pin!(inode.look());
    let mut context = Context::from_waker(Waker::noop());
    assert!(looking.as_mut().poll(&mut context).is_pending());
    block_on(names.remove(names.root(), OsStr::new("file"))).unwrap();
    goes_on.store(true, Ordering::SeqCst);
    let Poll::Ready(found) = looking.as_mut().poll(&mut context) else { panic!("it waits for nothing") };
    assert_eq!(found.map(|found| found.links), Ok(1));
}

#[test]
fn a_file_whose_last_name_stays_after_all_is_found_though_the_name_that_led_to_it_has_gone() {
    let origin = Arc::new(Origin::with_names(0o644, &["file", "other"]));
    let (names, _engine) = mount(&origin, &[], 0);
    let (inode, _) = block_on(names.look_up(names.root(), OsStr::new("file"))).unwrap();
    block_on(names.remove(names.root(), OsStr::new("file"))).unwrap();
    origin.refuse_next_removal();
    assert_eq!(block_on(names.remove(names.root(), OsStr::new("other"))), Err(Errno::IO));
    assert_eq!(block_on(names.set_mode(&inode, 0o600)), Ok(()));
    assert_eq!(origin.file().mode, 0o600);
}

#[test]
fn the_last_close_of_a_removed_file_closes_what_the_engine_has_open_of_it() {
    let origin = Arc::new(Origin::with_mode(0o644));
    let (names, engine) = mount(&origin, &[], 9);
    let (inode, _) = block_on(names.look_up(names.root(), OsStr::new("file"))).unwrap();
    let pinned = block_on(Pinned::for_writing(&inode)).unwrap();
    let handle = block_on(names.open(pinned, false)).unwrap();
    block_on(names.remove(names.root(), OsStr::new("file"))).unwrap();
    assert_eq!(engine.told(), [Told::Unlinked], "it is in use");
    block_on(names.release(handle));
    block_on(names.let_go(&inode));
    assert_eq!(engine.told(), [Told::Gone]);
}
