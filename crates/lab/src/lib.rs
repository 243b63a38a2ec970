//! The lab: experiments on headpond with real databases, run the way a user would run them.
//!
//! Invariants:
//! - headpond is used through its command line only, never through its insides, so what an
//!   experiment shows is what a user gets;
//! - whatever an experiment starts it ends by process id, and whatever it mounts it unmounts, also
//!   when it fails or is interrupted;
//! - a system's own database server, its data and its configuration are never touched.

pub mod command;
pub mod conformance;
pub mod database;
pub mod demo;
pub mod experiment;
pub mod failure;
pub mod fio;
pub mod fsx;
pub mod guest;
pub mod kill;
pub mod kind;
pub mod ledger;
pub mod mariadb;
pub mod order;
pub mod origins;
pub mod pjdfstest;
pub mod pond;
pub mod postgres;
pub mod power_cuts;
pub mod programs;
pub mod random;
pub mod service;
pub mod soak;
pub mod sqlite;
pub mod statistics;
pub mod sysbench;
pub mod torn;
pub mod xfstests;
