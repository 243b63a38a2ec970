//! What `headpond pool scrub` does to a running mount.
//!
//! Invariant: a scrub changes no device of the pool, so it goes on beside a change of them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use headpond_base::{BLOCK_U64, Errno};
use headpond_engine::{Reply, Request};
use headpond_shard::ShardStats;

use super::commands::Service;
use super::countdown::seconds_left;
use super::members::SeenMember;
use super::protocol::{Answer, OperationProgress};
use super::scrub_shown::{DamagedDeviceShown, LostBlockShown, PoolScrubShown, ScrubState};
use crate::history::EventKind;
use crate::process::log::log_line;
use crate::refusal::Refusal;

/// The name of these operations.
const SCRUB: &str = "scrub";

impl Service {
    /// Begins a scrub.
    pub(crate) fn start_scrub(&self) -> Result<Answer, Refusal> {
        if self.operations.state_of(SCRUB) == Some(OperationProgress::Running) {
            let mnt = self.mountpoint();
            return Err(Refusal::Usage(format!(
                "a scrub goes on already. To see it: headpond pool status {}",
                mnt.display()
            )));
        }
        let id = self.begin(SCRUB, "")?;
        let service = self.clone();
        let work = move || {
            let end = match service.handle.call(Request::Scrub) {
                Reply::Failed(Errno::CANCELED | Errno::SHUTDOWN) => OperationProgress::Cancelled,
                Reply::Failed(errno) => OperationProgress::Failed(errno.to_string()),
                _ => OperationProgress::Done,
            };
            service.operations.finish(id, end);
            let stats = service.handle.stats();
            if let Some(scrub) = service.scrub_shown(&stats, &service.members.seen(&stats)) {
                log_line(format_args!("scrub: {scrub}"));
                if let Some(found) = scrub.found() {
                    service.history.note(EventKind::DamageFound, 1, &found);
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("scrub".to_owned()).spawn(work) {
            self.operations.withdraw(id);
            return Err(Refusal::Failed { doing: "start the thread that waits for the scrub".to_owned(), error });
        }
        Ok(Answer::Started { id })
    }

    /// Ends a scrub early.
    pub(crate) fn cancel_scrub(&self) -> Result<Answer, Refusal> {
        match self.handle.call(Request::CancelScrub) {
            Reply::Failed(_) => Err(Refusal::Usage("no scrub goes on".to_owned())),
            _ => Ok(Answer::Done),
        }
    }

    /// The scrub that goes on, or the last one of this use.
    pub(super) fn scrub_shown(&self, stats: &ShardStats, seen: &[SeenMember]) -> Option<PoolScrubShown> {
        let scrub = stats.scrub.as_ref()?;
        let known = self.operations.last(SCRUB, 1).pop();
        let seconds = known.as_ref().map_or(0.0, |known| known.took().as_secs_f64());
        let cancelled = known.is_some_and(|known| known.progress == OperationProgress::Cancelled);
        let bytes_per_second = scrub.checked_bytes as f64 / seconds.max(0.001);
        let state = match scrub.running {
            true => ScrubState::Running,
            false if cancelled => ScrubState::Cancelled,
            false => ScrubState::Done,
        };
        let path_of = |member| seen.iter().find(|seen| seen.shown.member == member).map(|seen| seen.path.clone());
        let damaged = scrub.damaged.iter().map(|(member, blocks)| DamagedDeviceShown {
            flash: path_of(*member).unwrap_or_default(),
            bytes: blocks * BLOCK_U64,
        });
        let lost = scrub.lost.iter().map(|lost| LostBlockShown {
            path: PathBuf::from(OsString::from_vec(lost.path.clone())),
            offset: lost.block.0 * BLOCK_U64,
            bytes: BLOCK_U64,
        });
        Some(PoolScrubShown {
            state,
            checked_bytes: scrub.checked_bytes,
            left_bytes: scrub.left_bytes,
            bytes_per_second,
            seconds,
            left_seconds: seconds_left(scrub.left_bytes, bytes_per_second).filter(|_| scrub.running),
            damaged: damaged.collect(),
            dropped_bytes: scrub.dropped_blocks * BLOCK_U64,
            mended_bytes: scrub.mended_blocks * BLOCK_U64,
            lost_bytes: scrub.lost_blocks * BLOCK_U64,
            lost: lost.collect(),
        })
    }
}
