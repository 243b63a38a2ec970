//! Devices that are alike, and a pool that keeps what is dirty: what each table and each figure of several devices begins
//! with.

use headpond_base::Redundancy;
use headpond_engine::Config;
use headpond_format::{Geometry, Member, MemberName};

use crate::modelled_flash::{DeviceModel, FlashModel};
use crate::rng::mix;

impl FlashModel {
    /// The device of this number among some that are alike: the lengths of its syncs are its own.
    #[must_use]
    pub fn of_device(model: DeviceModel, seed: u64, number: u8) -> Self {
        Self::Device(model, mix(seed ^ mix(u64::from(number) + 1)))
    }
}

/// The name of the device of this number.
#[must_use]
pub const fn device_name(number: u8) -> MemberName {
    MemberName([number + 1; 16])
}

/// A pool of so many devices of so many bytes each, and its members.
///
/// # Panics
/// If they are too small for a pool.
#[must_use]
pub fn divided(devices: u8, bytes: u64, segment_bytes: Option<u64>) -> (Geometry, Vec<Member>) {
    let named: Vec<_> = (0..devices).map(|number| (device_name(number), bytes)).collect();
    let divided = Geometry::for_members(&named, segment_bytes);
    divided.unwrap_or_else(|error| panic!("{devices} devices of {bytes} bytes: {error}"))
}

/// Nothing is destaged unless it must be.
#[must_use]
pub fn held_dirty(redundancy: Redundancy) -> Config {
    Config {
        redundancy,
        dirty_threshold: 0,
        flush_period: Config::OFF,
        idle_flush: None,
        sequential_cutoff: None,
        ..Config::default()
    }
}
