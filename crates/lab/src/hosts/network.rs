//! Three hosts as network namespaces, and the wires between them.
//!
//! Each two hosts have a bridge of their own, in a fourth namespace. A bridge that is down drops what it gets: both ends
//! keep their carrier and their routes, and hear nothing, as behind a switch that failed.
//!
//! Invariants
//! - Names carry this process's id, and a number, so that no other network is touched.
//! - Every process in the namespaces was started here. All of them end with the network, then the namespaces go.

use super::failed;
use crate::command;
use crate::failure::{Failure, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Db1,
    Db2,
    Witness,
}

/// A way between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wire(Node, Node);

/// The namespaces.
pub(super) struct Network {
    prefix: String,
    /// The namespace of this thread before it entered one.
    outside: File,
}

/// Where the namespaces have their names.
const NAMES: &str = "/run/netns";
/// How long processes may take to end once they are killed.
const END_MAX: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How often a host is stopped, and let go on, until it was at a good moment.
const STOPS_MAX: usize = 1000;
/// How long a thread may take to stop.
const STOP_MAX: Duration = Duration::from_secs(10);

impl Node {
    pub(super) const ALL: [Self; 3] = [Self::Db1, Self::Db2, Self::Witness];

    /// As it is called in the registry.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Db1 => "db1",
            Self::Db2 => "db2",
            Self::Witness => "witness",
        }
    }

    /// The other host with a database.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Db1 => Self::Db2,
            Self::Db2 | Self::Witness => Self::Db1,
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Db1 => 1,
            Self::Db2 => 2,
            Self::Witness => 3,
        }
    }

    /// By this address another host reaches it.
    pub(super) fn address_for(self, other: Self) -> String {
        format!("{}.{}", Wire::between(self, other).net(), self.number())
    }

    /// All addresses that it has.
    pub(super) fn addresses(self) -> impl Iterator<Item = String> {
        Self::ALL.into_iter().filter(move |other| *other != self).map(move |other| self.address_for(other))
    }
}

impl Wire {
    /// The one between two hosts, whichever is named first.
    pub(super) const fn between(one: Node, other: Node) -> Self {
        if one.number() < other.number() { Self(one, other) } else { Self(other, one) }
    }

    const ALL: [Self; 3] = [
        Self::between(Node::Db1, Node::Db2),
        Self::between(Node::Db1, Node::Witness),
        Self::between(Node::Db2, Node::Witness),
    ];

    fn net(self) -> String {
        format!("10.77.{}{}", self.0.number(), self.1.number())
    }

    const fn far(self, node: Node) -> Node {
        if self.0.number() == node.number() { self.1 } else { self.0 }
    }

    fn bridge(self) -> String {
        format!("wire-{}{}", self.0.number(), self.1.number())
    }
}

impl Network {
    /// Makes the namespaces, with all wires up.
    pub(super) fn make() -> Result<Self> {
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let outside = File::open("/proc/thread-self/ns/net").map_err(Failure::io("looking for this network"))?;
        let network = Self { prefix: format!("headpond-{}-{number}-", std::process::id()), outside };
        let switch = network.prefix.clone() + "switch";
        ip(&["netns", "add", &switch])?;
        for node in Node::ALL {
            ip(&["netns", "add", &network.named(node)])?;
            ip(&["-n", &network.named(node), "link", "set", "lo", "up"])?;
        }
        for wire in Wire::ALL {
            let bridge = wire.bridge();
            ip(&["-n", &switch, "link", "add", &bridge, "type", "bridge", "forward_delay", "0"])?;
            for node in [wire.0, wire.1] {
                let (port, end) = (format!("{bridge}-{}", node.number()), format!("to-{}", wire.far(node).name()));
                let veth = ["link", "add", &port, "type", "veth", "peer", "name", &end, "netns", &network.named(node)];
                ip(&[&["-n", &switch], &veth[..]].concat())?;
                ip(&["-n", &switch, "link", "set", &port, "master", &bridge, "up"])?;
                let address = node.address_for(wire.far(node)) + "/24";
                ip(&["-n", &network.named(node), "addr", "add", &address, "dev", &end])?;
                ip(&["-n", &network.named(node), "link", "set", &end, "up"])?;
            }
            network.mend(wire)?;
        }
        Ok(network)
    }

    /// Cuts a wire: what is sent vanishes, both ways.
    pub(super) fn cut(&self, wire: Wire) -> Result<()> {
        self.set(wire, "down")
    }

    /// Has what one host sends to another vanish, and no more: it goes to a card that nobody has.
    pub(super) fn cut_one_way(&self, from: Node, to: Node) -> Result<()> {
        let end = format!("to-{}", to.name());
        let nobody = ["lladdr", "02:00:00:00:00:01", "dev", &end, "nud", "permanent"];
        ip(&[&["-n", &self.named(from), "neigh", "replace", &to.address_for(from)], &nobody[..]].concat())
    }

    /// Has a wire work again, both ways.
    pub(super) fn mend(&self, wire: Wire) -> Result<()> {
        for node in [wire.0, wire.1] {
            let end = format!("to-{}", wire.far(node).name());
            ip(&["-n", &self.named(node), "neigh", "flush", "dev", &end, "nud", "permanent"])?;
        }
        self.set(wire, "up")
    }

    fn named(&self, node: Node) -> String {
        self.prefix.clone() + node.name()
    }

    fn set(&self, wire: Wire, state: &str) -> Result<()> {
        ip(&["-n", &(self.prefix.clone() + "switch"), "link", "set", &wire.bridge(), state])
    }

    /// Does something on a host: what it starts is a process of that host.
    ///
    /// # Panics
    /// If this thread cannot leave the host again: whatever it started next would be in the wrong place.
    pub(super) fn on<T>(&self, node: Node, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = format!("{NAMES}/{}", self.named(node));
        let entering = || Failure::io(format!("entering the network of {}", node.name()));
        let namespace = File::open(path).map_err(entering())?;
        enter(&namespace).map_err(|error| entering()(error.into()))?;
        let done = act();
        enter(&self.outside).expect("a thread returns to where it was");
        done
    }

    /// Sends a signal to all processes of a host.
    pub(super) fn signal(&self, node: Node, signal: Signal) -> Result<()> {
        for pid in self.processes(node.name())? {
            // It may just have ended.
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }

    /// Stops a host, at a moment when no thread of headpond there runs code of its own.
    ///
    /// A thread that does may have looked at its lease, and be about to make the change that this lets begin. Stopped
    /// there, it makes it when it goes on, and no lease calls it back. What a lease does promise is looked at here.
    pub(super) fn stop_between_changes(&self, node: Node) -> Result<()> {
        for _ in 0..STOPS_MAX {
            self.signal(node, Signal::STOP)?;
            if stands_between_calls(self.processes(node.name())?)? {
                return Ok(());
            }
            self.signal(node, Signal::CONT)?;
            std::thread::sleep(LOOK);
        }
        Err(failed(format!("{} was never found between two changes", node.name())))
    }

    /// Ends all processes of a host at once, as a loss of power does, and waits until they are gone.
    pub(super) fn kill(&self, node: Node) -> Result<()> {
        self.kill_all(node.name())
    }

    fn kill_all(&self, name: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let processes = self.processes(name)?;
            if processes.is_empty() {
                return Ok(());
            }
            for pid in processes {
                let _ = kill_process(pid, Signal::KILL);
            }
            if start.elapsed() > END_MAX {
                return Err(failed(format!("{name} has processes that do not end")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn processes(&self, name: &str) -> Result<Vec<Pid>> {
        let mut list = Command::new("ip");
        let text = command::run("looking for processes", list.args(["netns", "pids", &(self.prefix.clone() + name)]))?;
        Ok(text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect())
    }

    /// A program for `--fence` that turns the old host off: it kills every process there, and waits until none is left.
    pub(super) fn fence(&self) -> String {
        let prefix = &self.prefix;
        format!(
            "#!/bin/sh\n\
             # pool, old node, new node, new owner's number, origin\n\
             while pids=$(ip netns pids {prefix}\"$2\") && [ -n \"$pids\" ]; do\n\
             \x20   kill -KILL $pids 2>/dev/null\n\
             \x20   sleep 0.02\n\
             done\n"
        )
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in Node::ALL.map(Node::name).into_iter().chain(["switch"]) {
            // A drop reports no error. The operator sees what is left: `ip netns`.
            let _ = self.kill_all(name);
            let _ = ip(&["netns", "del", &(self.prefix.clone() + name)]);
        }
    }
}

fn enter(namespace: &File) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

fn ip(arguments: &[&str]) -> Result<()> {
    command::run("changing a network", Command::new("ip").args(arguments)).map(drop)
}

/// Waits until the threads of headpond among these processes stand still. Whether each of them does so in a system
/// call, as the kernel says (`/proc/PID/task/TID/syscall`: -1 outside of one).
fn stands_between_calls(processes: Vec<Pid>) -> Result<bool> {
    let start = Instant::now();
    for pid in processes {
        let directory = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
        if fs::read_to_string(directory.join("comm")).is_ok_and(|name| !name.starts_with("headpond")) {
            continue;
        }
        // What has ended meanwhile makes no change.
        let Ok(threads) = fs::read_dir(directory.join("task")) else { continue };
        for thread in threads.flatten() {
            while fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| !is_stopped(&stat)) {
                if start.elapsed() > STOP_MAX {
                    return Ok(false);
                }
                std::thread::sleep(LOOK);
            }
            let path = thread.path().join("syscall");
            let call = match fs::read_to_string(&path) {
                Ok(call) => call,
                // It has ended.
                Err(_) if !path.exists() => continue,
                Err(error) => return Err(Failure::io(format!("reading {}", path.display()))(error)),
            };
            if call.starts_with('-') || call.starts_with("running") {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether the state of a thread, the word after its name in brackets, is that of one that stands still or has ended.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't' | 'Z' | 'X'))
}
