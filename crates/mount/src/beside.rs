//! What a mount shares with the daemon's control part.

use std::sync::Arc;

use headpond_door::LiveRules;
use headpond_shard::Budget;

use crate::insight::Insight;
use crate::kept::KeptTime;
use crate::panel::Panel;
use crate::standstill::Standstill;
use crate::whole::WholeWrites;

/// What a mount shares with the daemon's control part.
#[derive(Clone, Default)]
pub struct Beside {
    /// The directory `.headpond` at the top of the mount. Without it there is no such directory.
    pub panel: Option<Arc<dyn Panel>>,
    /// What the control part sees of the mount.
    pub insight: Arc<Insight>,
    /// The rules in force.
    pub rules: Arc<LiveRules>,
    /// The files whose writes the mount promised to keep whole.
    pub whole: Arc<WholeWrites>,
    /// Holds changes of names and attributes back while the origin stands still.
    pub standstill: Arc<Standstill>,
    /// Status change times of files without dirty data.
    pub kept_times: Vec<KeptTime>,
    /// How many descriptors the mount may use. Without a figure: as many as the process may have.
    pub descriptors: Option<Budget>,
}
