//! Uses of pools for one origin: whose a pool is, and who may still change the origin.
//!
//! Two hosts with a flash each, one origin, and images of the flashes that are put aside at any moment and put back
//! later. The judgement and the watch are the product's own (`headpond-claim`). What a pool and an origin hold is a set
//! of numbered values. The steps in which a use begins and ends are those of `running.rs`, `recovery.rs` and
//! `ending.rs` in `headpond-control`, in their order; a crash comes between any two.
//!
//! Keeps true:
//! - A use that begins without a refusal has all that was synced before. But the operator said to drop it; or the use
//!   before crashed, this is an image of it, and what is missing came after its last note of how far it was durable.
//! - The pool that the origin waits for is not refused.
//! - Who has lost the origin begins no change of it an interval later, or after.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{Nanos, PoolId};
use headpond_claim::ownership::{Allowed, Awaited, Drawn, Durable, EarlierClaims, Held, Ownership, Use, Whose, judge};
use headpond_claim::{Standing, Watch, Way};
use headpond_timed::Rng;

use crate::planted::PlantedUse;
use crate::scenario::Options;
use crate::{Failure, HistorySums};

/// For how long a look at the marker is good.
const INTERVAL: Nanos = Nanos(5 * Nanos::SECOND.0);

/// What a flash holds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Image {
    pool: PoolId,
    key: Drawn,
    epoch: u64,
    claim: Drawn,
    counter: u64,
    host_batch: u64,
    /// Values that the origin has not.
    dirty: BTreeSet<u64>,
}

/// The marker beside the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker {
    pool: PoolId,
    key: Drawn,
    last: Use,
}

/// How far a use is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Judging,
    Marking,
    Claiming,
    Beginning,
    Noting,
    Serving,
    Stopping,
    Settling,
}

/// A daemon.
#[derive(Debug)]
struct Daemon {
    name: u64,
    flash: usize,
    discards: bool,
    step: Step,
    id: Drawn,
    key: Drawn,
    before: Drawn,
    earlier: EarlierClaims,
    /// The marker and the note that it judged by.
    found: (Option<Marker>, Option<Durable>),
    watch: Watch,
    /// What a look that was begun has read, and has not told yet.
    reading: Option<Standing>,
    /// When another one took the origin over.
    lost_at: Option<Nanos>,
    asleep: bool,
}

/// A value that was synced: in which use, and its batch there.
#[derive(Clone, Copy, Debug)]
struct Synced {
    claim: Drawn,
    batch: u64,
}

struct World {
    rng: Rng,
    now: Nanos,
    verbose: bool,
    planted: Option<PlantedUse>,
    flashes: [Option<Image>; 2],
    shelf: Vec<Image>,
    origin: BTreeSet<u64>,
    marker: Option<Marker>,
    note: Option<Durable>,
    /// The daemon that has the lock.
    lock: Option<u64>,
    daemons: Vec<Daemon>,
    names: u64,
    promised: BTreeMap<u64, Synced>,
    values: u64,
    /// The flash that has the pool which the origin waits for, as its last use left it.
    right: Option<usize>,
    summary: HistorySums,
}

/// Runs a seed.
pub(crate) fn run(seed: u64, options: &Options) -> Result<HistorySums, Failure> {
    let mut world = World::new(seed, options);
    for index in 0..options.ops {
        if options.skip.iter().any(|range| range.contains(&index)) {
            continue;
        }
        world.rng = Rng::for_part(seed, u64::from(index));
        let done = world.operate();
        world.summary.ops += 1;
        done.map_err(|what| Failure { seed, options: options.clone(), at: Some(index), what })?;
    }
    Ok(world.summary)
}

impl World {
    fn new(seed: u64, options: &Options) -> Self {
        Self {
            rng: Rng::new(seed),
            now: Nanos(0),
            verbose: options.verbose,
            planted: options.planted_use,
            flashes: [None, None],
            shelf: Vec::new(),
            origin: BTreeSet::new(),
            marker: None,
            note: None,
            lock: None,
            daemons: Vec::new(),
            names: 0,
            promised: BTreeMap::new(),
            values: 0,
            right: None,
            summary: HistorySums::default(),
        }
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:>12.3} {}", self.now.0 as f64 / 1e9, what());
        }
    }

    fn drawn(&mut self) -> Drawn {
        let mut drawn = [0; 16];
        drawn[..8].copy_from_slice(&self.rng.next().to_le_bytes());
        drawn[8..].copy_from_slice(&self.rng.next().to_le_bytes());
        drawn
    }

    fn operate(&mut self) -> Result<(), String> {
        self.summary.steps += 1;
        match self.rng.below(100) {
            0..8 => self.start(),
            8..11 => self.crash(),
            11..14 => self.put_aside(),
            14..16 => self.put_back(),
            16..18 => self.sleep_or_wake(),
            18..19 => self.lose_lock(),
            19..30 => {
                let most = *self.rng.pick(&[1, 100, 3_000, 9_000]);
                self.now = Nanos(self.now.0 + self.rng.below(most * Nanos::MILLISECOND.0));
            }
            _ => return self.go_on(),
        }
        Ok(())
    }

    fn start(&mut self) {
        let flash = self.rng.below(2) as usize;
        if self.daemons.iter().any(|daemon| daemon.flash == flash) {
            return;
        }
        let (name, discards) = (self.names, self.rng.chance(60));
        self.names += 1;
        // The lock comes first. A host that does not get it has done nothing.
        if self.lock.is_some() {
            self.trace(|| format!("daemon {name} on flash {flash}: the origin is in use"));
            return;
        }
        self.lock = Some(name);
        self.trace(|| format!("daemon {name} on flash {flash}, discards {discards}"));
        let daemon = Daemon {
            name,
            flash,
            discards,
            step: Step::Judging,
            id: [0; 16],
            key: [0; 16],
            before: [0; 16],
            earlier: EarlierClaims::default(),
            found: (None, None),
            watch: Watch::new(INTERVAL),
            reading: None,
            lost_at: None,
            asleep: false,
        };
        self.daemons.push(daemon);
    }

    fn end(&mut self, index: usize) {
        let daemon = self.daemons.remove(index);
        if self.lock == Some(daemon.name) {
            self.lock = None;
        }
    }

    fn any(&mut self) -> Option<usize> {
        let count = self.daemons.len() as u64;
        (count > 0).then(|| self.rng.below(count) as usize)
    }

    fn crash(&mut self) {
        let Some(index) = self.any() else { return };
        self.trace(|| format!("daemon {} is killed at {:?}", self.daemons[index].name, self.daemons[index].step));
        self.summary.crashes += 1;
        self.end(index);
    }

    fn put_aside(&mut self) {
        let flash = self.rng.below(2) as usize;
        if let Some(image) = self.flashes[flash].clone() {
            self.trace(|| format!("an image of flash {flash}: {image:?}"));
            self.shelf.push(image);
        }
    }

    fn put_back(&mut self) {
        let flash = self.rng.below(2) as usize;
        if self.shelf.is_empty() || self.daemons.iter().any(|daemon| daemon.flash == flash) {
            return;
        }
        let image = self.rng.pick(&self.shelf).clone();
        self.trace(|| format!("flash {flash} is put back to {image:?}"));
        if self.right == Some(flash) && self.flashes[flash].as_ref() != Some(&image) {
            self.right = None;
        }
        self.flashes[flash] = Some(image);
    }

    fn sleep_or_wake(&mut self) {
        let Some(index) = self.any() else { return };
        let daemon = &mut self.daemons[index];
        daemon.asleep = !daemon.asleep;
    }

    fn lose_lock(&mut self) {
        self.trace(|| format!("daemon {:?} loses the lock", self.lock));
        self.lock = None;
    }

    /// Some daemon does its next step.
    fn go_on(&mut self) -> Result<(), String> {
        let Some(index) = self.any().filter(|index| !self.daemons[*index].asleep) else { return Ok(()) };
        match self.daemons[index].step {
            Step::Judging => return self.judge(index),
            Step::Marking => self.mark(index),
            Step::Claiming => {
                let daemon = &self.daemons[index];
                let (id, key, flash) = (daemon.id, daemon.key, daemon.flash);
                let image = self.image(flash);
                image.epoch += 1;
                (image.claim, image.key) = (id, key);
                image.counter += 1;
                if self.marker.is_some_and(|marker| marker.last.id == Some(id)) {
                    self.right = Some(flash);
                }
                self.daemons[index].step = Step::Beginning;
            }
            Step::Beginning => {
                // Only over its own; a daemon that has lost the origin learns it from the watch.
                let id = self.daemons[index].id;
                if let Some(marker) = self.marker.as_mut().filter(|marker| marker.last.id == Some(id)) {
                    marker.last.begun = true;
                }
                self.daemons[index].step = Step::Noting;
            }
            Step::Noting => {
                if self.may_change(index)? {
                    self.write_note(index);
                    self.daemons[index].step = Step::Serving;
                }
            }
            Step::Serving => return self.serve(index),
            Step::Stopping => {
                let flash = self.daemons[index].flash;
                self.image(flash).counter += 1;
                self.daemons[index].step = Step::Settling;
            }
            Step::Settling => return self.settle(index),
        }
        Ok(())
    }

    fn image(&mut self, flash: usize) -> &mut Image {
        self.flashes[flash].as_mut().expect("a daemon has made a pool of it")
    }

    fn judge(&mut self, index: usize) -> Result<(), String> {
        let (name, flash, discards) =
            (self.daemons[index].name, self.daemons[index].flash, self.daemons[index].discards);
        let held = self.flashes[flash].as_ref().map(|image| Held {
            pool: image.pool,
            origin: Some(Whose { key: image.key, same_path: true }),
            epoch: image.epoch,
            claim: image.claim,
            counter: image.counter,
            host_batch: image.host_batch,
            dirty: !image.dirty.is_empty(),
        });
        let awaited = self.marker.map(|marker| Awaited {
            pool: Some(marker.pool),
            key: Some(marker.key),
            claim: Some(marker.last).filter(|_| self.planted != Some(PlantedUse::ClaimIgnored)),
            durable: self.note.filter(|_| self.planted != Some(PlantedUse::NoteIgnored)),
        });
        let judged = judge(awaited.as_ref(), held.as_ref(), Allowed { format: false, discard_dirty: discards });
        self.trace(|| format!("daemon {name}: {judged:?}"));
        let key = match judged {
            Ok(Ownership::Same(key)) => key,
            Ok(Ownership::TakeOver) => self.drawn(),
            Ok(Ownership::Format) => {
                let key = self.drawn();
                let pool = PoolId(self.drawn());
                if self.right == Some(flash) {
                    self.right = None;
                }
                self.flashes[flash] = Some(Image {
                    pool,
                    key,
                    epoch: 0,
                    claim: [0; 16],
                    counter: 1,
                    host_batch: 0,
                    dirty: BTreeSet::new(),
                });
                key
            }
            Ok(Ownership::Image(..)) | Err(_) => {
                if self.right == Some(flash) {
                    return Err(format!("flash {flash} has the right pool, and was refused: {judged:?}"));
                }
                self.summary.conflicts += 1;
                self.end(index);
                return Ok(());
            }
        };
        let has = self.image(flash).clone();
        for (value, synced) in self.missing_from(&has) {
            if !discards && !self.may_be_missing(synced) {
                return Err(format!(
                    "value {value} was synced ({synced:?}), and {has:?} begins without it: {judged:?}"
                ));
            }
        }
        self.summary.recoveries += 1;
        let id = self.drawn();
        let found = (self.marker, self.note);
        let (last, note) = (self.marker.map(|marker| marker.last), self.note);
        let daemon = &mut self.daemons[index];
        daemon.earlier = Use::earlier_of_next(last.as_ref(), note, has.claim);
        (daemon.id, daemon.key, daemon.before, daemon.step) = (id, key, has.claim, Step::Marking);
        daemon.found = found;
        Ok(())
    }

    /// What was promised, and is neither at the origin nor in a pool.
    fn missing_from(&self, pool: &Image) -> Vec<(u64, Synced)> {
        let missing =
            self.promised.iter().filter(|(value, _)| !self.origin.contains(value) && !pool.dirty.contains(value));
        missing.map(|(value, synced)| (*value, *synced)).collect()
    }

    /// What a crash, and an image of the very use that it ended, may cost: what came after the last note.
    fn may_be_missing(&self, synced: Synced) -> bool {
        let Some(last) = self.marker.map(|marker| marker.last) else { return false };
        let noted = self.note.filter(|note| note.claim == Some(synced.claim)).map_or(0, |note| note.host_batch);
        let is_of_it = last.id == Some(synced.claim) || (!last.begun && last.earlier.have(synced.claim));
        is_of_it && synced.batch > noted
    }

    fn mark(&mut self, index: usize) {
        let daemon = &self.daemons[index];
        let Daemon { id, before, earlier, flash, key, name, found, discards, .. } = *daemon;
        if (self.marker, self.note) != found && self.planted != Some(PlantedUse::MarkerWrittenBlindly) {
            self.trace(|| format!("daemon {name}: another one was faster"));
            self.end(index);
            return;
        }
        if self.marker.is_none() {
            self.note = None;
        }
        // What it may do without is dropped with the marker. A daemon that lost the lock may have promised more since
        // it judged.
        let has = self.image(flash).clone();
        for (value, synced) in self.missing_from(&has) {
            if discards || self.may_be_missing(synced) {
                self.promised.remove(&value);
            }
        }
        let (pool, epoch) = (has.pool, has.epoch + 1);
        let last = Use { epoch, id: Some(id), before: Some(before), earlier, begun: false, stopped_at: None };
        self.marker = Some(Marker { pool, key, last });
        // Before the pool has the claim, the note of a daemon that has lost the origin may still be about it.
        self.right = (self.daemons.len() == 1).then_some(flash);
        let now = self.now;
        for other in self.daemons.iter_mut().filter(|other| other.name != name) {
            other.lost_at.get_or_insert(now);
        }
        let daemon = &mut self.daemons[index];
        (daemon.step, daemon.lost_at) = (Step::Claiming, None);
    }

    /// Whether the daemon may change the origin now, after a look if one is due. One that has lost the origin ends.
    fn may_change(&mut self, index: usize) -> Result<bool, String> {
        let (now, never) = (self.now, self.planted == Some(PlantedUse::NeverLooks));
        let (name, id) = (self.daemons[index].name, self.daemons[index].id);
        let ours = self.marker.is_some_and(|marker| marker.last.id == Some(id));
        let taken = self.lock.is_some_and(|holder| holder != name);
        let late = self.rng.chance(300);
        let daemon = &mut self.daemons[index];
        match daemon.watch.may_change(now) {
            Way::Look if !never => {
                if let Some(standing) = daemon.reading.take() {
                    daemon.watch.looked(standing);
                    return Ok(false);
                }
                let standing = if ours && !taken { Standing::Ours } else { Standing::Lost };
                daemon.watch.look_begun(now);
                if late {
                    daemon.reading = Some(standing)
                } else {
                    daemon.watch.looked(standing)
                }
                Ok(false)
            }
            Way::Barred => {
                self.trace(|| format!("daemon {name} has lost the origin"));
                self.end(index);
                Ok(false)
            }
            Way::Pass | Way::Look => match daemon.lost_at {
                Some(lost) if now.since(lost) >= INTERVAL => Err(format!(
                    "daemon {name} changes the origin {} s after it was lost",
                    now.since(lost).0 / Nanos::SECOND.0
                )),
                _ => Ok(true),
            },
        }
    }

    fn write_note(&mut self, index: usize) {
        let daemon = &self.daemons[index];
        let (id, flash) = (daemon.id, daemon.flash);
        // Who lost the origin a moment ago may still do so: it is of another use, and claims nothing.
        let host_batch = self.image(flash).host_batch;
        if host_batch > 0 {
            self.note = Some(Durable { claim: Some(id), host_batch });
        }
    }

    fn serve(&mut self, index: usize) -> Result<(), String> {
        let Daemon { id, flash, name, .. } = self.daemons[index];
        let has_it = self.marker.is_some_and(|marker| marker.last.id == Some(id))
            && self.lock.is_none_or(|holder| holder == name);
        match self.rng.below(100) {
            0..50 => {
                self.values += 1;
                let value = self.values;
                let image = self.image(flash);
                image.host_batch += 1;
                image.dirty.insert(value);
                let batch = image.host_batch;
                // What a daemon acknowledges after it lost the origin, and before it looks, is lost: see the fault
                // model.
                if has_it {
                    self.promised.insert(value, Synced { claim: id, batch });
                }
            }
            50..80 => {
                if self.may_change(index)?
                    && let Some(value) = self.image(flash).dirty.pop_first()
                {
                    self.origin.insert(value);
                }
            }
            80..94 => {
                if self.may_change(index)? {
                    self.write_note(index);
                }
            }
            _ => {
                if self.rng.chance(500) && self.may_change(index)? {
                    let image = self.image(flash);
                    let flushed = std::mem::take(&mut image.dirty);
                    self.origin.extend(flushed);
                    self.summary.flushes += 1;
                }
                if let Some(daemon) = self.daemons.get_mut(index).filter(|daemon| daemon.id == id) {
                    daemon.step = Step::Stopping;
                }
            }
        }
        Ok(())
    }

    /// The last word beside the origin, after a look of its own.
    fn settle(&mut self, index: usize) -> Result<(), String> {
        let daemon = &mut self.daemons[index];
        daemon.watch.doubt();
        let (id, flash) = (daemon.id, daemon.flash);
        if self.marker.is_none_or(|marker| marker.last.id != Some(id)) {
            self.end(index);
            return Ok(());
        }
        let (dirty, counter) = (!self.image(flash).dirty.is_empty(), self.image(flash).counter);
        if dirty {
            self.write_note(index);
            if let Some(marker) = &mut self.marker {
                marker.last.stopped_at = Some(counter);
            }
        } else {
            (self.marker, self.note) = (None, None);
        }
        self.summary.stops += 1;
        self.end(index);
        Ok(())
    }
}
