//! A guest's memory, and the ring of requests in it (virtio's split virtqueue).
//!
//! The memory is a file that guest and server share. The server uses system calls and not a mapping: slower, but
//! without `unsafe`. The kernel keeps both views the same, and a system call is a barrier.
//!
//! Invariants
//! - An address outside the guest's memory is an error, never a read of something else.
//! - A chain ends: it has at most as many parts as the ring has places.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A range of the guest's memory, and where it lies in a file.
pub struct Region {
    /// The guest's address of its start.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The start's place in the file.
    pub offset: u64,
    /// The file.
    pub file: File,
}

/// The guest's memory.
#[derive(Default)]
pub struct Memory(pub Vec<Region>);

impl Memory {
    fn place(&self, address: u64, len: usize) -> io::Result<(&File, u64)> {
        let inside = |region: &&Region| {
            let end = address.checked_add(len as u64);
            address >= region.start && end.is_some_and(|end| end <= region.start + region.len)
        };
        let found = self.0.iter().find(inside);
        let region = found.ok_or_else(|| io::Error::other(format!("{address:#x} is not in the guest's memory")))?;
        Ok((&region.file, region.offset + (address - region.start)))
    }

    /// Fills `bytes` from this address on.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (file, at) = self.place(address, bytes.len())?;
        file.read_exact_at(bytes, at)
    }

    /// Writes `bytes` from this address on.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let (file, at) = self.place(address, bytes.len())?;
        file.write_all_at(bytes, at)
    }

    fn array<const N: usize>(&self, address: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    fn u16(&self, address: u64) -> io::Result<u16> {
        Ok(u16::from_le_bytes(self.array(address)?))
    }
}

/// A piece of the guest's memory that belongs to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where.
    pub address: u64,
    /// Bytes.
    pub len: usize,
    /// Whether the device writes it; otherwise it reads.
    pub for_device_to_write: bool,
}

/// A request: its number for the answer, and its parts.
pub struct Chain {
    id: u16,
    /// In order.
    pub parts: Vec<Part>,
}

/// The ring of a device.
#[derive(Default)]
pub struct Queue {
    /// Places of the ring.
    pub size: u16,
    /// The guest's addresses of the three tables.
    pub descriptors: u64,
    /// Requests that the guest has made available.
    pub available: u64,
    /// Requests that the device has answered.
    pub used: u64,
    /// The next of `available` to take.
    pub taken: u16,
    answered: u16,
}

const DESCRIPTOR: u64 = 16;
const HAS_NEXT: u16 = 1;
const DEVICE_WRITES: u16 = 2;

impl Queue {
    /// The next request, if there is one.
    pub fn take(&mut self, memory: &Memory) -> io::Result<Option<Chain>> {
        if self.size == 0 || memory.u16(self.available + 2)? == self.taken {
            return Ok(None);
        }
        let id = memory.u16(self.available + 4 + 2 * u64::from(self.taken % self.size))?;
        self.taken = self.taken.wrapping_add(1);
        let (mut parts, mut index) = (Vec::new(), id);
        loop {
            if index >= self.size || parts.len() >= usize::from(self.size) {
                return Err(io::Error::other("a request of the guest has no end"));
            }
            let bytes: [u8; DESCRIPTOR as usize] = memory.array(self.descriptors + DESCRIPTOR * u64::from(index))?;
            let [address, rest] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte])));
            let (len, flags, next) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
            let for_device_to_write = flags & DEVICE_WRITES != 0;
            parts.push(Part { address, len: len as usize, for_device_to_write });
            if flags & HAS_NEXT == 0 {
                return Ok(Some(Chain { id, parts }));
            }
            index = next;
        }
    }

    /// Answers a request with `written` bytes in its buffers.
    pub fn answer(&mut self, memory: &Memory, chain: &Chain, written: u32) -> io::Result<()> {
        let mut entry = [0; 8];
        entry[..4].copy_from_slice(&u32::from(chain.id).to_le_bytes());
        entry[4..].copy_from_slice(&written.to_le_bytes());
        memory.write(self.used + 4 + 8 * u64::from(self.answered % self.size), &entry)?;
        self.answered = self.answered.wrapping_add(1);
        memory.write(self.used + 2, &self.answered.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    fn memory() -> Memory {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(8192).expect("it grows");
        Memory(vec![Region { start: START, len: 4096, offset: 4096, file }])
    }

    fn ring(memory: &Memory, descriptors: &[(u64, u32, u16, u16)]) -> Queue {
        let queue =
            Queue { size: 4, descriptors: START, available: START + 512, used: START + 1024, ..Queue::default() };
        for (index, (address, len, flags, next)) in descriptors.iter().enumerate() {
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            memory.write(queue.descriptors + 16 * index as u64, &bytes).expect("inside");
        }
        // One request, which begins with the first descriptor.
        memory.write(queue.available, &[0, 0, 1, 0, 0, 0]).expect("inside");
        queue
    }

    #[test]
    fn a_request_is_taken_once_and_answered_by_its_number() {
        let memory = memory();
        let mut queue =
            ring(&memory, &[(START + 2048, 16, HAS_NEXT, 2), (0, 0, 0, 0), (START + 2064, 1, DEVICE_WRITES, 0)]);
        let chain = queue.take(&memory).expect("sound").expect("there is one");
        let parts: Vec<_> = chain.parts.iter().map(|part| (part.len, part.for_device_to_write)).collect();
        assert_eq!(parts, [(16, false), (1, true)]);
        assert!(queue.take(&memory).expect("sound").is_none());
        queue.answer(&memory, &chain, 1).expect("inside");
        assert_eq!(memory.u16(queue.used + 2).expect("inside"), 1);
        assert_eq!(memory.array::<8>(queue.used + 4).expect("inside"), [0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn a_request_without_an_end_and_memory_that_is_not_the_guests_are_errors() {
        let memory = memory();
        assert!(ring(&memory, &[(START, 1, HAS_NEXT, 0)]).take(&memory).is_err());
        for address in [START - 1, START + 4095, u64::MAX] {
            assert!(memory.read(address, &mut [0; 2]).is_err(), "{address:#x}");
        }
    }
}
