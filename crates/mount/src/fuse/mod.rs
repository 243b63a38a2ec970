//! How the kernel is spoken with: its messages, the answers to them, and the mount itself. What is done with files is decided
//! above, in [`front`](crate::front).

pub(crate) mod answer;
pub(crate) mod buffers;
pub(crate) mod connection;
pub(crate) mod forgetting;
pub(crate) mod join;
pub(crate) mod mountpoint;
pub(crate) mod relay;
pub(crate) mod source;
pub(crate) mod wire;
