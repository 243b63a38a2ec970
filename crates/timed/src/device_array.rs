//! Several devices that are alike: bare, or as a pool of headpond.
//!
//! Keeps true: both are made of the same models with the same seeds, so that a table compares nothing else.

use headpond_base::Redundancy;
use headpond_engine::Config;
use headpond_format::{Geometry, Member};
use headpond_models::Network;
use headpond_models::flash::Model;

use crate::alike::{divided, held_dirty};
use crate::bare_array::BareArray;
use crate::card::OnCard;
use crate::machine::{Contents, Machine, Parts, some_data};
use crate::modelled_flash::{DeviceModel, FlashModel, ModelledFlash};
use crate::page_store::{PAGE_BYTES, PageStore};
use crate::pool_store::PoolStore;

/// Bytes of a segment: small, as the devices are. An erase block of a modelled card is a quarter of it.
const SEGMENT_BYTES: u64 = 1 << 20;

/// An origin that takes whatever it gets, so that only flash limits.
const NO_LIMIT: Network = Network { iops: 1e6, rate: 1e10, latency: 50_000.0 };

/// What each device is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ArrayModel {
    /// A card that is slower the fuller it is. It is as small as the array says, and slower in proportion.
    Card(Model),
    /// A device with latencies, and the same speed however full.
    Device(DeviceModel),
}

impl ArrayModel {
    /// So many times slower than the real device is the model.
    #[must_use]
    pub const fn slower(&self) -> f64 {
        match self {
            Self::Card(_) => OnCard::SLOWER,
            Self::Device(_) => 1.0,
        }
    }
}

/// Which side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArraySide {
    /// The devices by themselves: striped by the page, or each page on two neighbours.
    Bare,
    /// A pool of headpond that takes all of them.
    Headpond,
}

/// Devices that are alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceArray {
    /// How many.
    pub devices: u8,
    /// What each is.
    pub model: ArrayModel,
    /// Bytes of each.
    pub bytes: u64,
    /// How many have each page, or each dirty block.
    pub redundancy: Redundancy,
    /// The seed of all that is random.
    pub seed: u64,
}

impl DeviceArray {
    pub(crate) fn copies(&self) -> u64 {
        if self.redundancy == Redundancy::Mirror { 2 } else { 1 }
    }

    fn flash_model(&self, index: u8) -> FlashModel {
        match self.model {
            ArrayModel::Card(model) => FlashModel::Card(OnCard { model, share: 1.0 }),
            ArrayModel::Device(model) => FlashModel::of_device(model, self.seed, index),
        }
    }

    fn divided(&self) -> (Geometry, Vec<Member>) {
        divided(self.devices, self.bytes, Some(SEGMENT_BYTES))
    }

    /// Pages that there is room for.
    #[must_use]
    pub fn pages(&self, side: ArraySide) -> u64 {
        let bytes = match side {
            ArraySide::Bare => u64::from(self.devices) * self.bytes,
            ArraySide::Headpond => self.divided().0.data_blocks() * headpond_base::BLOCK_U64,
        };
        bytes / self.copies() / PAGE_BYTES
    }

    /// The array, new and empty. A pool destages to an origin that takes everything at once, or not at all unless it must.
    #[must_use]
    pub fn made(&self, side: ArraySide, destage: bool) -> Box<dyn PageStore> {
        match side {
            ArraySide::Bare => {
                let flash = |index| ModelledFlash::new(self.flash_model(index), self.bytes);
                Box::new(BareArray::new((0..self.devices).map(flash).collect(), self.copies()))
            }
            ArraySide::Headpond => {
                let (geometry, rows) = self.divided();
                let members = rows.into_iter().zip(0..).map(|(row, index)| (row, self.flash_model(index))).collect();
                let contents = Contents::Alike(some_data());
                let parts = Parts { geometry, members, origin: NO_LIMIT, contents, by_block: false };
                let config = if destage {
                    Config { redundancy: self.redundancy, sequential_cutoff: None, ..Config::default() }
                } else {
                    held_dirty(self.redundancy)
                };
                let file = self.pages(side) * PAGE_BYTES;
                Box::new(PoolStore::new(Machine::new(parts, config), file))
            }
        }
    }
}
