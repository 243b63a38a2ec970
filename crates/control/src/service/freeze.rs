//! A standstill of the origin, for a snapshot of it.
//!
//! ```text
//! 1 names      changes of names and attributes wait at the door; those under way end
//! 2 changes    changes of data wait, too; those under way end
//! 3 flush      all that was acknowledged goes to the origin, which now has the state of one moment
//! 4 still      destage stops. Changes of data go on into the log; what must change the origin waits
//! 5 sync       the origin's file system is synced. The client takes its snapshot
//! 6 thaw       all that waited goes on
//! ```
//!
//! Writes wait in steps 2 and 3, so a client flushes before: then little is left.
//!
//! Invariants
//! - The standstill ends with its connection, at its deadline, and with the mount, whatever step it is in.
//! - The worker that takes over after this one holds nothing, and the client has lost its connection.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use headpond_base::BLOCK_U64;
use headpond_engine::{FlushId, Request};
use headpond_shard::Hold;

use super::commands::{Service, outcome};
use super::frozen::HowFar;
use super::protocol::Answer;
use super::socket::{Client, Heard};
use crate::process::log::log_line;
use crate::refusal::Refusal;
use crate::wording::Size;

/// How often a wait looks at the connection and the clock.
const LOOK: Duration = Duration::from_millis(5);

/// The same while the client takes its snapshot. What the client says is heard at once.
const CLIENT: Duration = Duration::from_millis(100);

/// The flush of step 3. Others have the id of their operation, which counts from 1.
const FLUSH_ID: u64 = u64::MAX;

/// The most flushes. No change comes in, so one is enough. The second finds that out.
const ROUNDS: usize = 3;

/// Why a standstill ended before its client let it.
enum Ended {
    /// The client is gone: nobody wants to know.
    Gone,
    /// The reason.
    Because(String),
}

impl Service {
    /// Brings the origin to a standstill for a client, on a thread of its own.
    pub(crate) fn freeze(&self, seconds: u64, client: Client) {
        let Some((number, until)) = self.freeze.begin(seconds) else {
            let why = "the mount is frozen already. To see until when: headpond status";
            return client.refuse(&Refusal::Usage(why.to_owned()));
        };
        let standstill = OneFreeze { service: self.clone(), number, until, client };
        if let Err(error) = std::thread::Builder::new().name("freeze".to_owned()).spawn(move || standstill.run()) {
            // The client went with the thread's closure: it finds the connection closed.
            log_line(format_args!("cannot start a thread to freeze the origin: {error}"));
            self.thaw();
        }
    }

    /// Ends the standstill, if there is one.
    pub(crate) fn thaw(&self) {
        self.thaw_one(None);
    }

    fn thaw_one(&self, number: Option<u64>) -> bool {
        self.freeze.end(number, || {
            self.handle.hold(Hold::Nothing);
            self.handle.submit(self.configuration(false), Box::new(drop));
            self.freeze.hold_note(false);
            self.standstill.end();
        })
    }
}

/// One standstill, from its thread.
struct OneFreeze {
    service: Service,
    number: u64,
    until: Instant,
    client: Client,
}

impl OneFreeze {
    fn run(mut self) {
        let stood = self.bring_about().and_then(|()| {
            self.client.answer_first(&Answer::Frozen);
            self.wait_until(CLIENT, |client| client == Heard::Line)
        });
        let ended_in_time = self.service.thaw_one(Some(self.number));
        match stood {
            Ok(()) if ended_in_time => self.client.answer(&Answer::Done),
            Ok(()) => self.client.answer(&Answer::Thawed { why: "the mount is ending".to_owned() }),
            Err(Ended::Gone) => {}
            Err(Ended::Because(why)) => self.client.answer(&Answer::Thawed { why }),
        }
    }

    /// Takes a step, unless the standstill has ended.
    fn step(&self, how_far: HowFar, step: impl FnOnce(&Service)) -> Result<(), Ended> {
        let taken = self.service.freeze.step(self.number, how_far, || step(&self.service));
        if taken { Ok(()) } else { Err(Ended::Because("the mount is ending".to_owned())) }
    }

    /// Waits until something is so. Looks at what the client says, at the clock, and whether the standstill lasts.
    fn wait_until(&mut self, patience: Duration, mut is_so: impl FnMut(Heard) -> bool) -> Result<(), Ended> {
        loop {
            let heard = self.client.listen(patience);
            if is_so(heard) {
                return Ok(());
            }
            if heard == Heard::Gone {
                return Err(Ended::Gone);
            }
            if Instant::now() >= self.until {
                return Err(Ended::Because("the time of --for is over".to_owned()));
            }
            self.step(HowFar::Begun, |_| {})?;
        }
    }

    fn bring_about(&mut self) -> Result<(), Ended> {
        let service = self.service.clone();
        self.step(HowFar::Begun, |service| service.standstill.begin())?;
        self.wait_until(LOOK, |_| service.standstill.is_quiet())?;
        self.step(HowFar::Begun, |service| service.handle.hold(Hold::Changes))?;
        self.wait_until(LOOK, |_| service.handle.stats().changes_under_way == 0)?;
        self.flush()?;
        self.step(HowFar::Held, |service| {
            // In force before the next change: a destage that began would wait with its blocks locked.
            let _ = service.handle.call(service.configuration(true));
            service.freeze.hold_note(true);
            service.handle.hold(Hold::Origin);
        })?;
        self.wait_until(LOOK, |_| service.handle.stats().changes_under_way == 0)?;
        self.sync_origin()?;
        self.step(HowFar::Stands, |_| {})
    }

    /// Brings everything to the origin.
    fn flush(&mut self) -> Result<(), Ended> {
        let service = self.service.clone();
        for _ in 0..ROUNDS {
            let (send, done) = channel();
            let answer = Box::new(move |reply| drop(send.send(outcome(&reply))));
            service.handle.submit(Request::flush_all(FLUSH_ID), answer);
            let mut result = None;
            let waited = self.wait_until(LOOK, |_| {
                result = done.try_recv().ok();
                result.is_some()
            });
            if waited.is_err() {
                service.handle.submit(Request::CancelFlush(FlushId(FLUSH_ID)), Box::new(drop));
            }
            waited?;
            if let Some(Err(error)) = result {
                let why = service.why(format!("the origin did not take everything: {error}"));
                return Err(Ended::Because(why));
            }
            let stats = service.handle.stats().engine;
            if stats.dirty_blocks == 0 && stats.dirty_objects == 0 {
                return Ok(());
            }
        }
        let left = service.handle.stats().engine.dirty_blocks * BLOCK_U64;
        Err(Ended::Because(format!("{} stay dirty even after a flush", Size(left))))
    }

    /// Syncs the origin's file system, on a thread of its own: an origin that is away gives no answer.
    fn sync_origin(&mut self) -> Result<(), Ended> {
        let Some(root) = self.service.freeze.root() else { return Ok(()) };
        let (send, done) = channel();
        let sync = move || drop(send.send(root.sync_file_system()));
        let failed = |error| Ended::Because(format!("cannot sync the origin's file system: {error}"));
        std::thread::Builder::new().name("freeze-sync".to_owned()).spawn(sync).map_err(failed)?;
        let mut result = None;
        self.wait_until(LOOK, |_| {
            result = done.try_recv().ok();
            result.is_some()
        })?;
        result.map_or(Ok(()), |synced| synced.map_err(failed))
    }
}
