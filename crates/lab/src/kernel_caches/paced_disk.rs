//! A guest's slow disk: an image that qemu's storage daemon serves over vhost-user, behind a throttle group.
//!
//! An access of any size counts as one, as with [`Throttle`]; the kernel of the guest merges and splits before that.
//!
//! Invariant: it is as fast as it can be until [`PacedDisk::pace`] says otherwise, and its process ends with its owner.

use crate::failure::{Failure, Result};
use crate::service::Service;
use crate::throttled::Throttle;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The program, and the package that has it.
pub const SERVER: &str = "qemu-storage-daemon";
/// How long it may take to start, and to answer.
const START_MAX: Duration = Duration::from_secs(20);
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The name of its throttle group.
const GROUP: &str = "pace";
const MIB: f64 = 1_048_576.0;

/// Why this throttle cannot be had here, if it cannot.
///
/// # Errors
/// When it is more than two limits.
pub fn can_pace(throttle: &Throttle) -> std::result::Result<(), String> {
    if throttle.latency > 0.0 || throttle.burst.is_some() {
        return Err("an origin of a guest has iops and mib alone, no latency and no burst".to_owned());
    }
    Ok(())
}

/// The disk.
pub struct PacedDisk {
    control: BufReader<UnixStream>,
    socket: PathBuf,
    // Dropped last: it ends the process.
    service: Service,
}

impl PacedDisk {
    /// Serves `image`; sockets and the server's log are made in `directory`, whose path is short.
    ///
    /// # Errors
    /// When the program does not start, or does not answer.
    pub fn serve(image: &Path, directory: &Path) -> Result<Self> {
        let (socket, control) = (directory.join("disk"), directory.join("control"));
        let mut command = Command::new(SERVER);
        command.args(["--object", &format!("throttle-group,id={GROUP}")]);
        command.args(["--blockdev", &format!("driver=file,node-name=image,filename={}", image.display())]);
        command.args(["--blockdev", &format!("driver=throttle,node-name=paced,throttle-group={GROUP},file=image")]);
        command.arg("--export").arg(format!(
            "type=vhost-user-blk,id=export,node-name=paced,addr.type=unix,addr.path={},writable=on",
            socket.display()
        ));
        command.arg("--chardev").arg(format!("socket,id=control,path={},server=on,wait=off", control.display()));
        command.args(["--monitor", "chardev=control"]);
        let mut service = Service::start("the origin's disk", command, &directory.join("disk.log"))?;
        service.wait_until(START_MAX, || socket.exists() && control.exists())?;
        let doing = || format!("talking to {SERVER} over {}", control.display());
        let stream = UnixStream::connect(&control).map_err(Failure::io(doing()))?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(Failure::io(doing()))?;
        let mut disk = Self { control: BufReader::new(stream), socket, service };
        disk.say(&json!({"execute": "qmp_capabilities"}))?;
        Ok(disk)
    }

    /// Where the guest finds it.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The server's command as it would be typed.
    #[must_use]
    pub fn typed(&self) -> String {
        self.service.typed()
    }

    /// Serves at this pace from now on; without one, as fast as it can.
    ///
    /// # Errors
    /// When the server does not take it.
    pub fn pace(&mut self, throttle: Option<&Throttle>) -> Result<()> {
        let throttle = throttle.copied().unwrap_or_default();
        // Zero is no limit.
        let iops = throttle.iops.map_or(0, |iops| iops.max(1.0) as u64);
        let bytes = throttle.mib.map_or(0, |mib| (mib * MIB).max(1.0) as u64);
        let limits = json!({"iops-total": iops, "bps-total": bytes});
        self.say(&json!({
            "execute": "qom-set",
            "arguments": {"path": format!("/objects/{GROUP}"), "property": "limits", "value": limits},
        }))
    }

    /// Says something and waits for the answer; greetings and events come between.
    fn say(&mut self, what: &Value) -> Result<()> {
        let failed = |told: &str| Failure::Other(format!("{SERVER} does not take {what}: {told}"));
        let io = |error: std::io::Error| failed(&error.to_string());
        self.control.get_mut().write_all(format!("{what}\n").as_bytes()).map_err(io)?;
        loop {
            let mut line = String::new();
            if self.control.read_line(&mut line).map_err(io)? == 0 {
                return Err(failed("it has ended"));
            }
            let answer: Value = serde_json::from_str(&line).map_err(|error| failed(&error.to_string()))?;
            if answer.get("return").is_some() {
                return Ok(());
            }
            if let Some(error) = answer.get("error") {
                return Err(failed(&error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_throttle_group_cannot_do_is_refused() {
        assert_eq!(can_pace(&Throttle::VOLUME_200), Ok(()));
        for throttle in [Throttle::FAR, Throttle::BURST] {
            assert!(can_pace(&throttle).is_err_and(|why| why.contains("iops and mib alone")));
        }
    }
}
