//! The origin, what was promised, and the checks.
//!
//! Keeps true: a promise is a record whose sync was answered. It is given up only if no host has it any more.

use std::collections::{BTreeMap, BTreeSet};

use headpond_claim::ownership::Use;

use crate::hosts::host::Value;

/// The marker beside the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marker {
    pub(crate) host: usize,
    pub(crate) owner: u64,
    pub(crate) members: u64,
    /// The last use of the pool.
    pub(crate) last: Use,
}

/// A change that was handed to a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    pub(crate) host: usize,
    pub(crate) boot: u64,
    pub(crate) owner: u64,
    pub(crate) number: u64,
    pub(crate) value: Value,
    /// At the look at the gate before it, another had the lease already.
    pub(crate) is_late: bool,
}

/// How a change of the origin went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Landed {
    Done,
    Refused,
}

/// The slow place.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) data: BTreeMap<u64, Value>,
    pub(crate) marker: Option<Marker>,
    /// Nodes that were fenced.
    pub(crate) fenced: BTreeSet<String>,
    pub(crate) handed: BTreeMap<u64, Handed>,
    pub(crate) landed: BTreeMap<u64, Landed>,
    pub(crate) next: u64,
}

/// What was promised.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    pub(crate) made: BTreeMap<u64, u64>,
    /// Records that no host has any more.
    pub(crate) lost: BTreeSet<u64>,
    /// The largest owner's number that serves or has served, and what it found.
    pub(crate) served: (u64, BTreeMap<u64, u64>),
    /// Each node that has changed the origin, with its largest owner's number then.
    pub(crate) changed_by: BTreeMap<String, u64>,
    pub(crate) last_answer: u64,
}
