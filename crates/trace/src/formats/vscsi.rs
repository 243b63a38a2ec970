//! SCSI commands of a virtual machine, little-endian, in either of two versions.
//!
//! Version 1, 32 bytes: serial number u32, bytes u32, segments u32, command u16, version u16,
//! sector u64, microseconds u64. Version 2, 40 bytes: command u16, version u16, serial number u32,
//! bytes u32, segments u32, sector u64, microseconds u64, response time u64. The version's upper
//! byte is 1 or 2. Commands other than reads and writes are skipped.

use std::io::BufRead;

use headpond_base::Nanos;

use super::{Sink, in_record, number, records};
use crate::request::{Extent, ReadFault, TraceFault, TracedRequest, Unit};

const READS: [u16; 4] = [0x08, 0x28, 0xa8, 0x88];
const WRITES: [u16; 4] = [0x0a, 0x2a, 0xaa, 0x8a];
const SECTOR: u64 = 512;

pub(super) fn read(from: &mut dyn BufRead, unit: Option<Unit>, sink: Sink) -> Result<(), ReadFault> {
    let start = from.fill_buf()?;
    let second = start.len() >= 4 && start[3] == 2 && !(start.len() >= 16 && start[15] == 1);
    if second {
        records::<40>(from, |at, record| {
            let command = u16::from_le_bytes(number(record, 0));
            command_of(at, record, command, u16::from_le_bytes(number(record, 2)), 8, 16, unit, sink)
        })
    } else {
        records::<32>(from, |at, record| {
            let command = u16::from_le_bytes(number(record, 12));
            command_of(at, record, command, u16::from_le_bytes(number(record, 14)), 4, 16, unit, sink)
        })
    }
}

#[allow(clippy::too_many_arguments)] // where the two versions differ
fn command_of(
    at: u64,
    record: &[u8],
    command: u16,
    version: u16,
    len_at: usize,
    sector_at: usize,
    unit: Option<Unit>,
    sink: Sink,
) -> Result<(), TraceFault> {
    if !matches!(version >> 8, 1 | 2) {
        return Err(in_record(at, format!("version {version:#06x}, where the upper byte must be 1 or 2")));
    }
    let write = WRITES.contains(&command);
    let len = u64::from(u32::from_le_bytes(number(record, len_at)));
    if !write && !READS.contains(&command) || len == 0 {
        return Ok(());
    }
    let sector = u64::from_le_bytes(number(record, sector_at));
    let micros = u64::from_le_bytes(number(record, sector_at + 8));
    let offset =
        sector.checked_mul(SECTOR).ok_or_else(|| in_record(at, format!("sector {sector} is beyond any disk")))?;
    let extent = match unit {
        Some(Unit::Page) => Extent::Pages { first: sector, count: 1 },
        _ => Extent::Bytes { volume: 0, offset, len },
    };
    sink(TracedRequest { extent, write, at: Some(Nanos(micros.saturating_mul(1000))) })
}

#[cfg(test)]
mod tests {
    use super::super::{Format, read_all};
    use super::*;

    fn first(command: u16, sector: u64, bytes: u32) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(7_u32.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(1_u32.to_le_bytes());
        record.extend(command.to_le_bytes());
        record.extend(0x0100_u16.to_le_bytes());
        record.extend(sector.to_le_bytes());
        record.extend(5_u64.to_le_bytes());
        record
    }

    fn second(command: u16, sector: u64, bytes: u32) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(command.to_le_bytes());
        record.extend(0x0200_u16.to_le_bytes());
        record.extend(7_u32.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(1_u32.to_le_bytes());
        record.extend(sector.to_le_bytes());
        record.extend(5_u64.to_le_bytes());
        record.extend(9_u64.to_le_bytes());
        record
    }

    #[test]
    fn both_versions_give_the_same_requests() {
        let bytes = Extent::Bytes { volume: 0, offset: 8 * 512, len: 8192 };
        for record in [first, second] {
            let trace = [record(0x28, 8, 8192), record(0x2a, 8, 8192), record(0x35, 8, 0)].concat();
            let requests = read_all(Format::Vscsi, &trace, None).unwrap();
            let expected = |write| TracedRequest { extent: bytes, write, at: Some(Nanos(5000)) };
            assert_eq!(requests, [expected(false), expected(true)]);
        }
    }

    #[test]
    fn something_else_is_refused_with_the_place() {
        let error = read_all(Format::Vscsi, &[0; 64], None).unwrap_err();
        assert_eq!(error, "record 0: version 0x0000, where the upper byte must be 1 or 2");
        let short = &first(0x28, 8, 8192)[..31];
        assert_eq!(read_all(Format::Vscsi, short, None).unwrap_err(), "record 0: cut short");
        assert!(read_all(Format::Vscsi, &first(0x28, u64::MAX, 8192), None).is_err());
    }
}
