//! Microsoft Research Cambridge block traces (Narayanan and others, FAST 2008): CSV lines of timestamp in
//! units of 100 ns, host, disk, `Read` or `Write`, byte offset, bytes, response time.

use std::io::BufRead;

use headpond_base::Nanos;

use super::keys::page;
use super::{Sink, lines};
use crate::request::{Extent, ReadFault, TraceFault, TracedRequest, Unit};

pub(super) fn read(from: &mut dyn BufRead, unit: Option<Unit>, sink: Sink) -> Result<(), ReadFault> {
    lines(from, |at, line| {
        if line.trim().is_empty() || at == 1 && line.to_ascii_lowercase().starts_with("timestamp") {
            return Ok(());
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let wrong =
            |what: &str| TraceFault::line(at, format!("{what} (expected time,host,disk,Read|Write,offset,bytes,...)"));
        let &[time, host, disk, operation, offset, bytes, ..] = fields.as_slice() else {
            return Err(wrong("too few columns"));
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong(&format!("'{text}' is not a number")));
        let write = match operation.as_bytes().first().map(u8::to_ascii_lowercase) {
            Some(b'r') => false,
            Some(b'w') => true,
            _ => return Err(wrong(&format!("'{operation}' is neither Read nor Write"))),
        };
        let (offset, len) = (number(offset)?, number(bytes)?);
        // Hosts and disks are volumes of their own.
        let volume = page(host).rotate_left(8) ^ number(disk)?;
        if len == 0 {
            return Ok(());
        }
        let extent = match unit {
            Some(Unit::Page) => Extent::Pages { first: offset ^ volume.rotate_left(44), count: 1 },
            _ => Extent::Bytes { volume, offset, len },
        };
        sink(TracedRequest { extent, write, at: number(time).ok().map(|ticks| Nanos(ticks.wrapping_mul(100))) })
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Format, read_all};
    use super::*;

    #[test]
    fn lines_become_requests_of_their_disks() {
        let text = "128166372003061629,usr,0,Read,8192,4096,1\n128166372003061630,usr,1,Write,8192,512,1\n";
        let requests = read_all(Format::Msr, text.as_bytes(), None).unwrap();
        let volume = |at: usize| match requests[at].extent {
            Extent::Bytes { volume, offset: 8192, .. } => volume,
            other => panic!("{other:?}"),
        };
        assert_ne!(volume(0), volume(1));
        assert_eq!((requests[0].write, requests[1].write), (false, true));
        assert_eq!(requests[1].at.unwrap().0.wrapping_sub(requests[0].at.unwrap().0), 100);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let error = read_all(Format::Msr, b"1,usr,0,Trim,0,1,1\n", None).unwrap_err();
        assert!(error.starts_with("line 1: 'Trim' is neither Read nor Write"), "{error}");
        assert!(read_all(Format::Msr, b"1,usr,0\n", None).unwrap_err().contains("too few columns"));
    }
}
