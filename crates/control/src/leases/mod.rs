//! Who owns a pool, by a registry that grants leases: an owner keeps its lease.
//!
//! Keeps true: a lease is taken before anything is changed, at the origin or on flash. Decisions are in
//! `headpond_claim`, questions in `headpond_registry`. Uses `process`, `refusal` and `deposed`.

mod kept;
mod plan;

pub(crate) use kept::{KeptLease, Tenure};
pub use plan::LeasePlan;
