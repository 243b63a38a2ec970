//! The worker's signs of life. A shard that does not answer gives none, and the holder replaces the worker.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headpond_engine::Request;
use headpond_shard::Handle;

/// How often the shard is asked.
const PERIOD: Duration = Duration::from_secs(1);

/// For tests: a shard hangs while there is this file.
const HANGS: &str = "HEADPOND_SHARD_HANGS";

/// Counts on, as long as the shard answers. The thread ends with the process.
pub(super) fn keep_beating(handle: Handle, beat: &'static AtomicU64) -> io::Result<()> {
    let hangs = std::env::var_os(HANGS).map(PathBuf::from);
    let keep = move || {
        loop {
            if let Some(file) = hangs.as_ref().filter(|file| file.exists()) {
                hang(&handle, file.clone());
            }
            // The answer needs a turn of the shard's loop, and no disk.
            let _ = handle.stats();
            beat.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PERIOD);
        }
    };
    std::thread::Builder::new().name("beat".to_owned()).spawn(keep).map(drop)
}

/// Blocks the shard's thread, which calls the answer.
fn hang(handle: &Handle, file: PathBuf) {
    let wait = move |_| {
        while file.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    handle.submit(Request::SyncAll, Box::new(wait));
}
