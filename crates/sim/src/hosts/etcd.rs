//! A model of etcd: the two keys of a pool, leases, and transactions that compare versions.
//!
//! Keeps true: a lease ends at its time by etcd's own clock, or later; never earlier. A key goes with the lease under
//! which it was written last.

use std::collections::BTreeMap;

use headpond_claim::{Node, OwnerRecord, RecordSeen};

/// What is read: both keys at one moment, and their versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenAt {
    pub(crate) seen: Option<RecordSeen>,
    pub(crate) versions: (i64, i64),
    /// The lease of the key.
    pub(crate) lease: Option<i64>,
}

/// A question, as `registry/src/etcd.rs` asks it.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Read,
    Grant,
    /// Writes the record, or with a lease its key, or both, if both have these versions.
    Write {
        versions: (i64, i64),
        record: Option<OwnerRecord>,
        lease: Option<(i64, Node)>,
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
    /// The lease of the key, its version, and who is in it.
    key: Option<(i64, i64, Node)>,
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

    /// Whether a node has the lease, as far as etcd has looked.
    pub(crate) fn has_lease(&self, node: &Node) -> bool {
        self.key.as_ref().is_some_and(|(.., by)| by == node)
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
        if self.key.as_ref().is_some_and(|(lease, ..)| !self.leases.contains_key(lease)) {
            self.key = None;
            self.revision += 1;
        }
        let versions = (self.record.as_ref().map_or(0, |(_, at)| *at), self.key.as_ref().map_or(0, |(_, at, _)| *at));
        let ends = now + self.length + late;
        match ask {
            Ask::Read => {
                let record = self.record.clone();
                let leased = self.key.as_ref().map(|(.., node)| node.clone());
                let seen = record.map(|(record, _)| RecordSeen { record, leased });
                Said::Seen(SeenAt { seen, versions, lease: self.key.as_ref().map(|(lease, ..)| *lease) })
            }
            Ask::Grant => {
                self.next += 1;
                self.leases.insert(self.next, Lease { ends });
                Said::Granted(self.next)
            }
            Ask::Write { versions: expected, .. } if expected != versions => Said::Written(None),
            Ask::Write { lease: Some((lease, _)), .. } if !self.leases.contains_key(&lease) => Said::Failed,
            Ask::Write { record, lease, .. } => {
                self.revision += 1;
                if let Some(record) = record {
                    self.record = Some((record, self.revision));
                }
                if let Some((lease, node)) = lease {
                    self.key = Some((lease, self.revision, node));
                }
                Said::Written(Some(self.revision))
            }
            Ask::KeepAlive(lease) => {
                let known = self.leases.get_mut(&lease);
                Said::Renewed(known.map(|known| known.ends = known.ends.max(ends)).is_some())
            }
            Ask::Revoke(lease) => {
                self.leases.remove(&lease);
                if self.key.as_ref().is_some_and(|(of, ..)| *of == lease) {
                    self.key = None;
                    self.revision += 1;
                }
                Said::Done
            }
        }
    }
}
