//! The limits of a shard, set at its start (promise 9).

use std::time::Duration;

/// The most that a shard has under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests of all handles together. One more waits in [`Handle::submit`](crate::Handle::submit). And as many
    /// again from all [`Door`](headpond_door::Door)s that the shard serves: further requests stay in their
    /// descriptors.
    pub requests: usize,
    /// Threads for calls that applications wait for: reads of the origin, seeks, reservations. As many as a disk can
    /// use in its queue.
    pub origin_readers: usize,
    /// Threads for changes of the origin. Destage bounds itself; in write-through as many as a disk can use in its
    /// queue.
    pub origin_writers: usize,
    /// Threads for changes of directories, which wait for neither of the above. As many again close files.
    pub origin_directories: usize,
    /// Operations of the origin, and of the flash. Above this the shard takes no new request from the mailbox until
    /// some end.
    pub operations: usize,
    /// How long to look for work before a sleep, where there are several processors; ten times as long while the flash
    /// reads and no other thread wants the processor. Zero: never. The shard looks only where that found work lately, and
    /// lets other threads have the processor meanwhile. With a single processor, the threads that bring the work need it.
    ///
    /// A wake-up costs some 20 us when the processor sleeps (most on virtual machines), and a lone read needs two.
    pub spin: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 256,
            origin_readers: 32,
            origin_writers: 32,
            origin_directories: 4,
            operations: 1024,
            spin: SPIN,
        }
    }
}

/// About the time of a read of flash.
const SPIN: Duration = Duration::from_micros(100);
