//! Several hosts that own one pool in turn, and whatever befalls them.
//!
//! Two to four hosts, each with a mount of its own, a server of copies and a guard; etcd; an origin that all see; a
//! network between all of them. The owner wants a copy on one other host, or on two; operators drain hosts. The decisions
//! are the product's own (`headpond-claim`, `headpond-peer`). The steps between them are modelled, each file after one of
//! `headpond-control` or `headpond-copies`; its header names that.
//!
//! | file | what it is |
//! | --- | --- |
//! | `run` | a history: processes, faults, the end at which all is whole again |
//! | `world` | time, events, and how a task waits |
//! | `host`, `power` | clock, flash and store of a host; what goes with its power |
//! | `network`, `connections` | ways that are cut, and what arrives over the others |
//! | `etcd` | records, leases, transactions |
//! | `promises`, `checks` | the origin, what was promised; whether that is kept |
//! | `kept`, `guard`, `gate` | an owner's lease; who takes one that is gone; what passes to the origin |
//! | `keeper`, `link` | the two ends of a copy |
//! | `pool`, `records` | the pool as devices have it; what applications write |
//! | `mount` | an owner: the real engine, what it asks for, an application, and the copies |
//!
//! Keeps true, of the product:
//! - Whoever serves has each record whose sync was answered, if any host still has it.
//! - At each answer, whoever could take over has each such record.
//! - No copy is let go before another one has everything.
//! - No two owners answer the sync of one record, nor one owner a sync that the next one lacks.
//! - No change of the origin begins once another has taken the lease. With a program that fences, none arrives once another
//!   serves; without one, none that began later than the lease ended.
//! - An owner is deposed only if another took the pool.
//! - Once everything is whole again, somebody serves.
//!
//! A wall's clock is in no decision, so it is not modelled.

mod checks;
mod connections;
mod etcd;
mod gate;
mod guard;
mod host;
mod keeper;
mod kept;
mod link;
mod mount;
mod network;
mod pool;
mod power;
mod promises;
mod records;
mod run;
mod world;

pub(crate) use run::run;
