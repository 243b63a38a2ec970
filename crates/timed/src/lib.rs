//! The real engine on modelled devices, in virtual time: how much and how fast, on any machine the same.
//!
//! A [`Machine`] is an engine with its devices, its origin and its clock. Nothing fails in it but a device that is
//! taken out. The simulator measures what the engine promises of pace with it, and the lab draws the tables of the
//! studies.
//!
//! Keeps true: the same requests give the same history, to the nanosecond.

mod alike;
mod bare_array;
mod card;
mod device_array;
mod fill;
mod machine;
mod modelled_flash;
mod page_store;
mod pages;
mod pool_store;
mod rng;
mod steady;
mod threads;

pub use alike::{device_name, divided, held_dirty};
pub use bare_array::BareArray;
pub use card::{ModelledCard, OnCard};
pub use device_array::{ArrayModel, ArraySide, DeviceArray};
pub use fill::{FillPoint, FillSweep, sweep_fill};
pub use machine::{Contents, Hardware, Machine, Parts, Traffic, one_member, some_data};
pub use modelled_flash::{DeviceModel, FlashModel, ModelledFlash, QUICK_FLASH};
pub use page_store::{PAGE_BYTES, PageAccess, PageStore, RandomClient, ServedStretch};
pub use pages::{FileBytes, PagedBytes};
pub use pool_store::PoolStore;
pub use rng::{Rng, mix};
pub use steady::{SteadyRun, SteadyStep, run_steady};
pub use threads::{ThreadLoad, ThreadPoint, ThreadSweep, sweep_threads};
