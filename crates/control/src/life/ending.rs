//! The end of a pool, once no request can come in any more. Dirty data goes to the origin, or stays; the engine
//! writes its last checkpoint; and the marker goes, or says what is left.
//!
//! Invariant: whatever fails or hangs here, all acknowledged writes are durable in the pool once [`Request::SyncAll`]
//! has its answer. The marker stays until the origin has all of them.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use headpond_base::BLOCK_U64;
use headpond_engine::{Reply, Request};
use headpond_shard::{Gate, Handle};

use crate::origin::OriginRoot;
use crate::ownership::{DurableNote, Marker, MarkerHold, MarkerState, SharedMarker};
use crate::pool::Superblocks;
use crate::process::log::log_line;
use crate::service::outcome;
use crate::wording::clock::{unix_seconds, utc};
use crate::wording::{HowMany, Size};

/// The longest time for each step of the end. A flash without an answer by then is stuck.
const STEP: Duration = Duration::from_secs(60);

/// How long a quick end waits for what only the origin keeps from its end, once everything is durable in the pool: the
/// sync of new names there, and the engine's last checkpoint. The first is for the origin's own loss of power, the second
/// saves the next start some reading.
const QUICK: Duration = Duration::from_secs(5);

/// What is said of an origin that did not answer at the end.
const NOT_SYNCED: &str = "The origin does not answer, so it may lack what was written past the pool and not synced";

/// The longest time for the last write of the marker.
const MARKER_WITHIN: Duration = Duration::from_secs(15);

/// The id of the flush at the end. Others have the id of their operation, which counts from 1.
const FLUSH_ID: u64 = 0;
/// How often the end looks for a signal while the origin is being written.
const PERIOD: Duration = Duration::from_millis(250);

/// How a pool ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Bytes that only the pool has.
    pub dirty_bytes: u64,
    /// Files of which only the pool has something, even if only their size or time.
    pub dirty_files: u64,
    /// What went wrong, if anything did.
    pub trouble: Option<String>,
    /// Whether the pool has durably all that was acknowledged, and nothing failed but a flush.
    pub in_order: bool,
    /// Whether the origin was synced. One that does not answer is not.
    pub origin_synced: bool,
    /// Whether the engine wrote its last checkpoint.
    pub stopped: bool,
    /// What else the operator should know about the origin's state.
    pub note: Option<String>,
}

impl Ended {
    pub(crate) fn is_complete(&self) -> bool {
        self.dirty_files == 0 && self.dirty_bytes == 0 && self.trouble.is_none() && self.origin_synced
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(trouble) = &self.trouble {
            write!(f, "{trouble}; ")?;
        }
        if let Some(note) = &self.note {
            let (dirty, files) = (Size(self.dirty_bytes), HowMany(self.dirty_files, "file"));
            return write!(f, "ended; {dirty} of dirty data in {files} stay in the pool. {note}");
        }
        if self.is_complete() {
            return f.write_str("ended; the origin is complete");
        }
        write!(
            f,
            "ended; {} of dirty data in {} stay in the pool, and the marker beside the origin says so. To go on, mount \
             again with the same flash",
            Size(self.dirty_bytes),
            HowMany(self.dirty_files, "file")
        )
    }
}

/// What ends: the engine behind a handle, and the origin with its gate.
#[derive(Clone, Copy)]
pub(crate) struct Ending<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) root: &'a Arc<OriginRoot>,
    pub(crate) gate: &'a Arc<Gate>,
}

impl Ending<'_> {
    /// Ends the engine. With `flush` the origin first gets everything, unless `flush` returns true, which means: end
    /// now.
    pub(crate) fn end(self, flush: Option<&mut dyn FnMut() -> bool>) -> Ended {
        let flushes = flush.is_some();
        let flushed = flush.map_or(Ok(()), |is_interrupted| self.flush_all(is_interrupted));
        // The first of the two makes a quick end durable. The second only speeds up the next start.
        let synced = self.sync_all(!flushes || flushed.is_err());
        let is_quick = !flushes || matches!(synced, Ok(Synced::PoolAlone));
        let stopped = wait_for(self.handle, Request::Stop, if is_quick { QUICK } else { STEP });
        let crash =
            |doing: &str, why: &Stuck| format!("{doing}: {why}. The pool is as after a crash: what was synced is safe");
        let stats = self.handle.stats().engine;
        if stats.flash_failed != 0 && flushed.is_ok() && stats.dirty_blocks == 0 && stats.dirty_objects == 0 {
            // The pool cannot stop in order any more. It need not: no start will use what it has.
            return Ended {
                dirty_bytes: 0,
                dirty_files: 0,
                trouble: self.without_pool().err(),
                in_order: true,
                origin_synced: true,
                stopped: false,
                note: None,
            };
        }
        let (is_stopped, origin_synced) = (stopped.is_ok(), matches!(synced, Ok(Synced::All)));
        let in_order = synced.is_ok() && !matches!(stopped, Err(Stuck::Failed(_)));
        let mut trouble = flushed.err();
        trouble = trouble.or_else(|| synced.err().map(|why| crash("making the pool durable", &why)));
        trouble = trouble.or_else(|| match stopped {
            Err(Stuck::Late(_)) if is_quick => None,
            // A stop asks for the origin's state, but the origin is another's by now. Everything is durable in the
            // pool.
            _ if !flushes && self.gate.is_lost() => None,
            stopped => stopped.err().map(|why| crash("stopping the engine", &why)),
        });
        let (dirty_bytes, dirty_files) = (stats.dirty_blocks * BLOCK_U64, stats.dirty_objects);
        let note = if origin_synced || trouble.is_some() { None } else { Some(NOT_SYNCED.to_owned()) };
        Ended { dirty_bytes, dirty_files, trouble, in_order, origin_synced, stopped: is_stopped, note }
    }

    /// Makes durable what was acknowledged. A quick end does not wait for an origin that does not answer: a name that it
    /// has not synced stays unanchored in the pool.
    fn sync_all(self, is_quick: bool) -> Result<Synced, Stuck> {
        let done = ask(self.handle, Request::SyncAll);
        let since = Instant::now();
        // At least what the log had when the request came.
        let mut asked_for = None;
        loop {
            match done.recv_timeout(PERIOD) {
                Ok(result) => return result.map(|()| Synced::All).map_err(Stuck::Failed),
                Err(RecvTimeoutError::Disconnected) => return Err(Stuck::Late(STEP)),
                Err(RecvTimeoutError::Timeout) if since.elapsed() >= STEP => return Err(Stuck::Late(STEP)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if is_quick && since.elapsed() >= QUICK {
                let stats = self.handle.stats();
                let is_silent = stats.origin_silent.is_some_and(|silent| silent >= QUICK);
                let asked_for = *asked_for.get_or_insert(stats.engine.last_entry);
                if is_silent && stats.engine.durable_entry >= asked_for && stats.engine.flash_failed == 0 {
                    return Ok(Synced::PoolAlone);
                }
            }
        }
    }

    /// Waits until the origin has what this host's kernel still has for it, for a bounded time.
    pub(crate) fn sync_origin(self) -> std::io::Result<()> {
        let root = self.root.clone();
        let (send, done) = channel();
        let sync = move || drop(send.send(root.sync_file_system()));
        std::thread::Builder::new().name("sync-origin".to_owned()).spawn(sync)?;
        done.recv_timeout(STEP).map_err(|_| std::io::ErrorKind::TimedOut)?
    }

    /// Syncs the origin's file system. After a failure of the flash everything went to the origin directly, and its
    /// file system may still have it in memory only.
    fn without_pool(self) -> Result<(), String> {
        self.root.sync_file_system().map_err(|error| format!("cannot sync the origin's file system: {error}"))
    }

    fn flush_all(self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<(), String> {
        let handle = self.handle;
        // If the origin is another's by now, that is the reason.
        let why = |why: String| self.gate.lost().map_or(why, str::to_owned);
        // No request comes in any more, so one round is enough. The second round finds that out.
        for _ in 0..2 {
            let done = ask(handle, Request::flush_all(FLUSH_ID));
            loop {
                match done.recv_timeout(PERIOD) {
                    Ok(result) => {
                        break result.map_err(|error| why(format!("the origin did not take everything: {error}")))?;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err("the shard has ended".to_owned()),
                }
                if is_interrupted() {
                    return Err("interrupted while writing to the origin".to_owned());
                }
            }
            let stats = handle.stats().engine;
            if stats.dirty_blocks == 0 && stats.dirty_objects == 0 {
                return Ok(());
            }
        }
        Err("some files are dirty even after a flush".to_owned())
    }

    /// Writes the last marker. If that fails, the running mount's marker stays, which claims more than this one
    /// would. If the origin is another's by now, nothing is touched.
    pub(crate) fn settle_marker(self, beside: BesideOrigin, superblocks: &Superblocks, ended: &mut Ended) {
        let settled = if ended.is_complete() {
            Settled::Complete
        } else if (ended.trouble.is_some() || !ended.origin_synced) && ended.dirty_files == 0 {
            Settled::NotKnown
        } else {
            let stopped_at = if ended.stopped { superblocks.stopped_at() } else { None };
            Settled::Dirty { bytes: ended.dirty_bytes, stopped_at }
        };
        let gate = self.gate.clone();
        let (done, settling) = channel();
        // On a thread of its own: a server that is away gives no answer until it is back.
        let durable = self.handle.stats().engine.durable_host_batch;
        let settle = move || drop(done.send(settle(&gate, beside, durable, settled)));
        let outcome = match std::thread::Builder::new().name("marker".to_owned()).spawn(settle) {
            Ok(_) => settling.recv_timeout(MARKER_WITHIN).unwrap_or(Err(Unsettled::Late)),
            Err(error) => Err(Unsettled::Failed(error.to_string())),
        };
        match outcome {
            Ok(()) => {}
            Err(Unsettled::Failed(why)) => log_line(why),
            Err(Unsettled::Late) => {
                ended.note = Some(
                "The origin does not answer, so the marker beside it still says mounted, as after a crash. To go on, mount again with \
                 the same flash"
                    .to_owned(),
            );
            }
            Err(Unsettled::Lost) => ended.note = self.gate.lost().map(str::to_owned),
        }
    }
}

/// What a sync of everything reached.
enum Synced {
    All,
    /// The origin does not answer.
    PoolAlone,
}

/// Why a request did not succeed.
enum Stuck {
    Failed(String),
    Late(Duration),
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::Late(patience) => write!(f, "no answer within {} s", patience.as_secs()),
        }
    }
}

/// Sends a request. What comes of it is received later.
fn ask(handle: &Handle, request: Request) -> Receiver<Result<(), String>> {
    let (send, done) = channel();
    handle.submit(request, Box::new(move |reply: Reply| drop(send.send(outcome(&reply)))));
    done
}

/// Sends a request and waits for its end, at most `patience`.
fn wait_for(handle: &Handle, request: Request, patience: Duration) -> Result<(), Stuck> {
    match ask(handle, request).recv_timeout(patience) {
        Ok(result) => result.map_err(Stuck::Failed),
        Err(_) => Err(Stuck::Late(patience)),
    }
}

/// What lies beside the origin of a pool in use.
pub(crate) struct BesideOrigin {
    pub(crate) marker: MarkerHold,
    pub(crate) note: Arc<DurableNote>,
    /// The marker's content.
    pub(crate) claim: SharedMarker,
}

/// The origin's state at the end.
enum Settled {
    Complete,
    /// Unknown: the claim stays as it is.
    NotKnown,
    Dirty {
        bytes: u64,
        stopped_at: Option<u64>,
    },
}

enum Unsettled {
    Failed(String),
    Late,
    Lost,
}

fn settle(gate: &Gate, beside: BesideOrigin, durable: u64, settled: Settled) -> Result<(), Unsettled> {
    let BesideOrigin { marker, note, claim } = beside;
    // From here on no change of the pool's members is noted: the engine has ended.
    let mut claim = claim.end();
    // The marker may be another's: this asks the gate to look once more, now.
    gate.doubt();
    if let Err(errno) = gate.pass() {
        let lost = gate.is_lost();
        let _ = note.end(None);
        marker.disown();
        let why = format!("the marker beside the origin stays: headpond cannot read whose it is: {errno}");
        return Err(if lost { Unsettled::Lost } else { Unsettled::Failed(why) });
    }
    // A complete origin has no use for the note: it goes with the marker.
    let last = (!matches!(settled, Settled::Complete)).then_some(durable);
    if let Err(error) = note.end(last) {
        log_line(format_args!("cannot note beside the origin how far the pool is durable: {error}"));
    }
    let result = match settled {
        Settled::Complete => marker.remove(),
        Settled::NotKnown => Ok(()),
        Settled::Dirty { bytes: dirty_bytes, stopped_at } => {
            if let Some(claim) = &mut claim.claim {
                claim.stopped_at = stopped_at;
            }
            let (state, since) = (MarkerState::DirtyLeft, utc(unix_seconds()));
            marker.write(&Marker { state, since, dirty_bytes, ..claim })
        }
    };
    result.map_err(|refusal| Unsettled::Failed(refusal.to_string()))
}
