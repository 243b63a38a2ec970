//! All flashes of a start: those that the operator named, which of them are here, and which member each is.
//!
//! Invariants:
//! - While one of them holds a pool, none is made: a device that is missing must not be replaced by a new, empty file.
//! - Nothing of a device that is no member counts. It is let go once the pool is read, as it was.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use headpond_base::{Buf, Errno, MemberId};
use headpond_device::{Backend, Fill, Reactor, TrimPolicy, start_reactor};
use headpond_engine::{Device, FlashRead, Mutation, Present, RecoverError, Recovered, recover_members};
use headpond_format::{Address, Members, Superblock};
use headpond_shard::FlashReader;

use super::flash::{FlashContent, HeldFlash, refusal};
use crate::deposed::Deposed;
use crate::devices::{DeviceFile, PoolDevice, PoolDevices};
use crate::peers::{Asking, Draining, PeerPlan, PeerTrouble};
use crate::process::log::log_line;
use crate::refusal::{ExitStatus, Refusal};
use crate::reserve::Reserve;
use crate::wording::Size;

/// The flashes of one start.
#[derive(Debug)]
pub(crate) struct HeldFlashes {
    held: Vec<HeldFlash>,
    /// What each of those is to the pool, once that is known.
    members: Vec<Option<MemberId>>,
    /// Those that were named and are not here, and why.
    absent: Vec<(PathBuf, String)>,
    /// Another worker left them. It may have died while one joined, or left: that one is no member, and no mistake.
    inherited: bool,
    /// Where signs of life are counted.
    beat: Option<&'static AtomicU64>,
}

/// Reads for recovery. Each is a sign of life.
struct BeatingReader<'a> {
    flash: FlashReader<'a>,
    beat: Option<&'static AtomicU64>,
}

impl FlashRead for BeatingReader<'_> {
    fn read(&mut self, offset: u64, len: usize) -> headpond_base::Result<Buf> {
        if let Some(beat) = self.beat {
            beat.fetch_add(1, Ordering::Relaxed);
        }
        self.flash.read(offset, len)
    }
}

/// What the flashes hold together.
pub(crate) enum FlashesContent {
    /// Nothing that counts.
    Nothing,
    /// A pool.
    Pool(Box<Recovered>),
}

impl HeldFlashes {
    /// Takes each flash for this process. Makes those that do not exist, unless another one holds a pool.
    ///
    /// # Errors
    /// Those of [`HeldFlash::take`]. With several, one that is missing or cannot be opened is none, if another holds a
    /// pool.
    pub(crate) fn take(paths: &[PathBuf], size: Option<Size>, fill: Fill, reserve: Reserve) -> Result<Self, Refusal> {
        let (mut held, mut absent) = (Vec::new(), Vec::new());
        if let [path] = paths {
            held.push(HeldFlash::take(path, size, fill, reserve)?);
            return Ok(Self::of(held, absent));
        }
        let mut missing = Vec::new();
        for path in paths {
            let is_empty = std::fs::metadata(path).map(|file| file.is_file() && file.len() == 0);
            match is_empty {
                Ok(false) => match HeldFlash::take(path, None, fill, reserve) {
                    Ok(flash) => held.push(flash),
                    // A device that fails when it is opened is as good as missing.
                    Err(refusal @ Refusal::Failed { .. }) => absent.push((path.clone(), refusal.to_string())),
                    Err(refusal) => return Err(refusal),
                },
                _ => missing.push(path.clone()),
            }
        }
        let holds_pool =
            |flash: &HeldFlash| !matches!(flash.recognise(), Ok(FlashContent::Nothing | FlashContent::Foreign(_)));
        if held.iter().any(holds_pool) {
            absent.extend(missing.into_iter().map(|path| (path, "is missing, or empty".to_owned())));
            return Ok(Self::of(held, absent));
        }
        if let Some((path, why)) = absent.into_iter().next() {
            return Err(Refusal::Flash { path, why });
        }
        let mut all = Vec::with_capacity(paths.len());
        for path in paths {
            match held.iter().position(|flash| flash.path() == path) {
                Some(place) => all.push(held.remove(place)),
                None => all.push(HeldFlash::take(path, size, fill, reserve)?),
            }
        }
        Ok(Self::of(all, Vec::new()))
    }

    /// Takes over the open flashes of the worker that died, with their locks.
    ///
    /// # Errors
    /// If one cannot be measured.
    pub(crate) fn taken_over(left: Vec<(File, &Path)>) -> Result<Self, Refusal> {
        let held = left.into_iter().map(|(file, path)| HeldFlash::taken_over(file, path));
        Ok(Self { inherited: true, ..Self::of(held.collect::<Result<_, _>>()?, Vec::new()) })
    }

    /// The newest superblock that is durable, if the devices are those of a pool.
    ///
    /// # Errors
    /// If no device can be synced.
    pub(crate) fn newest_durable(&self) -> Result<Option<Box<Superblock>>, Refusal> {
        let mut refusal = None;
        let mut durable = Vec::with_capacity(self.held.len());
        for flash in &self.held {
            match flash.opened().sync() {
                Ok(()) => durable.push(flash),
                Err(errno) => refusal = Some(flash.unreadable(errno)),
            }
        }
        match refusal.filter(|_| durable.is_empty()) {
            Some(refusal) => Err(refusal),
            None => Ok(newest_of(durable)),
        }
    }

    /// The newest superblock, if the devices are those of a pool.
    pub(crate) fn newest(&self) -> Option<Box<Superblock>> {
        newest_of(&self.held)
    }

    /// Connects with those of these peers that have a copy of the pool, if the pool has some. One that cannot be had
    /// is as good as a missing device. Each is asked, as each may know that another host has the pool.
    ///
    /// # Errors
    /// If one says so.
    pub(crate) fn invite(&mut self, peers: &[PeerPlan], deposed: &Deposed, draining: &Draining) -> Result<(), Refusal> {
        let Some(newest) = self.newest() else { return Ok(()) };
        let mut absent = Vec::new();
        let mut found = Vec::new();
        for peer in peers {
            let why = match peer.find(Asking::with(&newest), deposed, draining) {
                Err(PeerTrouble::Deposed(refusal)) => return Err(refusal),
                Ok(flash) => {
                    let flash = HeldFlash::of_peer(flash, false);
                    if is_copy(&newest.members, &flash) {
                        found.push(flash);
                        continue;
                    }
                    "has no copy that counts any more".to_owned()
                }
                Err(PeerTrouble::NotKept) => "keeps nothing of this pool that counts any more".to_owned(),
                Err(PeerTrouble::Away(why)) => why,
            };
            absent.push((peer.path().to_owned(), why));
        }
        let wanted = newest.members.iter().filter(|(_, row)| row.keeps_copies()).count();
        if found.len() < wanted {
            self.absent.extend(absent);
        }
        if !found.is_empty() {
            self.held.extend(found);
            self.members = vec![None; self.held.len()];
        }
        Ok(())
    }

    /// The same. Each read of its log is a sign of life.
    pub(crate) fn beating(self, beat: Option<&'static AtomicU64>) -> Self {
        Self { beat, ..self }
    }

    fn of(held: Vec<HeldFlash>, absent: Vec<(PathBuf, String)>) -> Self {
        let members = if held.len() == 1 { vec![Some(MemberId(0))] } else { vec![None; held.len()] };
        Self { held, members, absent, inherited: false, beat: None }
    }

    /// The flash that stands for all in a message: the first.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn first(&self) -> &HeldFlash {
        self.held.first().expect("a pool has a flash")
    }

    /// Those that were named and are not here, and why.
    pub(crate) fn absent(&self) -> &[(PathBuf, String)] {
        &self.absent
    }

    /// The members that are here.
    pub(crate) fn members(&self) -> impl Iterator<Item = (MemberId, &HeldFlash)> {
        self.members.iter().zip(&self.held).filter_map(|(member, flash)| Some(((*member)?, flash)))
    }

    /// The flash of one member.
    pub(crate) fn member(&self, member: MemberId) -> Option<&HeldFlash> {
        self.members().find(|(id, _)| *id == member).map(|(_, flash)| flash)
    }

    /// Each flash, for a pool that is made anew on all of them. From now on the first is the first member, and so on.
    pub(crate) fn for_format(&mut self) -> &mut [HeldFlash] {
        self.members = (0..).map(MemberId).map(Some).take(self.held.len()).collect();
        self.absent.clear();
        &mut self.held
    }

    /// Reads what the flashes hold together. With `format` what is no pool may be overwritten; with `drops` also what
    /// cannot be read.
    ///
    /// # Errors
    /// Why they cannot be used as they are.
    pub(crate) fn read(
        &mut self,
        format: bool,
        drops: bool,
        planted: Option<Mutation>,
        lay_at: impl Fn(MemberId) -> Option<PathBuf>,
    ) -> Result<FlashesContent, Refusal> {
        let contents: Vec<FlashContent> = match &self.held[..] {
            [flash] => vec![flash.recognise()?],
            // One that cannot be read is as good as missing, if another says what the pool is.
            held => held
                .iter()
                .map(|flash| flash.recognise().unwrap_or_else(|refusal| FlashContent::Failing(refusal.to_string())))
                .collect(),
        };
        let foreign = |content: &FlashContent| matches!(content, FlashContent::Foreign(_) | FlashContent::Nothing);
        let is_new = contents.iter().all(foreign);
        let skips_foreign = format || (self.inherited && !is_new);
        for (content, flash) in contents.iter().zip(&self.held) {
            let path = flash.path().to_owned();
            match content {
                FlashContent::Foreign(_) | FlashContent::Nothing if skips_foreign => {}
                FlashContent::Foreign(what) => return Err(Refusal::FlashForeign { path, what: what.clone() }),
                FlashContent::Nothing if is_new => {}
                FlashContent::Nothing => return Err(not_a_member(path, "holds nothing")),
                FlashContent::Unreadable(_) | FlashContent::Failing(_) if format && drops => {}
                FlashContent::Unreadable(damage @ headpond_format::Damage::Version { .. }) => {
                    return Err(Refusal::Pool {
                        path,
                        what: damage.to_string(),
                        advice: OTHER_VERSION,
                        status: ExitStatus::PoolVersion,
                    });
                }
                // With another member the pool is known.
                FlashContent::Unreadable(damage) if self.held.len() == 1 => {
                    return Err(Refusal::Pool {
                        path,
                        what: damage.to_string(),
                        advice: UNREADABLE,
                        status: ExitStatus::PoolDamaged,
                    });
                }
                FlashContent::Unreadable(_) | FlashContent::Failing(_) | FlashContent::Pool(_) => {}
            }
        }
        let pools: Vec<usize> = contents
            .iter()
            .enumerate()
            .filter(|(_, content)| matches!(content, FlashContent::Pool(_)))
            .map(|(index, _)| index)
            .collect();
        if pools.is_empty() {
            let damaged = contents.iter().zip(&self.held).find_map(|(content, flash)| match content {
                FlashContent::Unreadable(damage) => Some((flash, damage.to_string())),
                FlashContent::Failing(why) => Some((flash, why.clone())),
                _ => None,
            });
            return match damaged.filter(|_| !(format && drops)) {
                Some((flash, what)) => Err(Refusal::Pool {
                    path: flash.path().to_owned(),
                    what,
                    advice: UNREADABLE,
                    status: ExitStatus::PoolDamaged,
                }),
                None => Ok(FlashesContent::Nothing),
            };
        }
        for (index, content) in contents.iter().enumerate() {
            match content {
                FlashContent::Failing(why) => self.absent.push((self.held[index].path().to_owned(), why.clone())),
                FlashContent::Unreadable(damage) => {
                    self.absent.push((self.held[index].path().to_owned(), damage.to_string()));
                }
                _ => {}
            }
        }
        match self.recover(&pools, planted) {
            Ok(recovered) => Ok(FlashesContent::Pool(Box::new(recovered))),
            Err(_) if format && drops => Ok(FlashesContent::Nothing),
            Err(error) => Err(self.refused(error, &pools, lay_at)),
        }
    }

    /// Reads the pool from the flashes at these places. What the last worker wrote may be in their caches alone, so each
    /// is synced first: what a device shows and then loses would count. Without those that refuse it, if the others
    /// suffice.
    fn recover(&mut self, pools: &[usize], planted: Option<Mutation>) -> Result<Recovered, RecoverError> {
        let refused: Vec<(usize, String)> = pools
            .iter()
            .enumerate()
            .filter_map(|(device, &place)| Some((device, refusal_to_sync(&self.held[place])?)))
            .collect();
        let reader = |&place: &usize| BeatingReader { flash: FlashReader(self.held[place].opened()), beat: self.beat };
        let mut readers: Vec<BeatingReader<'_>> = pools.iter().map(reader).collect();
        let devices = readers.iter_mut().zip(pools).map(|(reader, &place)| {
            let bytes = self.held[place].bytes();
            Device { flash: reader, bytes }
        });
        let mut present = Present::muster(devices.collect())?;
        refused.iter().for_each(|(device, _)| present.doubt(*device));
        let recovered = recover_members(&mut present, planted)?;
        let members: Vec<_> = (0..pools.len()).map(|device| present.member_of(device)).collect();
        let left_out = refused.into_iter().filter(|(device, _)| members[*device].is_none());
        self.absent.extend(left_out.map(|(device, why)| (self.held[pools[device]].path().to_owned(), why)));
        self.members = vec![None; self.held.len()];
        for (&place, member) in pools.iter().zip(members) {
            self.members[place] = member;
        }
        Ok(recovered)
    }

    /// Whether those that are here have each dirty block of what was read from them: of what a crash left on some of the
    /// members that were to have it, the log does not say which.
    ///
    /// # Errors
    /// They lack some.
    pub(crate) fn have_what_is_dirty(&self, found: &Recovered) -> Result<(), Refusal> {
        let read = |at: Address, len: usize| self.member(at.member)?.opened().read(at.offset, len).ok();
        match found.lacking_blocks(read) {
            0 => Ok(()),
            lacking => Err(Refusal::Pool {
                path: self.first().path().to_owned(),
                what: format!(
                    "lacks {lacking} blocks that the origin lacks, too: a crash of the owner's host left them there alone"
                ),
                advice: "Nothing was changed. Bring that host back: its next start makes the copy whole. If it is lost for good: \
                         headpond takeover --even-damaged, and then the database's own check",
                status: ExitStatus::MemberMissing,
            }),
        }
    }

    /// Finds out which member each flash is, and returns the superblock that counts. `None` if there is no pool.
    ///
    /// # Errors
    /// Why they are not one pool.
    pub(crate) fn muster(&mut self) -> Result<Option<Superblock>, Refusal> {
        let is_pool = |flash: &HeldFlash| matches!(flash.recognise(), Ok(FlashContent::Pool(_)));
        let pools: Vec<usize> =
            self.held.iter().enumerate().filter(|(_, flash)| is_pool(flash)).map(|(place, _)| place).collect();
        let mut readers: Vec<FlashReader<'_>> =
            pools.iter().map(|&place| FlashReader(self.held[place].opened())).collect();
        let devices = readers.iter_mut().zip(&pools).map(|(reader, &place)| {
            let bytes = self.held[place].bytes();
            Device { flash: reader, bytes }
        });
        let present = match Present::muster(devices.collect()) {
            Ok(present) => present,
            Err(RecoverError::NotAPool) => return Ok(None),
            Err(error) => return Err(self.refused(error, &pools, |_| None)),
        };
        let members: Vec<_> = (0..pools.len()).map(|device| present.member_of(device)).collect();
        let superblock = present.superblock().clone();
        self.members = vec![None; self.held.len()];
        for (&place, member) in pools.iter().zip(members) {
            self.members[place] = member;
        }
        Ok(Some(superblock))
    }

    /// Reads the pool once more, after something was written.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn read_again(&mut self, planted: Option<Mutation>) -> Result<Recovered, Refusal> {
        let all: Vec<usize> = (0..self.held.len()).collect();
        self.recover(&all, planted).map_err(|error| self.refused(error, &all, |_| None))
    }

    /// The refusal for what the pool's log says.
    fn refused(&self, error: RecoverError, pools: &[usize], lay_at: impl Fn(MemberId) -> Option<PathBuf>) -> Refusal {
        let path_of = |device: usize| self.held[pools[device]].path().to_owned();
        let (path, what, advice, status) = match error {
            RecoverError::OtherPool { device } => {
                (path_of(device), "belongs to another pool than the others".to_owned(), NOT_ONE, ExitStatus::NotOnePool)
            }
            RecoverError::SameMember { device } => {
                let what = "is a copy of another of these devices: both say that they are the same member".to_owned();
                (path_of(device), what, NOT_ONE, ExitStatus::NotOnePool)
            }
            RecoverError::UsedApart { device } => {
                let what =
                    "and another of these devices were used without each other: both may have what the other lacks";
                (path_of(device), what.to_owned(), USED_APART, ExitStatus::NotOnePool)
            }
            RecoverError::MissingMember { member, dirty_blocks } => {
                let where_ = lay_at(member).map_or_else(String::new, |path| format!(", last at {}", path.display()));
                let dirty = Size(dirty_blocks * headpond_base::BLOCK_U64);
                let what = format!(
                    "member {} of the pool is missing{where_}, and {dirty} of dirty data are on it alone",
                    member.0
                );
                (self.first().path().to_owned(), what, MISSING, ExitStatus::MemberMissing)
            }
            RecoverError::MissingAfterCrash { member } => {
                let where_ = lay_at(member).map_or_else(String::new, |path| format!(", last at {}", path.display()));
                let what = format!(
                    "member {} of the pool is missing{where_}. After a crash nobody can know what it alone has",
                    member.0
                );
                (self.first().path().to_owned(), what, MISSING, ExitStatus::MemberMissing)
            }
            RecoverError::Version { .. } => {
                (self.first().path().to_owned(), error.to_string(), OTHER_VERSION, ExitStatus::PoolVersion)
            }
            RecoverError::CutShort { .. } => {
                (self.first().path().to_owned(), error.to_string(), UNREADABLE, ExitStatus::PoolTruncated)
            }
            RecoverError::Read { .. } | RecoverError::UnreadAfterCrash { .. } => {
                (self.first().path().to_owned(), error.to_string(), FAILING, ExitStatus::FlashFailed)
            }
            RecoverError::NotAPool
            | RecoverError::Damaged { .. }
            | RecoverError::LostSuperblock { .. }
            | RecoverError::LostHistory { .. } => {
                (self.first().path().to_owned(), error.to_string(), UNREADABLE, ExitStatus::PoolDamaged)
            }
        };
        Refusal::Pool { path, what, advice, status }
    }

    /// Lets go of what is no member of the pool, and says so.
    pub(crate) fn let_others_go(&mut self, notes: &mut Vec<String>) {
        let members = std::mem::take(&mut self.members);
        let held = std::mem::take(&mut self.held);
        for (member, flash) in members.into_iter().zip(held) {
            if member.is_some() {
                self.members.push(member);
                self.held.push(flash);
            } else if !self.absent.iter().any(|(path, _)| path == flash.path()) {
                notes.push(format!(
                    "{} is no member of the pool any more: nothing on it counts, and headpond leaves it alone. To take it in \
                     again: headpond pool add MOUNTPOINT {}",
                    flash.path().display(),
                    flash.path().display()
                ));
            }
        }
    }

    /// Makes sure that each has all its space.
    ///
    /// # Errors
    /// [`Refusal::FlashNoSpace`].
    pub(crate) fn allocate(&self) -> Result<(), Refusal> {
        self.held.iter().try_for_each(HeldFlash::allocate)
    }

    /// Rewrites damaged copies of superblocks, and says which.
    pub(crate) fn heal_superblocks(&self, notes: &mut Vec<String>) {
        for flash in &self.held {
            let which = if self.held.len() == 1 { "the pool".to_owned() } else { flash.path().display().to_string() };
            match flash.heal_superblock() {
                Ok(None) => {}
                Ok(Some(copy)) => notes.push(format!(
                    "superblock {copy} of 2 of {which} was damaged; headpond repaired it from the other one"
                )),
                // The engine will fail on this, too, and say so.
                Err(errno) => notes.push(if self.held.len() == 1 {
                    format!("one of the pool's 2 superblocks is damaged, and headpond cannot repair it: {errno}")
                } else {
                    format!("one of the 2 superblocks of {which} is damaged, and headpond cannot repair it: {errno}")
                }),
            }
        }
    }

    /// They are a pool from now on, and stay, even if this start fails.
    pub(crate) fn settle(&mut self) {
        self.held.iter_mut().for_each(HeldFlash::settle);
    }

    /// The devices, with descriptors of their own.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn devices(&self, list: &Members, draining: Draining) -> Result<PoolDevices, Refusal> {
        let devices = PoolDevices::hearing(draining);
        for (member, flash) in self.members() {
            let path = flash.path().to_owned();
            let file =
                DeviceFile::of(flash.opened()).map_err(|error| Refusal::from_io("open once more", &path, error))?;
            let bytes = list.get(member).map_or(0, |row| row.bytes);
            devices.join(PoolDevice { member, path, bytes, whole_bytes: flash.bytes(), file });
        }
        Ok(devices)
    }

    /// Starts the reactor with which a shard drives the flashes. The locks go with it.
    ///
    /// # Errors
    /// If the kernel refuses a backend that was named.
    pub(crate) fn start(&mut self, backend: Backend) -> Result<Box<dyn Reactor>, Refusal> {
        let first = self.first().path().to_owned();
        let mut flashes = Vec::with_capacity(self.held.len());
        for (member, flash) in self.members.iter().zip(&mut self.held) {
            let Some(member) = member else { continue };
            let path = flash.path().to_owned();
            flashes.push((*member, flash.give().ok_or(Refusal::FlashInUse { path })?));
        }
        start_reactor(flashes, backend, TrimPolicy::default()).map_err(|error| refusal(&first, error))
    }

    /// Writes to a member during the start.
    ///
    /// # Errors
    /// The device's; [`Errno::NODEV`] if the member is not here.
    pub(crate) fn write(&self, at: headpond_format::Address, data: &Buf) -> headpond_base::Result<()> {
        self.member(at.member).ok_or(Errno::NODEV)?.opened().write(at.offset, data)
    }
}

fn newest_of<'a>(flashes: impl IntoIterator<Item = &'a HeldFlash>) -> Option<Box<Superblock>> {
    let known = flashes.into_iter().filter_map(|flash| match flash.recognise() {
        Ok(FlashContent::Pool(superblock)) => Some(superblock),
        _ => None,
    });
    known.max_by_key(|superblock| (superblock.epoch, superblock.counter))
}

/// Makes durable what a device has. Returns why not, if it refuses.
fn refusal_to_sync(flash: &HeldFlash) -> Option<String> {
    let errno = flash.opened().sync().err()?;
    log_line(format_args!("{} refuses a sync: {errno}", flash.path().display()));
    Some(format!("refuses a sync: {errno}"))
}

/// The refusal for a device that is none of the pool's.
fn not_a_member(path: PathBuf, what: &str) -> Refusal {
    Refusal::Pool {
        what: format!("{what}, and the other devices hold a pool that it is no member of"),
        path,
        advice: "Nothing was written. To take it into the pool: mount without it, then headpond pool add MOUNTPOINT FLASH. To make \
                 a new pool on all of them: --format",
        status: ExitStatus::NotOnePool,
    }
}

const UNREADABLE: &str = "Nothing was written. The pool may hold dirty data, but headpond cannot read of which files. To drop everything \
                          in it and make a new pool: --format --discard-dirty";

const OTHER_VERSION: &str = "Nothing was written. Use the headpond that wrote the pool. To move to this version, unmount with that one, then \
                             make a new pool with this one: --format --discard-dirty";

const FAILING: &str = "Nothing was written. Read the kernel's log: the device may be failing.";

const NOT_ONE: &str = "Nothing was written. Name the devices of one pool only: --flash for each. To see what one holds: headpond check FLASH";

const USED_APART: &str = "Nothing was written. To see which has the newest files: headpond check FLASH, for each. Mount with that one alone, \
                          and give the other one to the pool then: headpond pool add MOUNTPOINT FLASH. What it alone has is lost by that";

const MISSING: &str = "Nothing was written. Attach that device, and mount with a --flash for each. To drop everything in the pool and make a \
                       new one: --format --discard-dirty";

/// Whether it is the member for copies that this list has.
fn is_copy(list: &Members, flash: &HeldFlash) -> bool {
    let Ok(FlashContent::Pool(there)) = flash.recognise() else { return false };
    let name = |list: &Members| list.get(there.member).filter(|row| row.keeps_copies()).map(|row| row.name);
    name(list).is_some() && name(list) == name(&there.members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::{CacheMode, PoolId};
    use headpond_engine::format_members;
    use headpond_format::{Geometry, MemberName};

    fn pool_on(flashes: &mut HeldFlashes, pool: u8) {
        let devices: Vec<_> =
            (1..).zip(flashes.for_format()).map(|(name, one)| (MemberName([name; 16]), one.bytes())).collect();
        let (geometry, rows) = Geometry::for_members(&devices, None).unwrap();
        let list = rows[1..].iter().fold(Members::first(rows[0]), |list, row| list.with(*row).unwrap().0);
        for (at, data) in format_members(PoolId([pool; 16]), &list, geometry, None, CacheMode::WriteBack) {
            flashes.write(at, &data).unwrap();
        }
        flashes.settle();
    }

    fn read(flashes: &mut HeldFlashes) -> Result<bool, ExitStatus> {
        let read = flashes.read(false, false, None, |_| None);
        read.map(|content| matches!(content, FlashesContent::Pool(_))).map_err(|refusal| refusal.status())
    }

    #[test]
    fn a_device_that_is_missing_is_not_made_anew_and_one_that_is_no_member_is_refused_except_from_the_last_worker() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let size = Some(Size(64 << 20));
        let take = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| at(name)).collect();
            HeldFlashes::take(&paths, size, Fill::Reserved, Reserve::default()).unwrap()
        };
        pool_on(&mut take(&["a", "b"]), 7);
        let mut whole = take(&["b", "a"]);
        assert_eq!(read(&mut whole), Ok(true));
        assert_eq!(whole.member(MemberId(0)).map(HeldFlash::path), Some(&*at("a")), "by its name, not by its place");
        drop(whole);

        std::fs::rename(at("b"), at("aside")).unwrap();
        let mut alone = take(&["a", "b"]);
        assert!(!at("b").exists() && alone.absent().len() == 1);
        assert_eq!(read(&mut alone), Ok(true));
        drop(alone);
        std::fs::rename(at("aside"), at("b")).unwrap();

        std::fs::write(at("c"), vec![9; 64 << 20]).unwrap();
        assert_eq!(read(&mut take(&["a", "b", "c"])), Err(ExitStatus::FlashForeign));
        // A worker died while `c` joined.
        let open = |name: &str| File::options().read(true).write(true).open(at(name)).unwrap();
        let (a, b, c) = (at("a"), at("b"), at("c"));
        let mut left = HeldFlashes::taken_over(vec![(open("c"), &c), (open("a"), &a), (open("b"), &b)]).unwrap();
        assert!(left.muster().unwrap().is_some());
        assert_eq!(read(&mut left), Ok(true));
        let mut notes = Vec::new();
        left.let_others_go(&mut notes);
        assert_eq!((left.members().count(), notes.len()), (2, 1), "{notes:?}");
    }
}
