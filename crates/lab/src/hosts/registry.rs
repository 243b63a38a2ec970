//! etcd on the witness: one machine of it, with data of its own on a disk.

use super::network::{Network, Node};
use crate::failure::{Failure, Result};
use crate::programs::program;
use crate::service::Service;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PORT: u16 = 2379;
/// How long it may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a try to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// A registry that runs, or does not.
pub(super) struct Etcd {
    directory: PathBuf,
    service: Service,
}

impl Etcd {
    /// Starts one, and waits until it listens.
    pub(super) fn start(network: &Network, directory: PathBuf) -> Result<Self> {
        let service = serve(network, &directory)?;
        Ok(Self { directory, service })
    }

    /// Its address for a host.
    pub(super) fn address_for(node: Node) -> String {
        format!("http://{}:{PORT}", Node::Witness.address_for(node))
    }

    /// Whether the one on the witness answers, and has a leader.
    pub(super) fn is_healthy(network: &Network) -> Result<bool> {
        network.on(Node::Witness, || {
            let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], PORT)), CONNECT_MAX)
            else {
                return Ok(false);
            };
            let mut answer = String::new();
            let asked = stream.set_read_timeout(Some(CONNECT_MAX)).and_then(|()| {
                stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
                stream.read_to_string(&mut answer)
            });
            Ok(asked.is_ok() && answer.contains("\"health\":\"true\""))
        })
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        self.service.kill();
    }

    /// Starts it again, with the data that it had.
    pub(super) fn start_again(&mut self, network: &Network) -> Result<()> {
        self.service = serve(network, &self.directory)?;
        Ok(())
    }
}

fn serve(network: &Network, directory: &std::path::Path) -> Result<Service> {
    let mut etcd = Command::new(program("etcd"));
    etcd.arg("--data-dir").arg(directory.join("etcd"));
    etcd.args(["--listen-client-urls", &format!("http://0.0.0.0:{PORT}")]);
    etcd.args(["--advertise-client-urls", &Etcd::address_for(Node::Db1)]);
    // The only machine of its cluster.
    etcd.args(["--listen-peer-urls", "http://127.0.0.1:2380"]);
    network.on(Node::Witness, || {
        let mut service = Service::start("etcd", etcd, &directory.join("etcd.log"))?;
        let listens = SocketAddr::from(([127, 0, 0, 1], PORT));
        service.wait_until(START_MAX, || TcpStream::connect_timeout(&listens, CONNECT_MAX).is_ok())?;
        Ok(service)
    })
}

/// What this machine lacks to run it.
pub(super) fn missing() -> Option<String> {
    let etcd = program("etcd");
    let is_there = Command::new(etcd).arg("--version").output().map_err(Failure::io("looking")).is_ok();
    (!is_there).then(|| "etcd (Debian: package etcd-server)".to_owned())
}
