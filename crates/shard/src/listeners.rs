//! Listeners to the fate of objects.

use std::sync::{Arc, OnceLock};

use headpond_base::ObjectId;

/// A listener.
type Listener = Arc<OnceLock<Box<dyn Fn(ObjectId) + Send + Sync>>>;

/// What the engine reports about objects without a request.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    /// The engine lets go of the object.
    pub(crate) let_go: Listener,
    /// The origin may have lost bytes of the object.
    pub(crate) lost: Listener,
}
