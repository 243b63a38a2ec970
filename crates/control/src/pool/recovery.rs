//! From a flash and an origin to an engine that may start: whose the pool is, what it holds, and which file at the
//! origin each object is.
//!
//! Invariants:
//! - A start writes nothing to the flash before every check has passed, the conflicts included.
//! - Each object with dirty data has a file at the origin that could be opened for writing before the engine starts.
//!   As many stay open as there are descriptors.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use headpond_base::{BLOCK_U64, CacheMode, MemberId, ObjectId, OwnerNumber, PoolId, UnixNanos, hex};
use headpond_engine::{
    Attributes, Mutation, OpenFile, OpenObject, Recovered, RecoveredObject, SecondTail, Verdict, format_members,
};
use headpond_format::{
    Geometry, GeometryError, Identity, MemberName, MemberState, Members, OriginName, Superblock, Witness,
};
use headpond_mount::{KEPT_TIMES_MAX, KeptTime, KnownObject};

use super::flashes::{FlashesContent, HeldFlashes};
use super::resolve::{NamelessFiles, OriginFile, Wanted};
use crate::origin::OriginRoot;
use crate::ownership::{
    Allowed, AwaitedNote, Claim, Failure, Image, Marker, MarkerMember, Ownership, PoolHeld, earlier_claims, judge,
};
use crate::peers::DEPOSED;
use crate::process::{Step, Waiting, boot};
use crate::random::random;
use crate::refusal::{Conflicts, Decisions, Doubtful, ExitStatus, FileConflict, Leftover, Refusal, WinningSide};
use crate::settings::PoolPlan;
use crate::wording::Size;
use crate::wording::clock::utc;

/// A pool ready to be taken into use.
pub(crate) struct Ready {
    /// The pool's state, which agrees with the origin.
    pub(crate) recovered: Recovered,
    /// The pool's id.
    pub(crate) pool: PoolId,
    /// The origin's key.
    pub(crate) key: [u8; 16],
    /// The mode of the pool's last use.
    pub(crate) mode: CacheMode,
    /// The generation of the list of members; 0 for a pool that has had one device only.
    pub(crate) members_generation: u64,
    /// Files with dirty data. Each could be opened.
    pub(crate) files: Vec<DirtyFile>,
    /// The same for the mount.
    pub(crate) known: Vec<KnownObject>,
    /// Status change times of files without dirty data.
    pub(crate) kept_times: Vec<KeptTime>,
    /// The claim of this use. The pool has it from its first checkpoint on.
    pub(crate) claim: Claim,
    /// The owner's number of this use.
    pub(crate) owner: u64,
    /// Notes for the operator.
    pub(crate) notes: Vec<String>,
}

/// A file with dirty data.
pub(crate) struct DirtyFile {
    pub(crate) object: ObjectId,
    pub(crate) found: OriginFile,
    /// The open file, if there were descriptors.
    pub(crate) file: Option<File>,
    /// Whether it has a name by which to open it again.
    pub(crate) has_name: bool,
}

/// What lies beside the origin.
pub(crate) struct Beside<'a> {
    /// The marker, and how far the log was durable.
    pub(crate) awaited: AwaitedNote<'a>,
    /// The note of a pool whose flash failed.
    pub(crate) failure: Option<&'a Failure>,
}

/// How far headpond trusts a pool's content.
enum Trust {
    /// As after an orderly stop or a crash: dirty data counts if the origin is as headpond left it.
    Left,
    /// Not at all: the operator decides on all dirty data, and no clean data counts.
    None(Doubt),
}

/// Why headpond does not trust a pool.
enum Doubt {
    /// Its flash failed, and the origin went on without it.
    Failed { when: String },
    /// It is not the pool that the origin waits for.
    Image(Image),
}

impl Doubt {
    fn refusal(self, flash: &HeldFlashes, marker: Option<&Marker>, left: Vec<FileConflict>) -> Refusal {
        let path = flash.first().path().to_owned();
        match self {
            Self::Failed { when } => Refusal::PoolObsolete { path, when, left: Leftover(left) },
            Self::Image(image) => {
                let since = marker.map_or("later", |marker| &marker.since);
                let what = match image {
                    Image::Older => format!(
                        "is an older image of the pool, from a copy, a snapshot or a clone. A newer one has served the origin since \
                         {since}"
                    ),
                    Image::Elsewhere => format!(
                        "is a copy of the pool that was used elsewhere. Another one has served this origin since {since}"
                    ),
                    Image::Shorter { ends, durable } => format!(
                        "is an older image of the pool, from before its last crash, or its flash lost synced writes. Its log ends \
                         at batch {ends}, but was durable up to batch {durable}. The newer one has served the origin since {since}"
                    ),
                };
                Refusal::PoolImage { path, what, left: Doubtful(left) }
            }
        }
    }

    const fn note(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "the flash failed in an earlier use, so headpond dropped its clean data",
            Self::Image(_) => "the pool was an older image or a copy, so headpond dropped its clean data",
        }
    }
}

/// What a worker has from the last one, once that one's writes are on flash.
#[derive(Default)]
pub(crate) struct Inherited {
    /// Memory for the log's tail.
    pub(crate) tail: Option<SecondTail>,
    /// Files that are open and have no name.
    pub(crate) nameless: NamelessFiles,
}

/// Makes the pool of these flashes ready for the origin, or refuses.
pub(crate) fn make_ready(
    flash: &mut HeldFlashes,
    root: &OriginRoot,
    beside: &Beside<'_>,
    plan: &PoolPlan,
    inherited: Inherited,
    waiting: &Waiting,
) -> Result<Ready, Refusal> {
    let Inherited { tail, nameless } = inherited;
    let allowed = Allowed { format: plan.format, discard_dirty: plan.discard_dirty };
    let planted = planted(plan)?;
    waiting.on(Step::Pool);
    let lay_at = |member| beside.awaited.marker.and_then(|marker| lay_at(marker, member));
    let found = match flash.read(allowed.format, allowed.discard_dirty, planted, lay_at)? {
        FlashesContent::Nothing => None,
        FlashesContent::Pool(recovered) => Some(*recovered),
    };
    if let Some(found) = found.as_ref().filter(|_| !(allowed.format && allowed.discard_dirty)) {
        has_newest_owner(found, flash, beside.awaited.marker, plan.owner)?;
    }
    let held = found.as_ref().map(held);
    let mut notes = Vec::new();
    waiting.on(Step::Origin("the files"));
    let (ownership, trust) = match found.as_ref().map(|found| has_newest_list(found, flash, beside.awaited.marker)) {
        Some(Err(_)) if allowed.discard_dirty => (Ownership::Format, Trust::Left),
        Some(Err(refusal)) => return Err(refusal),
        _ => whose(root, flash, beside, held.as_ref(), allowed)?,
    };
    waiting.on(Step::Pool);
    let (mut recovered, key) = match ownership {
        Ownership::Same(key) | Ownership::Image(key, _) => (kept(found, flash, planted)?, key),
        Ownership::TakeOver => {
            if let Some(name) = held.as_ref().and_then(|held| held.origin.as_ref()) {
                let before = String::from_utf8_lossy(&name.path).into_owned();
                notes.push(format!(
                    "the pool cached {before} before; headpond drops what does not belong to this origin"
                ));
            }
            (kept(found, flash, planted)?, random("a new key")?)
        }
        Ownership::Format => {
            let key = random("a new key")?;
            let mode = plan.mode.unwrap_or_default();
            format(flash, OriginName { key, path: path_bytes(root.path()) }, plan, mode)?;
            (flash.read_again(planted)?, key)
        }
    };
    check_size(flash, &recovered, plan)?;
    check_reserve(flash, &recovered, plan)?;
    if let Some(tail) = tail {
        has_what_was_acknowledged(&recovered, &tail)?;
        recovered.survive_in(tail);
    }
    // The origin's kernel may have direct writes from before a crash in memory only. After this start no one could
    // say which files those were, so no later sync or flush would cover them. The same holds for owners, modes and
    // names after an orderly stop. This comes before the comparison of files, because the writing may move their
    // times.
    let failed = |error| Refusal::OriginFailed { path: root.path().to_owned(), error };
    waiting.on(Step::Sync);
    root.sync_file_system().map_err(failed)?;
    recovered.booted(boot());
    waiting.on(Step::Files);
    let Settled { files, known, mut kept_times } = match trust {
        Trust::Left => settle_objects(&mut recovered, root, &nameless, &plan.decisions, &mut notes)?,
        Trust::None(doubt) => {
            // `--format` of an image decides nothing about its content.
            let undecided = Decisions::default();
            let is_format = plan.format && matches!(doubt, Doubt::Image(_));
            let decisions = if is_format { &undecided } else { &plan.decisions };
            let decided = decide_all(&mut recovered, root, decisions, &mut notes);
            if decided.is_ok() {
                notes.push(doubt.note().to_owned());
            }
            decided.map_err(|undecided| match undecided {
                Undecided::Files(left) => doubt.refusal(flash, beside.awaited.marker, left),
                Undecided::Refused(refusal) => refusal,
            })?
        }
    };
    waiting.on(Step::Pool);
    flash.let_others_go(&mut notes);
    tell_missing(flash, &recovered, beside.awaited.marker, &mut notes);
    flash.allocate()?;
    flash.heal_superblocks(&mut notes);
    recovered.adopt(OriginName { key, path: path_bytes(root.path()) });
    let id = random("a new key")?;
    let claim = Claim {
        epoch: recovered.epoch().0,
        id: hex(&id),
        before: hex(&recovered.superblock().claim),
        earlier: earlier_claims(beside.awaited, recovered.superblock().claim),
        begun: false,
        stopped_at: None,
    };
    recovered.claim(id);
    if let Some(owner) = plan.owner {
        recovered.owned_by(OwnerNumber(owner));
    }
    let superblock = recovered.superblock();
    let (pool, mode, owner) = (superblock.pool, superblock.mode, superblock.owner.0);
    let members_generation = known_members(superblock);
    // Of too many, the last ones stay.
    kept_times.drain(..kept_times.len().saturating_sub(KEPT_TIMES_MAX));
    Ok(Ready { recovered, pool, key, mode, members_generation, files, known, kept_times, claim, owner, notes })
}

/// Refuses a pool without the last writes that the worker before this one acknowledged: a device that alone had them is
/// missing. No later sync would say that they are lost.
fn has_what_was_acknowledged(recovered: &Recovered, tail: &SecondTail) -> Result<(), Refusal> {
    let (pool, ends) = (recovered.superblock().pool, recovered.last_host_batch());
    let Some(last) = tail.last_acknowledged().filter(|last| last.is_lost_in(pool, ends)) else { return Ok(()) };
    let missing: Vec<String> = recovered.missing().iter().map(|member| member.0.to_string()).collect();
    let missing = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
    Err(Refusal::Failed {
        doing: "take over from the last worker".to_owned(),
        error: std::io::Error::other(format!(
            "the pool ends at batch {}, and the last worker had acknowledged batch {}. A device that has it is missing, or \
             refuses to be synced (members: {missing}). Bring it back. To go on without these writes, as after a power \
             failure, unmount and mount again",
            ends.0, last.number.0
        )),
    })
}

/// The generation of a pool's list of members. 0 for a pool that has had one device only.
pub(crate) fn known_members(superblock: &Superblock) -> u64 {
    if superblock.members.given() > 1 { superblock.members.generation() } else { 0 }
}

/// Whether a start with these flashes, by an owner of this number, would find nothing to refuse. With `whole` they must
/// also have each dirty block. Writes nothing, neither to a flash nor at the origin.
pub(crate) fn would_start(
    flash: &mut HeldFlashes,
    root: &OriginRoot,
    beside: &Beside<'_>,
    owner: u64,
    whole: bool,
    decisions: &Decisions,
) -> Result<(), Refusal> {
    let lay_at = |member| beside.awaited.marker.and_then(|marker| lay_at(marker, member));
    let mut recovered = match flash.read(false, false, None, lay_at)? {
        FlashesContent::Pool(recovered) => *recovered,
        FlashesContent::Nothing => {
            let what = "holds nothing".to_owned();
            return Err(Refusal::FlashForeign { path: flash.first().path().to_owned(), what });
        }
    };
    has_newest_owner(&recovered, flash, beside.awaited.marker, Some(owner))?;
    has_newest_list(&recovered, flash, beside.awaited.marker)?;
    if whole {
        flash.have_what_is_dirty(&recovered)?;
    }
    let allowed = Allowed { format: false, discard_dirty: false };
    let (_, trust) = whose(root, flash, beside, Some(&held(&recovered)), allowed)?;
    let mut notes = Vec::new();
    match trust {
        Trust::Left => settle_objects(&mut recovered, root, &NamelessFiles::default(), decisions, &mut notes).map(drop),
        Trust::None(doubt) => match decide_all(&mut recovered, root, decisions, &mut notes) {
            Ok(_) => Ok(()),
            Err(Undecided::Files(left)) => Err(doubt.refusal(flash, beside.awaited.marker, left)),
            Err(Undecided::Refused(refusal)) => Err(refusal),
        },
    }
}

/// Whose the pool is, and how far its data counts.
fn whose(
    root: &OriginRoot,
    flash: &HeldFlashes,
    beside: &Beside<'_>,
    held: Option<&PoolHeld>,
    allowed: Allowed,
) -> Result<(Ownership, Trust), Refusal> {
    let failed = beside.failure.zip(held).filter(|(failure, held)| failure.is_of(&held.pool.to_string()));
    let Some((failure, held)) = failed else {
        let ownership = judge(root.path(), flash.first().path(), beside.awaited, held, allowed)?;
        let trust = match ownership {
            Ownership::Image(_, image) => Trust::None(Doubt::Image(image)),
            _ => Trust::Left,
        };
        return Ok((ownership, trust));
    };
    // A pool that the note names was this origin's, whatever became of the marker. A note that was cut short names
    // none.
    let ownership = if !failure.names(&held.pool.to_string()) {
        judge(root.path(), flash.first().path(), beside.awaited, Some(held), allowed)?
    } else if allowed.discard_dirty || (allowed.format && held.dirty_files == 0) {
        Ownership::Format
    } else {
        held.origin.as_ref().map_or(Ownership::TakeOver, |name| Ownership::Same(name.key))
    };
    let when = failure.when.clone();
    Ok((ownership, if ownership == Ownership::Format { Trust::Left } else { Trust::None(Doubt::Failed { when }) }))
}

/// Where a member lay when the marker was written.
fn lay_at(marker: &Marker, member: MemberId) -> Option<PathBuf> {
    marker.members.iter().find(|one| one.member == member.0).map(|one| one.flash.clone())
}

/// Whether a member that is here knows the newest list of members. If not, only devices that left the pool are here, or
/// that were left alone.
fn has_newest_list(found: &Recovered, flash: &HeldFlashes, marker: Option<&Marker>) -> Result<(), Refusal> {
    let superblock = found.superblock();
    let marker = marker.filter(|marker| marker.pool == superblock.pool.to_string());
    let Some(marker) = marker.filter(|marker| marker.members_generation > superblock.members.generation()) else {
        return Ok(());
    };
    let named = |one: &MarkerMember| one.flash.display().to_string();
    let named: Vec<String> = marker.members.iter().map(named).collect();
    Err(Refusal::Pool {
        path: flash.first().path().to_owned(),
        what: format!(
            "is not all of the pool: since {}, the pool is used with other devices ({}), and goes on without this one",
            marker.since,
            named.join(", ")
        ),
        advice: "Nothing was written. Mount with a --flash for each of those. To drop everything in the pool and make a new one: \
                 --format --discard-dirty",
        status: ExitStatus::MemberMissing,
    })
}

/// Whether no other host has taken the pool over, by the marker.
fn has_newest_owner(
    found: &Recovered,
    flash: &HeldFlashes,
    marker: Option<&Marker>,
    takes: Option<u64>,
) -> Result<(), Refusal> {
    let superblock = found.superblock();
    let own = superblock.owner.0.max(takes.unwrap_or(0));
    let marker = marker.filter(|marker| marker.pool == superblock.pool.to_string() && marker.owner > own);
    marker.map_or(Ok(()), |marker| {
        Err(Refusal::Pool {
            path: flash.first().path().to_owned(),
            what: format!(
                "host {} has taken over the pool since (owner's number {}, this one has {own}), with {}, since {}",
                marker.host,
                marker.owner,
                marker.flash.display(),
                marker.since
            ),
            advice: DEPOSED,
            status: ExitStatus::Deposed,
        })
    })
}

/// Says loudly without which devices the pool starts.
fn tell_missing(flash: &HeldFlashes, recovered: &Recovered, marker: Option<&Marker>, notes: &mut Vec<String>) {
    for (path, why) in flash.absent() {
        notes.push(format!("{}: {why}", path.display()));
    }
    for member in recovered.missing() {
        let lay = marker.and_then(|marker| lay_at(marker, *member));
        let lay = lay.map_or_else(String::new, |path| format!(" ({})", path.display()));
        notes.push(format!(
            "DEGRADED: member {}{lay} of the pool is missing. Nothing is lost, and the pool goes on without it for good. To \
             replace it: headpond pool add MOUNTPOINT FLASH",
            member.0
        ));
    }
}

/// The planted bug that a test asked for.
fn planted(plan: &PoolPlan) -> Result<Option<Mutation>, Refusal> {
    let asked = plan.fault.as_ref().is_some_and(|fault| fault.accept_torn_batch);
    if asked && !Mutation::CAN_BE_PLANTED {
        let what = "--test-fault accept-torn-batch: this build cannot plant bugs. Nothing was written. To build one that can: \
                    cargo build --workspace --bins";
        return Err(Refusal::Usage(what.to_owned()));
    }
    Ok(asked.then_some(Mutation::AcceptTornBatch))
}

fn kept(found: Option<Recovered>, flash: &mut HeldFlashes, planted: Option<Mutation>) -> Result<Recovered, Refusal> {
    match found {
        Some(recovered) => Ok(recovered),
        None => flash.read_again(planted),
    }
}

fn is_dirty(object: &RecoveredObject) -> bool {
    object.dirty || object.dirty_blocks > 0
}

fn held(recovered: &Recovered) -> PoolHeld {
    let objects = recovered.objects();
    let superblock = recovered.superblock();
    PoolHeld {
        pool: superblock.pool,
        origin: superblock.origin.clone(),
        epoch: superblock.epoch,
        claim: superblock.claim,
        counter: superblock.counter,
        host_batch: recovered.last_host_batch().0,
        dirty_files: objects.iter().filter(|object| is_dirty(object)).count(),
        dirty_bytes: objects.iter().map(|object| object.dirty_blocks * BLOCK_U64).sum(),
    }
}

fn format(flash: &mut HeldFlashes, origin: OriginName, plan: &PoolPlan, mode: CacheMode) -> Result<(), Refusal> {
    let pool = PoolId(random("a new key")?);
    let mut devices = Vec::new();
    for one in flash.for_format() {
        devices
            .push((MemberName(random("a new key")?), one.prepare_format(plan.size, plan.reserve.unwrap_or_default())?));
    }
    let path = |bytes: u64| {
        let place = devices.iter().position(|(_, found)| *found == bytes).unwrap_or(0);
        let member = u16::try_from(place).ok().and_then(|member| flash.member(MemberId(member)));
        member.unwrap_or(flash.first()).path().to_owned()
    };
    let (geometry, rows) = Geometry::for_members(&devices, None).map_err(|error| match error {
        GeometryError::TooSmall(bytes) => Refusal::FlashTooSmall {
            path: path(bytes),
            why: format!("{} is too small beside the other devices of the pool", Size(bytes)),
        },
        GeometryError::TooLarge(bytes) => {
            Refusal::Flash { path: path(bytes), why: format!("{} is too large for a pool: {error}", Size(bytes)) }
        }
    })?;
    let too_many = || Refusal::Usage(format!("a pool has at most {} devices", headpond_format::MEMBERS_MAX));
    let mut rows = rows.into_iter();
    let first = rows.next().ok_or_else(too_many)?;
    let with = |list: Members, row| list.with(row).map(|(list, _)| list).ok_or_else(too_many);
    let members = rows.try_fold(Members::first(first), with)?;
    let failed = |member: MemberId, errno: headpond_base::Errno| Refusal::Pool {
        path: flash.member(member).unwrap_or(flash.first()).path().to_owned(),
        what: format!("cannot write to it: {errno}"),
        advice: "Read the kernel's log: the device may be failing.",
        status: ExitStatus::FlashFailed,
    };
    for (at, data) in format_members(pool, &members, geometry, Some(origin), mode) {
        flash.write(at, &data).map_err(|errno| failed(at.member, errno))?;
    }
    flash.members().try_for_each(|(member, one)| one.opened().sync().map_err(|errno| failed(member, errno)))
}

/// A size given for an existing pool must be the pool's own: it cannot change in place.
fn check_size(flash: &HeldFlashes, recovered: &Recovered, plan: &PoolPlan) -> Result<(), Refusal> {
    let members = &recovered.superblock().members;
    let pool_bytes = members.bytes();
    // Of several devices the size is that of those files that are made.
    let has = |size: Size| [size.0 / BLOCK_U64 * BLOCK_U64, plan.reserve.unwrap_or_default().used_of(size.0)];
    match plan.size.filter(|_| members.given() == 1) {
        Some(size) if !has(size).contains(&pool_bytes) => Err(Refusal::Usage(format!(
            "pool: {} has {}, but --size says {size}\n  \
             A pool keeps its size. Mount without --size. To make a new pool of that size after a flush: --format",
            flash.first().path().display(),
            Size(pool_bytes),
        ))),
        _ => Ok(()),
    }
}

/// A reserve given for an existing pool must be the one that it has: a mount changes no sizes.
fn check_reserve(flash: &HeldFlashes, recovered: &Recovered, plan: &PoolPlan) -> Result<(), Refusal> {
    let Some(reserve) = plan.reserve else { return Ok(()) };
    for (member, one) in flash.members() {
        let row = recovered.superblock().members.get(member).filter(|row| row.state == MemberState::InUse);
        let Some(used) = row.map(|row| row.bytes) else { continue };
        // It was made of the whole device, or of the size that was asked for.
        let whole = [Some(one.bytes()), plan.size.map(|size| size.0)];
        if whole.into_iter().flatten().any(|whole| reserve.used_of(whole) == used) {
            continue;
        }
        let wanted = reserve.used_of(one.bytes());
        let (shown, unwritten) = (one.path().display(), one.bytes().saturating_sub(used));
        return Err(Refusal::Usage(format!(
            "pool: {shown} leaves {} of {} unwritten, and not --reserve {reserve}\n  \
             A mount changes no device. Mount without --reserve. To change it then: headpond pool {} MOUNTPOINT {wanted} --flash {shown}",
            Size(unwritten),
            Size(one.bytes()),
            if wanted < used { "shrink" } else { "grow" },
        )));
    }
    Ok(())
}

/// What the mount and the shard must know about files from the start on.
#[derive(Default)]
struct Settled {
    files: Vec<DirtyFile>,
    known: Vec<KnownObject>,
    kept_times: Vec<KeptTime>,
}

/// Makes every object agree with its file at the origin, or refuses with all conflicts at once.
fn settle_objects(
    recovered: &mut Recovered,
    root: &OriginRoot,
    nameless: &NamelessFiles,
    decisions: &Decisions,
    notes: &mut Vec<String>,
) -> Result<Settled, Refusal> {
    let objects = recovered.objects();
    let mut wanted: Vec<Wanted> = objects.iter().map(wanted).collect();
    let without_name: Vec<Option<OriginFile>> = wanted.iter().map(|wanted| nameless.find(wanted)).collect();
    for (wanted, _) in wanted.iter_mut().zip(&without_name).filter(|(_, found)| found.is_some()) {
        // Nobody finds it by a name.
        (wanted.must, wanted.path) = (false, Vec::new());
    }
    let named = root.find(&wanted)?;
    let found: Vec<_> = without_name.iter().zip(named).map(|(found, named)| found.clone().or(named)).collect();
    let (mut conflicts, mut in_conflict) = (Vec::new(), Vec::new());
    let mut settled = Settled::default();
    let (mut dropped, mut doubted) = (0_usize, 0_usize);
    for (object, found) in objects.iter().zip(&found) {
        let file = found.as_ref().map(open_file).map(OpenObject::from);
        let counts = match recovered.reconcile(object.object, file.as_ref()) {
            Verdict::Kept => true,
            verdict @ (Verdict::Dropped | Verdict::Doubted) => {
                *if verdict == Verdict::Dropped { &mut dropped } else { &mut doubted } += 1;
                false
            }
            Verdict::Forgotten => false,
            Verdict::Conflict(conflict) => {
                let path = shown_path(object, found.as_ref());
                in_conflict.push(path.clone());
                match (decisions.side(&path), &file) {
                    (Some(WinningSide::Pool), Some(file)) => {
                        recovered.keep(object.object, file);
                        notes.push(format!("{}: kept the pool's data, as you decided", path.display()));
                        true
                    }
                    (Some(WinningSide::Origin), _) => {
                        recovered.discard(object.object);
                        notes.push(format!("{}: kept the origin's file, as you decided", path.display()));
                        false
                    }
                    _ => {
                        let dirty_bytes = object.dirty_blocks * BLOCK_U64;
                        conflicts.push(FileConflict {
                            path,
                            differs: differs(conflict.left, conflict.found),
                            dirty_bytes,
                        });
                        false
                    }
                }
            }
        };
        if let (true, Some(found)) = (counts, found) {
            let seen = recovered.attributes(object.object).unwrap_or_default();
            let failed = |error| Refusal::from_io("open a file without a name below", root.path(), error);
            let open = nameless.open(found).map_err(failed)?;
            if open.is_some() {
                recovered.has_no_name(object.object);
            }
            match open {
                Some(file) if is_dirty(object) => settled.take_nameless(object.object, seen, found, file),
                None if is_dirty(object) => settled.take_file(object.object, seen, found, root)?,
                _ => settled.keep_time(seen, found),
            }
        }
    }
    if !conflicts.is_empty() {
        return Err(Refusal::Conflict(Conflicts { files: conflicts, unknown: decisions.unknown(&in_conflict) }));
    }
    if dropped > 0 {
        notes.push(format!("{dropped} files changed at the origin since; headpond dropped their clean data"));
    }
    if doubted > 0 {
        notes.push(format!(
            "{doubted} files had a change of mode, owner, attributes or names near the last crash, or since; headpond dropped \
             their clean data"
        ));
    }
    Ok(settled)
}

/// Why a mount refuses a pool that it does not trust.
enum Undecided {
    Files(Vec<FileConflict>),
    Refused(Refusal),
}

impl From<Refusal> for Undecided {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Carries out the operator's decision on each dirty file of a pool that headpond does not trust, and drops
/// everything else in the pool.
fn decide_all(
    recovered: &mut Recovered,
    root: &OriginRoot,
    decisions: &Decisions,
    notes: &mut Vec<String>,
) -> Result<Settled, Undecided> {
    let objects = recovered.objects();
    let wanted: Vec<Wanted> = objects.iter().map(wanted).collect();
    let found = root.find(&wanted)?;
    let mut left = Vec::new();
    let mut settled = Settled::default();
    for (object, found) in objects.iter().zip(&found) {
        // Clean, or its file is missing as it may be.
        if !is_dirty(object) || (found.is_none() && may_be_missing(object)) {
            recovered.discard(object.object);
            continue;
        }
        let path = shown_path(object, found.as_ref());
        match (decisions.side(&path), found) {
            (Some(WinningSide::Pool), Some(found)) => {
                recovered.keep(object.object, &open_file(found).into());
                let seen = recovered.attributes(object.object).unwrap_or_default();
                settled.take_file(object.object, seen, found, root)?;
                notes.push(format!("{}: kept the pool's data, as you decided", path.display()));
            }
            (Some(WinningSide::Origin), _) => {
                recovered.discard(object.object);
                notes.push(format!("{}: kept the origin's file, as you decided", path.display()));
            }
            _ => {
                let was = object.state.witness;
                let unchanged = |found: &OriginFile| {
                    let now = Witness::File(found.stamp);
                    was.shows_the_same(now) && !object.state.status_changed(now)
                };
                let differs = if found.as_ref().is_some_and(unchanged) {
                    "not changed at the origin since".to_owned()
                } else {
                    differs(was, found.as_ref().map(|found| Witness::File(found.stamp)))
                };
                left.push(FileConflict { path, differs, dirty_bytes: object.dirty_blocks * BLOCK_U64 });
            }
        }
    }
    let nothing_said = decisions.keep_pool.is_empty() && decisions.keep_origin.is_empty();
    if !left.is_empty() || nothing_said {
        return Err(Undecided::Files(left));
    }
    Ok(settled)
}

/// How many files with dirty data stay open during the comparison of the others: within any limit of descriptors.
const OPEN_AT_ONCE: usize = 256;

impl Settled {
    /// Opens the file of an object with dirty data, for the shard and for the mount.
    fn take_file(
        &mut self,
        object: ObjectId,
        seen: Attributes,
        found: &OriginFile,
        root: &OriginRoot,
    ) -> Result<(), Refusal> {
        let file = Some(root.open_file(found)?).filter(|_| self.files.len() < OPEN_AT_ONCE);
        self.files.push(DirtyFile { object, found: found.clone(), file, has_name: true });
        self.know(object, seen, found);
        Ok(())
    }

    /// The same for a file that has no name.
    fn take_nameless(&mut self, object: ObjectId, seen: Attributes, found: &OriginFile, file: File) {
        self.files.push(DirtyFile { object, found: found.clone(), file: Some(file), has_name: false });
        self.know(object, seen, found);
    }

    fn know(&mut self, object: ObjectId, seen: Attributes, found: &OriginFile) {
        self.known.push(KnownObject {
            inode: found.inode,
            birth: found.birth,
            object,
            attributes: seen,
            path: found.path.clone(),
        });
    }

    /// A file without dirty data: the mount needs only the status change time that the origin lacks.
    fn keep_time(&mut self, seen: Attributes, found: &OriginFile) {
        let (at_origin, ctime) = (found.stamp.ctime, seen.ctime);
        if ctime != at_origin {
            self.kept_times.push(KeptTime { inode: found.inode, birth: found.birth, at_origin, ctime });
        }
    }
}

/// The file of an object, and whether it justifies a walk over the origin.
///
/// Dirty data always does. A missing file may never have had a durable name, or its removal in the log was carried
/// out. But the file, or a directory above it, may also have moved, which the log does not record yet. Then the
/// removal may never have happened.
fn wanted(object: &RecoveredObject) -> Wanted {
    let state = &object.state;
    // A volume is no file in a directory: nothing is searched for it, and nothing has number 0.
    let (file, must) = state.identity.file().map_or_else(Default::default, |file| (file, is_dirty(object)));
    Wanted { inode: file.inode, birth: file.birth, path: state.path.clone(), must }
}

/// Whether a file may be missing although no other program removed it: its last name went, or none was ever synced.
fn may_be_missing(object: &RecoveredObject) -> bool {
    object.state.flags.unlinked || object.state.flags.unanchored
}

fn open_file(found: &OriginFile) -> OpenFile {
    OpenFile {
        inode: found.inode,
        birth: found.birth,
        path: found.path.clone(),
        stamp: found.stamp,
        created: false,
        // The mount finds this out when it opens the file. This start writes nothing.
        allocated: 0,
    }
}

fn shown_path(object: &RecoveredObject, found: Option<&OriginFile>) -> PathBuf {
    let path = found.map_or(&object.state.path, |found| &found.path);
    match object.state.identity {
        Identity::Volume(id) => PathBuf::from(format!("volume-{id}")),
        Identity::File(file) if path.is_empty() => PathBuf::from(format!("inode-{}", file.inode)),
        Identity::File(_) => PathBuf::from(OsString::from_vec(path.clone())),
    }
}

/// What differs from what headpond left, in words.
fn differs(left: Witness, found: Option<Witness>) -> String {
    let Some(found) = found else {
        return "missing at the origin: only --keep-origin is possible".to_owned();
    };
    let mut differences = Vec::new();
    if left.size() != found.size() {
        differences.push(format!("size is {} bytes and was {}", found.size(), left.size()));
    }
    if left.mtime() != found.mtime() {
        differences.push(format!("modified {}, was {}", time(found.mtime()), time(left.mtime())));
    }
    if differences.is_empty() && left.ctime() != found.ctime() {
        // A program set the time back after its change, or changed only the owner or the mode.
        differences.push(format!(
            "same size and modification time, but status changed {}, was {}",
            time(found.ctime()),
            time(left.ctime())
        ));
    }
    if differences.is_empty() { "changed at the origin".to_owned() } else { differences.join(", ") }
}

fn time(at: UnixNanos) -> String {
    let seconds = at.0.div_euclid(1_000_000_000);
    u64::try_from(seconds).map_or_else(|_| "before 1970".to_owned(), utc)
}

fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}
