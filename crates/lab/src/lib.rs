//! The lab: experiments on headpond with real databases, run as a user would run them.
//!
//! Invariants:
//! - An experiment uses headpond only through its command line, never through its insides. So it shows what a user
//!   gets.
//! - An experiment ends everything that it started, by process id, and unmounts everything that it mounted, even
//!   after a failure or an interruption.
//! - It never touches a system's own database server, its data or its configuration.

pub mod command;
pub mod conformance;
mod control_group;
pub mod database;
mod database_on_mount;
pub mod demo;
pub mod experiment;
pub mod failure;
pub mod fio;
pub mod fsx;
pub mod guest;
pub mod hosts;
pub mod kernel_caches;
pub mod kill;
pub mod kind;
pub mod ledger;
pub mod limited;
mod loaded_database;
pub mod loop_device;
pub mod loop_file_system;
pub mod mariadb;
pub mod memory_bound;
mod mount_point;
pub mod one_file;
pub mod order;
pub mod origins;
pub mod peer;
pub mod pjdfstest;
mod place;
pub mod pond;
pub mod postgres;
pub mod power_cuts;
pub mod processor;
pub mod processor_quota;
pub mod programs;
pub mod pulls;
pub mod random;
mod server_errors;
pub mod service;
pub mod soak;
pub mod sqlite;
pub mod statistics;
pub mod sysbench;
pub mod throttled;
pub mod torn;
pub mod unseen;
pub mod xfstests;
