//! oracleGeneral of libCacheSim, little-endian records of 24 bytes: seconds u32, object u64, bytes u32, and the
//! number of the object's next use i64, which is ignored. All requests are reads.

use std::io::BufRead;

use headpond_base::Nanos;

use super::{Sink, extent, in_record, number, records};
use crate::request::{ReadFault, TracedRequest, Unit};

pub(super) fn read(from: &mut dyn BufRead, unit: Option<Unit>, sink: Sink) -> Result<(), ReadFault> {
    // Objects are whole things with a number each, unless the caller gives a unit.
    let unit = unit.unwrap_or(Unit::Page);
    records::<24>(from, |at, record| {
        let seconds = u64::from(u32::from_le_bytes(number(record, 0)));
        let object = u64::from_le_bytes(number(record, 4));
        let bytes = u64::from(u32::from_le_bytes(number(record, 12)));
        let extent = extent(unit, 0, object, bytes)
            .ok_or_else(|| in_record(at, format!("object {object} is not an address in this unit")))?;
        sink(TracedRequest { extent, write: false, at: Some(Nanos(seconds * Nanos::SECOND.0)) })
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Format, read_all};
    use super::*;
    use crate::Extent;

    #[test]
    fn objects_are_keys_or_with_a_unit_addresses() {
        let mut record = Vec::new();
        record.extend(3_u32.to_le_bytes());
        record.extend(80_u64.to_le_bytes());
        record.extend(5000_u32.to_le_bytes());
        record.extend((-1_i64).to_le_bytes());
        let only = |unit| read_all(Format::Oracle, &record, unit).unwrap()[0].extent;
        assert_eq!(only(None), Extent::Pages { first: 80, count: 1 });
        assert_eq!(only(Some(Unit::Sector)), Extent::Bytes { volume: 0, offset: 80 * 512, len: 5000 });
        assert_eq!(only(Some(Unit::Block)), Extent::Bytes { volume: 0, offset: 80 * 4096, len: 5000 });
        assert!(read_all(Format::Oracle, &record[..20], None).is_err());
    }
}
