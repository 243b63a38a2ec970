//! Fuzzing of everything that headpond reads from flash: `cargo xtask fuzz`.
//!
//! Whatever the bytes, three things must hold: nothing panics or runs without end; there is a clear verdict; and no
//! wrong data is served. The simulator's way decides on wrong data: the real engine makes a pool over a known
//! history; the pool is damaged; the real engine recovers it; and every byte that it then serves must be one that was
//! there.
//!
//! - An [`Input`] is a seed for something valid and the edits that spoil it: small, printable, and the same on every
//!   machine. Because most of it is valid, it gets past the first checks. For half of the inputs checksums are made
//!   right again, and those get behind the checksums, too.
//! - An input with a new verdict is kept and spoiled further. That is cheaper than measuring coverage, and builds
//!   with any Rust.
//! - A failing input is shortened and saved, and the fuzzer prints the one command that repeats it. Those that once
//!   failed stay in `corpus` and run in each test.

mod campaign;
mod devices;
mod edits;
mod failures;
mod guard;
mod history;
mod input;
mod life;
mod origin;
mod seals;
mod seed;
mod subject;
mod target;
mod targets;
mod world;

pub use campaign::{Campaign, CampaignOutcome, fuzz, replay};
pub use guard::quiet_panics;
pub use input::Input;
pub use subject::PlantedBug;
pub use target::Target;
