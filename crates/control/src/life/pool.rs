//! A pool from its opening to its end. It needs no mount: a mount is a door that is attached to a pool in use.
//!
//! Start: marker lock, flash lock, ownership, recovery, conflicts; then, and only then, the first write: the marker;
//! then the shard. End: dirty data goes to the origin, or stays; then the engine writes its last checkpoint; then the
//! marker goes, or says what is left. A crash between any two of these steps is a crash like any other.
//!
//! Invariants:
//! - [`FoundPool::find`] changes nothing, neither at the origin nor on flash.
//! - While a [`RunningPool`] lives, this process has the locks of the origin and of the flash, and the marker says
//!   so.
//! - The caller of the end has closed the pool's doors: no request comes in any more.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;

use headpond_base::{BLOCK_U64, CacheMode, MemberId, hex};
use headpond_device::{Backend, FaultPlan, Faults, Reactor};
use headpond_engine::{Config, Recovered, Reply, Request};
use headpond_format::{MEMBERS_MAX, MemberState};
use headpond_mount::{KeptTime, KnownObject};
use headpond_shard::{Budget, FileOrigin, Gate, Handle, Limits, Origin, Shard, Term, TermState};
use rustix::fd::{AsFd, OwnedFd};

use super::beat::keep_beating;
use super::ending::{BesideOrigin, Ended, Ending};
use super::last_daemon::{once_free, take_marker};
use super::succession::Left;
use crate::deposed::Deposed;
use crate::devices::PoolDevices;
use crate::history::History;
use crate::leases::{KeptLease, Tenure};
use crate::origin::OriginRoot;
use crate::ownership::{
    AwaitedNote, DURABLE_FILE, DurableLog, DurableNote, LockKeeper, MARKER_VERSION, Marker, MarkerHold, MarkerStanding,
    MarkerState, MountClaim, ObsoleteNote, SharedMarker, keep_up, keep_watch,
};
use crate::peers::Draining;
use crate::pool::{
    ArenaTail, Beside, DirtyFile, HeldFlashes, Inherited, NamelessFiles, Ready, Superblocks, known_members, make_ready,
};
use crate::process::log::log_line;
use crate::process::{Step, Waiting};
use crate::refusal::Refusal;
use crate::service::{MemberFaults, StartedPool, name_devices, rules};
use crate::settings::{Keeper, LiveSettings, Loss, Missed, MissedDevices, PoolPlan, settings_from_file};
use crate::wording::HowMany;
use crate::wording::clock::{unix_seconds, utc};

/// What the operator should know where the system refused the better backend.
const WITHOUT_RING: &str = "io_uring is refused, so threads drive the flash (psync). For the reason: headpond doctor";

/// A pool that was read and agrees with its origin. Nothing has changed yet.
pub(crate) struct FoundPool<'a> {
    plan: &'a PoolPlan,
    root: Arc<OriginRoot>,
    budget: Budget,
    holder: Option<u32>,
    beat: Option<&'static AtomicU64>,
    marker: MarkerHold,
    /// A worker before this one has served the mount.
    follows: bool,
    found: Option<Marker>,
    durable: Option<DurableLog>,
    obsolete: ObsoleteNote,
    had_failed: bool,
    flash: HeldFlashes,
    deposed: Deposed,
    lease: Option<KeptLease>,
    ready: Ready,
    live: LiveSettings,
    devices: PoolDevices,
    history: History,
}

/// What a worker has from those before it, and for those after it.
#[derive(Default)]
pub(crate) struct Inheritance<'a> {
    pub(crate) left: Option<&'a Left>,
    /// The process that keeps the mount, if it is not this one: the marker names it.
    pub(crate) holder: Option<u32>,
    /// Where signs of life are counted.
    pub(crate) beat: Option<&'static AtomicU64>,
    pub(crate) tail: Option<ArenaTail>,
    /// Files of the origin that are open and have no name.
    pub(crate) nameless: Vec<OwnedFd>,
}

/// A pool in use. Requests come in through its handle, and through the doors that are attached to the handle.
pub(crate) struct RunningPool {
    handle: Handle,
    term: Arc<Term>,
    lease: Option<KeptLease>,
    /// The node that gets the pool, once it has ended.
    given_to: Option<String>,
    root: Arc<OriginRoot>,
    gate: Arc<Gate>,
    started: Option<StartedPool>,
    live: LiveSettings,
    faults: MemberFaults,
    devices: PoolDevices,
    history: History,
    beside: BesideOrigin,
    /// Two threads live as long as these: one keeps the note beside the origin up to date, the other watches the
    /// claim.
    keeping: [Sender<()>; 2],
}

/// What the first door needs to know of a pool that was opened.
pub(crate) struct OpenedPool {
    /// Files with something that the origin lacks.
    pub(crate) known: Vec<KnownObject>,
    /// Status change times of files without dirty data.
    pub(crate) kept_times: Vec<KeptTime>,
    /// What the operator should know.
    pub(crate) notes: Vec<String>,
    /// Whether the pool's last use did not end in order.
    pub(crate) after_crash: bool,
}

impl<'a> FoundPool<'a> {
    /// Takes the locks of the origin and of the flashes at `paths`, and reads the pool. What the last worker left comes
    /// first: its open flash, and what it had not written there yet.
    pub(crate) fn find(
        plan: &'a PoolPlan,
        root: &Arc<OriginRoot>,
        paths: &[PathBuf],
        budget: Budget,
        inheritance: Inheritance<'_>,
        waiting: &Waiting,
    ) -> Result<Self, Refusal> {
        let Inheritance { left, holder, beat, tail, nameless } = inheritance;
        let from_file = settings_from_file(plan)?;
        waiting.on(Step::Origin("the lock beside the data"));
        let kept = left.and_then(Left::origin_lock).map(|lock| MarkerHold::take_over(root, lock)).transpose()?;
        let marker = match kept.flatten() {
            Some(marker) => marker,
            None => take_marker(root, plan.owner.filter(|_| plan.lease.is_some()))?,
        };
        waiting.on(Step::Origin("the files"));
        let found = match marker.read() {
            Err(Refusal::Marker { .. }) if plan.discard_dirty => None,
            found => found?,
        };
        waiting.on(Step::Pool);
        let flash = match left {
            Some(left) => HeldFlashes::taken_over(left.flashes()?)?,
            None => once_free(|| HeldFlashes::take(paths, plan.size, plan.fill, plan.reserve.unwrap_or_default()))?,
        };
        let mut flash = flash.beating(beat);
        let (deposed, draining) = (Deposed::default(), Draining::default());
        let mut lease = None;
        if let Some(asked) = plan.lease.as_ref().filter(|_| !plan.format) {
            // What a worker before this one wrote may be in a device's memory alone: the registry must not know of a list
            // of members that a start after a power cut does not find. A device that refuses a sync tells nothing here.
            let newest = flash.newest_durable()?;
            // Before anything is changed, and before a long recovery.
            if let Some(newest) = newest {
                let owner = plan.owner.unwrap_or(newest.owner.0);
                let tenure = Tenure { pool: newest.pool, owner, members: known_members(&newest) };
                lease = Some(KeptLease::take(asked, tenure, &deposed, left.is_some(), waiting)?);
                waiting.on(Step::Pool);
            }
        }
        if !plan.format {
            flash.invite(&plan.peers, &deposed, &draining)?;
        }
        let tail = tail.map(|tail| tail.bring_to(&mut flash)).transpose()?;
        let nameless = NamelessFiles::of(nameless, root);
        let nameless =
            nameless.map_err(|error| Refusal::from_io("look at files without a name below", root.path(), error))?;
        let inherited = Inherited { tail, nameless };
        waiting.on(Step::Origin("the files"));
        let obsolete = ObsoleteNote::in_dir(marker.dir().clone());
        let failure = obsolete.read()?;
        let durable = DurableLog::read(marker.dir())?;
        let awaited = AwaitedNote { marker: found.as_ref(), durable: durable.as_ref() };
        let beside = Beside { awaited, failure: failure.as_ref() };
        let mut ready = make_ready(&mut flash, root, &beside, plan, inherited, waiting)?;
        if let Some(plan) = plan.lease.as_ref().filter(|_| lease.is_none()) {
            let tenure = Tenure { pool: ready.pool, owner: ready.owner, members: ready.members_generation };
            lease = Some(KeptLease::take(plan, tenure, &deposed, false, waiting)?);
        }
        let devices = flash.devices(&ready.recovered.superblock().members, draining)?;
        for peer in &plan.peers {
            devices.name_peer(peer);
        }
        for member in found.iter().flat_map(|marker: &Marker| &marker.members) {
            if !devices.has(MemberId(member.member)) {
                devices.was_at(MemberId(member.member), member.flash.clone());
            }
        }
        let keeper = Keeper::open(devices.clone(), ready.pool);
        let live = LiveSettings::at_start(keeper, ready.mode, &from_file, plan, &mut ready.notes)?;
        note_missed(live.missed(), &ready.recovered, &devices);
        let history = History::of(&devices, &ready.recovered.superblock().geometry, ready.pool);
        let had_failed = failure.is_some();
        Ok(Self {
            plan,
            root: root.clone(),
            budget,
            holder,
            beat,
            marker,
            follows: left.is_some(),
            found,
            durable,
            obsolete,
            had_failed,
            flash,
            deposed,
            lease,
            ready,
            live,
            devices,
            history,
        })
    }

    /// Takes the pool into use. The marker names the mount point of the first door, if that is a mount.
    pub(crate) fn start(
        self,
        mountpoint: Option<&Path>,
        waiting: &Waiting,
    ) -> Result<(RunningPool, OpenedPool), Refusal> {
        let Self {
            plan,
            root,
            marker,
            follows,
            found,
            durable,
            obsolete,
            mut flash,
            deposed,
            mut lease,
            mut ready,
            live,
            ..
        } = self;
        let (reactor, faults) = with_faults(flash.start(plan.backend)?, plan.fault.as_ref());
        if plan.backend == Backend::Auto && reactor.name() == "psync" {
            ready.notes.push(WITHOUT_RING.to_owned());
        }
        let mut claim = Marker {
            about: Marker::about(),
            version: MARKER_VERSION,
            state: MarkerState::Mounted,
            origin_key: hex(&ready.key),
            pool: ready.pool.to_string(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            flash: PathBuf::new(),
            members: Vec::new(),
            members_generation: ready.members_generation,
            mountpoint: mountpoint.map(Path::to_owned).unwrap_or_default(),
            pid: self.holder.unwrap_or_else(std::process::id),
            since: utc(unix_seconds()),
            dirty_bytes: 0,
            claim: Some(ready.claim),
            owner: ready.owner,
        };
        name_devices(&mut claim, &self.devices);
        let own = MountClaim::new(&marker, &claim, root.path().to_owned(), deposed.clone());
        let gate = Arc::new(Gate::new(Arc::new(own)).within(deposed.term().clone()));
        let doubted = Arc::downgrade(&gate);
        deposed.then(move || {
            if let Some(gate) = doubted.upgrade() {
                gate.doubt();
            }
        });
        let shared = marker.share(claim.clone());
        let tell = tell_members(&shared, &self.devices, lease.as_ref());
        let pool = ready.pool.to_string();
        let origin = open_origin(&root, plan, (obsolete.clone(), pool), tell, gate.clone(), self.budget)?;
        waiting.on(Step::Origin("the files"));
        let dirty_files = ready.files.len() as u64;
        for DirtyFile { object, found, file, has_name } in ready.files {
            let file = file.map_or_else(|| root.open_file(&found), Ok)?;
            if has_name {
                origin.attach_lasting(object, file, root.again(found));
            } else {
                origin.attach(object, file);
            }
        }

        marker.write_over(found.as_ref(), durable.as_ref(), &claim, follows)?;
        waiting.on(Step::Pool);
        flash.settle();
        if let Err(error) = live.keep() {
            ready.notes.push(format!("cannot write the settings to the pool: {error}"));
        }
        if dirty_files > 0 && live.now().mode() != CacheMode::WriteBack {
            ready.notes.push(format!(
                "dirty data that an earlier mount left in the pool ({}) goes to the origin as the settings say. To bring it there \
                 now: headpond flush",
                HowMany(dirty_files, "file")
            ));
        }
        let after_crash = !ready.recovered.superblock().clean_stop;
        let capacity = ready.recovered.superblock().geometry.data_blocks() * BLOCK_U64;
        let list = &ready.recovered.superblock().members;
        let of = |state| list.iter().filter(move |(_, member)| member.state == state).map(|(id, _)| id);
        let started = StartedPool {
            pool: ready.pool,
            geometry: ready.recovered.superblock().geometry,
            leaving: of(MemberState::Emptied).collect(),
            missing: ready.recovered.missing().to_vec(),
            owner: ready.owner,
            epoch: ready.recovered.epoch().0,
            deposed: deposed.clone(),
        };
        let config = rules::config(&live.now(), &live.rules().now(), capacity);
        let engine = ready.recovered.into_engine(config, headpond_shard::now());
        let failed = |doing: &str, error| Refusal::Failed { doing: doing.to_owned(), error };
        let handle = Shard::start_for(engine, reactor, origin, Limits::default(), deposed.term().clone())
            .map_err(|error| failed("start the shard's threads", error))?;
        if let Some(beat) = self.beat {
            // A large map is written for as long as that takes.
            keep_beating(handle.clone(), beat)
                .map_err(|error| failed("start the thread of the signs of life", error))?;
        }
        begin(&handle, config, &marker, &shared);
        let note = begin_note(&handle, &marker, &claim);
        if self.had_failed {
            forget_failure(&handle, &obsolete);
        }
        let watch = keep_watch(gate.clone()).map_err(|error| failed("start the watch of the claim", error))?;
        let keep = keep_up(note.clone(), handle.clone(), gate.clone())
            .map_err(|error| failed("start the thread of the note beside the origin", error))?;
        if let Some(lease) = &mut lease {
            lease.is_in_use();
        }
        let pool = RunningPool {
            handle,
            term: deposed.term().clone(),
            lease,
            given_to: None,
            root,
            gate,
            started: Some(started),
            live,
            faults,
            devices: self.devices,
            history: self.history,
            beside: BesideOrigin { marker, note, claim: shared },
            keeping: [keep, watch],
        };
        Ok((pool, OpenedPool { known: ready.known, kept_times: ready.kept_times, notes: ready.notes, after_crash }))
    }
}

/// Brings what is known of the devices that the pool misses up to what the list of members says, and this start found.
fn note_missed(known: &MissedDevices, recovered: &Recovered, devices: &PoolDevices) {
    let list = &recovered.superblock().members;
    let absent = recovered.missing();
    // The list without those that are not here is still to be written.
    let is_new = |member: MemberId| {
        absent.contains(&member) && list.get(member).is_some_and(|row| row.state == MemberState::InUse)
    };
    let was = |member: MemberId| list.get(member).is_some_and(|row| row.missed);
    known.keep_only(was);
    for missed in known.all() {
        devices.was_at(missed.member, missed.path);
    }
    for member in list.iter().map(|(member, _)| member).filter(|member| was(*member) || is_new(*member)) {
        let path = devices.path_of(member);
        let since = if is_new(member) { unix_seconds() } else { 0 };
        known.note(Missed { member, path, since, loss: Loss::Absent });
    }
}

impl RunningPool {
    /// The handle through which requests come in and doors are attached.
    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The directory that owns the data.
    pub(crate) const fn root(&self) -> &Arc<OriginRoot> {
        &self.root
    }

    /// The gate that each change of the origin passes.
    pub(crate) const fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The note beside the origin.
    pub(crate) const fn note(&self) -> &Arc<DurableNote> {
        &self.beside.note
    }

    /// From now on another process keeps the lock of the origin, too.
    pub(crate) fn lock_kept_by(&self, keeper: Box<LockKeeper>) -> std::io::Result<()> {
        self.beside.marker.lock_kept_by(keeper)
    }

    /// What its start knew of its members. Only the first call gets it.
    pub(crate) fn started(&mut self) -> Option<StartedPool> {
        self.started.take()
    }

    /// The marker of this use.
    pub(crate) const fn marker(&self) -> &SharedMarker {
        &self.beside.claim
    }

    /// Its settings and rules.
    pub(crate) const fn settings(&self) -> &LiveSettings {
        &self.live
    }

    /// What it was like.
    pub(crate) const fn history(&self) -> &History {
        &self.history
    }

    /// Its devices, with their locks.
    pub(crate) const fn devices(&self) -> &PoolDevices {
        &self.devices
    }

    /// What makes its devices fail, if a test asked for it.
    pub(crate) const fn faults(&self) -> &MemberFaults {
        &self.faults
    }

    /// Ends the pool. With `flush` the origin first gets everything, unless `flush` returns true, which means: end
    /// now.
    pub(crate) fn end(self, flush: Option<&mut dyn FnMut() -> bool>) -> Ended {
        let ending = Ending { handle: &self.handle, root: &self.root, gate: &self.gate };
        let mut ended = ending.end(flush);
        ending.settle_marker(self.beside, &Superblocks::of(self.devices.clone()), &mut ended);
        drop(self.keeping);
        if let Some(lease) = self.lease {
            // Who follows takes its word that nothing of this host is on its way to the origin any more.
            let in_order = ended.trouble.is_none() && ended.stopped && ending.sync_origin().is_ok();
            let complete = in_order && self.handle.stats().exposed_blocks == 0;
            if let Some(to) = &self.given_to {
                let said = if complete {
                    format!("It is given to {to}, which has them in its copy")
                } else {
                    format!("It is NOT given to {to}: it did not end in order, or the copy was lost. Mount again here")
                };
                ended.note = Some(said);
            }
            if in_order {
                lease.leave(self.given_to.as_deref().filter(|_| complete));
            } else {
                lease.stop();
            }
        }
        ended
    }

    /// The mount is about to end, or is not: requests that wait for a lease give up.
    pub(crate) fn leaves(&self, leaves: bool) {
        self.term.leaving(leaves);
    }

    /// Whether this host may act as the owner now.
    pub(crate) fn is_owner(&self) -> bool {
        self.term.state() == TermState::Stands
    }

    /// This host's name in the registry, if the pool has a lease.
    pub(crate) fn node(&self) -> Option<&str> {
        self.lease.as_ref().map(KeptLease::node)
    }

    /// Once it has ended, the pool is this node's.
    pub(crate) fn hand_to(&mut self, node: String) {
        self.given_to = Some(node);
    }
}

/// How many members may have faults in a test, those that come later included.
const FAULTY_MEMBERS: u16 = MEMBERS_MAX as u16;

/// The flash as it is, or with the faults that a test asked for: a layer for each member that there is or may be.
fn with_faults(reactor: Box<dyn Reactor>, fault: Option<&FaultPlan>) -> (Box<dyn Reactor>, MemberFaults) {
    let Some(fault) = fault else { return (reactor, MemberFaults::default()) };
    log_line(format_args!("FOR TESTS ONLY: this flash fails on purpose: {fault:?}"));
    let mut handles = Vec::new();
    let mut layers = reactor;
    for member in (0..FAULTY_MEMBERS).map(MemberId) {
        let reactor = Faults::new(layers, member, fault.clone());
        handles.push((member, reactor.handle()));
        layers = Box::new(reactor);
    }
    (layers, MemberFaults::of(handles))
}

/// Makes the claim durable in the pool, with the engine's first checkpoint and before the first write can come in.
/// From then on an image of the pool from before this start can be told from it. The same checkpoint makes everything
/// durable that this start found and decided. So a start after a kill does not ask the operator again, and a new file
/// may get the inode number of one that the pool was told to forget.
fn begin(handle: &Handle, config: Config, marker: &MarkerHold, shared: &SharedMarker) {
    // The engine has this configuration already. But every request waits for that checkpoint, and this one does
    // nothing else.
    let configured = handle.call(Request::Configure(Box::new(config)));
    let stats = handle.stats().engine;
    if matches!(configured, Reply::Failed(_)) || stats.checkpoints == 0 || stats.flash_failed != 0 {
        return;
    }
    // If the marker is not ours, the gate lets nothing pass to the origin, and says why.
    let is_ours = matches!(marker.watch(&shared.now()).look(), Ok(MarkerStanding::Ours));
    let begun = |marker: &mut Marker| {
        if let Some(claim) = &mut marker.claim {
            claim.begun = true;
        }
    };
    if is_ours && let Err(error) = shared.change(begun) {
        log_line(Refusal::from_io("write the marker beside", marker.dir().root().path(), error));
    }
}

/// The note for this use on how far the log is durable. If it cannot be made, the mount serves all the same: only an
/// image of the flash from this very use can then not be recognised after a crash.
fn begin_note(handle: &Handle, marker: &MarkerHold, claim: &Marker) -> Arc<DurableNote> {
    let id = claim.claim.as_ref().map_or("", |claim| &claim.id);
    let note = DurableNote::new(marker.dir().clone(), id);
    if let Err(error) = note.say(handle.stats().engine.durable_host_batch) {
        log_line(format_args!("{}: {error}", marker.dir().path(DURABLE_FILE).display()));
    }
    Arc::new(note)
}

/// Removes the note of a failed pool once the decisions on it are durable: with the engine's first checkpoint, for
/// which every request waits. If the flash fails again, or the note cannot be removed, it stays, and the next start
/// asks again.
fn forget_failure(handle: &Handle, note: &ObsoleteNote) {
    let durable = !matches!(handle.call(Request::SyncAll), Reply::Failed(_));
    if !durable || handle.stats().engine.flash_failed != 0 {
        log_line("the flash fails again: the pool caches nothing, and the note of its failure stays");
    } else if let Err(refusal) = note.remove() {
        log_line(refusal);
    }
}

/// A second descriptor of the origin: the directory that was opened first, wherever its path leads by now.
pub(crate) fn duplicate(root: &OriginRoot) -> std::io::Result<OwnedFd> {
    root.as_fd().try_clone_to_owned()
}

/// Tells of a new list of members, durably, wherever one looks for it: then a sync that waits for it is answered.
fn tell_members(
    marker: &SharedMarker,
    devices: &PoolDevices,
    lease: Option<&KeptLease>,
) -> Box<dyn Fn(u64) -> std::io::Result<()> + Send + Sync> {
    let (marker, devices) = (marker.clone(), devices.clone());
    let registry = lease.map(KeptLease::teller);
    Box::new(move |generation| {
        // The registry first: a marker that is ahead of it would refuse the very copy that the registry lets take over.
        registry.as_ref().map_or(Ok(()), |tell| tell(generation))?;
        marker.change(|marker| {
            name_devices(marker, &devices);
            marker.members_generation = generation;
        })
    })
}

/// The origin's files, behind the gate. If the pool fails, a note says so under the pool's name.
fn open_origin(
    root: &OriginRoot,
    plan: &PoolPlan,
    (obsolete, pool): (ObsoleteNote, String),
    tell_members: Box<dyn Fn(u64) -> std::io::Result<()> + Send + Sync>,
    gate: Arc<Gate>,
    budget: Budget,
) -> Result<Arc<dyn Origin>, Refusal> {
    let failed = |error: std::io::Error| Refusal::from_io("open the origin", root.path(), error);
    let files = duplicate(root).and_then(|root| FileOrigin::below_within(root, budget)).map_err(failed)?;
    files.guard(gate);
    files.when_pool_fails(Box::new(move || obsolete.write(&pool)));
    files.when_members_change(tell_members);
    Ok(match &plan.origin_layer {
        Some(layer) => layer.put_before(files),
        None => Arc::new(files),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::time::UNIX_EPOCH;

    use headpond_base::{BufMut, ObjectId, UnixNanos};
    use headpond_device::Fill;
    use headpond_engine::{OpenFile, Treatment};
    use headpond_format::Stamp;

    use super::*;
    use crate::refusal::Decisions;
    use crate::wording::Size;

    fn plan(dir: &Path) -> PoolPlan {
        PoolPlan {
            origin: dir.join("origin"),
            flashes: vec![dir.join("flash")],
            peers: Vec::new(),
            lease: None,
            owner: None,
            redundancy: None,
            copies: None,
            size: Some(Size(64 << 20)),
            reserve: None,
            mode: None,
            config: None,
            backend: Backend::Auto,
            fill: Fill::Reserved,
            origin_layer: None,
            fault: None,
            format: false,
            discard_dirty: false,
            decisions: Decisions::default(),
        }
    }

    /// A pool in use, without a mount or any other door.
    fn start(plan: &PoolPlan) -> (RunningPool, OpenedPool) {
        let root = Arc::new(OriginRoot::open(&plan.origin).unwrap());
        let waiting = Waiting::for_origin(&plan.origin, None);
        let before = Marker::beside(&plan.origin);
        let found = FoundPool::find(plan, &root, &plan.flashes, Budget::of_process(), Inheritance::default(), &waiting)
            .unwrap();
        assert_eq!(Marker::beside(&plan.origin), before, "nothing is changed yet");
        found.start(None, &waiting).unwrap()
    }

    /// Opens the one file, as a door does.
    fn open(pool: &RunningPool, path: &Path) -> ObjectId {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let found = file.metadata().unwrap();
        let nanos = |seconds: i64, nanos: i64| UnixNanos(seconds * 1_000_000_000 + nanos);
        let stamp = Stamp {
            size: found.len(),
            mtime: nanos(found.mtime(), found.mtime_nsec()),
            ctime: nanos(found.ctime(), found.ctime_nsec()),
        };
        // Not every file system has birth times.
        let since = found.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok());
        let birth = UnixNanos(since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap()));
        let path = path.file_name().unwrap().as_encoded_bytes().to_vec();
        let asked = OpenFile { inode: found.ino(), birth, path, stamp, created: false, allocated: 0 };
        match pool.handle().call(Request::Open(asked.into())) {
            Reply::Opened { object, .. } => {
                pool.handle().origin().attach(object, file);
                object
            }
            other => panic!("not opened: {other:?}"),
        }
    }

    fn read(pool: &RunningPool, object: ObjectId) -> Vec<u8> {
        match pool.handle().call(Request::Read { object, offset: 0, len: 8192, how: Treatment::default() }) {
            Reply::Data(pieces, _) => pieces.iter().flat_map(|piece| piece.to_vec()).collect(),
            other => panic!("not data: {other:?}"),
        }
    }

    fn write(pool: &RunningPool, object: ObjectId, bytes: &[u8]) {
        let (data, mtime) = (BufMut::copy_of(bytes).freeze(), UnixNanos(1_700_000_000_000_000_000));
        let request = Request::Write { object, offset: 0, data, mtime, durable: false, how: Treatment::default() };
        assert!(!matches!(pool.handle().call(request), Reply::Failed(_)));
    }

    /// Ends a pool with all of its threads.
    fn end(pool: RunningPool, flush: bool) -> Ended {
        let handle = pool.handle().clone();
        let mut never = || false;
        let ended = pool.end(if flush { Some(&mut never) } else { None });
        handle.stop().unwrap();
        ended
    }

    #[test]
    fn a_pool_is_opened_used_ended_and_opened_again_without_any_mount() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path());
        fs::create_dir(&plan.origin).unwrap();
        let file = plan.origin.join("file");
        fs::write(&file, [1; 8192]).unwrap();

        let (pool, opened) = start(&plan);
        assert!(opened.known.is_empty());
        let marker = Marker::beside(&plan.origin).unwrap();
        assert_eq!((marker.state, marker.mountpoint.as_os_str().len()), (MarkerState::Mounted, 0));
        let object = open(&pool, &file);
        write(&pool, object, &[2; 4096]);
        assert_eq!(read(&pool, object), [[2; 4096], [1; 4096]].concat());
        let ended = end(pool, false);
        assert_eq!((ended.dirty_files, ended.dirty_bytes, ended.stopped), (1, 4096, true), "{ended}");
        assert_eq!(fs::read(&file).unwrap(), [1; 8192], "the pool alone has what was written");
        assert_eq!(Marker::beside(&plan.origin).unwrap().state, MarkerState::DirtyLeft);

        // A second life, in the same process.
        let (pool, opened) = start(&plan);
        assert_eq!(opened.known.len(), 1);
        let object = open(&pool, &file);
        assert_eq!(read(&pool, object), [[2; 4096], [1; 4096]].concat());
        let ended = end(pool, true);
        assert!(ended.is_complete() && ended.stopped, "{ended}");
        assert_eq!(fs::read(&file).unwrap(), [[2; 4096], [1; 4096]].concat());
        assert!(Marker::beside(&plan.origin).is_none(), "an origin that is complete has no marker");
    }
}
