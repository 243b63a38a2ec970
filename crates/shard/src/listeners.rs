//! Listeners to the fate of an object.

use std::sync::{Arc, OnceLock};

use headpond_base::ObjectId;

/// The listeners of an object.
type Listener = Arc<OnceLock<Box<dyn Fn(ObjectId) + Send + Sync>>>;

/// What the engine tells of objects without being asked.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    /// It lets go of one.
    pub(crate) let_go: Listener,
    /// The origin may have lost some of one.
    pub(crate) lost: Listener,
}
