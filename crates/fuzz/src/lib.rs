//! Fuzzing of everything that is read from flash: `cargo xtask fuzz`.
//!
//! What must hold, whatever the bytes: nothing panics or runs without end; there is a clear verdict; and
//! no wrong data is served. The last is judged as the simulator does it: a pool is made by the real engine
//! over a known history, damaged, recovered by the real engine, and every byte that it then serves must be
//! one that was there.
//!
//! - An [`Input`] is a seed for something valid and the edits that spoil it: small, printable, and the same
//!   on every machine. It gets inside because most of it is valid; with checksums made right again for half
//!   of the inputs it gets behind the checksums, too.
//! - Inputs that bring out a verdict that was not seen before are kept and spoiled further. That is cheaper
//!   than measuring coverage, and builds with any Rust.
//! - A failing input is shortened, saved, and repeated by one printed command. Those that once failed stay
//!   in `corpus` and run in each test.

mod campaign;
mod edits;
mod failures;
mod guard;
mod history;
mod input;
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
