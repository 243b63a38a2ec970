//! The formats of traces, one file each.

mod csv;
mod headpond;
mod keys;
mod lis;
mod msr;
mod oracle;
mod vscsi;

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::str::FromStr;

use headpond_recording::TRACE_MAGIC;

pub(crate) use self::headpond::GoneSink;
use crate::request::{ReadFault, TraceFacts, TraceFault, TracedRequest, Unit};
use crate::unpack;

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// VMware's SCSI commands, binary, as in the CloudPhysics traces.
    Vscsi,
    /// libCacheSim's oracleGeneral, binary.
    Oracle,
    /// Lines of `start count ignored request`, as in the traces of the ARC paper.
    Lis,
    /// Lines of columns: time, address, size, operation.
    Csv,
    /// Microsoft Research Cambridge: CSV with fixed columns and byte offsets.
    Msr,
    /// One key a line.
    Keys,
    /// `headpond record`, binary.
    Headpond,
}

/// Takes each request as it is read. An error ends the reading.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(TracedRequest) -> Result<(), TraceFault>;

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] = [Self::Vscsi, Self::Oracle, Self::Lis, Self::Csv, Self::Msr, Self::Keys, Self::Headpond];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vscsi => "vscsi",
            Self::Oracle => "oracle",
            Self::Lis => "lis",
            Self::Csv => "csv",
            Self::Msr => "msr",
            Self::Keys => "keys",
            Self::Headpond => "headpond",
        }
    }

    /// The format that a file's name suggests, whatever compresses the file.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = [".zst", ".gz", ".xz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let has = |part: &str| name.contains(part);
        match name.rsplit('.').next()? {
            "vscsi" => Some(Self::Vscsi),
            "lis" => Some(Self::Lis),
            "csv" | "tsv" if has("msr") => Some(Self::Msr),
            "csv" | "tsv" => Some(Self::Csv),
            "trace" | "keys" | "txt" => Some(Self::Keys),
            _ if has("vscsi") => Some(Self::Vscsi),
            _ if has("oraclegeneral") => Some(Self::Oracle),
            _ => None,
        }
    }

    /// The format of a file: `headpond record` writes a mark that says it; the name of another file suggests it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_file(path: &Path) -> io::Result<Option<Self>> {
        let is_headpond = unpack::open(path)?.fill_buf()?.starts_with(&TRACE_MAGIC);
        Ok(if is_headpond { Some(Self::Headpond) } else { Self::of_name(path) })
    }

    /// Reads a trace. Only one format has blocks that leave the pool, and facts.
    pub(crate) fn read(
        self,
        from: &mut dyn BufRead,
        unit: Option<Unit>,
        sink: Sink,
        gone: GoneSink,
    ) -> Result<Option<TraceFacts>, ReadFault> {
        match self {
            Self::Vscsi => vscsi::read(from, unit, sink),
            Self::Oracle => oracle::read(from, unit, sink),
            Self::Lis => lis::read(from, unit, sink),
            Self::Csv => csv::read(from, unit, sink),
            Self::Msr => msr::read(from, unit, sink),
            Self::Keys => keys::read(from, sink),
            Self::Headpond => return headpond::read(from, sink, gone).map(Some),
        }?;
        Ok(None)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| format!("unknown format '{text}': one of vscsi, oracle, lis, csv, msr, keys, headpond"))
    }
}

/// Calls `each` with every line and its number, from 1.
fn lines(from: &mut dyn BufRead, mut each: impl FnMut(usize, &str) -> Result<(), TraceFault>) -> Result<(), ReadFault> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // No line of a trace is this long: the file is something else.
        if (&mut *from).take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = std::str::from_utf8(&line).map_err(|_| TraceFault::line(number, "not text"))?;
        if line.len() as u64 == LINE_MAX {
            return Err(TraceFault::line(number, "longer than any line of a trace").into());
        }
        each(number, text.trim_end_matches(['\n', '\r']))?;
    }
    Ok(())
}

const LINE_MAX: u64 = 64 << 10;

/// Calls `each` with every record of `SIZE` bytes and its number, from 0.
fn records<const SIZE: usize>(
    from: &mut dyn BufRead,
    mut each: impl FnMut(u64, &[u8; SIZE]) -> Result<(), TraceFault>,
) -> Result<(), ReadFault> {
    let mut record = [0; SIZE];
    for number in 0.. {
        let mut filled = 0;
        while filled < SIZE {
            match from.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        match filled {
            0 => break,
            whole if whole == SIZE => each(number, &record)?,
            _ => return Err(in_record(number, "cut short").into()),
        }
    }
    Ok(())
}

fn in_record(number: u64, what: impl Into<String>) -> TraceFault {
    TraceFault { place: format!("record {number}"), what: what.into() }
}

/// A little-endian number from a record.
fn number<const SIZE: usize>(record: &[u8], at: usize) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes.copy_from_slice(&record[at..at + SIZE]);
    bytes
}

/// The extent of a request, in a format whose addresses may have any unit.
fn extent(unit: Unit, volume: u64, address: u64, bytes: u64) -> Option<crate::Extent> {
    let scale = match unit {
        Unit::Page => return Some(crate::Extent::Pages { first: address, count: 1 }),
        Unit::Block => 4096,
        Unit::Sector => 512,
    };
    Some(crate::Extent::Bytes { volume, offset: address.checked_mul(scale)?, len: bytes.max(1) })
}

#[cfg(test)]
pub(crate) fn read_all(format: Format, bytes: &[u8], unit: Option<Unit>) -> Result<Vec<TracedRequest>, String> {
    let mut all = Vec::new();
    let mut sink = |request| {
        all.push(request);
        Ok(())
    };
    match format.read(&mut &bytes[..], unit, &mut sink, &mut |_, _, _| {}) {
        Ok(_) => Ok(all),
        Err(ReadFault::Fault(fault)) => Err(format!("{}: {}", fault.place, fault.what)),
        Err(ReadFault::Io(error)) => Err(error.to_string()),
    }
}
