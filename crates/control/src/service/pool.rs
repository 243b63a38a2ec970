//! What `headpond pool` does to a running mount.
//!
//! Invariant: the control thread waits for no storage. A thread of its own opens devices and asks the engine, and the
//! client has its answer once the change is known to be possible.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use headpond_base::{BLOCK_U64, CopyLoss, Errno, MemberId, Redundancy};
use headpond_format::{Member, MemberState, POOL_BYTES_MIN};
use headpond_shard::ShardStats;

use super::commands::Service;
use super::countdown::Pace;
use super::device_events::removed;
use super::members::{PoolMembers, SeenMember, SeenState, refused, whole_blocks};
use super::pool_shown::{PoolChange, PoolChangeShown, PoolMemberShown, PoolShown};
use super::protocol::{Answer, OperationProgress};
use super::socket::Client;
use crate::devices::PoolDevice;
use crate::history::EventKind;
use crate::numbers::exposed_blocks;
use crate::peers::PeerPlan;
use crate::pool::HeldFlash;
use crate::process::log::log_line;
use crate::refusal::Refusal;
use crate::reserve::{Reserve, Taken};
use crate::wording::Size;
use crate::wording::clock::utc;

/// The name of these operations.
pub(crate) const POOL: &str = "pool";

/// A change that can be made, with all that it needs.
pub(super) enum Planned {
    Add { flash: PathBuf, size: Option<Size>, reserve: Reserve, format: bool },
    AddPeer { peer: PeerPlan, size: Option<Size> },
    Remove { member: MemberId, flash: PathBuf },
    Leave { member: MemberId, peer: PathBuf },
    Forget { member: MemberId, flash: PathBuf },
    Replace { old: Option<MemberId>, was: PathBuf, new: PathBuf, size: Option<Size>, reserve: Reserve, format: bool },
    Offline { member: MemberId, flash: PathBuf },
    Online { was: MemberId, flash: PathBuf, taken: Taken },
    Grow { member: MemberId, flash: PathBuf, bytes: u64 },
    Shrink { member: MemberId, flash: PathBuf, bytes: u64 },
}

impl Planned {
    pub(super) fn what(&self) -> String {
        match self {
            Self::Add { flash, .. } => format!("adding {}", flash.display()),
            Self::AddPeer { peer, .. } => format!("adding {} for copies", peer.address),
            Self::Remove { flash, .. } => format!("removing {}", flash.display()),
            Self::Leave { peer, .. } => format!("removing {}, which is being drained", peer.display()),
            Self::Forget { flash, .. } => format!("doing without {}", flash.display()),
            Self::Replace { was, new, .. } => format!("replacing {} by {}", was.display(), new.display()),
            Self::Offline { flash, .. } => format!("taking {} offline", flash.display()),
            Self::Online { flash, taken: Taken::AsBefore(bytes), .. } => {
                format!("taking {} in again, {} of it as before", flash.display(), Size(*bytes))
            }
            Self::Online { flash, taken: Taken::AllBut(reserve), .. } => {
                format!("taking {} in again, all but {reserve} of it", flash.display())
            }
            Self::Shrink { flash, bytes, .. } => format!("shrinking {} to {}", flash.display(), Size(*bytes)),
            Self::Grow { flash, bytes, .. } => format!("growing {} to {}", flash.display(), Size(*bytes)),
        }
    }

    /// The device that joins by it: where it lies, the size of a file that is made, what is left unwritten, and whether
    /// what it holds may be overwritten.
    fn joins(&self) -> Option<(&Path, Option<Size>, Taken, bool)> {
        match self {
            Self::Add { flash, size, reserve, format } | Self::Replace { new: flash, size, reserve, format, .. } => {
                Some((flash, *size, Taken::AllBut(*reserve), *format))
            }
            Self::Online { flash, taken, .. } => Some((flash, None, *taken, false)),
            Self::AddPeer { .. }
            | Self::Remove { .. }
            | Self::Leave { .. }
            | Self::Forget { .. }
            | Self::Offline { .. }
            | Self::Grow { .. }
            | Self::Shrink { .. } => None,
        }
    }

    /// The change as the history tells it once it is done.
    fn done(&self) -> (EventKind, String) {
        match self {
            Self::Add { flash, .. } => (EventKind::DeviceAdded, format!("{} has joined the pool", flash.display())),
            Self::AddPeer { peer, .. } => {
                (EventKind::DeviceAdded, format!("{} keeps a copy from now on", peer.address))
            }
            Self::Remove { flash, .. } | Self::Leave { peer: flash, .. } => (EventKind::DeviceRemoved, removed(flash)),
            Self::Forget { flash, .. } => {
                (EventKind::DeviceRemoved, format!("{} is not missed any more", flash.display()))
            }
            Self::Replace { was, new, .. } => {
                (EventKind::DeviceReplaced, format!("{} is in the place of {}", new.display(), was.display()))
            }
            Self::Offline { flash, .. } => (EventKind::DeviceOffline, format!("{} was taken offline", flash.display())),
            Self::Online { flash, .. } => (EventKind::DeviceAdded, format!("{} is online again", flash.display())),
            Self::Grow { flash, bytes, .. } => {
                (EventKind::DeviceGrown, format!("the pool uses {} of {}", Size(*bytes), flash.display()))
            }
            Self::Shrink { flash, bytes, .. } => {
                (EventKind::DeviceShrunk, format!("the pool uses {} of {}", Size(*bytes), flash.display()))
            }
        }
    }
}

impl Service {
    /// The devices of the pool.
    pub(crate) fn pool_shown(&self) -> PoolShown {
        let stats = self.handle.stats();
        let redundancy = self.settings().config().redundancy;
        let seen = self.members.seen(&stats);
        let exposed_pace = self.exposed_pace(&stats);
        let scrub = self.scrub_shown(&stats, &seen);
        let mut actions = self.actions(&stats, &seen, redundancy);
        actions.extend(scrub.as_ref().and_then(|scrub| scrub.action(&self.mountpoint())));
        PoolShown {
            mountpoint: self.mountpoint(),
            pool: self.members.pool.to_string(),
            state: self.pool_state(&stats).to_owned(),
            redundancy: redundancy.name().to_owned(),
            size_bytes: self.members.bytes(),
            exposed_bytes: exposed_blocks(&stats) * BLOCK_U64,
            exposed_bytes_per_second: exposed_pace.map_or(0.0, |pace| pace.bytes_per_second),
            exposed_left_seconds: exposed_pace.and_then(|pace| pace.left_seconds),
            actions,
            change: self.change_shown(&stats, &seen),
            scrub,
            members: seen.iter().map(|member| self.member_shown(member)).collect(),
            peers: self.members.devices().peers().into_iter().map(|peer| peer.address).collect(),
            copies: self.settings().copies(),
        }
    }

    /// How fast dirty data gets the copies that it lacks. None while it lacks none.
    pub(super) fn exposed_pace(&self, stats: &ShardStats) -> Option<Pace> {
        let mut exposed = self.exposed.lock().unwrap_or_else(PoisonError::into_inner);
        match exposed_blocks(stats) * BLOCK_U64 {
            0 => {
                exposed.end();
                None
            }
            left_bytes => Some(exposed.look(Instant::now(), left_bytes)),
        }
    }

    /// The state of the pool in a word.
    pub(crate) fn pool_state(&self, stats: &ShardStats) -> &'static str {
        let is_missed = |seen: &SeenMember| seen.state.is_missed();
        let lacks_copies = self.lacks_copies(stats);
        let degraded = self.members.seen(stats).iter().any(is_missed) || exposed_blocks(stats) > 0 || lacks_copies;
        state_in_a_word(stats.engine.flash_failed != 0, degraded)
    }

    /// Whether the pool mirrors dirty data, and all of it has its two copies.
    pub(super) fn is_mirrored(&self, stats: &ShardStats) -> bool {
        let in_use = stats.members.iter().filter(|shown| shown.state == MemberState::InUse && shown.works).count();
        in_use > 1 && exposed_blocks(stats) == 0 && self.settings().config().redundancy.survives_a_loss()
    }

    fn member_shown(&self, seen: &SeenMember) -> PoolMemberShown {
        let shown = &seen.shown;
        let state = match seen.state {
            SeenState::Online => "ONLINE",
            SeenState::Slow => "SLOW",
            SeenState::Draining => "DRAINING",
            SeenState::Removing => "REMOVING",
            SeenState::Faulted => "FAULTED",
            SeenState::Unavailable => "UNAVAIL",
            SeenState::Offline => "OFFLINE",
        };
        let is_gone = shown.state == MemberState::Gone;
        let bytes = |blocks: u64| if is_gone { 0 } else { blocks * BLOCK_U64 };
        PoolMemberShown {
            member: shown.member.0,
            flash: seen.path.clone(),
            state: state.to_owned(),
            copies_only: shown.copies_only,
            can_take_over: shown.is_enough,
            size_bytes: seen.bytes,
            reserve_bytes: seen.reserve_bytes,
            used_bytes: bytes(shown.blocks),
            dirty_bytes: bytes(shown.dirty_blocks),
            free_bytes: if is_gone { 0 } else { shown.free_segments * self.members.segment_bytes() },
            errors: seen.errors,
            missed_since: if seen.missed_since == 0 { String::new() } else { utc(seen.missed_since) },
            sync_seconds: shown.sync_time.filter(|_| !is_gone).map(|time| time.0 as f64 / 1e9),
        }
    }

    /// What the operator should do, each with its command.
    fn actions(&self, stats: &ShardStats, seen: &[SeenMember], redundancy: Redundancy) -> Vec<String> {
        let (failed, copies) = (stats.engine.flash_failed != 0, self.copies_at(stats).len());
        let mnt = self.mountpoint();
        let mnt = mnt.display();
        let mut actions = Vec::new();
        if failed {
            actions.push(format!(
                "the pool has failed, and everything goes to the origin. Unmount, and mount with another flash: headpond unmount {mnt}"
            ));
            return actions;
        }
        for member in seen.iter().filter(|member| member.state.is_lost()) {
            let which = if member.path.as_os_str().is_empty() {
                format!("member {}", member.shown.member.0)
            } else {
                member.path.display().to_string()
            };
            let since = since(member);
            actions.push(if member.shown.copies_only {
                self.lacks_copy(&format!("{which} is lost{since}"), copies)
            } else {
                format!(
                    "{which} is lost{since}, and out of the pool for good. To put another device in its place: headpond pool add {mnt} FLASH. To do without: headpond pool remove {mnt} {}",
                    if member.path.as_os_str().is_empty() { "FLASH" } else { &which }
                )
            });
        }
        let is_lost_copy = |member: &SeenMember| member.state.is_lost() && member.shown.copies_only;
        if self.lacks_copies(stats) && !seen.iter().any(is_lost_copy) {
            let what = if copies == 0 { "no peer has a copy yet" } else { "copies=2 asks for two other hosts" };
            actions.push(self.lacks_copy(what, copies));
        }
        for member in seen.iter().filter(|member| member.state == SeenState::Draining) {
            actions.extend(self.drained_without_another(stats, &member.path));
        }
        for member in seen.iter().filter(|member| member.state == SeenState::Offline) {
            let flash = member.path.display();
            let since = since(member);
            actions.push(format!(
                "{flash} is offline{since}. To give it back to the pool: headpond pool online {mnt} {flash}"
            ));
        }
        actions.extend(laggard(seen).map(|(slow, times)| {
            let flash = slow.path.display();
            format!(
                "{flash} takes {times:.0} times as long for a sync as the others{}. To put another device in its place: headpond pool replace {mnt} {flash} FLASH",
                match slow.state {
                    SeenState::Slow => ": it gets no new data until it takes less than four times as long",
                    _ => ", and each mirrored sync waits for it",
                }
            )
        }));
        let in_use = seen.iter().filter(|member| member.state.is_in_use()).count();
        if actions.is_empty() && in_use == 1 && seen.len() > 1 && redundancy.survives_a_loss() {
            actions.push(format!(
                "one device is left, so dirty data has one copy. For a second: headpond pool add {mnt} FLASH"
            ));
        }
        if actions.is_empty() && in_use == 2 && redundancy == Redundancy::Parity {
            actions.push(format!(
                "two devices are left, so dirty data is mirrored, and takes more room than with parity. For a third: headpond pool add {mnt} FLASH"
            ));
        }
        let here = |device: PoolDevice| device.file.here().is_some().then_some(device.path);
        let paths: Vec<PathBuf> = self.members.devices().all().into_iter().filter_map(here).collect();
        if paths != self.places.flashes {
            let flashes: Vec<String> = paths.iter().map(|path| format!("--flash {}", path.display())).collect();
            actions.push(format!(
                "from the next mount on, name the devices that the pool has now, in /etc/fstab, too: {}",
                flashes.join(" ")
            ));
        }
        actions
    }

    /// What to do about a lost copy, while so many are left.
    fn lacks_copy(&self, lost: &str, left: usize) -> String {
        let mnt = self.mountpoint();
        let mnt = mnt.display();
        if left >= self.settings().copies() {
            return format!(
                "{lost}, and there are as many copies as copies={left} says. To miss it no more: headpond pool remove {mnt} PEER"
            );
        }
        let meanwhile = match (left, self.settings().config().copy_loss) {
            (1.., _) => "has a copy on one other host, not on two. Meanwhile syncs wait for that one",
            (0, CopyLoss::WriteThrough) => "has no copy on another host. Meanwhile each sync waits for the origin",
            (0, CopyLoss::GoOn) => "has no copy on another host. Meanwhile syncs wait for the flash here alone",
            (0, CopyLoss::Freeze) => "has no copy on another host. Meanwhile no sync is answered",
        };
        let Some(others) = self.others_named(&self.handle.stats()) else {
            return format!(
                "{lost}, and dirty data {meanwhile}. To have one: headpond pool add {mnt} --peer HOST:PORT"
            );
        };
        format!(
            "{lost}, and dirty data {meanwhile}. headpond asks {others} again and again. To name another one: headpond pool add {mnt} --peer HOST:PORT"
        )
    }

    /// Whether fewer hosts have a copy than are to.
    pub(super) fn lacks_copies(&self, stats: &ShardStats) -> bool {
        self.copies_at(stats).len() < self.copies_wanted()
    }

    /// The change under way, or the last one.
    fn change_shown(&self, stats: &ShardStats, seen: &[SeenMember]) -> Option<PoolChangeShown> {
        let emptied = seen.iter().find(|member| member.shown.state == MemberState::Emptied);
        let known = self.operations.last(POOL, 1).pop();
        let is_running = known.as_ref().is_some_and(|known| known.progress == OperationProgress::Running);
        let mut change = match known.filter(|_| is_running || emptied.is_none()) {
            Some(known) => {
                let (state, why) = match &known.progress {
                    OperationProgress::Running => ("running", ""),
                    OperationProgress::Done => ("done", ""),
                    OperationProgress::Cancelled => ("cancelled", ""),
                    OperationProgress::Failed(why) => ("failed", why.as_str()),
                };
                PoolChangeShown {
                    handle: known.id,
                    what: known.about.clone(),
                    state: state.to_owned(),
                    why: why.to_owned(),
                    seconds: known.took().as_secs_f64(),
                    ..PoolChangeShown::default()
                }
            }
            None => PoolChangeShown {
                what: format!("removing {}", emptied?.path.display()),
                state: "running".to_owned(),
                ..PoolChangeShown::default()
            },
        };
        let mut emptying = self.emptying.lock().unwrap_or_else(PoisonError::into_inner);
        if change.state == "running" {
            // Writers may make more of it dirty. Nothing moves if no device goes, or becomes smaller.
            let left_bytes = stats.engine.leaving_blocks * BLOCK_U64;
            let pace = emptying.look(Instant::now(), left_bytes);
            change.total_bytes = pace.total_bytes;
            change.left_bytes = left_bytes;
            change.bytes_per_second = pace.bytes_per_second;
            change.left_seconds = pace.left_seconds;
        } else {
            emptying.end();
        }
        Some(change)
    }

    /// Begins a change, or only says what it would do. The client has its answer once the change is known to be
    /// possible.
    pub(crate) fn change_pool(&self, change: PoolChange, dry_run: bool, client: Client) {
        if self.operations.state_of(POOL) == Some(OperationProgress::Running) {
            let why = "another change of the pool's devices is under way. Nothing was changed. To wait for it: headpond pool wait";
            return client.refuse(&Refusal::Usage(why.to_owned()));
        }
        let planned = match self.plan(change) {
            Ok(planned) => planned,
            Err(refusal) => return client.refuse(&refusal),
        };
        let service = self.clone();
        let work = move || service.carry_out_change(planned, dry_run, client);
        if let Err(error) = std::thread::Builder::new().name("pool-change".to_owned()).spawn(work) {
            log_line(format_args!("cannot start the thread that changes the pool: {error}"));
        }
    }

    /// What of a change can be told without looking at a device.
    fn plan(&self, change: PoolChange) -> Result<Planned, Refusal> {
        let members = &self.members;
        let counted = |member: MemberId, flash: &Path| {
            let why = format!(
                "{} is out of the pool already. To put another one in its place: headpond pool add",
                flash.display()
            );
            if members.counts(member) { Ok(()) } else { Err(Refusal::Usage(why)) }
        };
        Ok(match change {
            PoolChange::Add { flash, size, reserve, format } => {
                Planned::Add { flash, size: size.map(Size), reserve, format }
            }
            PoolChange::AddPeer { peer, size } => Planned::AddPeer { peer, size: size.map(Size) },
            PoolChange::Remove { flash } => {
                let member = members.find(Some(&flash))?;
                if members.is_missed(member) {
                    return Ok(Planned::Forget { member, flash });
                }
                counted(member, &flash)?;
                if members.in_use() == [member] {
                    let mnt = self.mountpoint();
                    return Err(Refusal::Usage(format!(
                        "{} is the only device of the pool. Nothing was changed. To go over to another one: headpond pool move {} NEW",
                        flash.display(),
                        mnt.display()
                    )));
                }
                Planned::Remove { member, flash: members.devices().path_of(member) }
            }
            PoolChange::Offline { flash } => {
                let member = members.find(Some(&flash))?;
                counted(member, &flash)?;
                Planned::Offline { member, flash: members.devices().path_of(member) }
            }
            PoolChange::Online { flash, reserve } => {
                let (was, bytes) = members.find_lost(&flash).ok_or_else(|| {
                    let why = format!(
                        "{} is not offline, nor lost. Nothing was changed. To take a device in: headpond pool add",
                        flash.display()
                    );
                    Refusal::Usage(why)
                })?;
                let taken = reserve.map_or(Taken::AsBefore(bytes), Taken::AllBut);
                Planned::Online { was, flash, taken }
            }
            PoolChange::Replace { old, new, size, reserve, format } => {
                let (old, was) = match (members.find(old.as_deref()), old) {
                    (Ok(member), _) => (Some(member), members.devices().path_of(member)),
                    // It may be the one of which nobody knows where it lay.
                    (Err(_), Some(path)) if members.misses_one_without_a_name() => (None, path),
                    (Err(refusal), _) => return Err(refusal),
                };
                Planned::Replace { old, was, new, size: size.map(Size), reserve, format }
            }
            PoolChange::Grow { flash, bytes } => {
                let (member, flash, now) = self.sized(flash)?;
                let bytes = whole_blocks(Size(bytes));
                if bytes <= now {
                    let why = format!("{} has {} already. Nothing was changed", flash.display(), Size(now));
                    return Err(Refusal::Usage(why));
                }
                Planned::Grow { member, flash, bytes }
            }
            PoolChange::Shrink { flash, bytes } => {
                let (member, flash, now) = self.sized(flash)?;
                let bytes = whole_blocks(Size(bytes));
                if bytes >= now {
                    let why = format!("{} has no more than {}. Nothing was changed", flash.display(), Size(now));
                    return Err(Refusal::Usage(why));
                }
                if bytes < POOL_BYTES_MIN {
                    let why =
                        format!("{} is less than a device of a pool needs: {}", Size(bytes), Size(POOL_BYTES_MIN));
                    return Err(Refusal::FlashTooSmall { path: flash, why });
                }
                Planned::Shrink { member, flash, bytes }
            }
        })
    }

    /// A device whose size is to change, where it lies, and its size.
    fn sized(&self, flash: Option<PathBuf>) -> Result<(MemberId, PathBuf, u64), Refusal> {
        let member = self.members.find(flash.as_deref())?;
        let device = self.members.devices().of(member);
        let gone = || Refusal::Usage("that device is out of the pool already".to_owned());
        device.map(|device| (member, device.path, device.bytes)).ok_or_else(gone)
    }

    fn carry_out_change(&self, planned: Planned, dry_run: bool, client: Client) {
        let members = &self.members;
        let open = |(flash, size, taken, format): (&Path, Option<Size>, Taken, bool)| {
            self.places.check_another(flash)?;
            // Nothing is made for a look.
            let would_be_made = dry_run && size.is_some() && !flash.exists();
            if would_be_made { Ok(None) } else { members.open(flash, size, taken, format).map(Some) }
        };
        let opened = match &planned {
            Planned::AddPeer { .. } if dry_run => Ok(None),
            Planned::AddPeer { peer, size } => self.open_at_peer(peer, *size).map(Some),
            planned => planned.joins().map_or(Ok(None), open),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(refusal) => return client.refuse(&refusal),
        };
        if dry_run {
            drop(opened);
            if let Planned::Offline { member, flash } = &planned
                && let Err(errno) = members.may_go_offline(*member)
            {
                let why = format!("{}: {}. Nothing was changed", flash.display(), refused(errno));
                return client.refuse(&Refusal::Usage(why));
            }
            let effect = self.effect_of(&planned);
            return client.answer(&Answer::PoolPlanned { what: planned.what(), effect });
        }
        let id = match self.begin(POOL, &planned.what()) {
            Ok(id) => id,
            Err(refusal) => return client.refuse(&refusal),
        };
        client.answer(&Answer::Started { id });
        self.finish_change(id, planned, opened);
    }

    /// Carries out a change that has begun. Returns whether it was made.
    pub(super) fn finish_change(&self, id: u64, planned: Planned, opened: Option<(HeldFlash, Member)>) -> bool {
        let members = &self.members;
        let (kind, done) = planned.done();
        let end = match self.make_change(planned, opened) {
            Ok(()) => {
                members.events().changed(kind, &done);
                OperationProgress::Done
            }
            Err(Stopped::Cancelled) => OperationProgress::Cancelled,
            Err(Stopped::Failed(why)) => OperationProgress::Failed(why),
        };
        if let OperationProgress::Failed(why) = &end {
            log_line(format_args!("a change of the pool's devices failed: {why}"));
        }
        self.devices_changed();
        let made = end == OperationProgress::Done;
        self.operations.finish(id, end);
        made
    }

    /// A new device has no settings yet, and another size means other shares.
    pub(super) fn devices_changed(&self) {
        self.keep_aside(|kept| {
            if let Err(error) = kept {
                log_line(format_args!("cannot write the settings to the pool: {error}"));
            }
        });
        self.configure();
    }

    fn make_change(&self, planned: Planned, opened: Option<(HeldFlash, Member)>) -> Result<(), Stopped> {
        let members = &self.members;
        if let Some((flash, row)) = opened {
            let peer = if let Planned::AddPeer { peer, .. } = &planned { Some(peer) } else { None };
            let instead_of = match &planned {
                Planned::Replace { old, .. } => *old,
                Planned::Online { was, .. } => Some(*was),
                _ => None,
            };
            members.add(flash, row, peer, instead_of).map_err(Stopped::Failed)?;
        }
        match planned {
            Planned::Replace { old: Some(old), was, .. } if members.counts(old) => {
                members.devices().forget_peer(&was);
                remove(members, old, &was)
            }
            // One that failed is out already.
            Planned::Replace { .. } | Planned::Online { .. } | Planned::Add { .. } | Planned::AddPeer { .. } => Ok(()),
            Planned::Forget { member, flash } => {
                members.forget_missed(member, &flash).map_err(|errno| stopped(&flash, errno))
            }
            Planned::Remove { member, flash } => {
                members.devices().forget_peer(&flash);
                remove(members, member, &flash)
            }
            // It stays named: the drain may end.
            Planned::Leave { member, peer } => remove(members, member, &peer),
            Planned::Offline { member, flash } => members.take_offline(member).map_err(|errno| stopped(&flash, errno)),
            Planned::Grow { member, bytes, .. } => members.grow(member, bytes).map_err(Stopped::Failed),
            Planned::Shrink { member, flash, bytes } => {
                members.shrink(member, bytes).map_err(|errno| stopped(&flash, errno))
            }
        }
    }

    /// What a change would do, in words.
    fn effect_of(&self, planned: &Planned) -> String {
        let stats = self.handle.stats();
        let seen = self.members.seen(&stats);
        let dirty = |member: MemberId| {
            let found = seen.iter().find(|seen| seen.shown.member == member);
            Size(found.map_or(0, |seen| seen.shown.dirty_blocks) * BLOCK_U64)
        };
        let moves = |member: MemberId| {
            format!("{} of dirty data move to the others or to the origin; what is clean is dropped", dirty(member))
        };
        match planned {
            Planned::Add { .. } => "the pool takes new data on it, too; nothing is moved".to_owned(),
            Planned::AddPeer { .. } => {
                "dirty data is copied there from then on; what is dirty by then, in the background".to_owned()
            }
            Planned::Online { .. } => {
                "the pool takes new data on it; nothing that is on it now counts, and nothing is moved".to_owned()
            }
            Planned::Offline { member, .. } => format!(
                "nothing is moved; {} of dirty data have one copy until the others have a second or the origin has them",
                dirty(*member)
            ),
            Planned::Remove { member, .. } | Planned::Leave { member, .. } => moves(*member),
            Planned::Forget { .. } => "the pool does not miss it any more; nothing is moved".to_owned(),
            Planned::Replace { old: Some(old), .. } => moves(*old),
            Planned::Replace { old: None, .. } => "the pool takes new data on it; nothing is moved".to_owned(),
            Planned::Shrink { .. } => {
                "dirty data at its end moves forward, to the others or to the origin; what is clean there is dropped"
                    .to_owned()
            }
            Planned::Grow { .. } => "the pool takes new data there, too; nothing is moved".to_owned(),
        }
    }

    /// What it would do to take the change under way back, in words.
    fn effect_of_cancel(&self) -> String {
        let seen = self.members.seen(&self.handle.stats());
        match seen.iter().find(|seen| seen.shown.state == MemberState::Emptied) {
            Some(emptied) => format!(
                "{} stays in the pool, with {} of dirty data that are still on it; what was moved stays where it is",
                emptied.path.display(),
                Size(emptied.shown.dirty_blocks * BLOCK_U64)
            ),
            None => "each device keeps the size that it has; what was moved stays where it is".to_owned(),
        }
    }

    /// Takes back the change under way, or only says what that would do.
    pub(crate) fn cancel_pool_change(&self, dry_run: bool) -> Result<Answer, Refusal> {
        let nothing =
            || Refusal::Usage("no change of the pool's devices is under way that can be taken back".to_owned());
        if dry_run {
            let last = self.operations.last(POOL, 1).pop();
            let running = last.filter(|last| last.progress == OperationProgress::Running).ok_or_else(nothing)?;
            return Ok(Answer::PoolPlanned {
                what: format!("taken back: {}", running.about),
                effect: self.effect_of_cancel(),
            });
        }
        match self.members.cancel() {
            Ok(()) => Ok(Answer::Done),
            Err(Errno::NOENT) => Err(nothing()),
            Err(errno) => Err(Refusal::Usage(format!("the change cannot be taken back: {}", refused(errno)))),
        }
    }
}

/// Why a change did not come to its end.
enum Stopped {
    Cancelled,
    Failed(String),
}

/// The device that lags behind all others, if there is one, and how many times as long as the next slowest its syncs
/// take.
fn laggard(seen: &[SeenMember]) -> Option<(&SeenMember, f64)> {
    let lags = seen.iter().find(|member| member.shown.lags)?;
    let others = seen.iter().filter(|member| member.state.is_in_use() && member.shown.member != lags.shown.member);
    let next = others.filter_map(|member| member.shown.sync_time).max()?;
    Some((lags, lags.shown.sync_time?.0 as f64 / next.0.max(1) as f64))
}

/// Since when a device is missed, in a sentence.
fn since(member: &SeenMember) -> String {
    if member.missed_since == 0 { String::new() } else { format!(" since {}", utc(member.missed_since)) }
}

/// How long a change waits before it asks again whether the one before is over.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// How often it asks. A list that cannot be noted beside the origin holds the next change up.
pub(super) const TRIES: u32 = 600;

const fn state_in_a_word(failed: bool, degraded: bool) -> &'static str {
    match (failed, degraded) {
        (true, _) => "FAULTED",
        (false, true) => "DEGRADED",
        (false, false) => "ONLINE",
    }
}

fn remove(members: &PoolMembers, member: MemberId, flash: &Path) -> Result<(), Stopped> {
    for _ in 0..TRIES {
        match members.remove(member) {
            Ok(()) => return Ok(()),
            // The list with the device that came before it is being noted.
            Err(Errno::BUSY) => std::thread::sleep(AGAIN),
            Err(errno) => return Err(stopped(flash, errno)),
        }
    }
    Err(stopped(flash, Errno::BUSY))
}

fn stopped(flash: &Path, errno: Errno) -> Stopped {
    match errno {
        Errno::CANCELED => Stopped::Cancelled,
        errno => Stopped::Failed(format!("{}: {}", flash.display(), refused(errno))),
    }
}
