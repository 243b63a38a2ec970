//! The engine of headpond: a write-back cache over a log on flash, as a pure state machine.
//!
//! It does no I/O, reads no clock, starts no thread and has one owner. Requests, completions and
//! the time go in; effects come out. The same code runs under real files and in the simulator,
//! where one seed decides every order, fault and power cut.
//!
//! What it keeps true (the promises of the README, in short): what a sync covered is durable; what
//! survives a crash is a prefix of what was acknowledged; a write request is whole or not there;
//! bytes from flash are verified; a failing flash is no error while the origin has the data;
//! nothing stale is served; errors stick; everything is bounded.
//!
//! The owner calls [`Engine::advance`] with the time, [`Engine::submit`] with requests and
//! [`Engine::complete`] with outcomes, and after each carries out what
//! [`Engine::take_effects`] gives, in any order it likes: the engine never relies on two effects
//! that are under way at the same time being carried out in the order they were given.

mod alternation;
mod burials;
mod checkpoints;
mod config;
mod counted;
mod counted_space;
mod destage;
mod dirty_age;
mod dropped;
mod effect;
mod engine;
mod fetches;
mod forgotten;
mod gather;
mod gathered;
mod heal;
mod identities;
mod keep;
mod key;
mod kind;
mod laggard;
mod last_name;
mod leaving;
mod life;
mod locks;
mod losses;
mod make_rows;
mod member_times;
mod membership;
mod memory_window;
mod modes;
mod newborn;
mod object_job;
mod object_room;
mod op;
mod origin_cost;
mod origin_number;
mod origin_size;
mod origin_space;
mod outbox;
mod packing;
mod past_pool;
mod piece;
mod pool_failed;
mod probes;
mod purpose;
mod reclaim;
mod recovery;
mod renames;
mod request;
mod requests;
mod scrub;
mod sequential;
mod space;
mod spread;
mod stamp_trust;
mod stats;
mod status;
mod store;
mod sums;
mod treatment;
mod witness;

pub use config::Config;
pub use destage::FlushProgress;
pub use effect::{Effect, Outcome, Room, Space, Ticket};
pub use engine::{Engine, Holding, MemberShown, NoNumber, fits_together, number_for};
pub use headpond_base::{Class, Compression, Redundancy};
pub use headpond_log::{
    Device, FlashRead, LastAcknowledged, LeftBehind, LeftError, LeftWrite, Mutation, Present, SecondTail, TailSlots,
    heal_superblock, left_by, newest_superblock,
};
pub use headpond_policy::{Admission, ClassLimit, FlashWriteLimit, Policy};
pub use keep::blocks_kept_by;
pub use recovery::{
    RecoverError, Recovered, RecoveredObject, format_members, format_pool, recover, recover_members, recover_mutated,
};
pub use request::{
    Attributes, FlushId, FlushScope, MembersChange, Namespace, OpenFile, OpenObject, OpenVolume, Reply, Request,
    RequestId, Served,
};
pub use scrub::{LostBlock, ScrubShown};
pub use stats::Stats;
pub use treatment::{Handling, Treatment};
pub use witness::{Conflict, Verdict};
