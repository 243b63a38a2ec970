//! The mount's door to the shard. Neither crate knows the other; they meet here.

use std::fs::File;

use headpond_base::{ObjectId, Result};
use headpond_engine::{Namespace, Request};
use headpond_mount::{Done, Operation, Pond};
use headpond_shard::Handle;

/// A shard behind a mount.
pub(crate) struct ShardPond(pub(crate) Handle);

impl Pond for ShardPond {
    fn submit(&self, request: Request, done: Done) {
        self.0.submit(request, done);
    }

    fn namespace(&self, change: Namespace, operation: Operation) -> Result<()> {
        self.0.namespace(change, operation)
    }

    fn attach(&self, object: ObjectId, file: File) {
        self.0.origin().attach(object, file);
    }

    fn sync_origin(&self, object: ObjectId) -> Result<()> {
        self.0.origin().sync(object)
    }
}
