//! The devices of a pool: what a client asks for, and what it is shown, as text and as JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::scrub_shown::PoolScrubShown;
use crate::peers::PeerPlan;
use crate::reserve::Reserve;
use crate::wording::{Size, clock};

/// A change of a pool's devices, as a client asks for it. Paths are absolute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum PoolChange {
    /// Take a device in.
    Add {
        /// The file or device.
        flash: PathBuf,
        /// The size of a file that is made, in bytes.
        size: Option<u64>,
        /// How much of it stays unwritten.
        #[serde(default)]
        reserve: Reserve,
        /// Overwrite what it holds.
        format: bool,
    },
    /// Have a peer keep a copy of what is dirty.
    AddPeer {
        /// The peer.
        peer: PeerPlan,
        /// The size of the copy in bytes. Without it: as large as all devices here together.
        size: Option<u64>,
    },
    /// Empty a device and let it go.
    Remove {
        /// The file or device.
        flash: PathBuf,
    },
    /// Take a device in, and then let another one go.
    Replace {
        /// The one to let go. Without it: the only one.
        old: Option<PathBuf>,
        /// The one to take in.
        new: PathBuf,
        /// The size of a file that is made, in bytes.
        size: Option<u64>,
        /// How much of it stays unwritten.
        #[serde(default)]
        reserve: Reserve,
        /// Overwrite what it holds.
        format: bool,
    },
    /// Take a device out at once, without emptying it.
    Offline {
        /// The file or device.
        flash: PathBuf,
    },
    /// Take a device in again that was taken out or lost. Nothing on it counts.
    Online {
        /// The file or device.
        flash: PathBuf,
        /// How much of it is left unwritten. Without it: as much as before.
        #[serde(default)]
        reserve: Option<Reserve>,
    },
    /// Use more of a device.
    Grow {
        /// The device. Without it: the only one.
        flash: Option<PathBuf>,
        /// Its new size in bytes.
        bytes: u64,
    },
    /// Use less of a device: its end is emptied and given back.
    Shrink {
        /// The device. Without it: the only one.
        flash: Option<PathBuf>,
        /// Its new size in bytes.
        bytes: u64,
    },
}

/// A pool and its devices. The field names are those of `headpond pool status --json` and stay.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolShown {
    /// The mount point.
    pub mountpoint: PathBuf,
    /// The pool's id.
    pub pool: String,
    /// `ONLINE`, or `DEGRADED`: dirty data has fewer copies than it should, or a device is lost.
    pub state: String,
    /// `none`, `mirror` or `parity`: what the pool does for data that the origin lacks.
    pub redundancy: String,
    /// Bytes of all devices.
    pub size_bytes: u64,
    /// Dirty bytes that one device has where two should.
    pub exposed_bytes: u64,
    /// How many of those get a second copy, or go to the origin, in a second.
    pub exposed_bytes_per_second: f64,
    /// How long the rest of them still takes at this pace, if known.
    pub exposed_left_seconds: Option<f64>,
    /// Each device.
    pub members: Vec<PoolMemberShown>,
    /// The hosts that may keep a copy, in the order in which they are tried.
    pub peers: Vec<String>,
    /// How many of them are to have one at a time.
    pub copies: usize,
    /// The change that is under way, or the last one.
    pub change: Option<PoolChangeShown>,
    /// The scrub that goes on, or the last one of this use.
    pub scrub: Option<PoolScrubShown>,
    /// What is to be done, each with the command that does it.
    pub actions: Vec<String>,
}

/// A device of a pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolMemberShown {
    /// Its number in the pool.
    pub member: u16,
    /// Where it lies, or lay. Empty if nobody knows.
    pub flash: PathBuf,
    /// `ONLINE`, `SLOW` (it gets no new data), `DRAINING` (a copy that goes once another peer has one), `REMOVING`, `FAULTED` (it refused a write or a sync), `UNAVAIL` (it was not there at the start), `OFFLINE`.
    pub state: String,
    /// Whether it has second copies alone: a peer.
    pub copies_only: bool,
    /// Whether it is a peer's, and a take-over there needs nothing else: it has all that was synced.
    pub can_take_over: bool,
    /// Bytes that the pool uses of it.
    pub size_bytes: u64,
    /// Bytes behind those: the pool leaves them unwritten.
    pub reserve_bytes: u64,
    /// Bytes of data on it, copies included.
    pub used_bytes: u64,
    /// Those that the origin lacks.
    pub dirty_bytes: u64,
    /// Bytes in segments that can be written at once.
    pub free_bytes: u64,
    /// Since when the pool misses it, as `2026-11-21T02:22:16Z`. Empty if it does not, or nobody knows.
    pub missed_since: String,
    /// Operations that failed in this use.
    pub errors: u64,
    /// How long its syncs took lately, in seconds; none before the first.
    pub sync_seconds: Option<f64>,
}

/// A change of a pool's devices.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolChangeShown {
    /// Its handle. 0 for one that an earlier worker began.
    pub handle: u64,
    /// What it does.
    pub what: String,
    /// `running`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// Why it failed.
    pub why: String,
    /// Bytes that must still be moved.
    pub left_bytes: u64,
    /// The same at its start.
    pub total_bytes: u64,
    /// Bytes moved in a second.
    pub bytes_per_second: f64,
    /// How long it has been running, or ran.
    pub seconds: f64,
    /// How long it still takes at its pace, if known.
    pub left_seconds: Option<f64>,
}

impl PoolShown {
    /// Whether nothing is under way that a caller would wait for.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let running = self.change.as_ref().is_some_and(|change| change.state == "running");
        !running && self.exposed_bytes == 0 && self.members.iter().all(|member| member.state != "REMOVING")
    }

    /// How much dirty data has one copy, how fast that becomes less, and for how long it goes on, in words.
    #[must_use]
    pub fn exposed(&self) -> String {
        let (left, rate) = (Size(self.exposed_bytes), Size(self.exposed_bytes_per_second as u64));
        format!("{left} of dirty data have one copy, {rate}/s{}", to_go(self.exposed_left_seconds))
    }

    /// A sum over all devices.
    #[must_use]
    pub fn sum(&self, of: impl Fn(&PoolMemberShown) -> u64) -> u64 {
        self.members.iter().map(of).sum()
    }
}

/// How long something still takes, as the end of a sentence. Empty if nobody knows.
fn to_go(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |left| format!(", {} to go", clock::duration(left.ceil() as u64)))
}

/// Paths in a row, for a sentence.
pub(crate) fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for PoolShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &str| writeln!(f, "{name:>11}: {value}");
        row("pool", &format!("{} at {}", self.pool, self.mountpoint.display()))?;
        row("state", &self.state)?;
        let in_use = self.members.iter().filter(|member| member.state == "ONLINE").count();
        let redundancy = match self.redundancy.as_str() {
            "mirror" if self.members.len() == 1 => "mirror, once there is a second device",
            "parity" if self.members.len() == 1 => "parity, once there are three devices",
            "parity" if in_use < 3 => "parity, once there are three devices; mirror until then",
            other => other,
        };
        row("redundancy", redundancy)?;
        if self.exposed_bytes > 0 {
            row("exposed", &format!("{}; headpond makes a second, or writes them to the origin", self.exposed()))?;
        }
        if !self.peers.is_empty() {
            let how_many = if self.copies > 1 { "two of them have copies" } else { "one of them has a copy" };
            row("peers", &format!("{}; {how_many} at a time", self.peers.join(", ")))?;
            let who = self.members.iter().filter(|member| member.can_take_over);
            let who: Vec<_> = who.map(|member| member.flash.display().to_string()).collect();
            let nobody = || "nobody can now: no peer has everything".to_owned();
            row("take-over", &if who.is_empty() { nobody() } else { format!("by {}", who.join(" or ")) })?;
        }
        if let Some(change) = &self.change {
            row("change", &change.to_string())?;
        }
        if let Some(scrub) = &self.scrub {
            row("scrub", &scrub.to_string())?;
        }
        for action in &self.actions {
            row("action", action)?;
        }
        let head = ["flash", "state", "size", "reserve", "used", "dirty", "free", "sync", "errors"]
            .map(str::to_owned)
            .to_vec();
        let columns = head.len();
        let rows = self.members.iter().map(|member| {
            let PoolMemberShown { flash, state, size_bytes, reserve_bytes, errors, sync_seconds, .. } = member;
            let path =
                if flash == Path::new("") { format!("member {}", member.member) } else { flash.display().to_string() };
            let held = [&member.used_bytes, &member.dirty_bytes, &member.free_bytes];
            let sizes = [size_bytes, reserve_bytes].into_iter().chain(held).map(|bytes| Size(*bytes).to_string());
            let mut row = vec![path, state.clone()];
            row.extend(sizes);
            row.push(sync_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1e3)));
            row.push(errors.to_string());
            row
        });
        let table: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
        let widths: Vec<usize> =
            (0..columns).map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
        for row in &table {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 | 1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Display for PoolChangeShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ran = clock::duration(self.seconds as u64);
        match self.state.as_str() {
            "running" if self.total_bytes > 0 => {
                let (left, total) = (Size(self.left_bytes), Size(self.total_bytes));
                let (rate, to_go) = (Size(self.bytes_per_second as u64), to_go(self.left_seconds));
                write!(f, "{}: {left} of {total} left, {rate}/s{to_go}", self.what)
            }
            "running" => write!(f, "{}, for {ran}", self.what),
            "failed" => write!(f, "{}: failed after {ran}: {}", self.what, self.why),
            state => write!(f, "{}: {state} after {ran}", self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_each_device_what_is_under_way_and_what_to_do() {
        let member = |flash: &str, state: &str| PoolMemberShown {
            flash: flash.into(),
            state: state.to_owned(),
            size_bytes: 3 << 30,
            reserve_bytes: 1 << 30,
            used_bytes: 2 << 30,
            dirty_bytes: 1 << 20,
            errors: 7,
            sync_seconds: Some(0.0012),
            ..PoolMemberShown::default()
        };
        let mut pool = PoolShown {
            mountpoint: "/mnt".into(),
            state: "DEGRADED".to_owned(),
            redundancy: "mirror".to_owned(),
            members: vec![member("/nvme/a", "ONLINE"), member("/nvme/b", "REMOVING"), member("", "UNAVAIL")],
            change: Some(PoolChangeShown {
                what: "removing /nvme/b".to_owned(),
                state: "running".to_owned(),
                left_bytes: 1 << 20,
                total_bytes: 4 << 20,
                bytes_per_second: 1024.0,
                left_seconds: Some(90.0),
                ..PoolChangeShown::default()
            }),
            actions: vec!["headpond pool add /mnt FLASH".to_owned()],
            ..PoolShown::default()
        };
        let text = pool.to_string();
        for part in [
            "removing /nvme/b: 1 MiB of 4 MiB left, 1 KiB/s, 00:01:30 to go",
            "action: headpond pool add /mnt FLASH",
            "/nvme/a   ONLINE    3 GiB    1 GiB  2 GiB  1 MiB   0 B  1.2 ms       7",
            "member 0  UNAVAIL",
        ] {
            assert!(text.contains(part), "'{part}' is missing in:\n{text}");
        }
        assert!(!pool.is_settled());
        pool.change = None;
        pool.members[1].state = "ONLINE".to_owned();
        assert!(pool.is_settled());
        pool.exposed_bytes = 1;
        assert!(!pool.is_settled());
    }

    #[test]
    fn what_has_one_copy_is_shown_with_its_rate_and_the_time_to_go() {
        let mut pool = PoolShown { exposed_bytes: 3 << 30, ..PoolShown::default() };
        let has = |pool: &PoolShown, part: &str| assert!(pool.to_string().contains(part), "{part} is not in:\n{pool}");
        has(&pool, "    exposed: 3 GiB of dirty data have one copy, 0 B/s; headpond makes a second");
        pool.exposed_bytes_per_second = f64::from(40 << 20);
        pool.exposed_left_seconds = Some(76.3);
        has(&pool, "    exposed: 3 GiB of dirty data have one copy, 40 MiB/s, 00:01:17 to go; headpond makes a second");
        let json = serde_json::to_value(&pool).unwrap();
        assert_eq!(json["exposed_bytes_per_second"], f64::from(40 << 20));
        assert_eq!(json["exposed_left_seconds"], 76.3);
        pool.exposed_bytes = 0;
        assert!(!pool.to_string().contains("exposed"), "{pool}");
    }
}
