//! Random writes over more and more of the space, in one go: the picture that made people fear full flash.
//!
//! Keeps true: a point counts after its data was written over, and all that counts is on flash. A device that is pulled is pulled in the
//! midst of the load, and stays away.

use std::num::NonZeroU32;

use crate::device_array::{ArraySide, DeviceArray};
use crate::page_store::{PageAccess, RandomClient};

/// Writes under way for each device.
const DEPTH: u64 = 32;

/// A sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct FillSweep {
    /// What is written to.
    pub array: DeviceArray,
    /// Percents of the space, in order.
    pub used: Vec<u32>,
    /// At this percent a device is pulled.
    pub pulled_at: Option<u32>,
    /// How often the space is written over before a point counts, and again while it does.
    pub times: NonZeroU32,
}

/// A point of a sweep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FillPoint {
    /// The percent of the space in use.
    pub used: u32,
    /// MiB a second, of devices as fast as real ones.
    pub rate: f64,
    /// Pages that flash wrote since the start for each page that it got. `None` if the devices do not count.
    pub amplification: Option<f64>,
}

/// Runs a sweep.
///
/// # Panics
/// If a device is pulled that has the only copy of something.
#[must_use]
pub fn sweep_fill(sweep: &FillSweep, side: ArraySide) -> Vec<FillPoint> {
    let array = &sweep.array;
    let mut store = array.made(side, true);
    let room = array.pages(side);
    let depth = DEPTH * u64::from(array.devices);
    let requests = room * u64::from(sweep.times.get());
    let mut client = RandomClient::new(&mut *store, array.seed);
    let mut written = 0;
    let mut points = Vec::with_capacity(sweep.used.len());
    for used in &sweep.used {
        let pages = (room * u64::from(*used) / 100).max(1);
        client.write_once(written..pages, depth, side == ArraySide::Headpond);
        written = pages;
        let write = |_: &mut _| PageAccess::Write;
        client.keep_asking(write, depth, pages, requests / 2);
        if sweep.pulled_at == Some(*used) {
            client.store().pull(array.devices - 1);
        }
        client.keep_asking(write, depth, pages, requests / 2);
        let stretch = client.ask_until_on_flash(write, depth, pages, requests);
        points.push(FillPoint {
            used: *used,
            rate: stretch.rate() * array.model.slower() / f64::from(1 << 20),
            amplification: client.store().amplification(),
        });
    }
    client.drain();
    points
}
