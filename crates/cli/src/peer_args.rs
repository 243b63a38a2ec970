//! The command lines of `headpond peer` and `headpond takeover`, and the options that name a peer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use headpond_control::{Decisions, EtcdAddress, GuardPlan, LeasePlan, PeerAddress, PeerPlan, Refusal, Size};

/// Which host keeps a copy.
#[derive(Args, Clone, Debug, Default)]
pub struct PeerArgs {
    /// A host that keeps a copy of what is dirty, where `headpond peer serve` listens: an fsync returns once it is on
    /// the flash here, and in that host's memory (docs/copies.md). With several, one keeps the copy, or two do
    /// (--copies); when one is lost, the next one gets one. You can repeat this option, but not with `pool add`
    #[arg(long, value_name = "unix:PATH|HOST:PORT", value_parser = address)]
    pub peer: Vec<String>,
    /// This host's certificates: ca.pem, certificate.pem and key.pem. Without them a peer must be on this host
    #[arg(long, value_name = "DIR", requires = "peer")]
    pub peer_certificates: Option<PathBuf>,
    /// An fsync returns once it is on that host's disk, too
    #[arg(long, requires = "peer")]
    pub copies_durable: bool,
    /// A peer that owes an answer, and of which nothing is heard for so many milliseconds, is lost: 400 to 5000. One that is
    /// at work says so five times a second, and has five seconds. Shorter: a host that hangs, or a wire that is cut, holds
    /// syncs up for less time; and lost packets, or a host without a free processor, cost the copy, which is then made anew
    #[arg(long, value_name = "MILLISECONDS", requires = "peer", default_value_t = PeerPlan::TIMEOUT_MILLIS,
        value_parser = clap::value_parser!(u64).range(400..=PeerPlan::TIMEOUT_MILLIS_MAX))]
    pub peer_timeout: u64,
}

fn address(text: &str) -> Result<String, String> {
    text.parse::<PeerAddress>().map(|_| text.to_owned())
}

impl PeerArgs {
    /// As the control plane takes it.
    pub fn plans(&self) -> Vec<PeerPlan> {
        let (certificates, durable) = (&self.peer_certificates, self.copies_durable);
        let plan = |address: &String| PeerPlan {
            address: address.clone(),
            certificates: certificates.clone(),
            durable,
            timeout_millis: self.peer_timeout,
        };
        self.peer.iter().map(plan).collect()
    }

    /// As words of another command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        for address in &self.peer {
            line.extend(["--peer".into(), address.into()]);
        }
        if self.peer.is_empty() {
            return line;
        }
        if let Some(dir) = &self.peer_certificates {
            line.extend(["--peer-certificates".into(), dir.into()]);
        }
        line.extend(self.copies_durable.then(|| "--copies-durable".into()));
        line.extend(["--peer-timeout".into(), self.peer_timeout.to_string().into()]);
        line
    }

    /// The only one, for a daemon that has another directory.
    pub fn absolute_plan(&self) -> Result<Option<PeerPlan>, Refusal> {
        let mut plans = self.plans();
        if plans.len() > 1 {
            return Err(Refusal::Usage(
                "one --peer at a time: name the next one with another command. Nothing was changed".to_owned(),
            ));
        }
        let mut plan = plans.pop();
        if let Some(dir) = plan.as_mut().and_then(|plan| plan.certificates.as_mut()) {
            *dir = std::path::absolute(&*dir).map_err(|error| Refusal::from_io("find", dir, error))?;
        }
        Ok(plan)
    }
}

/// Which registry says who owns the pool.
#[derive(Args, Clone, Debug, Default)]
pub struct LeaseArgs {
    /// The registry that says which host owns the pool, under a lease: etcd, with the addresses of all its machines. An
    /// owner whose lease may be over stands still (docs/copies.md)
    #[arg(long, value_name = "http://HOST:PORT", value_delimiter = ',')]
    pub registry: Vec<EtcdAddress>,
    /// This host's certificates for a registry with https: ca.pem, certificate.pem and key.pem
    // A holder says once more where they are, to workers that run in another directory.
    #[arg(long, value_name = "DIR", requires = "registry", overrides_with = "registry_certificates")]
    pub registry_certificates: Option<PathBuf>,
    /// How long a lease is, in seconds, 3 to 60. So long after an owner's death nobody takes over [default: 5]
    #[arg(long, value_name = "SECONDS", requires = "registry", value_parser = clap::value_parser!(u64).range(3..=60))]
    pub lease_seconds: Option<u64>,
    /// This host's name in the registry; each host that may own the pool needs another [default: the host's name]
    #[arg(long, value_name = "NAME", requires = "registry")]
    pub node: Option<String>,
}

/// How long a lease is, unless one says so.
const LEASE_SECONDS: u64 = 5;

impl LeaseArgs {
    /// As the control plane takes it.
    pub fn plan(&self) -> Option<LeasePlan> {
        let Self { registry, registry_certificates, lease_seconds, node } = self.clone();
        let certificates = registry_certificates;
        let seconds = lease_seconds.unwrap_or(LEASE_SECONDS);
        (!registry.is_empty()).then_some(LeasePlan { registry, certificates, seconds, node })
    }

    /// The options that name a place, for a process that may run in another directory.
    pub fn places(&self) -> Vec<OsString> {
        let place = |dir: &PathBuf| ["--registry-certificates".into(), absolute(dir).into()];
        self.registry_certificates.iter().flat_map(place).collect()
    }

    /// As words of another command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        for address in &self.registry {
            line.extend(["--registry".into(), address.to_string().into()]);
        }
        if let Some(dir) = &self.registry_certificates {
            line.extend(["--registry-certificates".into(), dir.into()]);
        }
        if let Some(seconds) = self.lease_seconds {
            line.extend(["--lease-seconds".into(), seconds.to_string().into()]);
        }
        if let Some(node) = &self.node {
            line.extend(["--node".into(), node.into()]);
        }
        line
    }
}

/// The arguments of `headpond peer`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  On the host that keeps copies:
    headpond peer serve --listen 0.0.0.0:7433 --store /nvme/copies --certificates /etc/headpond
    headpond peer status --store /nvme/copies

  Before that host goes away for longer:
    headpond peer drain --store /nvme/copies

  On the host with the database:
    headpond mount /slow/mysql /var/lib/mysql --flash /nvme/pond --size 200G \\
      --peer db2:7433 --peer-certificates /etc/headpond

docs/copies.md says what an acknowledgement means then, and what to do when a host is lost.")]
pub struct PeerCommandArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PeerCommand,
}

/// The commands for peers.
#[derive(Subcommand, Debug)]
pub enum PeerCommand {
    /// Keep copies for other hosts, until SIGTERM or ctrl-C: then each copy goes to disk, and the command ends
    Serve {
        /// Where to listen. Without --certificates: a unix socket, or a loopback address
        #[arg(long, value_name = "unix:PATH|ADDR:PORT")]
        listen: PeerAddress,
        /// A directory for the copies, on this host's own disk. It is made if it is missing
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
        /// The most that all copies together take. Without it: what the disk has room for
        #[arg(long)]
        size: Option<Size>,
        /// Answer a sync once it is on disk. Without it: once this host's kernel has it; the disk has it a second later
        #[arg(long)]
        durable: bool,
        /// This host's certificates: ca.pem, certificate.pem and key.pem. Owners must have one of the same authority
        #[arg(long, value_name = "DIR")]
        certificates: Option<PathBuf>,
    },
    /// Wait until a pool whose copy is here has no owner any more, and take it over: mount it, in this process
    Guard(Box<TakeoverArgs>),
    /// Show what is kept: for each pool its owner's number, its size, and when its owner was last connected
    Status {
        /// The directory of the copies
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
        /// Print JSON: an array with an object for each pool
        #[arg(long)]
        json: bool,
    },
    /// Keep no copies any more: none is made, and each owner makes its copy at another peer, and lets go of this one. Waits
    /// until the owners that are connected have; ctrl-C ends the wait, and not the drain, which lasts until --undo
    Drain {
        /// The directory of the copies
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
        /// Keep copies again. An owner that has begun to go away goes
        #[arg(long)]
        undo: bool,
        /// Say it to the owners, and do not wait
        #[arg(long, conflicts_with = "undo")]
        no_wait: bool,
        /// Print JSON: as status does, of the copies that are left
        #[arg(long, conflicts_with = "undo")]
        json: bool,
    },
    /// Free the room of a copy whose owner does not come back. The owner's number stays known
    Remove {
        /// The directory of the copies
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
        /// Which pool, as status names it
        #[arg(long, value_name = "NAME")]
        pool: String,
        /// Also if the copy counts: what it has, and the origin has not, is lost
        #[arg(long)]
        discard: bool,
    },
}

/// The arguments of `headpond takeover`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  By hand, where nothing but you knows that the old owner is dead:
    headpond takeover /slow/mysql /var/lib/mysql --store /nvme/copies --old-owner-is-dead --background --allow-other

  By hand, where a registry knows:
    headpond takeover /slow/mysql /var/lib/mysql --store /nvme/copies --registry http://etcd1:2379 \\
      --fence /etc/headpond/fence --background --allow-other

  By itself, once the owner's lease is gone:
    headpond peer guard /slow/mysql /var/lib/mysql --store /nvme/copies --registry http://etcd1:2379 \\
      --fence /etc/headpond/fence --on-mount /etc/headpond/start-database --allow-other

docs/copies.md has the whole way, and how to go back.")]
pub struct TakeoverArgs {
    /// The slow directory that owns the data, as this host sees it
    pub origin: PathBuf,
    /// An empty directory where your programs will see the data
    pub mountpoint: PathBuf,
    /// The directory in which `headpond peer serve` keeps the copies
    // A holder says to its workers which place and which pool it was: the store may keep more by the time of a later one.
    #[arg(long, value_name = "DIR", overrides_with = "store")]
    pub store: PathBuf,
    /// Which pool, if the store keeps several
    #[arg(long, value_name = "NAME", overrides_with = "pool")]
    pub pool: Option<String>,
    /// The registry that says whether the pool has an owner.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Where copies are to be from then on.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// A program that keeps the old owner from the origin: its NFS export, its reservation, its power. Its arguments:
    /// pool, old node, new node, new owner's number, origin. Status 0: the old node cannot write there any more
    #[arg(long, value_name = "PROGRAM", requires = "registry")]
    pub fence: Option<PathBuf>,
    /// Without --fence: how many seconds the old owner's writes have to reach the origin, once its lease is gone
    #[arg(long, value_name = "SECONDS", requires = "registry", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub grace: u64,
    /// Without --registry: you know that the old owner is dead, or cannot reach the origin any more. Two hosts that write
    /// to one origin destroy it, and nothing here keeps the old one from it
    #[arg(long, conflicts_with = "registry")]
    pub old_owner_is_dead: bool,
    /// Go on although dirty data in the copy is damaged: reads of it fail. Nobody else may have it
    #[arg(long)]
    pub even_damaged: bool,
    /// For a file that is dirty in the pool and was changed at the origin: write the pool's data over the
    /// origin's. Give the path below the origin, or `all`. You can repeat this option
    #[arg(long, value_name = "FILE|all")]
    pub keep_pool: Vec<PathBuf>,
    /// As --keep-pool, but keep the origin's version of the file, and drop the pool's dirty data for good
    #[arg(long, value_name = "FILE|all")]
    pub keep_origin: Vec<PathBuf>,
    /// A program that is started once the mount is there, to have the database started. Its arguments: mount point, pool.
    /// It has no more capabilities than the daemon; let it ask systemd. If it fails, the log says so, and the mount stays
    #[arg(long, value_name = "PROGRAM")]
    pub on_mount: Option<PathBuf>,
    /// Return as soon as the mount is ready, and serve it in the background
    #[arg(long)]
    pub background: bool,
    /// With --background: the daemon's log file [default: beside its socket]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Let other users in, with the usual checks of permissions
    #[arg(long)]
    pub allow_other: bool,
}

/// The same place for a process in another directory.
pub fn absolute(path: &Path) -> PathBuf {
    // It fails for an empty path alone, which is refused elsewhere.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl TakeoverArgs {
    /// What to watch, and how to take over; none without a registry.
    pub fn guard(&self) -> Option<GuardPlan> {
        let Self { store, pool, origin, mountpoint, fence, .. } = self;
        self.lease.plan().map(|lease| GuardPlan {
            lease,
            store: store.clone(),
            pool: pool.clone(),
            origin: origin.clone(),
            mountpoint: mountpoint.clone(),
            fence: fence.clone(),
            grace: Duration::from_secs(self.grace),
            even_damaged: self.even_damaged,
            decisions: Decisions::below(origin, &self.keep_pool, &self.keep_origin),
        })
    }
}
