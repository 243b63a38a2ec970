//! A change of names at the origin, made by a door.

use headpond_base::Result;
use headpond_format::Stamp;

/// A change of the origin's directories. Runs on an origin thread. Returns the stamp of the file that it renamed, if
/// any.
pub type Operation = Box<dyn FnOnce() -> Result<Option<Stamp>> + Send>;
