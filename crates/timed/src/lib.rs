//! The real engine on modelled devices, in virtual time: how much and how fast, on any machine the same.
//!
//! A [`Machine`] is an engine with its devices, its origin and its clock. Nothing fails in it but a device that is
//! taken out. The simulator measures what the engine promises of pace with it, and the lab draws the tables of the
//! studies.
//!
//! Keeps true: the same requests give the same history, to the nanosecond.

mod card;
mod machine;
mod modelled_flash;
mod pages;
mod rng;

pub use card::{ModelledCard, OnCard};
pub use machine::{Contents, Hardware, Machine, Parts, Traffic, one_member, some_data};
pub use modelled_flash::{DeviceModel, FlashModel, ModelledFlash, QUICK_FLASH};
pub use pages::{FileBytes, PagedBytes};
pub use rng::{Rng, mix};
