//! A trace of what was asked of a mount.

use headpond_base::{Class, Nanos, ObjectId, UnixNanos};
use headpond_recording::{
    AskedKind, AskedRequest, CHUNK_HEAD_BYTES, Pulled, TRACE_HEAD_BYTES, TRACED_BYTES, TraceEncoder, TraceEnd,
    TraceHead, TraceReader, WhyEnded,
};

use crate::seals::Seal;
use crate::seed::Seed;
use crate::subject::{Base, Told};

/// Requests of a chunk.
const CHUNK: usize = 9;

pub(super) fn base(seed: u64) -> Base {
    let mut seed = Seed(seed);
    let head = TraceHead {
        started: UnixNanos(0),
        pool_bytes: 1 << seed.below(40),
        flush_period: Nanos(seed.below(1 << 40)),
        sequential_cutoff: seed.below(1 << 30),
        dirty_threshold: 50,
    };
    let mut bytes = Vec::new();
    let mut encoder = TraceEncoder::begin(&head, u64::MAX, &mut bytes);
    let mut seals = vec![Seal::new(0..TRACE_HEAD_BYTES, 8, 12..48)];
    let (mut number, mut dropped) = (0, 0);
    let mut seal = |bytes: &Vec<u8>, from: usize| {
        seals.push(Seal::new(from..bytes.len(), from + 4, from + 8..bytes.len()));
    };
    for _ in 0..seed.below(6) {
        let gap = seed.below(3);
        (number, dropped) = (number + gap, dropped + gap);
        let pulled: Vec<Pulled> =
            (0..CHUNK as u64).map(|at| Pulled { number: number + at, request: request(&mut seed) }).collect();
        number += pulled.len() as u64;
        let from = bytes.len();
        encoder.append(&pulled, Nanos(number), &mut bytes);
        seal(&bytes, from);
    }
    let from = bytes.len();
    encoder.end(dropped, Nanos(number), WhyEnded::Time, &mut bytes);
    seal(&bytes, from);
    Base { bytes, devices: 1, seals }
}

fn request(seed: &mut Seed) -> AskedRequest {
    AskedRequest {
        at: Nanos(seed.below(1 << 40)),
        kind: AskedKind::ALL[seed.index(AskedKind::ALL.len())],
        object: ObjectId(seed.below(9)),
        offset: seed.below(1 << 40),
        len: seed.below(1 << 36),
        process: 0,
        class: Class::EVERYBODY,
        past: seed.below(2) == 0,
        through: false,
        alone: seed.below(2) == 0,
    }
}

/// The requests of a trace, and how far it reads. `None` if it has no head.
fn requests(bytes: &[u8]) -> Result<Option<(Vec<AskedRequest>, TraceEnd)>, String> {
    let Ok(mut reader) = TraceReader::open(bytes) else { return Ok(None) };
    let mut requests = Vec::new();
    while let Some(request) = reader.next_request().map_err(|error| error.to_string())? {
        requests.push(request);
    }
    if requests.len() > bytes.len() / TRACED_BYTES || reader.kept() != requests.len() as u64 {
        return Err(format!("{} requests in {} bytes", requests.len(), bytes.len()));
    }
    // It is asked for the sum only to see that it has one.
    let _ = (reader.dropped(), reader.lasted());
    let end = reader.end().ok_or("a trace that was read to its end has no end")?;
    match end {
        TraceEnd::Cut(good) | TraceEnd::Damaged(good) if good > bytes.len() as u64 => {
            Err(format!("{good} good bytes of {}", bytes.len()))
        }
        end => Ok(Some((requests, end))),
    }
}

pub(super) fn run(bytes: &[u8], base: &Base, forged: bool) -> Result<Told, String> {
    let Some((found, end)) = requests(bytes)? else {
        return Ok(Told { verdict: "refused", words: "refused".to_owned() });
    };
    let (all, _) = requests(&base.bytes)?.ok_or("a valid trace has no head")?;
    // Without right checksums, what is read was recorded.
    if !forged && !all.starts_with(&found) {
        return Err(format!("requests that were never recorded: {found:?}"));
    }
    let verdict = match end {
        TraceEnd::Complete(_) => "complete",
        TraceEnd::Cut(_) => "cut",
        TraceEnd::Damaged(_) => "damaged",
    };
    let chunks = found.len() * TRACED_BYTES / (CHUNK_HEAD_BYTES + CHUNK * TRACED_BYTES);
    Ok(Told { verdict, words: format!("{verdict} after {chunks} chunks") })
}
