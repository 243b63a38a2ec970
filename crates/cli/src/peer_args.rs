//! The command lines of `headpond peer` and `headpond takeover`, and the options that name a peer.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headpond_control::{PeerAddress, PeerPlan, Refusal, Size};

/// Which host keeps a copy.
#[derive(Args, Clone, Debug, Default)]
pub struct PeerArgs {
    /// A host that keeps a copy of what is dirty, where `headpond peer serve` listens: an fsync returns once it is on
    /// the flash here, and in that host's memory (docs/copies.md)
    #[arg(long, value_name = "unix:PATH|HOST:PORT", value_parser = address)]
    pub peer: Option<String>,
    /// This host's certificates: ca.pem, certificate.pem and key.pem. Without them a peer must be on this host
    #[arg(long, value_name = "DIR", requires = "peer")]
    pub peer_certificates: Option<PathBuf>,
    /// An fsync returns once it is on that host's disk, too
    #[arg(long, requires = "peer")]
    pub copies_durable: bool,
}

fn address(text: &str) -> Result<String, String> {
    text.parse::<PeerAddress>().map(|_| text.to_owned())
}

impl PeerArgs {
    /// As the control plane takes it.
    pub fn plan(&self) -> Option<PeerPlan> {
        let (certificates, durable) = (self.peer_certificates.clone(), self.copies_durable);
        self.peer.clone().map(|address| PeerPlan { address, certificates, durable })
    }

    /// The same, for a daemon that has another directory.
    pub fn absolute_plan(&self) -> Result<Option<PeerPlan>, Refusal> {
        let mut plan = self.plan();
        if let Some(dir) = plan.as_mut().and_then(|plan| plan.certificates.as_mut()) {
            *dir = std::path::absolute(&*dir).map_err(|error| Refusal::from_io("find", dir, error))?;
        }
        Ok(plan)
    }
}

/// The arguments of `headpond peer`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  On the host that keeps copies:
    headpond peer serve --listen 0.0.0.0:7433 --store /nvme/copies --certificates /etc/headpond
    headpond peer status --store /nvme/copies

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
    /// Show what is kept: for each pool its owner's number, its size, and when its owner was last connected
    Status {
        /// The directory of the copies
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
        /// Print JSON: an array with an object for each pool
        #[arg(long)]
        json: bool,
    },
}

/// The arguments of `headpond takeover`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond takeover /slow/mysql /var/lib/mysql --store /nvme/copies --old-owner-is-dead --background --allow-other

docs/copies.md has the whole way, and how to go back.")]
pub struct TakeoverArgs {
    /// The slow directory that owns the data, as this host sees it
    pub origin: PathBuf,
    /// An empty directory where your programs will see the data
    pub mountpoint: PathBuf,
    /// The directory in which `headpond peer serve` keeps the copies
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
    /// Which pool, if the store keeps several
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// You know that the old owner is dead, or cannot reach the origin any more. Two hosts that write to one origin
    /// destroy it, and nothing here keeps the old one from it
    #[arg(long)]
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
