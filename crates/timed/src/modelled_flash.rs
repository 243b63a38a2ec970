//! A modelled flash device under the engine: its bytes, and how long it takes for what is asked of it.
//!
//! Keeps true: the same requests take the same time, to the nanosecond. Each device has a queue of its own. A device
//! that is lost refuses all that comes later, at once.

use headpond_base::{Buf, Errno, Nanos, Result};
use headpond_engine::{FlashRead, Outcome};
use headpond_models::Network;

use crate::card::{ModelledCard, OnCard};
use crate::pages::PagedBytes;
use crate::rng::Rng;

/// A device without a translation layer that shows. It does one transfer at a time, of reads and of writes, in the order
/// in which they come: a read waits for all that was written before. Real ones do better. Latencies come on top, and
/// overlap.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceModel {
    /// Bytes a second of reads, if there is nothing else.
    pub read_rate: f64,
    /// Bytes a second of writes, if there is nothing else.
    pub write_rate: f64,
    /// From the end of a read's transfer to its answer.
    pub read: Nanos,
    /// From the end of a write's transfer to its answer.
    pub write: Nanos,
    /// The time of a sync, from the end of the last transfer before it.
    pub sync: Nanos,
    /// A sync takes longer or shorter by up to this share, each length as likely.
    pub sync_spread: f64,
}

impl DeviceModel {
    /// One of eight eXFlash DIMMs. Eight of them read 3 GB and write 1 GB a second, as published. Its latencies were not
    /// published: they are chosen. A write that it has survives a loss of power, so a sync only waits for those under way.
    pub const DIMM: Self = Self {
        read_rate: 3e9 / 8.0,
        write_rate: 1e9 / 8.0,
        read: Nanos(80_000),
        write: Nanos(20_000),
        sync: Nanos(20_000),
        sync_spread: 0.25,
    };
}

/// Which model a device follows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FlashModel {
    /// Everything is an access of a volume.
    Volume(Network),
    /// A card times the writes. All else is quick ([`QUICK_FLASH`]).
    Card(OnCard),
    /// A device, with the seed of its syncs.
    Device(DeviceModel, u64),
}

/// A flash that is never the bottleneck: 0.1 ms for each access, and a nanosecond for each byte.
pub const QUICK_FLASH: Network = Network { iops: 1e9, rate: 1e9, latency: 0.1e6 };

/// A device that serves one access after the other. Each answer comes some time later.
pub(crate) struct Queue {
    network: Network,
    free: Nanos,
}

impl Queue {
    pub const fn of(network: Network) -> Self {
        Self { network, free: Nanos(0) }
    }

    /// The start and the end of an access that comes now.
    pub fn serve(&mut self, now: Nanos, bytes: u64) -> (Nanos, Nanos) {
        let start = self.free.max(now);
        self.free = start.plus(self.network.pace(bytes));
        (start, start.plus(self.network.access(bytes)))
    }

    /// The time that an access takes from the others.
    pub fn pace(&self, bytes: u64) -> Nanos {
        self.network.pace(bytes)
    }
}

/// A device by its model.
struct Modelled {
    model: DeviceModel,
    free: Nanos,
    rng: Rng,
}

impl Modelled {
    /// The end of a transfer that comes now.
    fn transfer(&mut self, now: Nanos, bytes: u64, rate: f64) -> Nanos {
        self.free = self.free.max(now).plus(Nanos((bytes as f64 * 1e9 / rate) as u64));
        self.free
    }

    fn read(&mut self, now: Nanos, bytes: u64) -> Nanos {
        self.transfer(now, bytes, self.model.read_rate).plus(self.model.read)
    }

    fn write(&mut self, now: Nanos, bytes: u64) -> Nanos {
        self.transfer(now, bytes, self.model.write_rate).plus(self.model.write)
    }

    fn sync(&mut self, now: Nanos) -> Nanos {
        // Thousandths are fine enough.
        let share = 1.0 + self.model.sync_spread * (self.rng.below(2001) as f64 / 1000.0 - 1.0);
        self.free.max(now).plus(Nanos((self.model.sync.0 as f64 * share) as u64))
    }
}

enum Timing {
    Volume(Queue),
    Card(Queue, Box<ModelledCard>),
    Device(Modelled),
}

/// A device of the pool.
pub struct ModelledFlash {
    bytes: PagedBytes,
    timing: Timing,
    lost: bool,
}

impl ModelledFlash {
    /// A device of so many bytes, all zeros.
    pub fn new(model: FlashModel, bytes: u64) -> Self {
        let timing = match model {
            FlashModel::Volume(network) => Timing::Volume(Queue::of(network)),
            FlashModel::Card(on) => Timing::Card(Queue::of(QUICK_FLASH), Box::new(ModelledCard::new(on, bytes))),
            FlashModel::Device(model, seed) => Timing::Device(Modelled { model, free: Nanos(0), rng: Rng::new(seed) }),
        };
        Self { bytes: PagedBytes::zeroed(bytes), timing, lost: false }
    }

    /// Writes in no time: for formatting.
    pub fn put(&mut self, offset: u64, data: &[u8]) {
        self.bytes.write(offset, data);
    }

    /// Everything fails from now on.
    pub const fn lose(&mut self) {
        self.lost = true;
    }

    /// The card that it is, if it is one.
    pub const fn card(&self) -> Option<&ModelledCard> {
        match &self.timing {
            Timing::Card(_, card) => Some(card),
            Timing::Volume(_) | Timing::Device(_) => None,
        }
    }

    /// A read that comes now: its end, and what it comes to.
    pub fn read_at(&mut self, now: Nanos, offset: u64, len: u32) -> (Nanos, Outcome) {
        if self.lost {
            return (now, Outcome::Failed(Errno::NODEV));
        }
        let end = match &mut self.timing {
            Timing::Volume(queue) | Timing::Card(queue, _) => queue.serve(now, u64::from(len)).1,
            Timing::Device(device) => device.read(now, u64::from(len)),
        };
        (end, self.read(offset, len as usize).map_or_else(Outcome::Failed, Outcome::Bytes))
    }

    /// A write that comes now.
    pub fn write_at(&mut self, now: Nanos, offset: u64, data: &Buf) -> (Nanos, Outcome) {
        if self.lost {
            return (now, Outcome::Failed(Errno::NODEV));
        }
        self.bytes.write(offset, data);
        let bytes = data.len() as u64;
        let end = match &mut self.timing {
            Timing::Volume(queue) => queue.serve(now, bytes).1,
            Timing::Card(_, card) => card.write(now, offset, bytes),
            Timing::Device(device) => device.write(now, bytes),
        };
        (end, Outcome::Done)
    }

    /// A sync that comes now.
    pub fn sync_at(&mut self, now: Nanos) -> (Nanos, Outcome) {
        if self.lost {
            return (now, Outcome::Failed(Errno::NODEV));
        }
        let end = match &mut self.timing {
            Timing::Volume(queue) | Timing::Card(queue, _) => queue.serve(now, 0).1,
            Timing::Device(device) => device.sync(now),
        };
        (end, Outcome::Done)
    }

    /// Pages that several cards wrote for each page that they got. `None` if they are no cards.
    pub fn amplification(devices: &[Self]) -> Option<f64> {
        let cards: Vec<_> = devices.iter().filter_map(Self::card).collect();
        let written: u64 = cards.iter().map(|card| card.written()).sum();
        let programs = cards.iter().map(|card| card.programs()).sum::<u64>();
        (written > 0).then(|| programs as f64 / written as f64)
    }

    /// Nothing on it is needed any more.
    pub fn trim_all(&mut self) {
        self.trim(0, self.bytes.len() as u64);
    }

    /// Bytes that are not needed any more.
    pub fn trim(&mut self, offset: u64, len: u64) {
        if let Timing::Card(_, card) = &mut self.timing {
            card.trim(offset, len);
        }
    }
}

impl FlashRead for ModelledFlash {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        if offset + len as u64 > self.bytes.len() as u64 {
            return Err(Errno::IO);
        }
        Ok(self.bytes.read(offset, len))
    }
}
