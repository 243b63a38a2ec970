//! What a mount shares with the daemon's control part.

use std::sync::Arc;

use headpond_door::LiveRules;
use headpond_shard::Budget;

use crate::insight::Insight;
use crate::kept::KeptTime;
use crate::panel::Panel;
use crate::whole::WholeWrites;

/// What a mount shares with the daemon's control part.
#[derive(Clone, Default)]
pub struct Beside {
    /// What is seen in `.headpond` at the top of the mount; without it there is no such directory.
    pub panel: Option<Arc<dyn Panel>>,
    /// What can be seen of it.
    pub insight: Arc<Insight>,
    /// Who and what is cached.
    pub rules: Arc<LiveRules>,
    /// The files of which a program was told that their writes are whole.
    pub whole: Arc<WholeWrites>,
    /// Status change times of files of which nothing is dirty.
    pub kept_times: Vec<KeptTime>,
    /// How many descriptors there are; as many as the process may have where nothing is said.
    pub descriptors: Option<Budget>,
}
