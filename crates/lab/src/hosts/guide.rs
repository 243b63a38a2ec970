//! The guide of docs/copies.md, followed as it stands there: two hosts and a witness, each with a network, a name and
//! files of its own, from nothing to a database's directory that is served by the second host once the first is dead.
//!
//! A shell script stands for systemd, one for scp, and `cp` for the database (`guide/`). headpond, etcd and the programs of the
//! guide are there already, and the pool is small. All else is what the guide says.

use super::chain::until;
use super::network::{Network, Node};
use super::registry::Etcd;
use super::{failed, hosts_lack};
use crate::command;
use crate::failure::{Failure, Result};
use crate::pond::directory_in;
use crate::programs::program;
use crate::service::Service;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The heading of the guide.
const HEADING: &str = "## Two hosts and a witness in fifteen minutes";
/// Before the commands of a step, in the document.
const INDENT: &str = "       ";
/// What the guide's pool is, and what it is here.
const SIZES: [&str; 2] = ["--size 200G", "--size 64M"];
/// What a user does not wait for is not there.
const STUCK: Duration = Duration::from_secs(180);
/// What is written on the first host and is to be there on the second.
const KEPT: &str = "a transaction";

/// A step of the guide.
#[derive(PartialEq, Eq, Debug)]
struct Step {
    hosts: Vec<Node>,
    commands: String,
}

/// A host that runs. Its processes end with the network.
struct Host {
    node: Node,
    place: PathBuf,
    init: Service,
}

/// What to follow, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Guide<'a> {
    /// The text of docs/copies.md.
    pub document: &'a str,
    /// The program.
    pub headpond: &'a Path,
    /// The directory of the packages' units for systemd.
    pub units: &'a Path,
}

/// What this machine lacks for it, if anything.
#[must_use]
pub fn guide_lacks() -> Option<String> {
    let mut missing = hosts_lack();
    missing.extend(command::absent(&["unshare", "nsenter", "chroot", "hostname"]));
    if !fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\toverlay\n")) {
        missing.push("overlayfs, for hosts with files of their own".to_owned());
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Follows the guide in `directory`. Returns what its commands printed.
///
/// # Errors
/// What failed, with what the host's services wrote.
pub fn follow(guide: &Guide<'_>, directory: &Path) -> Result<String> {
    let steps = steps(guide.document)?;
    let Some((last, before)) = steps.split_last() else { return Err(failed("the guide has no steps".to_owned())) };
    let network = Network::make()?;
    let origin = directory_in(directory, "origin")?;
    let hosts = directory_in(directory, "hosts")?;
    for node in Node::ALL {
        directory_in(&directory_in(&hosts, node.name())?, "etc")?;
    }
    let hosts: Vec<Host> =
        Node::ALL.into_iter().map(|node| Host::start(&network, guide, node, &hosts, &origin)).collect::<Result<_>>()?;
    let host =
        |node: Node| hosts.iter().find(|host| host.node == node).ok_or_else(|| failed("no such host".to_owned()));
    let mut printed = String::new();
    for (number, step) in (1..).zip(before) {
        for node in &step.hosts {
            let _ = writeln!(printed, "{number}. {}\n{}", node.name(), host(*node)?.run(&step.commands)?);
        }
        if number == 1 {
            until(&mut || Ok(()), "etcd answers", || Etcd::is_healthy(&network))?;
        }
    }
    host(Node::Db1)?.run(&format!("echo {KEPT} > /var/lib/mysql/ledger; sync /var/lib/mysql/ledger"))?;
    if fs::read_to_string(origin.join("ledger")).is_ok_and(|text| text.contains(KEPT)) {
        return Err(failed("what was just written is at the origin: the copy is not on trial".to_owned()));
    }
    network.kill(Node::Db1)?;
    for node in &last.hosts {
        let mut said = String::new();
        until(&mut || Ok(()), "the second host serves", || {
            host(*node)?.run(&last.commands).map(|text| said = text).map(|()| true)
        })?;
        let _ = writeln!(printed, "after the loss of db1: {}\n{said}", node.name());
        until(&mut || Ok(()), "the database is started there", || {
            host(*node)?.run("test -s /run/found").map(|_| true)
        })?;
        let found = host(*node)?.run("cat /run/found")?;
        if found.trim() != KEPT {
            return Err(failed(format!("the database on {} found another ledger: {found}", node.name())));
        }
    }
    Ok(printed)
}

impl Host {
    fn start(network: &Network, guide: &Guide<'_>, node: Node, hosts: &Path, origin: &Path) -> Result<Self> {
        let place = hosts.join(node.name());
        let mut names = "127.0.0.1 localhost\n".to_owned();
        for other in Node::ALL {
            let address = if other == node { "127.0.0.1".to_owned() } else { other.address_for(node) };
            let _ = writeln!(names, "{address} {}", other.name());
        }
        let write = |name: &str, text: &str| {
            let path = place.join(name);
            fs::write(&path, text)
                .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)))
                .map_err(Failure::io(format!("writing {}", path.display())))
        };
        write("hosts", &names)?;
        write("systemctl", include_str!("guide/systemctl.sh"))?;
        write("scp", include_str!("guide/scp.sh"))?;
        write("host", include_str!("guide/host.sh"))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts"]).arg(place.join("host")).arg(node.name()).arg(&place).arg(origin);
        command.arg(guide.headpond).arg(program("etcd")).arg(guide.units);
        let log = hosts.join(format!("{}.log", node.name()));
        let mut init = network.on(node, || Service::start(node.name(), command, &log))?;
        let ready = PathBuf::from(format!("/proc/{}/root/ready", init.pid()));
        init.wait_until(STUCK, || ready.exists())?;
        Ok(Self { node, place, init })
    }

    /// Types commands there, as root.
    fn run(&self, commands: &str) -> Result<String> {
        let mut shell = Command::new("nsenter");
        shell.args(["--target", &self.init.pid().to_string(), "--mount", "--uts", "--net", "--root", "--wd"]);
        shell.args(["bash", "-eu", "-c", commands]);
        shell.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command::run(&format!("on {}", self.node.name()), &mut shell)
            .map_err(|failure| failed(format!("{failure}\n{}", self.logs())))
    }

    /// The ends of what its services wrote.
    fn logs(&self) -> String {
        let mut all = String::new();
        for entry in fs::read_dir(self.place.join("log")).into_iter().flatten().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let end = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
            let _ = writeln!(all, "--- {}\n{end}", entry.path().display());
        }
        all
    }
}

/// The steps of the guide in the document.
fn steps(document: &str) -> Result<Vec<Step>> {
    let (_, rest) = document.split_once(HEADING).ok_or_else(|| failed(format!("there is no {HEADING}")))?;
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let mut steps: Vec<Step> = Vec::new();
    for line in section.lines() {
        if let Some(hosts) = hosts_of(line, steps.len() + 1) {
            steps.push(Step { hosts, commands: String::new() });
        } else if let (Some(command), Some(step)) = (line.strip_prefix(INDENT), steps.last_mut()) {
            step.commands += &command.replace(SIZES[0], SIZES[1]);
            step.commands.push('\n');
        }
    }
    match steps.iter().position(|step| step.hosts.is_empty() || step.commands.is_empty()) {
        Some(index) => Err(failed(format!("step {} of the guide has no host or no commands", index + 1))),
        None => Ok(steps),
    }
}

/// The hosts of a step's first line: "2. On `db1`, `db2` and `witness`: ...".
fn hosts_of(line: &str, number: usize) -> Option<Vec<Node>> {
    let mut rest = line.strip_prefix(&format!("{number}. "))?;
    let mut hosts = Vec::new();
    for before in ["On `", ", `", " and `"].into_iter().cycle().take(9) {
        let Some((name, after)) = rest.strip_prefix(before).and_then(|named| named.split_once('`')) else { continue };
        hosts.extend(Node::ALL.into_iter().find(|node| node.name() == name));
        rest = after;
    }
    Some(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_its_hosts_and_the_commands_below_it() {
        let document = format!(
            "## Another\n\n1. On `db1`:\n\n       no\n\n{HEADING}\n\n`db1` is one.\n\n1. On `db1`, `db2` and `witness`: all.\n\n       \
             cat <<END\n       A=1\n       END\n\n   Words, `db2`.\n\n2. On `db1` and `witness`, later than `db2`:\n\n       \
             mount --size 200G \\\n         --more\n\n## Next\n\n3. On `db1`:\n\n       no\n"
        );
        let expected = [
            Step { hosts: Node::ALL.to_vec(), commands: "cat <<END\nA=1\nEND\n".to_owned() },
            Step { hosts: vec![Node::Db1, Node::Witness], commands: "mount --size 64M \\\n  --more\n".to_owned() },
        ];
        assert_eq!(steps(&document).expect("steps"), expected);
    }

    #[test]
    fn a_step_that_nobody_can_follow_is_an_error() {
        assert!(steps("# Nothing").is_err());
        assert!(steps(&format!("{HEADING}\n\n1. Somewhere:\n\n       true\n")).is_err());
        assert!(steps(&format!("{HEADING}\n\n1. On `db1`: wait.\n")).is_err());
    }
}
