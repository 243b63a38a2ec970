//! The real `headpond` on real mounts, in directories of their own. Needs FUSE: as root, or as an
//! ordinary user with fusermount3.

// A test ends at the first thing that is not as it must be.
#![allow(clippy::unwrap_used)]

mod atomic;
mod away;
mod batch;
mod block_device;
mod browser;
mod by_mount;
mod check;
mod confined;
mod copies_by_rule;
mod crash;
mod descriptors;
mod devices_change;
mod documents;
mod drained;
mod elsewhere;
mod failed_flash;
mod fence_example;
mod flush;
mod freeze;
mod full;
mod host_lost;
mod images;
#[path = "../../../base/tests/lacking/mod.rs"]
mod lacking;
mod leases;
mod life;
mod loop_device;
mod meanwhile;
mod nested;
mod numbers;
mod overlay;
mod package;
mod page;
mod panel;
mod peers;
mod permissions;
mod planted;
mod pond;
mod pool_command;
mod record;
mod refusals;
mod refused_uring;
mod rules;
mod scrub;
mod settings;
mod several_devices;
mod size;
mod space;
mod superblocks;
mod taken_over;
mod times;
mod units;
mod unseen;
mod vanishing;
mod watching;
mod whole;
