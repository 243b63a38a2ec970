//! A recording of what is asked of the mount: a trace, into a file that the client gives.
//!
//! Invariants
//! - The data path never waits for a recording: the shard's thread notes into a ring, this thread writes. If the file
//!   is slow, the ring gets full; requests are then dropped, and counted in the trace.
//! - A recording ends with its connection, at its deadline or largest size, and with the
//!   mount. Whichever it is, the shard then notes nothing any more.
//! - The daemon opens no file: the client makes it, with the rights of its user. That this thread writes it spares a
//!   second process, which would wake up and copy each byte twice.

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headpond_base::UnixNanos;
use headpond_recording::{Pulled, Puller, TraceEncoder, TraceHead, WhyEnded, ring};
use headpond_shard::Recorder;

use super::commands::Service;
use super::protocol::Answer;
use super::socket::{Client, Heard};
use crate::process::log::log_line;
use crate::refusal::Refusal;

/// Requests that wait in the ring at most, 3 MiB: a third of a second of 200,000 a second.
const RING: usize = 1 << 16;

/// Requests that are taken from the ring and written at once. They and their bytes take 96 KiB: more would push the
/// data of the load out of the processor's cache.
const PORTION: usize = 1 << 10;

/// How often the ring is emptied. Each time costs a wake-up.
const LOOK: Duration = Duration::from_millis(100);

/// How long the rest of a trace may take at its end.
const REST: Duration = Duration::from_secs(10);

/// How long to wait until the shard has dropped its recorder. It does at its next turn.
const TURN: Duration = Duration::from_secs(1);

/// The longest recording.
const SECONDS_MAX: u64 = 7 * 24 * 3600;

impl Service {
    /// Records for a client, on a thread of its own.
    pub(crate) fn record(&self, seconds: u64, bytes_max: u64, client: Client) {
        let service = self.clone();
        let run = move || match service.recordings.begin() {
            Ok(()) => OneRecording { service, client }.run(Duration::from_secs(seconds.min(SECONDS_MAX)), bytes_max),
            Err(refusal) => client.refuse(&refusal),
        };
        if let Err(error) = std::thread::Builder::new().name("record".to_owned()).spawn(run) {
            // The client went with the closure, and hears of it by the end of its connection.
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
        self.client.answer_first(&Answer::GiveFile);
        let mut file = match self.client.receive_file() {
            Ok(file) => file,
            Err(error) => return self.failed("take the file of the trace", error),
        };
        match self.record(&mut file, lasts, bytes_max) {
            Ok(()) => self.client.answer_first(&Answer::Recorded),
            Err(error) => self.failed("write the trace", error),
        }
    }

    fn failed(&mut self, doing: &str, error: io::Error) {
        let refusal = Refusal::Failed { doing: doing.to_owned(), error };
        self.client.answer_first(&Answer::from(&refusal));
    }

    fn record(&mut self, file: &mut File, lasts: Duration, bytes_max: u64) -> io::Result<()> {
        let (pusher, puller) = ring(RING);
        let mut bytes = Vec::new();
        let encoder = TraceEncoder::begin(&self.head(), bytes_max, &mut bytes);
        file.write_all(&bytes)?;
        let started = Instant::now();
        self.service.handle.record(Some(Recorder::new(pusher, started)));
        // Taken between two turns: the recorder is in place by then.
        let _ = self.service.handle.stats();
        self.client.answer_first(&Answer::Recording);
        let mut trace = Trace { file, puller, encoder, started, pulled: Vec::with_capacity(PORTION), bytes };
        let why = loop {
            if !trace.write(started + lasts)? {
                break WhyEnded::Size;
            }
            if trace.puller.has_ended() || self.service.recordings.must_end() {
                break WhyEnded::Mount;
            }
            if started.elapsed() >= lasts {
                break WhyEnded::Time;
            }
            match self.client.listen(LOOK) {
                Heard::Nothing => {}
                Heard::Line => break WhyEnded::Asked,
                // Nobody waits for the end, and the trace is one that was cut.
                Heard::Gone => return Ok(()),
            }
        };
        self.service.handle.record(None);
        wait_for_the_last(&trace.puller);
        trace.end(why)
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
}

/// A trace that is being written.
struct Trace<'a> {
    file: &'a mut File,
    puller: Puller,
    encoder: TraceEncoder,
    started: Instant,
    pulled: Vec<Pulled>,
    bytes: Vec<u8>,
}

impl Trace<'_> {
    /// Writes what is in the ring; of what comes meanwhile, no more than until then. `false`: the trace is full.
    fn write(&mut self, until: Instant) -> io::Result<bool> {
        loop {
            self.pulled.clear();
            self.bytes.clear();
            let more = self.puller.pull(&mut self.pulled, PORTION) == PORTION;
            let fits = self.encoder.append(&self.pulled, self.started.elapsed().into(), &mut self.bytes);
            self.file.write_all(&self.bytes)?;
            if !fits || !more || Instant::now() >= until {
                return Ok(fits);
            }
        }
    }

    /// Writes the rest, which no more is added to.
    fn end(mut self, mut why: WhyEnded) -> io::Result<()> {
        if why != WhyEnded::Size && !self.write(Instant::now() + REST)? {
            why = WhyEnded::Size;
        }
        let dropped = if why == WhyEnded::Size { 0 } else { self.puller.dropped() };
        self.bytes.clear();
        self.encoder.end(dropped, self.started.elapsed().into(), why, &mut self.bytes);
        self.file.write_all(&self.bytes)
    }
}

/// Waits until the shard notes nothing any more.
fn wait_for_the_last(puller: &Puller) {
    let until = Instant::now() + TURN;
    while !puller.has_ended() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}
