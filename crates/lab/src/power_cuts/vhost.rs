//! The disks as a guest sees them: virtio block devices, served over vhost-user sockets.
//!
//! It speaks as much of the protocol as User Mode Linux does: one queue, no indirect descriptors, notifications by
//! file descriptors. The device announces a volatile cache (`VIRTIO_BLK_F_FLUSH`); otherwise no flush would leave the
//! guest.
//!
//! Invariants
//! - One thread serves one disk, one request after the other. So a flush covers every write that was answered before
//!   it.
//! - Once the power is off no request gets an answer. The thread ends with the guest.

use super::cache::{Piece, SECTOR};
use super::power::{Off, Power, Which};
use super::queue::{Chain, Memory, Part, Queue, Region};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

// Requests of vhost-user.
const GET_FEATURES: u32 = 1;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_VRING_ENABLE: u32 = 18;
const SET_DEVICE_REQUESTS: u32 = 21;
const GET_CONFIG: u32 = 24;

/// Version 1, and the flags of a message: an answer; an answer is wanted.
const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;
/// No message of the guest is longer.
const MESSAGE_MAX: u32 = 4096;

/// What the device can: `SEG_MAX`, `FLUSH`, `DISCARD`, vhost-user's own features, and virtio 1.
const FEATURES: u64 = 1 << 2 | 1 << 9 | 1 << 13 | 1 << 30 | 1 << 32;
/// vhost-user's own: requests of the device to the guest, and the guest asks for the configuration. Of the former there
/// are none, but without them User Mode Linux 6.1 has no interrupt for the ring.
const PROTOCOL_FEATURES: u64 = 1 << 5 | 1 << 9;
/// Parts of a request: with its head and its status they fit into the ring.
const SEGMENTS_MAX: u32 = 126;
/// The most sectors of one discard, and their unit: headpond trims segments.
const DISCARD_MAX: u32 = 16384;
const DISCARD_ALIGNMENT: u32 = 8;

// Requests of a block device, and the outcomes.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

/// Serves a disk to the one guest that connects, until it is gone.
pub fn serve(listener: &UnixListener, power: Arc<Power>, which: Which) -> io::Result<()> {
    let (socket, _) = listener.accept()?;
    let mut device = Device {
        power,
        which,
        socket,
        memory: Memory::default(),
        queue: Queue::default(),
        kick: None,
        call: None,
        own: None,
    };
    device.run()
}

struct Device {
    power: Arc<Power>,
    which: Which,
    socket: UnixStream,
    memory: Memory,
    queue: Queue,
    kick: Option<File>,
    call: Option<File>,
    /// The way for requests to the guest, open as long as the guest listens there.
    own: Option<OwnedFd>,
}

impl Device {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let (message, kicked) = self.wait()?;
            if message && !self.message()? {
                return Ok(());
            }
            if kicked && self.requests()? == Err(Off) {
                // The guest is killed for that. Until then it waits for answers.
                self.kick = None;
            }
        }
    }

    /// Waits for a message, or for requests in the ring.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let mut waits = vec![PollFd::new(&self.socket, PollFlags::IN)];
        waits.extend(self.kick.as_ref().map(|kick| PollFd::new(kick, PollFlags::IN)));
        while let Err(error) = poll(&mut waits, None) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let came = |index: usize| waits.get(index).is_some_and(|wait| !wait.revents().is_empty());
        Ok((came(0), came(1)))
    }

    /// Takes one message; false when the guest is gone.
    fn message(&mut self) -> io::Result<bool> {
        let mut head = [0; 12];
        let mut descriptors = match receive(&self.socket, &mut head)? {
            Some(descriptors) => descriptors.into_iter(),
            None => return Ok(false),
        };
        let [request, flags, len] = [0, 4, 8].map(|at| number(&head, at));
        if len > MESSAGE_MAX {
            return Err(io::Error::other(format!("a message of {len} bytes")));
        }
        let mut body = vec![0; len as usize];
        self.socket.read_exact(&mut body)?;
        let word =
            |at: usize| body.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(std::array::from_fn(|i| bytes[i])));
        match request {
            GET_FEATURES => self.reply(request, &FEATURES.to_le_bytes())?,
            GET_PROTOCOL_FEATURES => self.reply(request, &PROTOCOL_FEATURES.to_le_bytes())?,
            GET_CONFIG if body.len() >= 12 => {
                let config = self.config();
                for (target, byte) in body[12..].iter_mut().zip(config) {
                    *target = byte;
                }
                self.reply(request, &body)?;
            }
            SET_MEM_TABLE => {
                let region = |(index, descriptor): (usize, OwnedFd)| {
                    let [start, len, offset] = [0, 8, 24].map(|at| word(8 + index * 32 + at));
                    Region { start, len, offset, file: descriptor.into() }
                };
                self.memory = Memory(descriptors.by_ref().enumerate().map(region).collect());
            }
            SET_VRING_NUM => self.queue.size = (word(0) >> 32) as u16,
            SET_VRING_BASE => self.queue.taken = (word(0) >> 32) as u16,
            SET_VRING_ADDR => {
                [self.queue.descriptors, self.queue.used, self.queue.available] = [8, 16, 24].map(word);
            }
            SET_VRING_KICK => self.kick = descriptors.next().map(File::from),
            SET_VRING_CALL => self.call = descriptors.next().map(File::from),
            SET_DEVICE_REQUESTS => self.own = descriptors.next(),
            SET_VRING_ENABLE if word(0) >> 32 == 0 => self.kick = None,
            _ => {}
        }
        if flags & NEED_REPLY != 0 && ![GET_FEATURES, GET_PROTOCOL_FEATURES, GET_CONFIG].contains(&request) {
            self.reply(request, &0u64.to_le_bytes())?;
        }
        Ok(true)
    }

    fn reply(&mut self, request: u32, body: &[u8]) -> io::Result<()> {
        let mut message = Vec::new();
        for word in [request, VERSION | REPLY, body.len() as u32] {
            message.extend(word.to_le_bytes());
        }
        message.extend(body);
        self.socket.write_all(&message)
    }

    /// The device's configuration: its size, how many parts a request may have, how much one discard may cover.
    fn config(&self) -> [u8; 64] {
        let mut config = [0; 64];
        config[..8].copy_from_slice(&self.power.sectors(self.which).to_le_bytes());
        for (at, word) in [(12, SEGMENTS_MAX), (36, DISCARD_MAX), (40, 1), (44, DISCARD_ALIGNMENT)] {
            config[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        config
    }

    /// Serves the requests in the ring.
    fn requests(&mut self) -> io::Result<Result<(), Off>> {
        if let Some(kick) = &mut self.kick {
            kick.read_exact(&mut [0; 8])?;
        }
        while let Some(chain) = self.queue.take(&self.memory)? {
            let Ok((status, written)) = self.request(&chain)? else { return Ok(Err(Off)) };
            let last = chain.parts.last().filter(|part| part.for_device_to_write && part.len == 1);
            let last = last.ok_or_else(|| io::Error::other("a request without a place for its outcome"))?;
            self.memory.write(last.address, &[status])?;
            self.queue.answer(&self.memory, &chain, written + 1)?;
            self.notify();
        }
        Ok(Ok(()))
    }

    /// Tells the guest of an answer. A pipe that is full tells it, too.
    fn notify(&mut self) {
        if let Some(call) = &mut self.call {
            let _ = call.write(&1u64.to_le_bytes());
        }
    }

    /// Carries out a request: its outcome, and how many bytes of data it wrote into the guest.
    fn request(&self, chain: &Chain) -> io::Result<Result<(u8, u32), Off>> {
        let mut head = [0; 16];
        let Some((first, rest)) = chain.parts.split_first().filter(|(first, _)| first.len == head.len()) else {
            return Err(io::Error::other("a request without a head"));
        };
        self.memory.read(first.address, &mut head)?;
        let (kind, sector) = (number(&head, 0), u64::from(number(&head, 8)) | u64::from(number(&head, 12)) << 32);
        let data = &rest[..rest.len().saturating_sub(1)];
        let outcome = match kind {
            READ => {
                let mut bytes = vec![0; data.iter().map(|part| part.len).sum()];
                let outcome = self.power.read(self.which, sector, &mut bytes);
                if let Ok(Ok(())) = outcome {
                    self.scatter(data, &bytes)?;
                    return Ok(Ok((OK, bytes.len() as u32)));
                }
                outcome
            }
            WRITE => self.power.write(self.which, Piece { sector, bytes: self.gather(data)?, trim: false }),
            FLUSH => self.power.flush(self.which),
            DISCARD => {
                let range = self.gather(data)?;
                let (Some(sector), Some(sectors)) = (range.first_chunk(), range[8.min(range.len())..].first_chunk())
                else {
                    return Ok(Ok((IO_ERROR, 0)));
                };
                let sectors = u64::from(u32::from_le_bytes(*sectors));
                self.power.trim(self.which, u64::from_le_bytes(*sector), sectors)
            }
            GET_ID => {
                let mut name = vec![0; data.iter().map(|part| part.len).sum::<usize>().min(SECTOR)];
                name.iter_mut().zip(self.which.name().bytes()).for_each(|(to, from)| *to = from);
                self.scatter(data, &name)?;
                return Ok(Ok((OK, name.len() as u32)));
            }
            _ => return Ok(Ok((UNSUPPORTED, 0))),
        };
        Ok(outcome.map(|done| (if done.is_ok() { OK } else { IO_ERROR }, 0)))
    }

    fn gather(&self, parts: &[Part]) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; parts.iter().map(|part| part.len).sum()];
        let mut rest = &mut bytes[..];
        for part in parts {
            let (now, later) = rest.split_at_mut(part.len);
            self.memory.read(part.address, now)?;
            rest = later;
        }
        Ok(bytes)
    }

    fn scatter(&self, parts: &[Part], mut bytes: &[u8]) -> io::Result<()> {
        for part in parts {
            let (now, later) = bytes.split_at(part.len.min(bytes.len()));
            self.memory.write(part.address, now)?;
            bytes = later;
        }
        Ok(())
    }
}

/// The little-endian number at a place of a head.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

/// Fills `bytes`, and takes the descriptors that came with them; none when the other side is gone.
fn receive(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<Option<Vec<OwnedFd>>> {
    let (mut descriptors, mut filled) = (Vec::new(), 0);
    while filled < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes[filled..])];
        let came = match recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            // A guest that is killed resets its side.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            came => came?.bytes,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                descriptors.extend(files);
            }
        }
        if came == 0 {
            return Ok(None);
        }
        filled += came;
    }
    Ok(Some(descriptors))
}
