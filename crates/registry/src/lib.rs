//! Where it is written which host owns a pool, under a lease that ends by itself.
//!
//! | file | what it is |
//! | --- | --- |
//! | `registry` | what any registry can do |
//! | `written` | a record as text |
//! | `etcd` | etcd, through its JSON gateway |
//!
//! Invariant: a record and its lease change together, and only if both still are as the caller has read them.

mod etcd;
mod registry;
mod written;

pub use etcd::{Etcd, EtcdAddress, EtcdTls, ReadTls};
pub use registry::{Granted, LeaseId, Registry, RegistryError, SeenAt};
