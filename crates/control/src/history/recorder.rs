//! Keeps the rows and events of a mount, and writes them to the pool.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_base::{BufMut, MemberId, PoolId};
use headpond_format::{Geometry, HISTORY_BYTES, HistoryArea, HistoryEvent, HistoryRing, HistoryRow};

use super::event::EventKind;
use super::look::{Look, Values, join};
use crate::devices::{PoolDevice, PoolDevices};
use crate::process::log::log_line;
use crate::wording::clock::unix_seconds;

/// Seconds within which trouble of one kind is one event.
const ONE_EVENT: u32 = 3600;

/// Seconds between two writes to the pool.
const WRITE_EVERY: u32 = 60;

/// How long the end of a mount waits for the last write.
const LAST_WRITE: Duration = Duration::from_secs(2);

const RINGS: [HistoryRing; 2] = [HistoryRing::Fine, HistoryRing::Coarse];

/// Whether the history survives this daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeptWhere {
    /// In the pool.
    Pool,
    /// In memory: the pool was made without room for it.
    Memory,
    /// In memory: a write to the pool failed.
    MemoryAfterError,
}

/// What the thread has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// Look at the counters, after this time or at once if there is news.
    Look,
    /// The mount has ended.
    Ended,
}

/// The history of one mount. Its copies are the same.
#[derive(Clone)]
pub(crate) struct History(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    news: Condvar,
    /// Where the pool has room for it.
    place: Option<Place>,
    /// One writer at a time: blocks must not overtake each other.
    writing: Mutex<()>,
}

/// An area on the first of the pool's devices on this host. If that one leaves, the next one gets all of it: nothing here
/// keeps a device from leaving.
struct Place {
    devices: PoolDevices,
    start: u64,
}

impl Place {
    fn device(&self) -> Option<PoolDevice> {
        self.devices.all().into_iter().find(|device| device.file.here().is_some())
    }

    /// What each device has of it, and the newest of these: one that was away has an older one.
    fn read(&self, pool: PoolId) -> Option<(MemberId, HistoryArea)> {
        let devices = self.devices.all().into_iter().filter(|device| device.file.here().is_some());
        let areas = devices.filter_map(|device| {
            let mut found = BufMut::zeroed(HISTORY_BYTES);
            device.file.read_at(&mut found, self.start).ok()?;
            Some((device.member, HistoryArea::read(pool, &found)))
        });
        // Each life of a daemon, and each change of devices, begins with an event. Numbers alone would not do: a host
        // that goes on upon a copy begins with 1.
        areas.max_by_key(|(_, area)| area.events().iter().map(|event| (event.time, event.number)).max())
    }
}

fn last_number(area: &HistoryArea) -> u32 {
    area.events().last().map_or(0, |event| event.number)
}

struct State {
    area: HistoryArea,
    open: [Option<Open>; 2],
    /// The number of the last event.
    last_event: u32,
    written: u32,
    has_news: bool,
    life: Life,
    /// The device that has all that was written.
    on: Option<MemberId>,
    /// The one that did not take a block.
    failed: Option<MemberId>,
}

/// How far the end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Running,
    Ending,
    /// The last block is written.
    Ended,
}

/// The row of a ring that time has not passed yet.
struct Open {
    time: u32,
    began: Look,
    /// What an earlier life of the daemon left of this time.
    earlier: Option<Values>,
    largest: [u64; 3],
}

impl Open {
    fn new(area: &HistoryArea, ring: HistoryRing, time: u32, began: Look) -> Self {
        Self { time, began, earlier: area.row(ring, time).map(|row| row.values), largest: [0; 3] }
    }

    fn row(&mut self, now: &Look) -> HistoryRow {
        let mut values = now.since(&self.began);
        Look::remember(&mut self.largest, &mut values);
        let values = self.earlier.as_ref().map_or(values, |earlier| join(earlier, &values));
        HistoryRow { time: self.time, values }
    }
}

fn now() -> u32 {
    u32::try_from(unix_seconds()).unwrap_or(u32::MAX)
}

impl History {
    /// The history of a pool, with what its devices have of it.
    pub(crate) fn of(devices: &PoolDevices, geometry: &Geometry, pool: PoolId) -> Self {
        let place = geometry.history().map(|start| Place { devices: devices.clone(), start });
        let (on, area) = place.as_ref().and_then(|place| place.read(pool)).unzip();
        Self::over(area.unwrap_or_else(|| HistoryArea::new(pool)), on, place)
    }

    /// One in memory alone.
    pub(crate) fn in_memory() -> Self {
        Self::over(HistoryArea::new(PoolId([0; 16])), None, None)
    }

    fn over(area: HistoryArea, on: Option<MemberId>, place: Option<Place>) -> Self {
        let last_event = last_number(&area);
        let state = State {
            area,
            open: [None, None],
            last_event,
            written: 0,
            has_news: false,
            life: Life::Running,
            on,
            failed: None,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), news: Condvar::new(), place, writing: Mutex::new(()) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is kept.
    pub(crate) fn kept(&self) -> KeptWhere {
        match self.0.place.as_ref().and_then(Place::device) {
            None => KeptWhere::Memory,
            Some(device) if self.state().failed == Some(device.member) => KeptWhere::MemoryAfterError,
            Some(_) => KeptWhere::Pool,
        }
    }

    /// The kind of the last event, if there is one.
    pub(crate) fn last_kind(&self) -> Option<u8> {
        self.state().area.events().last().map(|event| event.kind)
    }

    /// Which of these kinds came last, if any did.
    pub(crate) fn last_of(&self, kinds: &[EventKind]) -> Option<EventKind> {
        let events = self.state().area.events();
        events.iter().rev().find_map(|event| kinds.iter().find(|kind| **kind as u8 == event.kind).copied())
    }

    /// Notes an event that happened so often. It reaches the pool within a moment, and nobody waits for that.
    pub(crate) fn note(&self, kind: EventKind, count: u64, text: &str) {
        let mut state = self.state();
        let now = now();
        let again = |event: &HistoryEvent| event.kind == kind as u8 && now.abs_diff(event.time) < ONE_EVENT;
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        let event = match state.area.events().into_iter().rev().find(again).filter(|_| kind.repeats()) {
            Some(event) => HistoryEvent { time: now, count: event.count.saturating_add(count), ..event },
            None => {
                state.last_event += 1;
                HistoryEvent { number: state.last_event, time: now, kind: kind as u8, count, text: text.to_owned() }
            }
        };
        state.area.put_event(&event);
        state.has_news = true;
        drop(state);
        self.0.news.notify_all();
    }

    /// Brings the rows up to a look at the counters.
    pub(crate) fn look(&self, look: &Look) {
        self.look_at(look, now());
    }

    fn look_at(&self, look: &Look, now: u32) {
        let state = &mut *self.state();
        for (ring, open) in RINGS.into_iter().zip(&mut state.open) {
            let time = now / ring.step() * ring.step();
            if let Some(open) = open {
                let row = open.row(look);
                state.area.put_row(ring, &row);
            }
            if open.as_ref().is_none_or(|open| open.time != time) {
                *open = Some(Open::new(&state.area, ring, time, look.clone()));
            }
        }
    }

    /// Waits for the next look: up to this time, or for news.
    pub(crate) fn wait(&self, most: Duration) -> Pace {
        let state = self.state();
        let idle = |state: &mut State| !state.has_news && state.life == Life::Running;
        let waited = self.0.news.wait_timeout_while(state, most, idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.life == Life::Running { Pace::Look } else { Pace::Ended }
    }

    /// Writes what changed to the pool, if it is time or there is news.
    pub(crate) fn write_if_due(&self) {
        let mut state = self.state();
        if state.has_news || now().abs_diff(state.written) >= WRITE_EVERY {
            state.has_news = false;
            drop(state);
            self.write();
        }
    }

    /// Writes what changed to the pool, without a sync.
    fn write(&self) {
        let _one = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // Only as long as this takes: a file that stays open keeps the lock of a device that leaves.
        let device = self.0.place.as_ref().and_then(|place| Some((place.device()?, place.start)));
        let mut state = self.state();
        state.written = now();
        let Some((PoolDevice { member, file, .. }, start)) =
            device.filter(|(device, _)| state.failed != Some(device.member))
        else {
            return;
        };
        let changed =
            if state.on.replace(member) == Some(member) { state.area.take_changed() } else { state.area.take_all() };
        drop(state);
        for (at, block) in changed {
            // Aligned memory for the flash, which may be open without the page cache.
            let block = BufMut::copy_of(&block).freeze();
            if let Err(error) = file.write_at(&block, start + at) {
                self.state().failed = Some(member);
                return log_line(format_args!(
                    "cannot write the history to the pool, so it ends with this daemon: {error}"
                ));
            }
        }
    }

    /// Ends it, with the last look and event. Waits a moment for the thread that writes, and no longer: a flash that
    /// hangs must not keep a mount from its end.
    pub(crate) fn end(&self, look: &Look, kind: EventKind, text: &str) {
        self.look(look);
        self.note(kind, 1, text);
        let mut state = self.state();
        state.life = Life::Ending;
        self.0.news.notify_all();
        if self.0.place.is_some() {
            drop(self.0.news.wait_timeout_while(state, LAST_WRITE, |state| state.life != Life::Ended));
        }
    }

    /// Writes the last blocks. The thread that looks at the counters calls it after [`Pace::Ended`].
    pub(crate) fn finish(&self) {
        self.write();
        self.state().life = Life::Ended;
        self.0.news.notify_all();
    }

    /// The rows of a ring from one time on.
    pub(crate) fn rows(&self, ring: HistoryRing, from: u32) -> Vec<HistoryRow> {
        let now = now();
        let oldest = now.saturating_sub(ring.step() * ring.rows());
        self.state().area.rows(ring, from.max(oldest), now).collect()
    }

    /// The events, the oldest first.
    pub(crate) fn events(&self) -> Vec<HistoryEvent> {
        self.state().area.events()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use headpond_device::{Fill, Flash};

    use crate::devices::DeviceFile;
    use headpond_shard::ShardStats;

    use super::*;

    const POOL: PoolId = PoolId([3; 16]);

    fn devices(path: &Path) -> PoolDevices {
        let flash = Flash::create(path, 64 << 20, Fill::Zeros).unwrap();
        let file = DeviceFile::Here(Arc::new(flash.file().unwrap().try_clone().unwrap()));
        let devices = PoolDevices::default();
        let (member, path, bytes) = (MemberId(0), path.to_owned(), 64 << 20);
        devices.join(PoolDevice { member, path, bytes, whole_bytes: bytes, file });
        devices
    }

    fn look(start: Instant, seconds: u64, reads: u64) -> Look {
        let mut stats = ShardStats::default();
        stats.engine.reads = reads;
        Look::new(start + Duration::from_secs(seconds), &stats, 0.0)
    }

    #[test]
    fn rows_follow_the_clock_and_a_restart_within_a_row_adds_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry::for_bytes(64 << 20).unwrap().with_history();
        let devices = devices(&dir.path().join("pond"));
        let (start, base) = (Instant::now(), now() / 300 * 300 - 600);
        let history = History::of(&devices, &geometry, POOL);
        assert_eq!(history.kept(), KeptWhere::Pool);
        for (seconds, reads) in [(0, 0), (10, 5), (20, 9), (25, 10)] {
            history.look_at(&look(start, seconds, reads), base + u32::try_from(seconds).unwrap());
        }
        let reads = |history: &History, ring| -> Vec<_> {
            let seconds = |row: &HistoryRow| (row.values[0] + 500) / 1000;
            history.rows(ring, base).iter().map(|row| (row.time - base, seconds(row), row.values[7])).collect()
        };
        let fine = [(0, 10, 5), (10, 10, 4), (20, 5, 1)];
        assert_eq!(reads(&history, HistoryRing::Fine), fine);
        assert_eq!(reads(&history, HistoryRing::Coarse), [(0, 25, 10)]);
        history.note(EventKind::Setting, 1, "mode: a -> b");
        history.write_if_due();
        drop(history);

        let history = History::of(&devices, &geometry, POOL);
        assert_eq!(reads(&history, HistoryRing::Fine), fine, "read back");
        assert_eq!(history.events()[0].text, "mode: a -> b");
        history.look_at(&look(start, 0, 0), base + 26);
        history.look_at(&look(start, 3, 7), base + 29);
        history.look_at(&look(start, 4, 8), base + 30);
        assert_eq!(reads(&history, HistoryRing::Fine)[2], (20, 9, 9), "both lives");
        assert_eq!(reads(&history, HistoryRing::Coarse), [(0, 29, 18)]);
        assert!(History::of(&devices, &geometry, PoolId([4; 16])).events().is_empty(), "another pool was made here");
    }

    #[test]
    fn a_failing_disk_leaves_room_for_other_events() {
        let history = History::in_memory();
        history.note(EventKind::Started, 1, "started");
        (0..1000).for_each(|_| history.note(EventKind::OriginFailed, 3, "an operation of the origin failed"));
        (0..2).for_each(|_| history.note(EventKind::Setting, 1, "x: 1 -> 2"));
        let events: Vec<_> = history.events().into_iter().map(|event| (event.number, event.count)).collect();
        assert_eq!(events, [(1, 1), (2, 3000), (3, 1), (4, 1)]);
        assert_eq!(history.wait(Duration::from_secs(60)), Pace::Look, "there is news");
    }

    #[test]
    fn a_pool_without_room_and_a_clock_that_goes_back_cost_only_history() {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry { segments_start: 0, ..Geometry::for_bytes(64 << 20).unwrap() };
        let devices = devices(&dir.path().join("pond"));
        let history = History::of(&devices, &geometry, POOL);
        assert_eq!(history.kept(), KeptWhere::Memory);
        let (start, base) = (Instant::now(), now() / 300 * 300 - 600);
        for (seconds, clock) in [(0, 100), (10, 110), (20, 40), (30, 50)] {
            history.look_at(&look(start, seconds, seconds), base + clock);
        }
        let times: Vec<_> = history.rows(HistoryRing::Fine, base).iter().map(|row| row.time - base).collect();
        assert_eq!(times, [40, 100, 110]);
        history.write_if_due();
        assert_eq!(history.kept(), KeptWhere::Memory);
    }

    #[test]
    fn a_device_that_leaves_is_free_and_the_next_one_has_the_whole_history() {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry::for_bytes(64 << 20).unwrap().with_history();
        let devices = devices(&dir.path().join("pond"));
        let history = History::of(&devices, &geometry, POOL);
        history.note(EventKind::Started, 1, "started");
        history.look_at(&look(Instant::now(), 0, 0), now() - 20);
        history.write_if_due();
        assert_eq!(history.kept(), KeptWhere::Pool);
        let first = devices.leave(MemberId(0)).unwrap();
        assert_eq!(Arc::strong_count(first.file.here().unwrap()), 1, "nothing else has it open");
        history.note(EventKind::Setting, 1, "x: 1 -> 2");
        history.write_if_due();
        assert_eq!((history.kept(), history.events().len()), (KeptWhere::Memory, 2));
        let second = self::devices(&dir.path().join("other")).leave(MemberId(0)).unwrap();
        devices.join(PoolDevice { member: MemberId(1), ..second });
        history.note(EventKind::Setting, 1, "x: 2 -> 3");
        history.write_if_due();
        assert_eq!(history.kept(), KeptWhere::Pool);
        // The first one comes back, with what it had.
        devices.join(first);
        let history = History::of(&devices, &geometry, POOL);
        assert_eq!(history.events().len(), 3, "the newer of the two");
        history.note(EventKind::Started, 1, "started");
        history.write_if_due();
        devices.leave(MemberId(1)).unwrap();
        assert_eq!(History::of(&devices, &geometry, POOL).events().len(), 4, "all of it is on the first one now");
    }
}
