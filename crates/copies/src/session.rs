//! A connection of an owner, from its hello to its end.
//!
//! Invariants:
//! - A hello is answered once what it changes in the store is durable, and all sessions before it are over. One that is
//!   refused changes nothing, and ends no session, unless the disk fails or another process has the copy meanwhile.
//! - A hello that would replace a copy is carried out with the first request after its answer. One that an owner has given
//!   up may arrive late, behind a cut; nothing follows it, and the copy stays.
//! - Requests of a connection are carried out one by one, in order. An answer leaves after its request was carried out.
//! - A pool has a lock of its own for the beginnings and ends of its sessions: a slow disk holds up no other pool. In a
//!   thread it comes before the locks of a copy and of the records. The lock of all pools is held for look-ups alone.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_base::{Errno, PoolId};
use headpond_peer::{Accepted, Asked, Hello, HelloRefused, KeeperSide, PeerFrame, Reason, Said};

use crate::certificates::Certificates;
use crate::channel::{Channel, Socket};
use crate::copy::{Copy, Over, SharedCopy};
use crate::line::Line;
use crate::link::PATIENCE;
use crate::places::{Place, Places};
use crate::record::{Record, now};
use crate::store::{Store, Verdict};
use crate::store_error::StoreError;

/// How often a connection without requests looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);

/// How often what was written is brought to disk.
const SETTLE: Duration = Duration::from_millis(500);

/// Bytes of answers, beyond which they leave at once.
const OUT_MAX: usize = 1 << 20;

/// Says what happens, in a line.
type Say = dyn Fn(&str) + Send + Sync;

/// The copy of a pool, if it is served. Its lock is that of the pool.
type Slot = Arc<Mutex<Option<SharedCopy>>>;

/// A copy with its record, or why the hello is refused: with how many bytes there would be room for.
type Begun = Result<(SharedCopy, Record), (Reason, u64)>;

/// What all connections share.
pub(crate) struct Serving {
    store: Store,
    limit: u64,
    durable: bool,
    pools: Mutex<HashMap<PoolId, Slot>>,
    pub(crate) places: Arc<Places>,
    /// What could not be brought to disk at an end, or noted.
    unsettled: Mutex<Vec<String>>,
    say: Box<Say>,
}

/// A session of an owner.
struct Session {
    copy: SharedCopy,
    owner: u64,
    number: u64,
    durable: bool,
}

/// Whether an owner was told of the drain.
#[derive(Default)]
struct DrainWord {
    looked: Option<Instant>,
    told: bool,
}

impl DrainWord {
    /// Whether the word is due now: once for each drain.
    fn is_due(&mut self, store: &Store) -> bool {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return false;
        }
        self.looked = Some(Instant::now());
        let drains = store.is_draining();
        let due = drains && !self.told;
        self.told = drains;
        due
    }
}

impl Serving {
    pub(crate) fn of(store: Store, limit: u64, durable: bool, say: Box<Say>) -> Self {
        let (pools, places, unsettled) = (Mutex::default(), Arc::default(), Mutex::default());
        Self { store, limit, durable, pools, places, unsettled, say }
    }

    pub(crate) fn say(&self, what: &str) {
        (self.say)(what);
    }

    /// Ends all sessions, and brings their copies to disk.
    pub(crate) fn end_all(&self) -> io::Result<()> {
        self.places.close();
        let slots: Vec<Slot> = locked(&self.pools).values().cloned().collect();
        for slot in slots {
            // Of a session that did not come about.
            if let Some(copy) = locked(&slot).take() {
                self.let_go(&copy);
            }
        }
        // Of a server before this one that was killed.
        for record in self.store.all_records().map_err(io::Error::other)? {
            if record.settled || record.taken_over || self.store.why_not(&record).is_some() {
                continue;
            }
            match Copy::open(&self.store, record.pool_id(), &record.file) {
                Ok(copy) => self.let_go(&copy),
                Err(error) => self.say(&format!("pool {}: {error}", record.pool_id())),
            }
        }
        let unsettled = std::mem::take(&mut *locked(&self.unsettled));
        if unsettled.is_empty() { Ok(()) } else { Err(io::Error::other(unsettled.join("; "))) }
    }

    /// Serves one connection to its end.
    pub(crate) fn meet(
        self: &Arc<Self>,
        socket: Socket,
        place: &Place,
        certificates: Option<&Certificates>,
    ) -> io::Result<()> {
        socket.tune()?;
        socket.set_patience(PATIENCE, PATIENCE)?;
        let tls = certificates.filter(|_| matches!(socket, Socket::Tcp(_))).map(Certificates::of_guest).transpose();
        let channel = Channel::open(socket, tls.map_err(io::Error::other)?)?;
        channel.socket().set_patience(LOOK, PATIENCE)?;
        let line = Line::new(channel);
        line.while_alive(|| {
            let mut session = None;
            let ended = self.talk(&line, place, &mut session);
            if let Some(session) = session {
                self.end(&session);
            }
            ended
        })
    }

    fn talk(self: &Arc<Self>, line: &Line, place: &Place, session: &mut Option<Session>) -> io::Result<()> {
        let (mut inbox, mut out) = (Vec::new(), Vec::new());
        let mut side = KeeperSide::new();
        let mut replaces = None;
        let mut drain = DrainWord::default();
        loop {
            let mut taken = 0;
            while let Some((frame, len)) = PeerFrame::decode(&inbox[taken..]).map_err(io::Error::other)? {
                taken += len;
                let asked = side.take(&frame).map_err(io::Error::other)?;
                if let Some(hello) = replaces.take() {
                    match self.begin(&hello) {
                        Ok((begun, _)) => *session = Some(begun),
                        Err(refused) => return Err(io::Error::other(format!("no new copy: {:?}", refused.reason))),
                    }
                }
                match (asked, &session) {
                    (Asked::Hello(hello), _) => {
                        if !place.said_hello() {
                            return Err(io::Error::other("too many connections: one is refused"));
                        }
                        if let Some(accepted) = self.may_replace(&hello) {
                            side.admit(accepted.bytes);
                            replaces = Some(hello);
                            line.will_accept();
                            PeerFrame { tag: frame.tag, said: Said::Accepted(accepted) }.encode(&mut out);
                            continue;
                        }
                        match self.begin(&hello) {
                            Ok((begun, accepted)) => {
                                side.admit(accepted.bytes);
                                *session = Some(begun);
                                line.will_accept();
                                PeerFrame { tag: frame.tag, said: Said::Accepted(accepted) }.encode(&mut out);
                            }
                            Err(refused) => {
                                PeerFrame { tag: frame.tag, said: Said::Refused(refused) }.encode(&mut out);
                                return line.send_all(&out);
                            }
                        }
                    }
                    (Asked::LetGo, Some(begun)) => {
                        if let Err(over) = begun.copy.look(begun.number) {
                            return self.say_over(line, session, over, out);
                        }
                        let said = match self.forget(begun) {
                            Ok(()) => Said::Done,
                            Err(error) => {
                                self.say(&format!("pool {}: cannot let its copy go: {error}", begun.copy.pool));
                                Said::Failed(Errno::IO)
                            }
                        };
                        PeerFrame { tag: frame.tag, said }.encode(&mut out);
                        return line.send_all(&out);
                    }
                    (asked, Some(begun)) => {
                        let done = begun.copy.carry_out(begun.number, frame.tag, &asked, begun.durable, &mut out);
                        if let Err(over) = done {
                            return self.say_over(line, session, over, out);
                        }
                    }
                    (_, None) => return Err(io::Error::other("a request before a hello")),
                }
                if out.len() >= OUT_MAX {
                    line.send_all(&out)?;
                    out.clear();
                }
            }
            inbox.drain(..taken);
            if session.is_some() && drain.is_due(&self.store) {
                PeerFrame { tag: 0, said: Said::Draining }.encode(&mut out);
            }
            line.send_all(&out)?;
            out.clear();
            match line.receive(&mut inbox) {
                Ok(0) if session.is_none() => return Err(io::Error::other("it did not say who it is")),
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // Not `TimedOut`: with that TCP says that the other side is gone.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    if let Some(begun) = session
                        && let Err(over) = begun.copy.look(begun.number)
                    {
                        return self.say_over(line, session, over, out);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The pool has no member here any more: the copy is no more, and the session over.
    fn forget(&self, session: &Session) -> Result<(), StoreError> {
        let copy = &session.copy;
        let in_use = || StoreError::InUse(self.store.dir().join(&copy.name));
        let slot = locked(&self.pools).get(&copy.pool).cloned().ok_or_else(in_use)?;
        let mut open = locked(&slot);
        let records = self.store.records()?;
        let is_ours = |record: &Record| record.file == copy.name && record.owner == session.owner;
        let record = self.store.read(copy.pool)?.filter(is_ours).ok_or_else(in_use)?;
        if !copy.is_newest(session.number) || self.store.is_held(copy.pool) {
            return Err(in_use());
        }
        copy.close();
        *open = None;
        records.remove(&record, "its pool has let it go")?;
        self.say(&format!("pool {}: the owner has let the copy go: its room is free", copy.pool));
        Ok(())
    }

    /// Ends a session that is over: says so where it is due, after the answers that `out` has.
    fn say_over(&self, line: &Line, session: &mut Option<Session>, over: Over, mut out: Vec<u8>) -> io::Result<()> {
        let Some(begun) = session.take() else { return Ok(()) };
        let pool = begun.copy.pool;
        let depose = |out: &mut Vec<u8>, owner: u64| {
            self.say(&format!("pool {pool}: the owner is deposed: the owner's number is {owner} by now"));
            PeerFrame { tag: 0, said: Said::Deposed(owner) }.encode(out);
            line.send_all(out)
        };
        match over {
            // The word first: an owner that waits for it in vain would go on without its copy.
            Over::Deposed(owner) => {
                let said = depose(&mut out, owner);
                self.end(&begun);
                said
            }
            // The file first: the take-over waits for it.
            Over::Held => {
                self.say(&format!("pool {pool}: a take-over holds the copy"));
                self.end(&begun);
                let sent = line.send_all(&out);
                out.clear();
                match self.wait_for_holder(pool, begun.owner) {
                    Some(owner) => depose(&mut out, owner),
                    None => sent,
                }
            }
            Over::Superseded => {
                self.say(&format!("pool {pool}: a newer connection has taken the place of one"));
                self.end(&begun);
                line.send_all(&out)
            }
            // Noted by the end.
            Over::Failed(why) => {
                self.end(&begun);
                Err(io::Error::other(format!("pool {pool}: {why}")))
            }
            Over::Broken(rule) => {
                self.end(&begun);
                Err(io::Error::other(rule))
            }
        }
    }

    /// Waits as long as an owner waits for an answer. If the take-over is through by then, an owner that lives
    /// hears that it is deposed, before it goes on without its copy. Else it has lost the copy. The new number, if any.
    fn wait_for_holder(&self, pool: PoolId, owner: u64) -> Option<u64> {
        let since = Instant::now();
        loop {
            // First whether it is held: the number goes up before the hold ends.
            let held = self.store.is_held(pool);
            if let Some(larger) =
                self.store.read(pool).ok().flatten().map(|record| record.owner).filter(|now| *now > owner)
            {
                return Some(larger);
            }
            if !held || since.elapsed() >= PATIENCE || self.places.is_closed() {
                return None;
            }
            std::thread::sleep(LOOK / 10);
        }
    }

    /// The answer to a hello that would replace a copy that counts. Nothing has changed.
    fn may_replace(&self, hello: &Hello) -> Option<Accepted> {
        if hello.bytes == 0 {
            return None;
        }
        let verdict = self.store.judge(hello, self.limit).ok()?;
        let Verdict::Make(kept, Some(known)) = verdict else { return None };
        let durable = self.durable || hello.durable;
        let counts = self.store.why_not(&known).is_none() && !self.store.is_held(hello.pool);
        // One that another process has is refused at once.
        let slot = locked(&self.pools).get(&hello.pool).cloned();
        let served = slot.is_some_and(|slot| locked(&slot).is_some());
        let ours = served || Copy::open(&self.store, hello.pool, &known.file).is_ok();
        let version = self.store.speaks().common(hello.versions)?;
        (counts && ours).then_some(Accepted { version, durable, bytes: kept.bytes, member: kept.member })
    }

    /// Judges a hello, and makes durable what follows from it.
    fn begin(self: &Arc<Self>, hello: &Hello) -> Result<(Session, Accepted), HelloRefused> {
        let slot = locked(&self.pools).entry(hello.pool).or_default().clone();
        // One hello of a pool at a time: the next one finds what this one has made.
        let begun = self.begin_alone(hello, &mut locked(&slot));
        drop(slot);
        self.forget_idle();
        begun.map_err(|(reason, bytes)| {
            let known = self.store.read(hello.pool).ok().flatten();
            let (owner, epoch) = known.map_or((0, 0), |record| (record.owner, record.epoch));
            self.say(&format!("pool {}: an owner with number {} is refused: {reason:?}", hello.pool, hello.owner));
            HelloRefused { reason, versions: self.store.speaks(), owner, epoch, bytes }
        })
    }

    fn begin_alone(
        self: &Arc<Self>,
        hello: &Hello,
        open: &mut Option<SharedCopy>,
    ) -> Result<(Session, Accepted), (Reason, u64)> {
        let failing = |error: StoreError| {
            self.say(&format!("pool {}: {error}", hello.pool));
            (if matches!(error, StoreError::InUse(_)) { Reason::InUse } else { Reason::Failing }, 0)
        };
        let version = self.store.speaks().common(hello.versions).ok_or((Reason::Version, 0))?;
        let known = match self.store.judge(hello, self.limit).map_err(failing)? {
            Verdict::Refuse(reason, bytes) => return Err((reason, bytes)),
            Verdict::Open(_, known) => Some(known),
            Verdict::Make(_, known) => known,
        };
        if self.store.is_held(hello.pool) {
            return Err((Reason::InUse, 0));
        }
        // Nothing changes for a copy that another process has, such as a pool that took over.
        if let Some(known) = known.as_ref().filter(|known| open.is_none() && self.store.file_path(known).exists()) {
            *open = Some(Arc::new(Copy::open(&self.store, hello.pool, &known.file).map_err(failing)?));
        }
        let durable = self.durable || hello.durable;
        let begun = if hello.bytes > 0 {
            self.make(hello, durable, known.is_some(), open)
        } else {
            self.open(hello, durable, open)
        };
        let (copy, record) = begun.map_err(failing).and_then(|begun| begun).inspect_err(|_| {
            // A copy that nobody is connected with lies free.
            if let Some(copy) = open.take() {
                self.let_go(&copy);
            }
        })?;
        let number = copy.begin(record.owner);
        let what = if hello.bytes > 0 { "a new copy" } else { "its copy" };
        self.say(&format!("pool {}: owner {} has {what} of {} MiB", hello.pool, record.owner, record.bytes >> 20));
        let accepted = Accepted { version, durable, bytes: record.bytes, member: record.member_name() };
        Ok((Session { copy, owner: record.owner, number, durable }, accepted))
    }

    /// Records an owner of the copy that is kept.
    fn open(
        self: &Arc<Self>,
        hello: &Hello,
        durable: bool,
        open: &mut Option<SharedCopy>,
    ) -> Result<Begun, StoreError> {
        let Some(copy) = open.clone() else { return Ok(Err((Reason::NotKept, 0))) };
        copy.supersede();
        // The record will say that everything is on disk. What an earlier session left is not yet.
        if durable && let Err(why) = copy.settle() {
            self.say(&format!("pool {}: {why}", copy.pool));
            return Ok(Err((Reason::Failing, 0)));
        }
        Ok(match self.store.records()?.accept(hello, self.limit, durable)? {
            Ok(record) => {
                self.keep_settled(&copy)?;
                Ok((copy, record))
            }
            Err(refused) => Err(refused),
        })
    }

    /// Records an owner, and makes an empty copy for it.
    fn make(
        self: &Arc<Self>,
        hello: &Hello,
        durable: bool,
        known: bool,
        open: &mut Option<SharedCopy>,
    ) -> Result<Begun, StoreError> {
        let accepted = self.store.records()?.accept(hello, self.limit, durable)?;
        let mut record = match accepted {
            Ok(record) => record,
            Err(refused) => return Ok(Err(refused)),
        };
        // From here on the one before does not count.
        if let Some(before) = open.take() {
            before.close();
        }
        let made = self.store.make_file(&record);
        if !matches!(made, Ok(Ok(()))) {
            self.store.records()?.unmade(&record, known)?;
        }
        if let Err(refused) = made? {
            return Ok(Err(refused));
        }
        let copy = Arc::new(Copy::open(&self.store, hello.pool, &record.file)?);
        if !self.store.records()?.made(&mut record)? {
            return Ok(Err((Reason::InUse, 0)));
        }
        self.keep_settled(&copy)?;
        *open = Some(copy.clone());
        Ok(Ok((copy, record)))
    }

    /// Brings what is written to a copy to disk, again and again, on a thread of its own until the copy is closed.
    fn keep_settled(self: &Arc<Self>, copy: &SharedCopy) -> Result<(), StoreError> {
        let (kept, closed) = channel();
        let (serving, settled) = (self.clone(), copy.clone());
        let settle = move || {
            let mut said = false;
            while let Err(RecvTimeoutError::Timeout) = closed.recv_timeout(SETTLE) {
                let Err(why) = settled.settle() else { continue };
                match serving.note_failure(&settled, &why) {
                    // The connection looks, and ends.
                    Ok(()) => return,
                    Err(error) if !said => serving.say(&format!("pool {}: {error}", settled.pool)),
                    Err(_) => {}
                }
                said = true;
            }
        };
        let started = std::thread::Builder::new().name("settle".to_owned()).spawn(settle);
        started.map_err(StoreError::io("start a thread for", &self.store.dir().join(&copy.name)))?;
        copy.keep(kept);
        Ok(())
    }

    /// A connection has ended. If it was the newest, the copy goes to disk, and its file is free.
    fn end(&self, session: &Session) {
        let pool = session.copy.pool;
        let Some(slot) = locked(&self.pools).get(&pool).cloned() else { return };
        let mut open = locked(&slot);
        if session.copy.is_newest(session.number) {
            self.let_go(&session.copy);
            *open = None;
            self.say(&format!("pool {pool}: the connection has ended"));
        }
        drop(open);
        drop(slot);
        self.forget_idle();
    }

    /// Brings a copy to disk, notes whether it is there, and closes it.
    fn let_go(&self, copy: &Copy) {
        copy.supersede();
        let settled = copy.settle();
        let noted = match &settled {
            Ok(()) => self.note(copy, |record| {
                // What did not count before does not by this.
                record.settled = self.store.why_not(record).is_none();
                record.last_connection = now();
            }),
            Err(why) => self.note_failure(copy, why),
        };
        copy.close();
        let failed = settled.err().or(noted.err().map(|error| error.to_string()));
        if let Some(why) = failed {
            let what = format!("pool {}: the copy is not on disk, or not noted as that: {why}", copy.pool);
            self.say(&what);
            if self.places.is_closed() {
                locked(&self.unsettled).push(what);
            }
        }
    }

    /// Notes durably that a copy does not count, as its disk failed.
    fn note_failure(&self, copy: &Copy, why: &str) -> Result<(), StoreError> {
        self.note(copy, |record| {
            (record.settled, record.durable, record.failed) = (false, false, Some(why.to_owned()));
        })?;
        self.say(&format!("pool {}: the copy does not count any more: {why}", copy.pool));
        Ok(())
    }

    fn note(&self, copy: &Copy, change: impl FnOnce(&mut Record)) -> Result<(), StoreError> {
        self.store.records()?.note(copy.pool, &copy.name, change)
    }

    /// Forgets the locks of pools that nobody is connected with: who says hello may name any pool.
    fn forget_idle(&self) {
        locked(&self.pools).retain(|_, slot| Arc::strong_count(slot) > 1 || locked(slot).is_some());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one step; or, of a pool's lock, in the record.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
