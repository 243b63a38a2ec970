//! What tests of a reactor over several disks share.

use std::time::Duration;

use headpond_base::{BLOCK, Buf, BufMut};
use headpond_device::{Completion, Reactor};

/// A block of one byte.
pub fn block(byte: u8) -> Buf {
    BufMut::copy_of(&[byte; BLOCK]).freeze()
}

/// Waits for exactly so many operations.
pub fn wait_for(reactor: &mut dyn Reactor, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        reactor.wait(&mut done, Some(Duration::from_secs(30))).unwrap();
    }
    assert_eq!(done.len(), count);
    done
}
