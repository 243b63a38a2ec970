//! The treatment of one request, on top of the cache mode.
//!
//! Invariant: a treatment only restricts what the cache mode allows. So in pass-through no rule lets data into the pool,
//! and none makes a write less durable than the mode does on this host. How many other hosts have it, a rule may say.

use headpond_base::{Class, Compression};
use headpond_log::Durability;

use crate::modes::ModeBehaviour;

/// The requester, and what the rules decided for the request.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Treatment {
    /// The process that asks, to tell its sequential runs from those of others; 0 if that is not known, as for pages
    /// that the kernel's own threads write back.
    pub process: u32,
    /// The user whose quota and reserves at the origin the request counts against.
    pub user: u32,
    /// What is done with the request.
    pub handling: Handling,
    /// Whose share of the pool it uses.
    pub class: Class,
    /// How the file is packed from now on, until another request on it says otherwise; `None` is as the settings say.
    pub compression: Option<Compression>,
    /// How many other hosts must have what this request makes durable, at least. 0: the flash of this host is enough.
    /// `None`: one, if the pool ever had a copy. Beyond 0 it waits for each copy that works.
    pub copies: Option<u8>,
}

impl Treatment {
    /// Where what the request makes durable must be.
    pub(crate) const fn durability(&self) -> Durability {
        if matches!(self.copies, Some(0)) { Durability::Here } else { Durability::Everywhere }
    }
}

/// What is done with a request.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Handling {
    /// What the cache mode says.
    #[default]
    Cache,
    /// Reads are served from the pool as far as it has them, and let nothing in. Writes go to the origin,
    /// and what the pool has of those blocks is dropped.
    Bypass,
    /// Reads are let in; writes as with [`Handling::Bypass`] (write-around).
    ReadOnly,
    /// Reads are let in; writes go to the origin and are kept as clean (write-through).
    WriteThrough,
    /// As the cache mode says, but writes go through the log or fail: headpond promised a program untorn writes, and
    /// the program no longer writes a copy of its own. So no sequential run bypasses the log, and once the flash has
    /// failed an error is better than half a page.
    Whole,
}

impl Handling {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cache, Self::Bypass, Self::ReadOnly, Self::WriteThrough, Self::Whole];

    /// What is left of what a cache mode does.
    pub(crate) const fn limit(self, mode: ModeBehaviour) -> ModeBehaviour {
        match self {
            Self::Cache | Self::Whole => mode,
            Self::Bypass => ModeBehaviour { log_writes: false, keep_writes: false, admit_reads: false, ..mode },
            Self::ReadOnly => ModeBehaviour { log_writes: false, keep_writes: false, ..mode },
            Self::WriteThrough => ModeBehaviour { log_writes: false, ..mode },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::behaviour;
    use headpond_base::CacheMode;

    #[test]
    fn a_treatment_never_allows_what_the_mode_does_not() {
        for mode in CacheMode::ALL {
            for handling in Handling::ALL {
                let (all, left) = (behaviour(mode), handling.limit(behaviour(mode)));
                assert!(all.log_writes || !left.log_writes);
                assert!(all.keep_writes || !left.keep_writes);
                assert!(all.admit_reads || !left.admit_reads);
                assert_eq!(all.serve_hits, left.serve_hits, "what is there is served to all");
            }
        }
    }
}
