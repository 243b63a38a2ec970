//! The peers of a pool: how an owner reaches them, and which are being drained.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headpond_base::PoolId;
use headpond_copies::{Certificates, Link, LinkEnd, LinkError, LinkNews, PATIENCE, PeerAddress, SILENCE};
use headpond_device::Flash;
use headpond_format::{MemberName, Superblock};
use headpond_peer::{Hello, Reason, Versions};
use serde::{Deserialize, Serialize};

use crate::deposed::Deposed;
use crate::process::log::log_line;
use crate::refusal::{ExitStatus, Refusal};

/// A peer, as the operator names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerPlan {
    /// Where it listens: `unix:PATH` or `HOST:PORT`.
    pub address: String,
    /// The directory of this host's certificates.
    #[serde(default)]
    pub certificates: Option<PathBuf>,
    /// Syncs shall be on the peer's disk.
    #[serde(default)]
    pub durable: bool,
    /// For how many milliseconds it may owe an answer, and be silent, before it is lost: 5,000 at most.
    #[serde(default = "timeout_millis")]
    pub timeout_millis: u64,
}

/// The usual time for which a peer may be silent.
const fn timeout_millis() -> u64 {
    PeerPlan::TIMEOUT_MILLIS
}

/// Who asks a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) pool: PoolId,
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
}

/// A copy that a peer is to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCopy {
    pub(crate) name: MemberName,
    pub(crate) bytes: u64,
    /// The copy that the pool has at another peer.
    pub(crate) beside: Option<MemberName>,
}

/// The peers that said on their connection that they are being drained. Clones are the same list.
#[derive(Clone, Default, Debug)]
pub(crate) struct Draining(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Draining {
    /// Whether the connected peer at this address said so.
    pub(crate) fn has(&self, peer: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(peer)
    }

    fn note(&self, peer: &Path, drains: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if drains {
            all.insert(peer.to_owned());
        } else {
            all.remove(peer);
        }
    }
}

/// Why there is no copy at a peer.
pub(crate) enum PeerTrouble {
    /// This host may not use the pool. With a registry a larger owner's number does not say so: a guard has its store keep
    /// that before its mount has begun, which may yet be refused.
    Deposed(Refusal),
    /// The peer keeps nothing that counts.
    NotKept,
    /// It cannot be had, for this reason.
    Away(String),
}

impl PeerPlan {
    /// For how long a peer may be silent, if nobody says another time.
    pub const TIMEOUT_MILLIS: u64 = SILENCE.as_millis() as u64;

    /// For how long it may be at most.
    pub const TIMEOUT_MILLIS_MAX: u64 = PATIENCE.as_millis() as u64;

    /// Its address as a path, by which devices are named.
    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.address)
    }

    /// Connects with what the peer keeps of a pool.
    pub(crate) fn find(&self, asking: Asking, deposed: &Deposed, draining: &Draining) -> Result<Flash, PeerTrouble> {
        self.connect(asking, None, deposed, draining)
    }

    /// Connects with an empty member of this name and size, in place of whatever the peer keeps of the pool.
    pub(crate) fn make(
        &self,
        asking: Asking,
        wanted: &NewCopy,
        deposed: &Deposed,
        draining: &Draining,
    ) -> Result<Flash, PeerTrouble> {
        self.connect(asking, Some(wanted), deposed, draining)
    }

    fn connect(
        &self,
        asking: Asking,
        wanted: Option<&NewCopy>,
        deposed: &Deposed,
        draining: &Draining,
    ) -> Result<Flash, PeerTrouble> {
        let address: PeerAddress = self.address.parse().map_err(PeerTrouble::Away)?;
        let certificates = self.certificates.as_deref().map(Certificates::read).transpose();
        let certificates = certificates.map_err(|error| PeerTrouble::Away(error.to_string()))?;
        let Asking { pool, owner, epoch } = asking;
        let (member, bytes) = wanted.map_or(([0; 16], 0), |wanted| (wanted.name.0, wanted.bytes));
        let beside = wanted.and_then(|wanted| wanted.beside).map_or([0; 16], |name| name.0);
        let hello =
            Hello { versions: Versions::SPOKEN, durable: self.durable, pool, member, owner, epoch, bytes, beside };
        let heeded = deposed.heeds_peers();
        let (deposed, draining, peer) = (deposed.clone(), draining.clone(), self.path().to_owned());
        // What a connection before this one said.
        draining.note(&peer, false);
        let hears = move |news: LinkNews| match news {
            LinkNews::Draining => {
                log_line(format_args!("peer {}: it is being drained, and is to keep no copies", peer.display()));
                draining.note(&peer, true);
            }
            LinkNews::Ended(end) => {
                log_line(format_args!("peer {}: {end}", peer.display()));
                if let LinkEnd::Deposed(_) = end
                    && deposed.heeds_peers()
                {
                    deposed.say(format!("its peer says that {end}"));
                }
            }
        };
        let patience = Duration::from_millis(self.timeout_millis);
        match Link::connect(&address, certificates.as_ref(), &hello, patience, hears) {
            Ok((link, _)) => Ok(Flash::far(Arc::new(link), self.path())),
            Err(LinkError::Refused(refused)) if refused.reason == Reason::NotKept => Err(PeerTrouble::NotKept),
            Err(error @ LinkError::Refused(refused)) if refused.reason == Reason::Owner && !heeded => {
                Err(PeerTrouble::Away(format!("the peer {error}. {ABANDONED}")))
            }
            Err(error @ LinkError::Refused(refused)) if matches!(refused.reason, Reason::Owner | Reason::Epoch) => {
                Err(PeerTrouble::Deposed(Refusal::Pool {
                    path: self.path().to_owned(),
                    what: format!("the peer {error}"),
                    advice: DEPOSED,
                    status: ExitStatus::Deposed,
                }))
            }
            Err(error) => Err(PeerTrouble::Away(format!("the peer {error}"))),
        }
    }
}

impl Asking {
    /// The owner that has a pool by this superblock.
    pub(crate) const fn with(superblock: &Superblock) -> Self {
        Self { pool: superblock.pool, owner: superblock.owner.0, epoch: superblock.epoch.0 }
    }
}

/// What became of a larger owner's number that the registry does not know.
const ABANDONED: &str = "By the registry this host is the owner: a take-over there came to nothing. That peer has no copy for this owner any \
                         more, until the pool is handed over or taken over once; name another peer: headpond pool add MOUNTPOINT --peer \
                         HOST:PORT";

/// What to do on a host that was deposed.
pub(crate) const DEPOSED: &str = "Nothing was written. The pool is used on another host by now, or was: mount it there. A sync that was \
                                  answered while the copy was ONLINE is there. To use the flash for a new pool: --format --discard-dirty, with another --peer or none";
