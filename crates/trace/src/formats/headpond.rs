//! Traces of `headpond record`, byte by byte in docs/replay.md.
//!
//! What passes by the pool is left out as the engine does it: by a rule, or as part of a long sequential run, with the
//! cut-off that was in force. The blocks of a write that passes by leave the pool, and so do those that are discarded.

use std::io::BufRead;

use headpond_base::BLOCK_U64;
use headpond_policy::{ProcessId, SequentialRuns, Transfer};
use headpond_recording::{AskedKind, AskedRequest, TraceEnd, TraceReader, TraceUnreadable};

use super::Sink;
use crate::request::{Extent, ReadFault, TraceFacts, TraceFault, TracedRequest};

/// Takes the blocks of an object that leave the pool: the object, the first block, and the one behind the last.
pub(crate) type GoneSink<'a> = &'a mut dyn FnMut(u64, u64, u64);

pub(super) fn read(from: &mut dyn BufRead, sink: Sink, gone: GoneSink) -> Result<TraceFacts, ReadFault> {
    let mut reader = TraceReader::open(from).map_err(|error| match error {
        TraceUnreadable::Io(error) => ReadFault::Io(error),
        TraceUnreadable::Head(what) => ReadFault::Fault(TraceFault { place: "the head".to_owned(), what }),
    })?;
    let head = *reader.head();
    let mut runs = SequentialRuns::new(Some(head.sequential_cutoff).filter(|cutoff| *cutoff > 0));
    let (mut past_reads, mut past_writes) = (0, 0);
    while let Some(asked) = reader.next_request()? {
        let (object, offset, len) = (asked.object.0, asked.offset, asked.len);
        let request =
            |write| TracedRequest { extent: Extent::Bytes { volume: object, offset, len }, write, at: Some(asked.at) };
        match asked.kind {
            AskedKind::Read if asked.past || runs.passes_by(transfer(&asked)) => past_reads += 1,
            AskedKind::Read => sink(request(false))?,
            AskedKind::Write if asked.past || !asked.alone && runs.passes_by(transfer(&asked)) => {
                past_writes += 1;
                gone(object, offset / BLOCK_U64, offset.saturating_add(len).div_ceil(BLOCK_U64));
            }
            AskedKind::Write => sink(request(true))?,
            AskedKind::Sync => runs.synced(asked.object),
            AskedKind::Discard => gone(object, offset.div_ceil(BLOCK_U64), offset.saturating_add(len) / BLOCK_U64),
            AskedKind::Truncate | AskedKind::Remove => gone(object, offset.div_ceil(BLOCK_U64), u64::MAX),
        }
    }
    Ok(TraceFacts {
        pool_bytes: head.pool_bytes,
        flush_period: Some(head.flush_period).filter(|period| period.0 > 0),
        lasted: reader.lasted(),
        requests: reader.kept(),
        dropped: reader.dropped(),
        past_reads,
        past_writes,
        good_bytes: match reader.end() {
            Some(TraceEnd::Cut(bytes) | TraceEnd::Damaged(bytes)) => Some(bytes),
            Some(TraceEnd::Complete(_)) | None => None,
        },
    })
}

fn transfer(asked: &AskedRequest) -> Transfer {
    Transfer {
        object: asked.object,
        process: ProcessId(asked.process),
        write: asked.kind == AskedKind::Write,
        offset: asked.offset,
        // No request is as long; a forged one must not make the run's length overflow.
        len: asked.len.min(1 << 32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::{Class, Nanos, ObjectId, UnixNanos};
    use headpond_recording::{Pulled, TraceEncoder, TraceHead, WhyEnded};
    use proptest::prelude::*;

    use crate::{Format, LoadOptions, LoadedTrace};

    fn asked(kind: AskedKind, offset: u64, len: u64) -> AskedRequest {
        AskedRequest {
            at: Nanos(offset),
            kind,
            object: ObjectId(7),
            offset,
            len,
            process: 1,
            class: Class::EVERYBODY,
            past: false,
            through: false,
            alone: false,
        }
    }

    fn trace(requests: &[AskedRequest]) -> Vec<u8> {
        let head = TraceHead {
            started: UnixNanos(0),
            pool_bytes: 1 << 30,
            flush_period: Nanos(0),
            sequential_cutoff: 1 << 20,
            dirty_threshold: 50,
        };
        let mut bytes = Vec::new();
        let mut encoder = TraceEncoder::begin(&head, u64::MAX, &mut bytes);
        let pulled: Vec<_> =
            (0..).zip(requests).map(|(number, request)| Pulled { number, request: *request }).collect();
        encoder.append(&pulled, Nanos(9), &mut bytes);
        encoder.end(0, Nanos(9), WhyEnded::Asked, &mut bytes);
        bytes
    }

    type Blocks = (u64, u64, u64);

    fn read_trace(mut bytes: &[u8]) -> Result<(Vec<TracedRequest>, Vec<Blocks>, TraceFacts), String> {
        let (mut requests, mut gone) = (Vec::new(), Vec::new());
        let mut sink = |request| {
            requests.push(request);
            Ok(())
        };
        let facts = read(&mut bytes, &mut sink, &mut |object, first, end| gone.push((object, first, end)));
        let facts = facts.map_err(|fault| match fault {
            ReadFault::Fault(fault) => format!("{}: {}", fault.place, fault.what),
            ReadFault::Io(error) => error.to_string(),
        })?;
        Ok((requests, gone, facts))
    }

    #[test]
    fn reads_and_writes_are_requests_and_what_is_discarded_is_gone() {
        let all = [
            asked(AskedKind::Read, 4096, 100),
            asked(AskedKind::Write, 8192, 4096),
            asked(AskedKind::Sync, 0, 0),
            asked(AskedKind::Discard, 100, 12_288),
            asked(AskedKind::Truncate, 4097, 0),
            asked(AskedKind::Remove, 0, 0),
            AskedRequest { past: true, ..asked(AskedKind::Read, 1 << 30, 4096) },
            AskedRequest { past: true, ..asked(AskedKind::Write, 100, 4096) },
        ];
        let (requests, gone, facts) = read_trace(&trace(&all)).unwrap();
        assert_eq!(requests.iter().map(|one| one.write).collect::<Vec<_>>(), [false, true]);
        assert_eq!(requests[0].extent, Extent::Bytes { volume: 7, offset: 4096, len: 100 });
        assert_eq!(gone, [(7, 1, 3), (7, 2, u64::MAX), (7, 0, u64::MAX), (7, 0, 2)]);
        assert_eq!((facts.past_reads, facts.past_writes, facts.requests, facts.dropped), (1, 1, 8, 0));
        assert_eq!((facts.good_bytes, facts.flush_period, facts.lasted), (None, None, Nanos(9)));
    }

    #[test]
    fn a_long_sequential_run_passes_by_as_it_did_when_it_was_recorded() {
        let run: Vec<_> = (0..40).map(|at| asked(AskedKind::Read, at * 65_536, 65_536)).collect();
        let (requests, _, facts) = read_trace(&trace(&run)).unwrap();
        assert_eq!((requests.len(), facts.past_reads), (16, 24), "a mebibyte is cached");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Checksums hold here: a program wrote it that is not ours.
        #[test]
        fn senseless_requests_are_an_error_or_are_read(
            all in proptest::collection::vec((any::<[u64; 4]>(), 0..6_usize, any::<[bool; 3]>()), 1..20)
        ) {
            let edge = |number: u64| if number.is_multiple_of(3) { number } else { u64::MAX >> (number % 64) };
            let requests: Vec<_> = all.iter().map(|([at, object, offset, len], kind, [past, through, alone])| AskedRequest {
                at: Nanos(edge(*at)),
                object: ObjectId(object % 3),
                past: *past,
                through: *through,
                alone: *alone,
                ..asked(AskedKind::ALL[*kind], edge(*offset), edge(*len))
            }).collect();
            let path = std::env::temp_dir().join(format!("headpond-senseless-{}", std::process::id()));
            std::fs::write(&path, trace(&requests)).unwrap();
            let options = LoadOptions { format: Format::Headpond, unit: None, reads_only: false, sample: 0 };
            let load = LoadedTrace::read(&path, options);
            std::fs::remove_file(&path).unwrap();
            if let Ok(load) = load {
                prop_assert!(load.gone().len() <= load.references().len());
            }
        }
    }

    #[test]
    fn what_was_cut_gives_its_beginning_and_says_so_and_what_is_no_trace_is_refused() {
        let bytes = trace(&[asked(AskedKind::Read, 0, 4096)]);
        let (requests, _, facts) = read_trace(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!((requests.len(), facts.good_bytes), (1, Some(bytes.len() as u64 - 48)));
        assert!(read_trace(&bytes[..63]).unwrap_err().starts_with("the head: it is shorter"));
        assert!(read_trace(&[7; 64]).unwrap_err().contains("no trace of headpond"));
    }
}
