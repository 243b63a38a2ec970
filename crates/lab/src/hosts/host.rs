//! What runs on one of the two hosts: the mount that it owns, or the server and the guard of the second one.
//!
//! Invariant: what a host keeps lies in its own directory. Nothing of one host is read by the other, but the origin.

use super::certificates::Certificates;
use super::events::Event;
use super::failed;
use super::network::{Network, Node};
use super::registry::Etcd;
use crate::command;
use crate::database::{Database, Places};
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::pond::{Headpond, Mount, directory_in};
use crate::service::Service;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the old owner's writes are waited for, where nobody fences it. Here they reach the origin within moments.
const GRACE: &str = "1";
/// Where a server of copies listens.
const PORT: u16 = 7433;
/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(60);
/// What a mount of another host's pool ends with: the origin is in use; deposed; another host owns the pool.
const REFUSED: [u8; 3] = [11, 45, 46];
/// How much a pool has: a few times what a round writes.
const POOL: &str = "192M";

/// What both hosts share, and the places of each.
pub(super) struct Site {
    pub(super) headpond: Headpond,
    pub(super) network: Network,
    pub(super) kind: Kind,
    pub(super) origin: PathBuf,
    directory: PathBuf,
    certificates: Certificates,
}

/// The owner's side: its mount, and the database on it.
pub(super) struct Owner {
    pub(super) node: Node,
    pub(super) mount: Mount,
    /// The file that is its flash.
    pub(super) flash: PathBuf,
}

/// The other host's: a server that keeps the copy, and a guard.
pub(super) struct Second {
    pub(super) node: Node,
    pub(super) server: Service,
    pub(super) guard: Mount,
    pub(super) store: PathBuf,
}

impl Site {
    /// Makes the directories, the certificates and the network.
    pub(super) fn make(headpond: &Headpond, directory: &Path, kind: Kind) -> Result<Self> {
        // A server under another account passes through.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
            .map_err(Failure::io(format!("opening {} to others", directory.display())))?;
        let origin = directory_in(directory, "origin")?;
        let certificates = Certificates::make(directory.join("certificates"), &[Node::Db1, Node::Db2])?;
        let site = Self {
            headpond: headpond.clone(),
            network: Network::make()?,
            kind,
            origin,
            directory: directory.to_owned(),
            certificates,
        };
        for node in [Node::Db1, Node::Db2] {
            let home = directory_in(directory, node.name())?;
            directory_in(&home, "mnt")?;
            directory_in(&home, "run")?;
        }
        let fence = site.fence();
        fs::write(&fence, site.network.fence())
            .and_then(|()| fs::set_permissions(&fence, fs::Permissions::from_mode(0o755)))
            .map_err(Failure::io("writing the program that fences"))?;
        Ok(site)
    }

    fn fence(&self) -> PathBuf {
        self.directory.join("fence")
    }

    fn home(&self, node: Node) -> PathBuf {
        self.directory.join(node.name())
    }

    /// Where a host sees the data.
    pub(super) fn mountpoint(&self, node: Node) -> PathBuf {
        self.home(node).join("mnt")
    }

    /// Where the database of a host lives.
    pub(super) fn places(&self, node: Node) -> Places {
        Places { data: self.mountpoint(node).join("data"), run: self.home(node).join("run") }
    }

    /// Mounts on a host that has a flash, or makes one.
    pub(super) fn mount(&self, node: Node, flash: PathBuf) -> Result<Owner> {
        let mut mount = Command::new(self.headpond.program());
        mount.arg("mount").arg(&self.origin).arg(self.mountpoint(node)).arg("--flash").arg(&flash);
        mount.args(["--size", POOL, "--allow-other"]);
        self.lease(node, &mut mount);
        let log = self.log(node, "mount");
        let service = self.network.on(node, || Service::start("headpond mount", mount, &log))?;
        let mut mount = self.headpond.served_by(service, &self.mountpoint(node));
        mount.wait_until_it_answers(START_MAX)?;
        Ok(Owner { node, mount, flash })
    }

    /// The flash of the first owner.
    pub(super) fn first_flash(&self, node: Node) -> PathBuf {
        self.home(node).join("flash.pond")
    }

    fn lease(&self, node: Node, command: &mut Command) {
        command.args(["--registry", &Etcd::address_for(node), "--node", node.name()]);
    }

    /// A new store of a host.
    pub(super) fn store(&self, node: Node, number: u32) -> PathBuf {
        self.home(node).join(format!("store-{number}"))
    }

    /// Starts the server of copies, and waits until it listens.
    pub(super) fn serve(&self, node: Node, store: &Path) -> Result<Service> {
        let mut serve = Command::new(self.headpond.program());
        serve.args(["peer", "serve", "--listen", &address(node), "--store"]).arg(store);
        serve.arg("--certificates").arg(self.certificates.of(node));
        self.start_until(node, "headpond peer serve", serve, "serve", "listens at")
    }

    /// Starts a program of a host, and waits until it says something.
    fn start_until(&self, node: Node, name: &str, command: Command, log: &str, words: &str) -> Result<Service> {
        let log = self.log(node, log);
        let said = || fs::read_to_string(&log).unwrap_or_default().matches(words).count();
        let before = said();
        self.network.on(node, || {
            let mut service = Service::start(name, command, &log)?;
            service.wait_until(START_MAX, || said() > before)?;
            Ok(service)
        })
    }

    /// Where a program of a host writes what it says.
    pub(super) fn log(&self, node: Node, name: &str) -> PathBuf {
        self.home(node).join(format!("{name}.log"))
    }

    /// Starts the guard, and waits until it watches the owner. It mounts later, or never.
    pub(super) fn guard(&self, node: Node, store: &Path, event: Event) -> Result<Mount> {
        let mut guard = Command::new(self.headpond.program());
        guard.args(["peer", "guard"]).arg(&self.origin).arg(self.mountpoint(node)).arg("--store").arg(store);
        guard.arg("--allow-other");
        self.lease(node, &mut guard);
        if event.fenced() {
            guard.arg("--fence").arg(self.fence());
        } else {
            guard.args(["--grace", GRACE]);
        }
        let service = self.start_until(node, "headpond peer guard", guard, "guard", "owns it")?;
        Ok(self.headpond.served_by(service, &self.mountpoint(node)))
    }

    /// Has the second host keep a copy of what the owner has. What the owner before had is gone for good.
    pub(super) fn add_peer(&self, owner: &Owner, second: Node) -> Result<()> {
        let mut add = Command::new(self.headpond.program());
        add.args(["pool", "add"]).arg(self.mountpoint(owner.node)).args(["--peer", &address(second), "--quiet"]);
        add.arg("--peer-certificates").arg(self.certificates.of(owner.node));
        command::run("having the second host keep a copy", &mut add)?;
        owner.mount.missed_devices()?.iter().try_for_each(|missed| owner.mount.remove_device(missed))
    }

    /// Where the copy lies in a store.
    pub(super) fn copy_in(&self, store: &Path) -> Result<PathBuf> {
        let mut status = Command::new(self.headpond.program());
        let text =
            command::run("looking into a store", status.args(["peer", "status", "--json", "--store"]).arg(store))?;
        let all: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let file = all[0]["file"].as_str().map(PathBuf::from);
        file.ok_or_else(|| failed(format!("{} has no copy:\n{text}", store.display())))
    }

    /// Makes the database.
    pub(super) fn create_database(&self, node: Node) -> Result<Box<dyn Database>> {
        self.network.on(node, || self.kind.create(&self.places(node)))
    }

    /// Starts the database as a process of this host. PostgreSQL notes its process in its data, and refuses to start
    /// while there is a process of that number: here hosts share their numbers, as other hosts do not.
    pub(super) fn start_database(&self, node: Node) -> Result<Box<dyn Database>> {
        let places = self.places(node);
        match fs::remove_file(places.data.join("postmaster.pid")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::io("removing the mark of the other host's server")(error));
            }
            _ => {}
        }
        self.network.on(node, || self.kind.start(&places))
    }

    /// A mount of the old owner's flash, which must be refused: the pool is another host's.
    pub(super) fn comes_back_to_nothing(&self, owner: &Owner) -> Result<()> {
        let mut mount = Command::new(self.headpond.program());
        let mountpoint = directory_in(&self.home(owner.node), "back")?;
        mount.arg("mount").arg(&self.origin).arg(&mountpoint).arg("--flash").arg(&owner.flash).arg("--background");
        mount.arg("--log").arg(self.log(owner.node, "back"));
        self.lease(owner.node, &mut mount);
        match self.network.on(owner.node, || command::run("mounting the old flash", &mut mount)) {
            Err(Failure::Command { status, .. })
                if REFUSED.iter().any(|code| status == format!("exit status: {code}")) =>
            {
                Ok(())
            }
            Err(failure) => Err(failure),
            Ok(_) => Err(failed(format!("{} mounted a pool that another host has", owner.node.name()))),
        }
    }
}

/// Where a host's server of copies listens: all that the other one reaches.
fn address(node: Node) -> String {
    format!("{}:{PORT}", node.address_for(node.other()))
}
