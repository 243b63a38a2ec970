//! What goes into a trace comes out of it; what is cut or damaged reads up to there.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

use headpond_base::{Class, Nanos, ObjectId, UnixNanos};
use headpond_recording::{
    AskedKind, AskedRequest, CHUNK_HEAD_BYTES, Pulled, TRACE_HEAD_BYTES, TRACED_BYTES, TraceEncoder, TraceEnd,
    TraceHead, TraceReader, WhyEnded,
};
use proptest::prelude::*;

const HEAD: TraceHead = TraceHead {
    started: UnixNanos(1_700_000_000_000_000_000),
    pool_bytes: 1 << 30,
    flush_period: Nanos(300_000_000_000),
    sequential_cutoff: 4 << 20,
    dirty_threshold: 50,
};

fn request(at: u64) -> AskedRequest {
    AskedRequest {
        at: Nanos(at),
        kind: AskedKind::Read,
        object: ObjectId(1),
        offset: at * 4096,
        len: 4096,
        process: 0,
        class: Class::EVERYBODY,
        past: false,
        through: false,
        alone: false,
    }
}

fn any_request() -> impl Strategy<Value = AskedRequest> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), 0..1_u64 << 32);
    let small = (0..6_usize, 0..3_u32, 0..16_u8, any::<bool>(), any::<bool>(), any::<bool>());
    (numbers, small).prop_map(|((at, object, offset, len), (kind, process, class, past, through, alone))| {
        AskedRequest {
            at: Nanos(at),
            kind: AskedKind::ALL[kind],
            object: ObjectId(object),
            offset,
            len,
            // Numbered by a trace in the order in which they come: the test asks for them in that order.
            process,
            class: Class::new(class).unwrap(),
            past,
            through,
            alone,
        }
    })
}

/// A trace of these requests; before each, so many were dropped.
fn trace(requests: &[(u64, AskedRequest)], bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = TraceEncoder::begin(&HEAD, bytes_max, &mut bytes);
    let mut number = 0;
    let mut pulled = Vec::new();
    for (dropped, request) in requests {
        number += dropped;
        pulled.push(Pulled { number, request: *request });
        number += 1;
    }
    let dropped = number - requests.len() as u64;
    for some in pulled.chunks(7) {
        if !encoder.append(some, Nanos(5), &mut bytes) {
            let kept = encoder.kept() as usize;
            let before = pulled.get(kept).map_or(dropped, |one| one.number - kept as u64);
            encoder.end(before, Nanos(9), WhyEnded::Size, &mut bytes);
            return bytes;
        }
    }
    encoder.end(dropped, Nanos(9), WhyEnded::Asked, &mut bytes);
    bytes
}

struct Read {
    requests: Vec<AskedRequest>,
    end: TraceEnd,
    dropped: u64,
}

fn read(bytes: &[u8]) -> Option<Read> {
    let mut reader = TraceReader::open(bytes).ok()?;
    let mut requests = Vec::new();
    while let Some(request) = reader.next_request().unwrap() {
        requests.push(request);
    }
    assert_eq!(reader.kept(), requests.len() as u64);
    Some(Read { requests, end: reader.end().unwrap(), dropped: reader.dropped() })
}

proptest! {
    #[test]
    fn what_is_recorded_reads_back_with_its_gaps(
        asked in proptest::collection::vec((0..3_u64, any_request()), 0..60)
    ) {
        let mut seen = Vec::new();
        let expected: Vec<AskedRequest> = asked.iter().map(|(_, request)| {
            let mut request = *request;
            if request.process != 0 {
                let known = seen.iter().position(|process| *process == request.process);
                request.process = known.unwrap_or_else(|| { seen.push(request.process); seen.len() - 1 }) as u32 + 1;
            }
            request
        }).collect();
        let back = read(&trace(&asked, u64::MAX)).unwrap();
        prop_assert_eq!(back.requests, expected);
        prop_assert_eq!(back.end, TraceEnd::Complete(WhyEnded::Asked));
        prop_assert_eq!(back.dropped, asked.iter().map(|(dropped, _)| dropped).sum::<u64>());
    }

    #[test]
    fn a_cut_trace_reads_up_to_the_cut(count in 0..60_u64, cut in 0.0..1.0_f64) {
        let asked: Vec<_> = (0..count).map(|at| (at % 2, request(at))).collect();
        let whole = trace(&asked, u64::MAX);
        let cut = (whole.len() as f64 * cut) as usize;
        let back = read(&whole[..cut]);
        prop_assert_eq!(back.is_some(), cut >= TRACE_HEAD_BYTES);
        if let Some(back) = back {
            let all: Vec<_> = asked.iter().map(|(_, request)| *request).collect();
            prop_assert!(all.starts_with(&back.requests));
            let TraceEnd::Cut(good) = back.end else { panic!("{:?}", back.end) };
            prop_assert!(good <= cut as u64 && cut as u64 - good < (CHUNK_HEAD_BYTES + 7 * TRACED_BYTES) as u64);
        }
    }

    #[test]
    fn a_damaged_trace_is_an_error_or_its_beginning(
        count in 1..60_u64,
        spoiled in proptest::collection::vec((0.0..1.0_f64, 1..=255_u8), 1..5),
    ) {
        let asked: Vec<_> = (0..count).map(|at| (at % 2, request(at))).collect();
        let mut bytes = trace(&asked, u64::MAX);
        let whole = bytes.clone();
        for (at, change) in spoiled {
            let at = (bytes.len() as f64 * at) as usize;
            bytes[at] ^= change;
        }
        let first = whole.iter().zip(&bytes).position(|(one, other)| one != other);
        if let (Some(back), Some(first)) = (read(&bytes), first) {
            let all: Vec<_> = asked.iter().map(|(_, request)| *request).collect();
            prop_assert!(all.starts_with(&back.requests));
            let (TraceEnd::Damaged(good) | TraceEnd::Cut(good)) = back.end else { panic!("{:?}", back.end) };
            prop_assert!(good <= first as u64);
        }
    }

    #[test]
    fn any_bytes_behind_a_head_are_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut all = HEAD.encode().to_vec();
        all.extend(bytes);
        prop_assert!(read(&all).unwrap().requests.is_empty());
    }

    #[test]
    fn a_trace_is_never_larger_than_asked_for_and_is_complete_all_the_same(count in 0..200_u64, most in 0..4000_u64) {
        let asked: Vec<_> = (0..count).map(|at| (at % 2, request(at))).collect();
        let bytes = trace(&asked, most);
        prop_assert!(bytes.len() as u64 <= most.max(TraceEncoder::BYTES_MIN));
        let back = read(&bytes).unwrap();
        prop_assert!(matches!(back.end, TraceEnd::Complete(_)));
        let all: Vec<_> = asked.iter().map(|(_, request)| *request).collect();
        prop_assert!(all.starts_with(&back.requests));
    }
}

#[test]
fn a_length_that_needs_it_counts_blocks() {
    let asked = [(0, AskedRequest { len: 5 << 32, kind: AskedKind::Discard, ..request(1) })];
    assert_eq!(read(&trace(&asked, u64::MAX)).unwrap().requests, [asked[0].1]);
}

#[test]
fn a_chunk_that_is_missing_in_the_middle_is_noticed() {
    let asked: Vec<_> = (0..21).map(|at| (0, request(at))).collect();
    let bytes = trace(&asked, u64::MAX);
    let chunk = CHUNK_HEAD_BYTES + 7 * TRACED_BYTES;
    let without = [&bytes[..TRACE_HEAD_BYTES + chunk], &bytes[TRACE_HEAD_BYTES + 2 * chunk..]].concat();
    let back = read(&without).unwrap();
    assert_eq!((back.requests.len(), back.end), (7, TraceEnd::Damaged((TRACE_HEAD_BYTES + chunk) as u64)));
}

#[test]
fn a_trace_of_another_version_says_so() {
    let mut bytes = HEAD.encode();
    bytes[12] = 2;
    assert!(TraceReader::open(&bytes[..]).err().unwrap().to_string().contains("damaged"));
    bytes[8..12].fill(0);
    let sum = headpond_format::bytes_checksum(&bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    let why = TraceReader::open(&bytes[..]).err().unwrap().to_string();
    assert_eq!(why, "its version is 2, and this program reads version 1");
}

#[test]
fn a_head_has_these_bytes() {
    let bytes = HEAD.encode();
    assert_eq!(bytes[..8], *b"\x89hptrace");
    assert_eq!(bytes[12..16], [1, 0, 32, 50]);
    assert_eq!(u64::from_le_bytes(bytes[24..32].try_into().unwrap()), 1 << 30);
    let whole = trace(&[(2, AskedRequest { process: 77, past: true, ..request(3) })], u64::MAX);
    let chunk = &whole[TRACE_HEAD_BYTES..];
    assert_eq!(chunk[..4], *b"hpTC");
    assert_eq!(chunk[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(chunk[16], 2, "two were asked before");
    assert_eq!(chunk[24], 2, "and dropped");
    let request = &chunk[CHUNK_HEAD_BYTES..][..TRACED_BYTES];
    assert_eq!(request[..4], [3, 0, 0, 0]);
    assert_eq!(request[16..20], [0, 48, 0, 0]);
    assert_eq!(request[28..], [0x11, 0, 1, 0]);
}
