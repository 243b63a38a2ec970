//! What a registry can do, whatever keeps it.

use std::fmt::Debug;
use std::time::Duration;

use headpond_base::PoolId;
use headpond_claim::{Node, OwnerRecord, RecordSeen};
use thiserror::Error;

/// Why a registry gives no answer that counts.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// It cannot be reached, or does not answer in time.
    #[error("the registry at {address} does not answer: {what}")]
    Silent {
        /// Where it was asked, last.
        address: String,
        /// What happened.
        what: String,
    },
    /// Its answer cannot be understood.
    #[error("the registry at {address} answers with something else than asked for: {what}")]
    Strange {
        /// Where.
        address: String,
        /// What it said.
        what: String,
    },
    /// What it keeps of the pool is not headpond's, or of a later version.
    #[error("the registry has something under the key {key} that this headpond does not read: {what}")]
    NotOurs {
        /// The key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
}

/// A lease, by its registry's name for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseId(pub i64);

/// What a registry has of a pool, and in which version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeenAt {
    /// The record. None if nobody ever owned the pool.
    pub seen: Option<RecordSeen>,
    /// The version of the record. 0 for none.
    pub record: i64,
    /// The version of the lease's key. 0 for none.
    pub lease: i64,
}

/// A lease that was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Its name.
    pub lease: LeaseId,
    /// For how long it was granted. The registry may give more than was asked for.
    pub length: Duration,
    /// The version that the lease's key has now, and the record, if it was written, too.
    pub version: i64,
}

/// Where it is written which host owns a pool. Each call asks, and blocks for a bounded time.
pub trait Registry: Debug + Send + Sync {
    /// What is written of a pool. Not older than the start of the call.
    ///
    /// # Errors
    /// [`RegistryError`].
    fn read(&self, pool: PoolId) -> Result<SeenAt, RegistryError>;

    /// Gives a node a new lease, and writes the record that it wants, if all still is as it was seen. None if it is not.
    ///
    /// # Errors
    /// [`RegistryError`]. Then the record may have been written, or not; the lease ends by itself.
    fn take(
        &self,
        pool: PoolId,
        seen: &SeenAt,
        node: &Node,
        record: Option<&OwnerRecord>,
        length: Duration,
    ) -> Result<Option<Granted>, RegistryError>;

    /// Grants a lease anew. For how long; none if it is gone.
    ///
    /// # Errors
    /// [`RegistryError`].
    fn renew(&self, lease: LeaseId) -> Result<Option<Duration>, RegistryError>;

    /// Writes a record whose lease lives, if neither has changed. The version then; none if something has changed.
    ///
    /// # Errors
    /// [`RegistryError`]. Then it may have been written, or not.
    fn change(&self, pool: PoolId, seen: &SeenAt, record: &OwnerRecord) -> Result<Option<i64>, RegistryError>;

    /// Ends a lease. The record stays.
    ///
    /// # Errors
    /// [`RegistryError`]. Then it ends by itself.
    fn release(&self, lease: LeaseId) -> Result<(), RegistryError>;
}
