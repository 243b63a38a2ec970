//! What the owner of a pool and the host that keeps its copy, the peer, say to each other: bytes and states, no I/O.
//! Drawn in `docs/peer-protocol.md`.
//!
//! | file | what it is |
//! | --- | --- |
//! | `frame` | a frame as bytes and back, with every bound |
//! | `bad_frame` | the rules that a frame may break |
//! | `hello` | who asks, for what, and the answers to that |
//! | `owner_side` | the states of the owner's end of a connection |
//! | `keeper_side` | the states of the peer's end |
//! | `judgement` | whom a peer serves: the largest owner's number, and no older epoch |
//!
//! Invariants:
//! - Whatever bytes come in, decoding ends, allocates nothing, and reads no byte that is not there.
//! - A frame that decodes encodes to the same bytes.
//! - Neither side hands on a frame that its state does not allow.

mod bad_frame;
mod frame;
mod hello;
mod judgement;
mod keeper_side;
mod owner_side;

pub use bad_frame::BadFrame;
pub use frame::{FRAME_HEAD, PAYLOAD_MAX, PeerFrame, Said, TRIM_MAX};
pub use hello::{Accepted, Hello, HelloRefused, MemberNamed, Reason, Versions};
pub use judgement::{HelloVerdict, Kept, judge};
pub use keeper_side::{Asked, KeeperSide};
pub use owner_side::{Heard, OwnerSide};
