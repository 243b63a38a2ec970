//! A change of names at the origin, as the front door makes it.

use headpond_base::Result;
use headpond_format::Stamp;

/// A change of the origin's directories, run on an origin thread. Gives the stamp of the file that
/// it renamed, if it renamed one.
pub type Operation = Box<dyn FnOnce() -> Result<Option<Stamp>> + Send>;
