//! Flushes that clients start, of everything or of what lies below a path. A client follows and cancels a flush by
//! its handle.
//!
//! Invariant: each flush ends. It is then done, cancelled, or failed with the reason.

use std::io;
use std::path::{Component, Path};
use std::sync::mpsc::channel;
use std::time::Duration;

use headpond_base::{BLOCK_U64, Errno};
use headpond_engine::{FlushId, FlushScope, Reply, Request};

use super::commands::{FLUSH, Service, outcome};
use super::operations::StartedOperation;
use super::protocol::{Answer, OperationProgress};
use super::shown::FlushShown;
use crate::numbers::eta_seconds;
use crate::refusal::Refusal;

/// How long a client waits for the answer that there is no such path.
const LOOK: Duration = Duration::from_millis(500);

/// The most flushes that status shows, ended ones among them.
const SHOWN: usize = 8;

impl Service {
    /// Starts a flush, of what lies below `path` if there is one. Returns at once.
    pub(crate) fn start_flush(&self, path: Option<&str>) -> Result<Answer, Refusal> {
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            let id = self.begin(FLUSH, "")?;
            self.submit_flush(id, FlushScope::All);
            return Ok(Answer::Started { id });
        };
        if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(Refusal::Usage(format!("'{path}' is not a path below the mount")));
        }
        let shown = self.mountpoint().join(path);
        let missing = || Refusal::Usage(format!("there is no {}", shown.display()));
        let id = self.begin(FLUSH, path)?;
        let (service, below, shown_there) = (self.clone(), path.to_owned(), shown.clone());
        let (found, is_there) = channel();
        // To look at all files of a large directory takes a while. To look at one file takes for ever if the origin's
        // server is away.
        let look = move || {
            let there = std::fs::symlink_metadata(service.places.origin.join(&below));
            let there = !there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            // Fails if that took too long. The flush itself then says so.
            let _ = found.send(there);
            let why = if there {
                match service.insight.objects_below(Path::new(&below)) {
                    Ok(objects) => return service.submit_flush(id, FlushScope::Objects(objects)),
                    Err(error) => format!("cannot read {}: {error}", shown_there.display()),
                }
            } else {
                format!("there is no {}", shown_there.display())
            };
            service.operations.finish(id, OperationProgress::Failed(why));
        };
        if let Err(error) = std::thread::Builder::new().name("flush-scope".to_owned()).spawn(look) {
            self.operations
                .finish(id, OperationProgress::Failed(format!("cannot start a thread to list the files: {error}")));
        }
        match is_there.recv_timeout(LOOK) {
            Ok(false) => {
                self.operations.withdraw(id);
                Err(missing())
            }
            _ => Ok(Answer::Started { id }),
        }
    }

    fn submit_flush(&self, id: u64, scope: FlushScope) {
        let cancelled = || self.operations.get(id).is_some_and(|known| known.cancelled);
        if cancelled() {
            return self.operations.finish(id, OperationProgress::Cancelled);
        }
        let (service, operations) = (self.clone(), self.operations.clone());
        let end = move |reply: Reply| {
            operations.finish(
                id,
                match &reply {
                    Reply::Failed(Errno::CANCELED) => OperationProgress::Cancelled,
                    reply => outcome(reply)
                        .map_or_else(|why| OperationProgress::Failed(service.why(why)), |()| OperationProgress::Done),
                },
            );
        };
        self.handle.submit(Request::Flush { id: FlushId(id), scope }, Box::new(end));
        if cancelled() {
            // The cancel may have come before the engine had the flush.
            self.handle.submit(Request::CancelFlush(FlushId(id)), Box::new(drop));
        }
    }

    /// Ends a flush early. Waits until the engine knows.
    pub(crate) fn cancel_flush(&self, id: u64) -> Result<Answer, Refusal> {
        let is_flush = self.operations.get(id).is_some_and(|known| known.name == FLUSH);
        match self.operations.cancel(id).filter(|_| is_flush) {
            Some(OperationProgress::Running) => {
                // It may have ended this moment, or not have begun. Then it notices the cancel by itself.
                let _ = self.handle.call(Request::CancelFlush(FlushId(id)));
                Ok(Answer::Done)
            }
            Some(_) => Err(Refusal::Usage(format!("flush {id} has ended already. To see how: headpond status"))),
            None => Err(Refusal::Usage(format!("there is no flush {id}. To see the flushes: headpond status"))),
        }
    }

    /// Bytes that a flush must still write to the origin, if the engine is at work on it.
    pub(crate) fn flush_left(&self, id: u64) -> Option<u64> {
        let flushes = self.handle.stats().flushes;
        let flush = flushes.iter().find(|flush| flush.id == Some(FlushId(id)))?;
        Some(flush.left_blocks * BLOCK_U64)
    }

    /// The last flushes, the newest first.
    pub(crate) fn flushes(&self) -> Vec<FlushShown> {
        let known = self.operations.last(FLUSH, SHOWN);
        if known.is_empty() {
            return Vec::new();
        }
        let under_way = self.handle.stats().flushes;
        let rate = self.destage_rate();
        let show = |operation: StartedOperation| {
            let flush = under_way.iter().find(|flush| flush.id == Some(FlushId(operation.id)));
            let blocks = |blocks: Option<u64>| blocks.unwrap_or(0) * BLOCK_U64;
            let (state, why) = match &operation.progress {
                OperationProgress::Running => ("running", ""),
                OperationProgress::Done => ("done", ""),
                OperationProgress::Cancelled => ("cancelled", ""),
                OperationProgress::Failed(why) => ("failed", why.as_str()),
            };
            FlushShown {
                handle: operation.id,
                path: operation.about.clone(),
                state: state.to_owned(),
                why: why.to_owned(),
                left_bytes: blocks(flush.map(|flush| flush.left_blocks)),
                total_bytes: blocks(flush.map(|flush| flush.total_blocks)),
                seconds: operation.took().as_secs_f64(),
                left_seconds: flush.and_then(|flush| eta_seconds(flush, rate)),
            }
        };
        known.into_iter().map(show).collect()
    }
}
