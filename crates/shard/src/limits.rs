//! The limits of a shard, set at its start (promise 9).

use std::time::Duration;

/// How much a shard has under way at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests of all handles together: a further one waits in
    /// [`Handle::submit`](crate::Handle::submit). And as many again from all the [`Door`](headpond_door::Door)s that
    /// the shard serves: what is more stays in their descriptors.
    pub requests: usize,
    /// Threads for what applications wait for: reads of the origin, seeks, reservations. As many as
    /// a disk gains from having in its queue.
    pub origin_readers: usize,
    /// Threads for what changes the origin. Destage bounds itself; in write-through as many as a disk gains from having in
    /// its queue.
    pub origin_writers: usize,
    /// Threads for changes of directories, which wait for neither of the above, and as many for closing files.
    pub origin_directories: usize,
    /// Operations of the origin, and of the flash, above which no new request is taken from the
    /// mailbox until some are done.
    pub operations: usize,
    /// How long to look for work before going to sleep, and ten times as long while the flash reads and nobody else
    /// wants the processor; zero is never. Only while work comes at such intervals: after a longer wait the
    /// shard sleeps at once, until one was short again. Other threads get the processor meanwhile.
    ///
    /// Being woken costs some 20 us where the processor has gone to sleep (on virtual machines, most
    /// of all), twice for each read that is alone.
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
            spin: spin_default(),
        }
    }
}

/// About what flash takes for a read. With a single processor, those who are to bring the work need it.
fn spin_default() -> Duration {
    let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if several { Duration::from_micros(100) } else { Duration::ZERO }
}
