//! Columns of text, separated by commas, tabs, semicolons or blanks.
//!
//! A first line of names says which column is which: `time`, `key` (or `id`, `obj`, `lba`, `offset`, `address`),
//! `size` (`bytes`, `len`), `op` (`type`). Without that line, the number of columns decides: one column is the key;
//! two are time and key; three are time, key and bytes; a fourth is the operation, `R...` or `W...`. Without a unit,
//! each line is one reference of its key.

use std::io::BufRead;

use headpond_base::Nanos;

use super::keys::page;
use super::{Sink, extent, lines};
use crate::request::{ReadFault, TraceFault, TracedRequest, Unit};

/// The columns and their meanings.
#[derive(Clone, Copy, Default)]
struct Columns {
    time: Option<usize>,
    key: usize,
    size: Option<usize>,
    operation: Option<usize>,
}

impl Columns {
    fn by_number(count: usize) -> Self {
        match count {
            0 | 1 => Self::default(),
            2 => Self { time: Some(0), key: 1, ..Self::default() },
            3 => Self { time: Some(0), key: 1, size: Some(2), operation: None },
            _ => Self { time: Some(0), key: 1, size: Some(2), operation: Some(3) },
        }
    }

    fn by_names(names: &[&str]) -> Option<Self> {
        let find = |some: &[&str]| {
            names.iter().position(|name| {
                let name = name.trim_matches('"').to_ascii_lowercase();
                some.iter().any(|start| name.starts_with(start))
            })
        };
        let key = find(&["key", "id", "obj", "lba", "lbn", "offset", "addr", "block", "sector", "page"])?;
        let (size, operation) = (find(&["size", "bytes", "len"]), find(&["op", "type", "cmd", "rw"]));
        Some(Self { time: find(&["time", "ts", "clock", "sec"]), key, size, operation })
    }
}

pub(super) fn read(from: &mut dyn BufRead, unit: Option<Unit>, sink: Sink) -> Result<(), ReadFault> {
    let unit = unit.unwrap_or(Unit::Page);
    let mut known: Option<(Option<char>, Columns)> = None;
    lines(from, |at, line| {
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let separator =
            known.map_or_else(|| ['\t', ',', ';'].into_iter().find(|mark| line.contains(*mark)), |(mark, _)| mark);
        let fields: Vec<&str> = match separator {
            Some(mark) => line.split(mark).map(str::trim).collect(),
            None => line.split_ascii_whitespace().collect(),
        };
        let columns = match known {
            Some((_, columns)) => columns,
            None => {
                let named = fields.iter().all(|field| field.parse::<f64>().is_err());
                let names = named.then(|| Columns::by_names(&fields)).flatten();
                let columns = names.unwrap_or_else(|| Columns::by_number(fields.len()));
                known = Some((separator, columns));
                if names.is_some() {
                    return Ok(());
                }
                columns
            }
        };
        let field = |at: usize| fields.get(at).copied();
        let key = field(columns.key).filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| TraceFault::line(at, format!("no column {}", columns.key + 1)))?;
        let size = columns.size.and_then(field).and_then(|text| text.parse().ok());
        let address = match (unit, key.parse()) {
            (_, Ok(number)) => number,
            (Unit::Page, Err(_)) => page(key),
            _ => return Err(TraceFault::line(at, format!("'{key}' is not an address; try --unit page"))),
        };
        let write = columns.operation.and_then(field).is_some_and(|text| text.starts_with(['w', 'W']));
        let seconds = columns.time.and_then(field).and_then(|text| text.parse::<f64>().ok());
        let extent = extent(unit, 0, address, size.unwrap_or(1))
            .ok_or_else(|| TraceFault::line(at, format!("{address} is not an address in this unit")))?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, which is well
        let time = seconds.map(|seconds| Nanos((seconds * 1e9) as u64));
        sink(TracedRequest { extent, write, at: time })
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Format, read_all};
    use super::*;
    use crate::Extent;

    fn requests(text: &str, unit: Option<Unit>) -> Vec<TracedRequest> {
        read_all(Format::Csv, text.as_bytes(), unit).unwrap()
    }

    fn page_of(first: u64) -> Extent {
        Extent::Pages { first, count: 1 }
    }

    #[test]
    fn columns_are_known_by_their_number() {
        assert_eq!(requests("5\n6\n", None).iter().map(|one| one.extent).collect::<Vec<_>>(), [page_of(5), page_of(6)]);
        let one = requests("7\t9\t32768\n", None)[0];
        assert_eq!(one, TracedRequest { extent: page_of(9), write: false, at: Some(Nanos(7_000_000_000)) });
        assert!(requests("7,9,512,Write\n", None)[0].write);
        let bytes = Extent::Bytes { volume: 0, offset: 9 * 4096, len: 32768 };
        assert_eq!(requests("7 9 32768\n", Some(Unit::Block))[0].extent, bytes);
    }

    #[test]
    fn columns_are_known_by_their_names() {
        let one = requests("op,size,offset,timestamp\nW,4096,80,1.5\n", Some(Unit::Sector))[0];
        let extent = Extent::Bytes { volume: 0, offset: 80 * 512, len: 4096 };
        assert_eq!(one, TracedRequest { extent, write: true, at: Some(Nanos(1_500_000_000)) });
    }

    #[test]
    fn a_line_without_its_key_is_named() {
        assert_eq!(read_all(Format::Csv, b"1,2,3\n4\n", None).unwrap_err(), "line 2: no column 2");
        assert!(read_all(Format::Csv, b"1,abc,3\n", Some(Unit::Block)).unwrap_err().contains("not an address"));
    }
}
