//! The FUSE protocol: the kernel's messages, the answers to them, and the mount itself. The operations on files lie
//! above, in [`front`](crate::front).

pub(crate) mod answer;
pub(crate) mod buffers;
pub(crate) mod connection;
pub(crate) mod forgetting;
pub(crate) mod join;
pub(crate) mod journal;
pub(crate) mod mountpoint;
pub(crate) mod relay;
pub(crate) mod source;
pub(crate) mod wire;
