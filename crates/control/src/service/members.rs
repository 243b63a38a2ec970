//! The devices of a pool in use: which there are and how they are, and changes of them while the pool serves.
//!
//! Invariants:
//! - The engine alone decides who is a member. A device joins the shard before the engine is asked to take it, and
//!   leaves the shard after the engine's list without it counts, on flash and beside the origin.
//! - A device that left in order says so itself: its superblocks are wiped, so no later start takes it for the pool.
//! - One change at a time. Each ends, with the reason if it failed. A crash in the middle leaves the list before or
//!   after, and the next start goes on with emptying.

mod leaving;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headpond_base::{BLOCK, BLOCK_U64, BufMut, COPIES_MAX, Errno, MemberId, PoolId};
use headpond_device::Fill;
use headpond_engine::{MemberShown, MembersChange, NoNumber, Reply, Request, number_for};
use headpond_format::{Geometry, MEMBERS_MAX, Member, MemberName, MemberState};
use headpond_shard::{Handle, ShardStats, TermState};

use super::device_events::DeviceEvents;
use crate::deposed::Deposed;
use crate::devices::{DeviceFile, PoolDevice, PoolDevices};
use crate::history::History;
use crate::ownership::{Marker, MarkerMember, SharedMarker};
use crate::peers::{Asking, NewCopy, PeerPlan, PeerTrouble};
use crate::pool::{FlashContent, HeldFlash};
use crate::process::log::log_line;
use crate::random::random;
use crate::refusal::Refusal;
use crate::reserve::Taken;
use crate::settings::{LiveSettings, Loss, Missed};
use crate::wording::Size;
use crate::wording::clock::unix_seconds;

/// Keeps the devices of a pool for the workers to come.
pub(crate) trait DeviceKeeper: Send + Sync {
    /// Keeps one more. `devices` are all that there are now.
    fn keep(&self, device: &PoolDevice, devices: &PoolDevices) -> std::io::Result<()>;

    /// Keeps the names of those that there are now, and of peers.
    fn note(&self, devices: &PoolDevices) -> std::io::Result<()>;

    /// Lets go of one. `devices` are those that are left.
    fn let_go(&self, member: MemberId, devices: &PoolDevices) -> std::io::Result<()>;
}

/// The members of one pool. Clones are the same.
#[derive(Clone)]
pub(crate) struct PoolMembers {
    pub(crate) pool: PoolId,
    handle: Handle,
    devices: PoolDevices,
    keeper: Arc<dyn DeviceKeeper>,
    marker: SharedMarker,
    geometry: Geometry,
    /// Gone in order, in this use.
    gone: Arc<Mutex<BTreeSet<MemberId>>>,
    /// Being emptied: once it is gone, that is in order.
    leaving: Arc<Mutex<BTreeSet<MemberId>>>,
    /// Being taken out on request.
    offline: Arc<Mutex<BTreeSet<MemberId>>>,
    /// Numbers of devices that are here, and that the pool may not know yet. It may call one gone that had the number
    /// before.
    joining: Arc<Mutex<BTreeSet<MemberId>>>,
    /// Where it is kept what those were like that the pool misses.
    live: LiveSettings,
    /// Those that this start did not find.
    missing: Vec<MemberId>,
    asking: Asking,
    deposed: Deposed,
    events: DeviceEvents,
    /// A thread lets go of devices at this moment.
    letting_go: Arc<AtomicBool>,
}

/// What a start knows of the members of a pool.
pub(crate) struct StartedPool {
    pub(crate) pool: PoolId,
    pub(crate) geometry: Geometry,
    /// Members whose emptying an earlier worker began.
    pub(crate) leaving: BTreeSet<MemberId>,
    /// Members that are not here.
    pub(crate) missing: Vec<MemberId>,
    /// The owner's number of this use, and its epoch.
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
    /// Whether a peer said that another host has the pool.
    pub(crate) deposed: Deposed,
}

/// A device of a pool, and what the engine says of it.
pub(crate) struct SeenMember {
    pub(crate) shown: MemberShown,
    /// Where it lies, or lay. Empty if nobody knows.
    pub(crate) path: PathBuf,
    /// Bytes of it that the pool uses. 0 if it is not here.
    pub(crate) bytes: u64,
    /// Bytes behind those, to which it never writes.
    pub(crate) reserve_bytes: u64,
    pub(crate) errors: u64,
    /// Since when the pool misses it, in seconds since 1970. 0 if it does not, or nobody knows.
    pub(crate) missed_since: u64,
    pub(crate) state: SeenState,
}

/// How a device is, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeenState {
    Online,
    /// It takes no new data, because its syncs take much longer than those of all others.
    Slow,
    /// A peer's: it keeps the copy until another peer has one.
    Draining,
    Removing,
    /// It refused a write or a sync.
    Faulted,
    /// It was not there at the start.
    Unavailable,
    /// It was taken out on request.
    Offline,
}

impl SeenState {
    /// Whether it has data of the pool, and is to keep it.
    pub(crate) const fn is_in_use(self) -> bool {
        matches!(self, Self::Online | Self::Slow | Self::Draining)
    }

    /// Whether the pool is without it, and nobody else has come in its place.
    pub(crate) const fn is_missed(self) -> bool {
        self.is_lost() || matches!(self, Self::Offline)
    }

    /// Whether the pool is without it, and not on request.
    pub(crate) const fn is_lost(self) -> bool {
        matches!(self, Self::Faulted | Self::Unavailable)
    }
}

impl PoolMembers {
    pub(crate) fn of(
        started: StartedPool,
        handle: Handle,
        devices: PoolDevices,
        keeper: Arc<dyn DeviceKeeper>,
        marker: SharedMarker,
        (history, live): (History, LiveSettings),
    ) -> Self {
        let StartedPool { pool, geometry, leaving, missing, owner, epoch, deposed } = started;
        let events = DeviceEvents::of(history, leaving.clone());
        Self {
            pool,
            handle,
            devices,
            keeper,
            marker,
            geometry,
            gone: Arc::default(),
            leaving: Arc::new(Mutex::new(leaving)),
            offline: Arc::default(),
            joining: Arc::default(),
            live,
            missing,
            asking: Asking { pool, owner, epoch },
            deposed,
            events,
            letting_go: Arc::default(),
        }
    }

    /// The devices.
    pub(crate) const fn devices(&self) -> &PoolDevices {
        &self.devices
    }

    /// What the history tells of them.
    pub(crate) const fn events(&self) -> &DeviceEvents {
        &self.events
    }

    /// Tells the history of the devices that this start did not find.
    pub(crate) fn tell_missing(&self) {
        for member in &self.missing {
            let path = self.devices.path_of(*member);
            let unknown = || PathBuf::from(format!("member {}", member.0));
            let shown = if path.as_os_str().is_empty() { unknown() } else { path };
            self.events.lost(&shown, "was not there at the start");
        }
    }

    /// Bytes of all devices.
    pub(crate) fn bytes(&self) -> u64 {
        self.devices.all().iter().map(|device| device.bytes).sum()
    }

    /// Bytes of a segment.
    pub(crate) const fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes as u64
    }

    /// The members that matter: all but those that left in order, and those in whose place another came.
    pub(crate) fn seen(&self, stats: &ShardStats) -> Vec<SeenMember> {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let leaving = self.leaving();
        let devices = self.devices.all();
        // One that is being emptied is shown until its device has been let go.
        let leaves =
            |member: &MemberId| leaving.contains(member) && !gone.contains(member) && self.devices.has(*member);
        let matters = |shown: &&MemberShown| shown.state != MemberState::Gone || shown.missed || leaves(&shown.member);
        let shown = stats.members.iter().filter(matters);
        shown
            .map(|shown| {
                let device = devices.iter().find(|device| device.member == shown.member);
                let missed = self.live.missed().of(shown.member).filter(|_| shown.missed);
                let errors = stats.disk_errors.iter().find(|(disk, _)| *disk == shown.member);
                SeenMember {
                    shown: *shown,
                    path: self.devices.path_of(shown.member),
                    bytes: device.map_or(0, |device| device.bytes),
                    reserve_bytes: device.map_or(0, |device| device.whole_bytes.saturating_sub(device.bytes)),
                    errors: errors.map_or(0, |(_, errors)| *errors),
                    state: self.state_of(shown, missed.as_ref().map(|missed| missed.loss)),
                    missed_since: missed.map_or(0, |missed| missed.since),
                }
            })
            .collect()
    }

    fn leaving(&self) -> BTreeSet<MemberId> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn offline(&self) -> MutexGuard<'_, BTreeSet<MemberId>> {
        self.offline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_of(&self, shown: &MemberShown, loss: Option<Loss>) -> SeenState {
        let offline = self.offline().contains(&shown.member);
        match (shown.state, shown.works) {
            _ if offline => SeenState::Offline,
            (MemberState::Gone, _) if shown.missed => match loss {
                Some(Loss::Offline) => SeenState::Offline,
                Some(Loss::Absent) => SeenState::Unavailable,
                Some(Loss::Faulted) | None => SeenState::Faulted,
            },
            // The engine expects nothing more of one that has left.
            (MemberState::Gone, _) => SeenState::Removing,
            (MemberState::InUse, true) if self.drains(shown) => SeenState::Draining,
            (MemberState::InUse, true) if shown.is_set_aside => SeenState::Slow,
            (MemberState::InUse, true) => SeenState::Online,
            (MemberState::Emptied, true) => SeenState::Removing,
            _ => SeenState::Faulted,
        }
    }

    /// Where each member lies that counts: also one at a peer that was a copy, and is the pool's flash by now.
    pub(super) fn in_use_at(&self, stats: &ShardStats) -> Vec<PathBuf> {
        let counts = stats.members.iter().filter(|shown| shown.state != MemberState::Gone);
        counts.map(|shown| self.devices.path_of(shown.member)).collect()
    }

    /// Whether a member is a copy at a peer that is being drained.
    pub(crate) fn drains(&self, shown: &MemberShown) -> bool {
        shown.keeps_copies() && self.devices.draining().has(&self.devices.path_of(shown.member))
    }

    /// A peer has said that another host has the pool.
    pub(crate) fn is_deposed(&self, refusal: &Refusal) {
        self.deposed.say(refusal.to_string());
    }

    /// Whether another host has the pool by now.
    pub(crate) fn another_owns(&self) -> bool {
        self.deposed.term().state() == TermState::Ended
    }

    /// The lease of this use: `held`, `waiting` or empty.
    pub(crate) fn lease(&self) -> &'static str {
        let term = self.deposed.term();
        match (term.is_leased(), term.state()) {
            (true, TermState::Stands) => "held",
            (true, TermState::Waits) => "waiting",
            _ => "",
        }
    }

    /// How many devices the pool is without, and not on request.
    pub(crate) fn lost(&self, stats: &ShardStats) -> u64 {
        self.seen(stats).iter().filter(|seen| seen.state.is_lost()).count() as u64
    }

    /// The member at a path without links, or the only one. It looks at no file: a path may lead into the mount, which
    /// this process serves.
    pub(crate) fn find(&self, path: Option<&Path>) -> Result<MemberId, Refusal> {
        let all = self.devices.all();
        let Some(path) = path else {
            return match &all[..] {
                [device] => Ok(device.member),
                _ => Err(Refusal::Usage(format!(
                    "the pool has {} devices. Say which: {}",
                    all.len(),
                    super::listed(&self.devices.paths())
                ))),
            };
        };
        self.devices.at(path).ok_or_else(|| {
            let devices = super::listed(&self.devices.paths());
            Refusal::Usage(format!("{} is no device of this pool. It has: {devices}", path.display()))
        })
    }

    /// Whether a member is in use, or being emptied.
    pub(crate) fn counts(&self, member: MemberId) -> bool {
        let stats = self.handle.stats();
        stats.members.iter().any(|shown| shown.member == member && shown.state != MemberState::Gone)
    }

    /// Members that take new data.
    pub(crate) fn in_use(&self) -> Vec<MemberId> {
        let stats = self.handle.stats();
        stats.members.iter().filter(|shown| shown.state == MemberState::InUse).map(|shown| shown.member).collect()
    }

    /// Opens or makes a flash that is to join. Writes nothing to one that exists.
    ///
    /// # Errors
    /// Why it cannot join.
    pub(crate) fn open(
        &self,
        path: &Path,
        size: Option<Size>,
        taken: Taken,
        format: bool,
    ) -> Result<(HeldFlash, Member), Refusal> {
        if self.devices.at(path).is_some_and(|member| self.devices.has(member)) {
            return Err(Refusal::Usage(format!("{} is a device of this pool already", path.display())));
        }
        let flash = HeldFlash::take(path, size, Fill::default(), taken.reserve())?;
        match flash.recognise()? {
            FlashContent::Nothing => {}
            // An old member: nothing on it counts.
            FlashContent::Pool(superblock) if superblock.pool == self.pool => {}
            _ if format => {}
            FlashContent::Pool(superblock) => {
                let what = format!("holds another pool ({})", superblock.pool);
                return Err(Refusal::FlashForeign { path: path.to_owned(), what });
            }
            FlashContent::Foreign(what) => return Err(Refusal::FlashForeign { path: path.to_owned(), what }),
            FlashContent::Unreadable(damage) => {
                return Err(Refusal::FlashForeign { path: path.to_owned(), what: format!("holds a pool: {damage}") });
            }
            FlashContent::Failing(why) => return Err(Refusal::Flash { path: path.to_owned(), why }),
        }
        let bytes = taken.of(flash.bytes());
        let start = self.geometry.segments_start;
        let slots = bytes.saturating_sub(start) / self.segment_bytes();
        let slots = u32::try_from(slots).ok().filter(|slots| *slots > 0).ok_or_else(|| Refusal::FlashTooSmall {
            path: path.to_owned(),
            why: format!(
                "{} is too small for this pool: a device of it needs more than {}{}",
                Size(bytes),
                Size(start + self.segment_bytes()),
                taken.reserve().remark(Size(flash.bytes()))
            ),
        })?;
        let name = random("the name of a device")?;
        Ok((flash, Member::in_use(MemberName(name), slots, bytes, start)))
    }

    /// Has a peer make a member for copies, if fewer than `most` have some that are not being drained. It is as large as all
    /// devices here together, unless a size is given.
    ///
    /// # Errors
    /// Why it cannot join.
    pub(crate) fn open_at_peer(
        &self,
        peer: &PeerPlan,
        size: Option<Size>,
        most: usize,
    ) -> Result<(HeldFlash, Member), Refusal> {
        let stats = self.handle.stats();
        let there = stats.members.iter().filter(|shown| shown.state != MemberState::Gone);
        let (copies, own): (Vec<&MemberShown>, Vec<&MemberShown>) = there.partition(|shown| shown.copies_only);
        if self.in_use_at(&stats).iter().any(|at| at == peer.path()) {
            // To ask for another would take the place of that one.
            return Err(Refusal::Usage(format!("{} has a copy of the pool. Nothing was changed", peer.address)));
        }
        if copies.iter().filter(|one| !self.drains(one)).count() >= most {
            let at: Vec<_> = copies.iter().map(|one| self.devices.path_of(one.member).display().to_string()).collect();
            return Err(Refusal::Usage(format!(
                "the pool has its copies at {}, as many as copies={most} says. To go over to another peer: headpond pool remove first{}",
                at.join(" and "),
                if most == 1 { ". To have two copies: headpond set MOUNTPOINT copies=2" } else { "" }
            )));
        }
        let start = self.geometry.segments_start;
        let here: u64 = own.iter().map(|shown| shown.bytes.saturating_sub(start)).sum();
        let bytes = size.map_or(here + start, whole_blocks);
        let slots = bytes.saturating_sub(start) / self.segment_bytes();
        let too_small = || Refusal::FlashTooSmall {
            path: peer.path().to_owned(),
            why: format!("{} is too small for a copy of this pool", Size(bytes)),
        };
        let slots = u32::try_from(slots).ok().filter(|slots| *slots > 0).ok_or_else(too_small)?;
        let bytes = start + u64::from(slots) * self.segment_bytes();
        let name = MemberName(random("the name of a device")?);
        if self.deposed.term().state() != TermState::Stands {
            // A host that is about to follow may have this copy in its hands.
            return Err(Refusal::Usage("this host may not be the owner any more: see `headpond status`".to_owned()));
        }
        // By another address a peer could be one that has a member. One name goes with the hello: that of the member whose loss
        // would cost more.
        let elsewhere =
            |one: &&MemberShown| self.devices.of(one.member).is_some_and(|device| device.file.here().is_none());
        let beside = own.iter().copied().find(elsewhere).or(copies.first().copied()).map(|one| one.name);
        let flash = peer
            .make(self.asking, &NewCopy { name, bytes, beside }, &self.deposed, &self.devices.draining())
            .map_err(|trouble| match trouble {
            PeerTrouble::Deposed(refusal) => refusal,
            PeerTrouble::NotKept => Refusal::Usage(format!("{}: the peer made no copy", peer.address)),
            PeerTrouble::Away(why) => Refusal::Flash { path: peer.path().to_owned(), why },
        })?;
        let row = Member { copies_only: true, ..Member::in_use(name, slots, bytes, start) };
        Ok((HeldFlash::of_peer(flash, true), row))
    }

    /// Takes an opened flash into the pool. On return the list with it counts.
    ///
    /// # Errors
    /// Why the pool did not take it, in words. It is let go then.
    pub(crate) fn add(
        &self,
        mut flash: HeldFlash,
        row: Member,
        peer: Option<&PeerPlan>,
        instead_of: Option<MemberId>,
    ) -> Result<(), String> {
        let path = flash.path().to_owned();
        let failed = |what: &str, why: &dyn std::fmt::Display| format!("{}: {what}: {why}", path.display());
        let file = DeviceFile::of(flash.opened()).map_err(|error| failed("cannot open it once more", &error))?;
        let known = self.handle.stats().members;
        let copies = known.iter().filter(|shown| shown.keeps_copies()).count();
        if row.copies_only && copies >= usize::from(COPIES_MAX) {
            return Err(format!("{}: two other hosts have copies already", path.display()));
        }
        let is_kept =
            |shown: &MemberShown| shown.missed && instead_of != Some(shown.member) || self.devices.has(shown.member);
        let number = number_for(u64::from(row.slots), &known, &self.geometry, MEMBERS_MAX, is_kept);
        let member = number.map_err(|why| no_number(why, &path.display()))?;
        if known.len() > usize::from(member.0) {
            self.wipe_heads(&flash, &row).map_err(|error| failed("cannot write to it", &error))?;
            for set in [&self.gone, &self.leaving] {
                set.lock().unwrap_or_else(PoisonError::into_inner).remove(&member);
            }
        }
        let whole_bytes = flash.bytes();
        flash.leave_unwritten(row.bytes..whole_bytes).map_err(|refusal| refusal.to_string())?;
        let opened = flash.give().ok_or_else(|| failed("cannot use it", &"it is in use"))?;
        self.handle.add_disk(member, opened).map_err(|errno| failed("cannot drive it", &errno))?;
        let device = PoolDevice { member, path: path.clone(), bytes: row.bytes, whole_bytes, file };
        self.joining().insert(member);
        self.devices.join(device.clone());
        let newly_named = peer.filter(|peer| self.devices.name_peer(peer));
        // A worker that takes over must find it before anything lies on it.
        let kept = self.keeper.keep(&device, &self.devices).map_err(|error| error.to_string());
        let taken = kept.and_then(|()| {
            match self.handle.call(Request::ChangeMembers(MembersChange::Add { member, row, instead_of })) {
                Reply::Failed(errno) => Err(refused(errno)),
                _ => Ok(()),
            }
        });
        let outcome = match taken {
            Ok(()) => {
                flash.settle();
                self.keep_missed();
                log_line(format_args!("{} has joined the pool, with {}", path.display(), Size(row.bytes)));
                Ok(())
            }
            Err(why) => {
                let joined = self
                    .handle
                    .stats()
                    .members
                    .iter()
                    .any(|shown| shown.member == member && shown.state != MemberState::Gone);
                if joined {
                    flash.settle();
                } else {
                    if let Some(peer) = newly_named {
                        self.devices.forget_peer(peer.path());
                    }
                    self.let_go(member);
                }
                Err(failed("the pool does not take it", &why))
            }
        };
        self.joining().remove(&member);
        outcome
    }

    /// Makes sure that no slot of a device has a head of this pool, or a batch behind one: under a number that another
    /// device had, a start could take those for what this one has.
    fn wipe_heads(&self, flash: &HeldFlash, row: &Member) -> std::io::Result<()> {
        let zeros = BufMut::zeroed(2 * BLOCK).freeze();
        let failed = |errno: Errno| std::io::Error::from_raw_os_error(errno.0);
        let slots = (0..u64::from(row.slots)).map(|slot| row.start + slot * self.segment_bytes());
        slots.into_iter().try_for_each(|offset| flash.opened().write(offset, &zeros)).map_err(failed)?;
        flash.opened().sync().map_err(failed)
    }

    /// Empties a member and takes it out of the pool. On return it is free.
    ///
    /// # Errors
    /// Why it stays, in words; [`Errno::CANCELED`] if that was taken back.
    pub(crate) fn remove(&self, member: MemberId) -> Result<(), Errno> {
        let shown = self.devices.path_of(member);
        let leaving = || self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving().insert(member);
        self.events.removes(member);
        match self.handle.call(Request::ChangeMembers(MembersChange::Remove(member))) {
            Reply::Failed(errno) => {
                leaving().remove(&member);
                Err(errno)
            }
            _ => {
                self.left(member);
                log_line(format_args!("{} has left the pool, and is free", shown.display()));
                Ok(())
            }
        }
    }

    /// Asks what [`Self::take_offline`] asks, and changes nothing.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn may_go_offline(&self, member: MemberId) -> Result<(), Errno> {
        let stats = self.handle.stats();
        let shown = stats.members.iter().find(|shown| shown.member == member);
        shown.map_or(Err(Errno::INVAL), |shown| shown.may_go_offline)
    }

    /// Takes a member out at once, without emptying it. On return it can be pulled.
    ///
    /// # Errors
    /// Why it stays; [`Errno::AGAIN`] while some dirty data has one copy, or the others have no room for what comes next.
    pub(crate) fn take_offline(&self, member: MemberId) -> Result<(), Errno> {
        let path = self.devices.path_of(member);
        self.offline().insert(member);
        if let Reply::Failed(errno) = self.handle.call(Request::ChangeMembers(MembersChange::Offline(member))) {
            self.offline().remove(&member);
            return Err(errno);
        }
        self.misses(member, Loss::Offline);
        self.let_go(member);
        self.offline().remove(&member);
        log_line(format_args!(
            "{} is offline, and out of the pool. To give it back: headpond pool online",
            path.display()
        ));
        Ok(())
    }

    /// The member that was taken out or lost, and lay at this path, and how many bytes of it the pool used.
    pub(crate) fn find_lost(&self, path: &Path) -> Option<(MemberId, u64)> {
        let stats = self.handle.stats();
        let is_it = |seen: &SeenMember| seen.path == path && seen.state.is_missed();
        self.seen(&stats).iter().find(|seen| is_it(seen)).map(|seen| (seen.shown.member, seen.shown.bytes))
    }

    /// Whether the pool misses a member.
    pub(crate) fn is_missed(&self, member: MemberId) -> bool {
        self.handle.stats().members.iter().any(|shown| shown.member == member && shown.missed)
    }

    /// Whether the pool misses a member of which nobody knows where it lay.
    pub(crate) fn misses_one_without_a_name(&self) -> bool {
        let nameless = |seen: &SeenMember| seen.state.is_missed() && seen.path.as_os_str().is_empty();
        self.seen(&self.handle.stats()).iter().any(nameless)
    }

    /// The pool misses this member from now on.
    fn misses(&self, member: MemberId, loss: Loss) {
        let path = self.devices.path_of(member);
        self.live.missed().note(Missed { member, path, since: unix_seconds(), loss });
    }

    /// Nobody misses a member any more that is gone already.
    ///
    /// # Errors
    /// Why the list stays as it is.
    pub(crate) fn forget_missed(&self, member: MemberId, path: &Path) -> Result<(), Errno> {
        self.devices.forget_peer(path);
        if let Err(error) = self.keeper.note(&self.devices) {
            log_line(format_args!("the holder does not know that {} is not wanted: {error}", path.display()));
        }
        match self.handle.call(Request::ChangeMembers(MembersChange::Remove(member))) {
            Reply::Failed(errno) => Err(errno),
            _ => {
                self.keep_missed();
                Ok(())
            }
        }
    }

    /// Keeps what is known of those that are missed now, and forgets the rest.
    fn keep_missed(&self) {
        let shown = self.handle.stats().members;
        let is_missed = |member: MemberId| shown.iter().any(|shown| shown.member == member && shown.missed);
        self.live.missed().keep_only(is_missed);
        if let Err(error) = self.live.keep() {
            log_line(format_args!("cannot write to the pool which devices it misses: {error}"));
        }
    }

    /// Takes back what is under way.
    pub(crate) fn cancel(&self) -> Result<(), Errno> {
        match self.handle.call(Request::CancelMembersChange) {
            Reply::Failed(errno) => Err(errno),
            _ => Ok(()),
        }
    }

    /// Makes the file of a member longer, or takes the room that its device has by now, and gives it to the pool.
    ///
    /// # Errors
    /// Why it stays as it is, in words.
    pub(crate) fn grow(&self, member: MemberId, bytes: u64) -> Result<(), String> {
        let device = self.devices.of(member).ok_or_else(|| "it is not here".to_owned())?;
        let shown = device.path.display();
        let Some(file) = device.file.here() else {
            return Err(format!(
                "{shown}: a copy at a peer keeps its size. To have another: pool remove, then pool add --peer"
            ));
        };
        let is_file = file.metadata().map_err(|error| format!("{shown}: {error}"))?.is_file();
        if is_file {
            lengthen(file, bytes).map_err(|error| format!("{shown}: cannot grow to {}: {error}", Size(bytes)))?;
        }
        let found = self.handle.measure_disk(member).map_err(|errno| format!("{shown}: cannot measure it: {errno}"))?;
        if found < bytes {
            return Err(format!("{shown} has {}, less than {}", Size(found), Size(bytes)));
        }
        match self.handle.call(Request::ChangeMembers(MembersChange::Grow { member, bytes })) {
            Reply::Failed(errno) => Err(format!("{shown}: {}", refused(errno))),
            _ => {
                self.devices.resize(member, bytes, found);
                log_line(format_args!("the pool uses {} of {shown} from now on", Size(bytes)));
                Ok(())
            }
        }
    }

    /// Empties the end of a member and gives it back: a file gets shorter.
    ///
    /// # Errors
    /// Why it stays as it is; [`Errno::CANCELED`] if that was taken back.
    pub(crate) fn shrink(&self, member: MemberId, bytes: u64) -> Result<(), Errno> {
        if let Reply::Failed(errno) = self.handle.call(Request::ChangeMembers(MembersChange::Shrink { member, bytes }))
        {
            return Err(errno);
        }
        if let Some(device) = self.devices.of(member) {
            let shown = device.path.display();
            if let Some(file) = device.file.here()
                && file.metadata().is_ok_and(|file| file.is_file())
                && let Err(error) = file.set_len(bytes).and_then(|()| file.sync_all())
            {
                log_line(format_args!("{shown}: its end is free, but cannot be cut off: {error}"));
            }
            log_line(format_args!("the pool uses {} of {shown} from now on", Size(bytes)));
        }
        let whole_bytes = self.handle.measure_disk(member).unwrap_or(bytes);
        self.devices.resize(member, bytes, whole_bytes);
        Ok(())
    }
}

/// Names the devices in a marker. A pool that has had one device only needs no list beside that one.
pub(crate) fn name_devices(marker: &mut Marker, devices: &PoolDevices) {
    let all = devices.all();
    marker.flash = all.first().map(|device| device.path.clone()).unwrap_or_default();
    let is_first_alone = matches!(&all[..], [device] if device.member == MemberId(0));
    let named = all.into_iter().filter(|_| !is_first_alone);
    marker.members = named.map(|device| MarkerMember { member: device.member.0, flash: device.path }).collect();
}

/// Why no device can join.
fn no_number(why: NoNumber, path: &dyn std::fmt::Display) -> String {
    match why {
        NoNumber::NotYet => "this pool has room for no further device, and none of those that are gone is forgotten yet: the \
                             pool still moves what they had. Try again later; to see what it misses: headpond pool status"
            .to_owned(),
        NoNumber::TooManySlots => format!(
            "{path}: it is too large for this pool, whose checkpoints have room for few segments more. Give it a smaller \
             file or partition"
        ),
    }
}

/// Why the engine refuses a change.
pub(crate) fn refused(errno: Errno) -> String {
    match errno {
        Errno::BUSY => "another change of the pool's devices is under way. To see it: headpond pool status".to_owned(),
        Errno::NOSPC => "the pool's checkpoints have no room for so many segments more: take less of the device".to_owned(),
        Errno::AGAIN => {
            "some dirty data has one copy at the moment, or the other devices have no room for what comes next. Wait until \
             that is over: headpond pool wait"
                .to_owned()
        }
        Errno::INVAL => "the pool cannot do without it, or cannot use it".to_owned(),
        Errno::CANCELED => "it was taken back".to_owned(),
        errno => errno.to_string(),
    }
}

/// Makes a file longer, with all its space.
fn lengthen(file: &File, bytes: u64) -> std::io::Result<()> {
    let there = file.metadata()?.len();
    if bytes > there {
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), there, bytes - there)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Whole blocks.
pub(crate) const fn whole_blocks(size: Size) -> u64 {
    size.0 / BLOCK_U64 * BLOCK_U64
}
