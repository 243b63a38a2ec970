//! Lines of `start count ignored request`, the format of the traces in the ARC paper (Megiddo and Modha, FAST 2003).
//! All requests are reads.
//!
//! The format does not say what its addresses count. In those traces, traces of disks count sectors of 512 bytes, and
//! traces of databases count pages, which are read one at a time. Without a unit the first line that reads several
//! decides for sectors; a trace without such a line counts pages. So no request is handed on before that is decided,
//! or before [`UNDECIDED_MAX`] lines were read.

use std::io::BufRead;

use super::{Sink, lines};
use crate::request::{Extent, ReadFault, TraceFault, TracedRequest, Unit};

/// A trace without a decision after this many lines counts pages.
const UNDECIDED_MAX: usize = 100_000;

pub(super) fn read(from: &mut dyn BufRead, unit: Option<Unit>, sink: Sink) -> Result<(), ReadFault> {
    let mut unit = unit;
    let mut waiting: Vec<u64> = Vec::new();
    lines(from, |at, line| {
        let mut fields = line.split_ascii_whitespace();
        let Some(start) = fields.next() else { return Ok(()) };
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let (Some(start), Some(count)) = (number(Some(start)), number(fields.next())) else {
            return Err(TraceFault::line(at, format!("expected 'start count ...', found '{}'", shortened(line))));
        };
        if unit.is_none() {
            if count == 1 && waiting.len() < UNDECIDED_MAX {
                waiting.push(start);
                return Ok(());
            }
            let decided = if count > 1 { Unit::Sector } else { Unit::Page };
            unit = Some(decided);
            waiting.drain(..).try_for_each(|start| hand_on(decided, start, 1, at, sink))?;
        }
        hand_on(unit.unwrap_or(Unit::Page), start, count, at, sink)
    })?;
    waiting.drain(..).try_for_each(|start| hand_on(Unit::Page, start, 1, 0, sink))?;
    Ok(())
}

fn hand_on(unit: Unit, start: u64, count: u64, at: usize, sink: Sink) -> Result<(), TraceFault> {
    let extent = if unit == Unit::Sector {
        let bytes = start.checked_mul(512).zip(count.checked_mul(512));
        bytes.map(|(offset, len)| Extent::Bytes { volume: 0, offset, len })
    } else {
        Some(Extent::Pages { first: start, count })
    };
    let extent = extent.ok_or_else(|| TraceFault::line(at, format!("sector {start} is beyond any disk")))?;
    if count == 0 {
        return Ok(());
    }
    sink(TracedRequest { extent, write: false, at: None })
}

fn shortened(line: &str) -> String {
    line.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Format, read_all};
    use super::*;

    fn extents(text: &str, unit: Option<Unit>) -> Vec<Extent> {
        read_all(Format::Lis, text.as_bytes(), unit).unwrap().into_iter().map(|request| request.extent).collect()
    }

    const SECTORS: Extent = Extent::Bytes { volume: 0, offset: 64 * 512, len: 8 * 512 };

    #[test]
    fn the_unit_is_as_said_or_as_the_trace_shows() {
        assert_eq!(extents("64 8 0 0\n", Some(Unit::Sector)), [SECTORS]);
        assert_eq!(extents("64 8 0 0\n", Some(Unit::Page)), [Extent::Pages { first: 64, count: 8 }]);
        let single = Extent::Bytes { volume: 0, offset: 512, len: 512 };
        assert_eq!(extents("1 1 0 0\n64 8 0 1\n", None), [single, SECTORS]);
        let page = |first| Extent::Pages { first, count: 1 };
        assert_eq!(extents("1 1 0 0\n2 1 0 1\n\n", None), [page(1), page(2)]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let error = read_all(Format::Lis, b"1 1 0 0\nhello\n", None).unwrap_err();
        assert_eq!(error, "line 2: expected 'start count ...', found 'hello'");
    }
}
