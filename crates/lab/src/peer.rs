//! A host with copies, on this host, and a wire to it that is as long as one likes.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::pond::Headpond;
use crate::service::Service;

/// How long it may take to listen.
const READY_MAX: Duration = Duration::from_secs(20);

/// A `headpond peer serve` at a loopback address. It ends with its owner.
pub struct Peer {
    service: Service,
    address: String,
}

impl Peer {
    /// Starts one that keeps its copies, and its messages, in this directory.
    pub fn start(headpond: &Headpond, directory: &Path) -> Result<Self> {
        let (store, log) = (directory.join("store"), directory.join("peer.log"));
        let mut serve = Command::new(headpond.program());
        serve.args(["peer", "serve", "--listen", "127.0.0.1:0", "--store"]).arg(&store);
        let mut service = Service::start("headpond peer serve", serve, &log)?;
        let mut address = None;
        service.wait_until(READY_MAX, || {
            address = address_in(&log);
            address.is_some()
        })?;
        let address = address.ok_or_else(|| Failure::Other("the peer does not say where it listens".to_owned()))?;
        Ok(Self { service, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The command as it would be typed.
    #[must_use]
    pub fn typed(&self) -> String {
        self.service.typed()
    }
}

fn address_in(log: &PathBuf) -> Option<String> {
    let said = std::fs::read_to_string(log).ok()?;
    // Without its end it may be a part of the address.
    let (address, _) = said.split_once("listens at ")?.1.split_once('\n')?;
    Some(address.trim().to_owned())
}

/// Passes on what comes, each way half of a delay later. A longer network, where the kernel has none to offer.
///
/// Invariant: bytes keep their order, and what is on its way does not hold up what comes behind it: a delay is no bound
/// on throughput.
pub struct LongWire {
    address: String,
    nanos: Arc<AtomicU64>,
}

impl LongWire {
    /// Begins to pass on to this address, for as long as this process lives. Without a delay at first.
    pub fn to(address: &str) -> Result<Self> {
        let doing = || Failure::io("making a wire");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(doing())?;
        let here = listener.local_addr().map_err(doing())?.to_string();
        let nanos = Arc::new(AtomicU64::new(0));
        let (to, delay) = (address.to_owned(), nanos.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let joined = TcpStream::connect(&to).and_then(|far| join(near, far, &delay));
                if joined.is_err() {
                    // Who connected sees that the wire ends there.
                    continue;
                }
            }
        });
        Ok(Self { address: here, nanos })
    }

    /// Where it takes connections.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From now on an answer comes so much later.
    pub fn set_delay(&self, delay: Duration) {
        self.nanos.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn join(near: TcpStream, far: TcpStream, delay: &Arc<AtomicU64>) -> io::Result<()> {
    for one in [&near, &far] {
        one.set_nodelay(true)?;
    }
    let back = (far.try_clone()?, near.try_clone()?);
    for (from, to) in [(near, far), back] {
        let (sender, receiver) = channel();
        let delay = delay.clone();
        std::thread::spawn(move || {
            let mut from = from;
            let mut chunk = vec![0; 256 << 10];
            while let Ok(read) = from.read(&mut chunk) {
                let due = Instant::now() + Duration::from_nanos(delay.load(Ordering::Relaxed) / 2);
                if read == 0 || sender.send((due, chunk[..read].to_vec())).is_err() {
                    break;
                }
            }
        });
        std::thread::spawn(move || deliver(&receiver, to));
    }
    Ok(())
}

/// Writes each part when it is due, and ends the stream behind the last one.
fn deliver(parts: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    // A sleep ends up to this much later than it was asked to: 50 us, unless one says otherwise.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    for (due, part) in parts {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&part).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wire_passes_everything_on_in_order_both_ways_and_ends_with_its_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let echo = std::thread::spawn({
            let address = listener.local_addr().unwrap().to_string();
            move || {
                let wire = LongWire::to(&address).unwrap();
                wire.set_delay(Duration::from_millis(4));
                let mut near = TcpStream::connect(wire.address()).unwrap();
                let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
                let mut reading = near.try_clone().unwrap();
                let heard = std::thread::spawn(move || {
                    let mut heard = Vec::new();
                    reading.read_to_end(&mut heard).unwrap();
                    heard
                });
                let began = Instant::now();
                near.write_all(&sent).unwrap();
                near.shutdown(std::net::Shutdown::Write).unwrap();
                assert!(heard.join().unwrap() == sent);
                began.elapsed()
            }
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        drop(stream);
        assert!(echo.join().unwrap() >= Duration::from_millis(4), "no wire is shorter than it was made");
    }
}
