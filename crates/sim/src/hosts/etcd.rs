//! A model of etcd: the two keys of a pool, leases, and transactions that compare versions.
//!
//! Keeps true: a lease ends at its time by etcd's own clock, or later; never earlier. A key goes with the lease under
//! which it was written last.

use std::collections::BTreeMap;

use headpond_claim::{OwnerRecord, RecordSeen};

/// What is read: both keys at one moment, and their versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenAt {
    pub(crate) seen: Option<RecordSeen>,
    pub(crate) versions: (i64, i64),
}

/// A question, as `registry/src/etcd.rs` asks it.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Read,
    Grant,
    /// Writes the record, and with a lease its key, if both have these versions.
    Write {
        versions: (i64, i64),
        record: OwnerRecord,
        lease: Option<i64>,
    },
    KeepAlive(i64),
    Revoke(i64),
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Seen(SeenAt),
    Granted(i64),
    Written(Option<i64>),
    Renewed(bool),
    Done,
    /// A lease that is gone was named.
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ends: u64,
}

/// The model.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) is_up: bool,
    /// The length of a lease in true time, by this clock.
    length: u64,
    revision: i64,
    record: Option<(OwnerRecord, i64)>,
    /// The lease of the key, and its version.
    key: Option<(i64, i64)>,
    leases: BTreeMap<i64, Lease>,
    next: i64,
}

impl Etcd {
    pub(crate) fn new(length: u64) -> Self {
        Self { is_up: true, length, revision: 1, record: None, key: None, leases: BTreeMap::new(), next: 1 }
    }

    /// What is written now.
    pub(crate) fn record(&self) -> Option<&OwnerRecord> {
        self.record.as_ref().map(|(record, _)| record)
    }

    /// Another machine leads from now on. It gives each lease its whole length again.
    pub(crate) fn starts_again(&mut self, now: u64) {
        self.is_up = true;
        for lease in self.leases.values_mut() {
            lease.ends = now + self.length;
        }
    }

    /// Answers. `late` is how much later than due a lease ends.
    pub(crate) fn answer(&mut self, ask: Ask, now: u64, late: u64) -> Said {
        self.leases.retain(|_, lease| lease.ends > now);
        if self.key.is_some_and(|(lease, _)| !self.leases.contains_key(&lease)) {
            self.key = None;
            self.revision += 1;
        }
        let versions = (self.record.as_ref().map_or(0, |(_, at)| *at), self.key.map_or(0, |(_, at)| at));
        let ends = now + self.length + late;
        match ask {
            Ask::Read => {
                let record = self.record.clone();
                let seen = record.map(|(record, _)| RecordSeen { record, leased: self.key.is_some() });
                Said::Seen(SeenAt { seen, versions })
            }
            Ask::Grant => {
                self.next += 1;
                self.leases.insert(self.next, Lease { ends });
                Said::Granted(self.next)
            }
            Ask::Write { versions: expected, .. } if expected != versions => Said::Written(None),
            Ask::Write { lease: Some(lease), .. } if !self.leases.contains_key(&lease) => Said::Failed,
            Ask::Write { record, lease, .. } => {
                self.revision += 1;
                self.record = Some((record, self.revision));
                if let Some(lease) = lease {
                    self.key = Some((lease, self.revision));
                }
                Said::Written(Some(self.revision))
            }
            Ask::KeepAlive(lease) => {
                let known = self.leases.get_mut(&lease);
                Said::Renewed(known.map(|known| known.ends = known.ends.max(ends)).is_some())
            }
            Ask::Revoke(lease) => {
                self.leases.remove(&lease);
                if self.key.is_some_and(|(of, _)| of == lease) {
                    self.key = None;
                    self.revision += 1;
                }
                Said::Done
            }
        }
    }
}
