//! A recording of what is asked of the mount, for a client: a trace, over the client's connection.
//!
//! Invariants
//! - The data path never waits for a recording: the shard's thread notes into a ring, this thread sends. If the client
//!   is slow, the ring gets full; requests are then dropped, and counted in the trace.
//! - A recording ends with its connection, at its deadline or largest size, and with the
//!   mount. Whichever it is, the shard then notes nothing any more.
//! - The daemon opens no file: the client writes the trace, with the rights of its user.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headpond_base::{Nanos, UnixNanos};
use headpond_recording::{Pulled, Puller, TraceEncoder, TraceHead, WhyEnded, ring};
use headpond_shard::Recorder;

use super::commands::Service;
use super::protocol::Answer;
use super::socket::{Client, Heard};
use crate::process::log::log_line;

/// Requests that wait in the ring at most, 3 MiB: a third of a second of 200,000 a second.
const RING: usize = 1 << 16;

/// Requests that are taken from the ring and sent at once. They and their bytes take 96 KiB: more would push the data of
/// the load out of the processor's cache.
const PORTION: usize = 1 << 10;

/// How often the ring is emptied, and how long a client has to take some bytes before the clock is looked at again. Each
/// time costs a wake-up of two processes: at a fifth of this that was most of the cost of a recording.
const LOOK: Duration = Duration::from_millis(100);

/// How long a client has to take the rest of its trace at the end.
const REST: Duration = Duration::from_secs(10);

/// How long to wait until the shard has dropped its recorder. It does at its next turn.
const TURN: Duration = Duration::from_secs(1);

/// The longest recording.
const SECONDS_MAX: u64 = 7 * 24 * 3600;

impl Service {
    /// Records for a client, on a thread of its own.
    pub(crate) fn record(&self, seconds: u64, bytes_max: u64, client: Client) {
        if let Err(refusal) = self.recordings.begin() {
            return client.refuse(&refusal);
        }
        let recording = OneRecording { service: self.clone(), client };
        let run = move || recording.run(Duration::from_secs(seconds.min(SECONDS_MAX)), bytes_max);
        if let Err(error) = std::thread::Builder::new().name("record".to_owned()).spawn(run) {
            // The client went with the closure, and the drop has ended the recording.
            log_line(format_args!("cannot start a thread to record what is asked: {error}"));
        }
    }
}

/// One recording, from its thread. Its drop ends it.
struct OneRecording {
    service: Service,
    client: Client,
}

impl Drop for OneRecording {
    fn drop(&mut self) {
        self.service.handle.record(None);
        self.service.recordings.over();
    }
}

impl OneRecording {
    fn run(mut self, lasts: Duration, bytes_max: u64) {
        let (pusher, mut puller) = ring(RING);
        let mut bytes = Vec::new();
        let mut encoder = TraceEncoder::begin(&self.head(), bytes_max, &mut bytes);
        let started = Instant::now();
        self.service.handle.record(Some(Recorder::new(pusher, started)));
        // Taken between two turns: the recorder is in place by then.
        let _ = self.service.handle.stats();
        self.client.answer_first(&Answer::Recording);
        let mut pulled = Vec::with_capacity(PORTION);
        let why = loop {
            // What the client has not taken yet comes first: so this thread holds no more than a portion.
            let mut more = false;
            if bytes.is_empty() {
                pulled.clear();
                more = puller.pull(&mut pulled, PORTION) == PORTION;
                if !encoder.append(&pulled, at(started), &mut bytes) {
                    break WhyEnded::Size;
                }
            }
            if puller.has_ended() || self.service.recordings.must_end() {
                break WhyEnded::Mount;
            }
            if started.elapsed() >= lasts {
                break WhyEnded::Time;
            }
            if self.send(&mut bytes, Instant::now() + LOOK).is_err() {
                return;
            }
            if bytes.is_empty() && !more {
                match self.client.listen(LOOK) {
                    Heard::Nothing => {}
                    Heard::Line => break WhyEnded::Asked,
                    Heard::Gone => return,
                }
            }
        };
        self.service.handle.record(None);
        wait_for_the_last(&puller);
        if why != WhyEnded::Size {
            take_the_last(&mut puller, &mut encoder, &mut pulled, started, &mut bytes);
        }
        let dropped = if why == WhyEnded::Size { 0 } else { puller.dropped() };
        encoder.end(dropped, at(started), why, &mut bytes);
        // A client that goes away before that has a trace that was cut.
        let _ = self.send(&mut bytes, Instant::now() + REST);
    }

    fn head(&self) -> TraceHead {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settings = self.service.settings();
        let config = settings.config();
        TraceHead {
            started: UnixNanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)),
            pool_bytes: self.service.members.bytes(),
            flush_period: config.period().unwrap_or_default(),
            sequential_cutoff: config.sequential_cutoff.unwrap_or(0),
            dirty_threshold: config.dirty_threshold,
        }
    }

    /// Sends what the client takes until then.
    fn send(&mut self, bytes: &mut Vec<u8>, until: Instant) -> std::io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() && Instant::now() < until {
            sent += self.client.send(&bytes[sent..], LOOK)?;
        }
        bytes.drain(..sent);
        Ok(())
    }
}

fn at(started: Instant) -> Nanos {
    started.elapsed().into()
}

/// Waits until the shard notes nothing any more.
fn wait_for_the_last(puller: &Puller) {
    let until = Instant::now() + TURN;
    while !puller.has_ended() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn take_the_last(
    puller: &mut Puller,
    encoder: &mut TraceEncoder,
    pulled: &mut Vec<Pulled>,
    started: Instant,
    bytes: &mut Vec<u8>,
) {
    pulled.clear();
    puller.pull(pulled, RING);
    encoder.append(pulled, at(started), bytes);
}
