//! Random writes until they settle: how far a fresh device declines, and what is left then.
//!
//! Keeps true: the whole space was written once, in order, before anything counts, as a benchmark makes its file. The
//! clock is how often the space was written over, so that a device as small as a modelled one tells of a large one.

use std::num::NonZeroU32;

use crate::device_array::{ArraySide, DeviceArray};
use crate::page_store::{PageAccess, RandomClient};

/// Writes under way for each device.
const DEPTH: u64 = 32;

/// A run.
#[derive(Clone, PartialEq, Debug)]
pub struct SteadyRun {
    /// What is written to.
    pub array: DeviceArray,
    /// How often the space is written over.
    pub times: u32,
    /// Into how many steps each of these is divided.
    pub steps: NonZeroU32,
}

/// A step of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SteadyStep {
    /// How often the space was written over until its end.
    pub times: f64,
    /// MiB a second, of devices as fast as real ones.
    pub rate: f64,
}

/// Runs.
#[must_use]
pub fn run_steady(run: &SteadyRun, side: ArraySide) -> Vec<SteadyStep> {
    let array = &run.array;
    let mut store = array.made(side, true);
    let pages = array.pages(side);
    let depth = DEPTH * u64::from(array.devices);
    let mut client = RandomClient::new(&mut *store, array.seed);
    client.write_once(0..pages, depth, false);
    client.store().come_to_rest();
    let steps = run.steps.get();
    let step = |number: u32| SteadyStep {
        times: f64::from(number) / f64::from(steps),
        rate: client.ask_until_on_flash(|_| PageAccess::Write, depth, pages, pages / u64::from(steps)).rate()
            * array.model.slower()
            / f64::from(1 << 20),
    };
    let rates = (1..=run.times * steps).map(step).collect();
    client.drain();
    rates
}
