//! A segment's head, and the footer at its end.

use headpond_base::{BLOCK, BatchNumber, Epoch, Generation, MemberId, OwnerNumber, PoolId, SegmentId, Stream};
use headpond_format::{
    FOOTER_TAIL_BYTES, Layout, ParityRow, Place, Placement, SegmentHead, SummaryBatch, Writer, decode_footer,
    decode_footer_tail, decode_segment_head, encode_footer, encode_segment_head,
};

use super::{batch, same, told};
use crate::seals::Seal;
use crate::seed::Seed;
use crate::subject::{Base, Told};

pub(super) fn base(seed: u64) -> Base {
    let mut seed = Seed(seed);
    let head = SegmentHead {
        pool: PoolId([7; 16]),
        epoch: Epoch(seed.below(50)),
        segment: SegmentId(3),
        generation: Generation(seed.below(1000)),
        stream: Stream::ALL[seed.index(3)],
    };
    let mut bytes = vec![0; BLOCK];
    let (here, other) = (Place { member: MemberId(0), slot: 3 }, Place { member: MemberId(1), slot: 9 });
    let row = ParityRow {
        segments: vec![(SegmentId(3), here), (SegmentId(4), other)],
        parity: Place { member: MemberId(2), slot: 1 },
    };
    let layouts = [Layout::Single(here), Layout::Mirror(vec![other, here]), Layout::Parity(Box::new(row))];
    let placement = Placement {
        owner: OwnerNumber(1 + seed.below(9)),
        here,
        layout: layouts[seed.index(3)].clone(),
        writer: Writer { pool: PoolId([7; 16]), generation: Generation(seed.below(1000)) },
        writer_segment: SegmentId(3),
    };
    encode_segment_head(&head, &placement, &mut bytes);
    let batches = seed.below(40);
    let summary: Vec<SummaryBatch> = (1..=batches)
        .map(|number| SummaryBatch {
            number: BatchNumber(number * 3),
            previous_host: BatchNumber(number),
            synced_through: BatchNumber(number),
            synced_host: BatchNumber(number / 2),
            start: u32::try_from(number).unwrap_or(0) * 5,
            entries: batch::entries(&mut seed),
        })
        .collect();
    let footer = encode_footer(&head, &summary);
    let (_, len) = decode_footer_tail(&footer).unwrap_or((head, FOOTER_TAIL_BYTES));
    bytes.extend_from_slice(&footer);
    let end = bytes.len();
    let seals = vec![
        Seal::new(0..BLOCK, 4, 8..64),
        Seal::new(end - len..end, end - FOOTER_TAIL_BYTES + 4, end - FOOTER_TAIL_BYTES + 8..end - 15),
        Seal::new(end - len..end, end - FOOTER_TAIL_BYTES + 4, end - len..end),
    ];
    Base { bytes, devices: 1, seals }
}

pub(super) fn run(bytes: &[u8]) -> Result<Told, String> {
    let (head, footer) = bytes.split_at(BLOCK);
    if let Ok(head) = decode_segment_head(head) {
        let mut block = vec![0; BLOCK];
        encode_segment_head(&head.0, &head.1, &mut block);
        same("a segment head", &Ok(head), &decode_segment_head(&block))?;
    }
    let decoded = decode_footer(footer);
    if let Ok((head, summary)) = &decoded {
        same("a footer", &decoded, &decode_footer(&encode_footer(head, summary)))?;
        for batch in summary {
            batch::check_entries(&batch.entries)?;
        }
    }
    Ok(told(decoded))
}
