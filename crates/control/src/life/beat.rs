//! The worker's signs of life. A shard that does not answer gives none, and the holder replaces the worker.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headpond_shard::Handle;

/// How often the shard is asked.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts on, as long as the shard answers. The thread ends with the process.
pub(super) fn keep_beating(handle: Handle, beat: &'static AtomicU64) -> io::Result<()> {
    let keep = move || {
        loop {
            // The answer needs a turn of the shard's loop, and no disk.
            let _ = handle.stats();
            beat.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PERIOD);
        }
    };
    std::thread::Builder::new().name("beat".to_owned()).spawn(keep).map(drop)
}
