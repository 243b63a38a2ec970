//! `headpond peer serve`, and the take-over of what it keeps.
//!
//! The steps are those of `copies/src/session.rs`, `copy.rs`, `store.rs` and `taken_over.rs`, in their order: whoever
//! changes them there repeats it here. Whom a peer serves, and what it carries out, the real `headpond_peer` says.

use headpond_base::{Errno, Nanos};
use headpond_peer::{
    Accepted, Asked, Hello, HelloRefused, HelloVerdict, KeeperSide, Kept, Reason, Said, Versions, judge,
};

use crate::hosts::host::{Device, Program, Stored, Who};
use crate::hosts::network::Frame;
use crate::hosts::pool::{BYTES, blank};
use crate::hosts::world::{Here, Shared, World};
use crate::planted_hosts::PlantedHosts;

/// How often a connection without requests looks whether it is over: `LOOK` of `server.rs`.
const LOOK: Nanos = Nanos(200 * Nanos::MILLISECOND.0);

/// How often what was written is brought to disk: `SETTLE` of `server.rs`.
const SETTLE: Nanos = Nanos(500 * Nanos::MILLISECOND.0);

/// How long a server has to let the file go: `PATIENCE` of `taken_over.rs`.
const LET_GO: Nanos = Nanos(10 * Nanos::SECOND.0);

/// How often who waits for a file's lock looks.
const LOOK_AT_LOCK: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// Why a session carries out nothing more.
enum Over {
    Superseded,
    Deposed(u64),
}

/// Why there is no take-over.
#[derive(Debug)]
pub(crate) enum StoreError {
    NothingKept,
    DoesNotCount,
    InUse,
}

impl World {
    /// Serves a connection that was just made.
    pub(crate) fn serve(&mut self, who: Who, conn: usize) {
        let here = Here { world: Shared(self.shared.upgrade().expect("it is running")), who };
        self.spawned.push((who, Box::pin(meet(here, conn))));
    }

    /// `Serving::may_replace`: a copy that counts is replaced with the first request, and not before.
    fn may_replace(&self, host: usize, hello: &Hello) -> bool {
        let host = &self.hosts[host];
        let Some(stored) = host.store.as_ref().filter(|stored| stored.counts(host.boot)) else { return false };
        if host.drains {
            return false;
        }
        let kept = Kept { owner: stored.owner, epoch: stored.epoch, member: stored.member, bytes: BYTES, counts: true };
        let makes = matches!(judge(Versions::SPOKEN, hello, Some(&kept)), HelloVerdict::Make(_));
        let ours = stored.lock.is_none_or(|lock| lock.program == Program::Server);
        makes && ours && stored.held.is_none()
    }

    /// `Serving::begin`: judges a hello, and records what follows from it.
    fn begin(&mut self, who: Who, hello: &Hello) -> Result<(u64, Accepted), HelloRefused> {
        let forgets = self.is_planted(PlantedHosts::NumberNotKept);
        let host = &mut self.hosts[who.host];
        let kept = host.store.as_ref().map(|stored| Kept {
            owner: if forgets { 0 } else { stored.owner },
            epoch: if forgets { 0 } else { stored.epoch },
            member: stored.member,
            bytes: BYTES,
            counts: stored.counts(host.boot),
        });
        let known = host.store.as_ref().map_or((0, 0), |stored| (stored.owner, stored.epoch));
        let refused =
            |reason| HelloRefused { reason, versions: Versions::SPOKEN, owner: known.0, epoch: known.1, bytes: 0 };
        let in_use = host.store.as_ref().is_some_and(|stored| stored.lock.is_some_and(|lock| lock != who));
        let held = host.store.as_ref().is_some_and(|stored| stored.held.is_some());
        if (in_use || held) && known.0 <= hello.owner && !forgets {
            return Err(refused(Reason::InUse));
        }
        match judge(Versions::SPOKEN, hello, kept.as_ref()) {
            HelloVerdict::Refuse(reason) => return Err(refused(reason)),
            HelloVerdict::Open(kept) => {
                let stored = host.store.as_mut().expect("it is kept");
                (stored.owner, stored.epoch) = (kept.owner, kept.epoch);
                (stored.boot, stored.settled, stored.taken_over) = (host.boot, false, false);
                stored.lock = stored.lock.or(Some(who));
            }
            HelloVerdict::Make(_) if host.drains => return Err(refused(Reason::Draining)),
            HelloVerdict::Make(kept) => {
                host.store = Some(Stored {
                    owner: kept.owner,
                    epoch: kept.epoch,
                    member: kept.member,
                    boot: host.boot,
                    settled: false,
                    taken_over: false,
                    removed: false,
                    device: Device::new(blank()),
                    lock: Some(who),
                    held: None,
                });
            }
        }
        host.sessions.newest += 1;
        host.sessions.owner = hello.owner;
        let member = host.store.as_ref().map_or([0; 16], |stored| stored.member);
        let version = hello.versions.common(Versions::SPOKEN).unwrap_or(0);
        Ok((host.sessions.newest, Accepted { version, durable: false, bytes: BYTES, member }))
    }

    /// `Copy::may`: whether a session may go on.
    fn may(&self, who: Who, session: u64) -> Result<(), Over> {
        let host = &self.hosts[who.host];
        if host.sessions.newest != session && !self.is_planted(PlantedHosts::GapAccepted) {
            return Err(Over::Superseded);
        }
        match &host.store {
            Some(stored) if stored.owner > host.sessions.owner && !self.is_planted(PlantedHosts::NumberNotKept) => {
                Err(Over::Deposed(stored.owner))
            }
            Some(stored) if stored.held.is_some() && !self.is_planted(PlantedHosts::NumberNotKept) => {
                Err(Over::Superseded)
            }
            Some(_) => Ok(()),
            None => Err(Over::Superseded),
        }
    }

    /// `Copy::carry_out`: what a request does, and its answer.
    fn carry_out(&mut self, who: Who, tag: u64, asked: &Asked<'_>) -> Option<Frame> {
        let rng = &mut self.rng;
        let stored = self.hosts[who.host].store.as_mut()?;
        let device = &mut stored.device;
        let said = match asked {
            Asked::Read { offset, len } => return Some(Frame::of(tag, Said::Data(&device.flash.read(*offset, *len)))),
            Asked::Write { offset, data } => device.write(*offset, data, rng),
            Asked::Trim { offset, len } => {
                device.flash.trim(*offset, *len).ok();
                return None;
            }
            // What is in the memory of a host survives the owner's.
            _ => Ok(()),
        };
        Some(Frame::of(tag, said.map_or(Said::Failed(Errno::IO), |()| Said::Done)))
    }

    /// `Serving::forget`: the owner has let the copy go. Its number stays. False if the file is another's.
    fn forget(&mut self, who: Who, session: u64) -> bool {
        let host = &mut self.hosts[who.host];
        let owner = host.sessions.owner;
        let ours = |stored: &&mut Stored| stored.owner == owner && stored.held.is_none();
        let Some(stored) = host.store.as_mut().filter(|_| host.sessions.newest == session).filter(ours) else {
            return false;
        };
        (stored.removed, stored.settled, stored.lock) = (true, false, None);
        stored.device = Device::new(blank());
        host.sessions.newest += 1;
        self.summary.drains += 1;
        true
    }

    /// `Serving::end`: a connection has ended. If it was the newest, the copy goes to disk, and its file is free.
    fn end_session(&mut self, who: Who, session: u64) {
        let host = &mut self.hosts[who.host];
        if host.sessions.newest != session {
            return;
        }
        host.sessions.newest += 1;
        if let Some(stored) = &mut host.store
            && stored.lock == Some(who)
        {
            stored.device.sync();
            stored.settled = true;
            stored.lock = None;
        }
    }
}

/// Serves one connection to its end.
async fn meet(here: Here, conn: usize) {
    let mut session = None;
    talk(&here, conn, &mut session).await;
    here.with(|world| world.close(conn, true));
    if let Some(session) = session {
        here.sleep_below(20).await;
        here.with(|world| world.end_session(here.who, session));
    }
}

async fn talk(here: &Here, conn: usize, session: &mut Option<u64>) {
    let mut side = KeeperSide::new();
    let mut replaces = None;
    let mut told = false;
    loop {
        // `DrainWord::is_due`.
        let drains = here.host(|host| host.drains);
        if session.is_some() && drains && !told {
            self::answer(here, conn, 0, Said::Draining);
        }
        told = drains && session.is_some();
        let came = here.wait(LOOK, move |world| world.conns[conn].ends[1].inbox.pop_front()).await;
        let Some(came) = came else {
            if let Some(session) = *session
                && let Err(over) = here.with(|world| world.may(here.who, session))
            {
                return say_over(here, conn, over);
            }
            continue;
        };
        let Some(frame) = came.read() else { return };
        let Ok(asked) = side.take(&frame) else { return };
        if let Some(hello) = replaces.take() {
            match here.with(|world| world.begin(here.who, &hello)) {
                Ok((begun, _)) => *session = Some(begun),
                Err(_) => return,
            }
        }
        let answer = match (asked, *session) {
            (Asked::Hello(hello), _) => {
                here.sleep_below(15).await;
                if here.with(|world| world.may_replace(here.who.host, &hello)) {
                    side.admit(BYTES);
                    replaces = Some(hello);
                    let member = hello.member;
                    let version = hello.versions.common(Versions::SPOKEN).unwrap_or(0);
                    let accepted = Accepted { version, durable: false, bytes: BYTES, member };
                    self::answer(here, conn, frame.tag, Said::Accepted(accepted));
                    continue;
                }
                match here.with(|world| world.begin(here.who, &hello)) {
                    Ok((begun, accepted)) => {
                        let Hello { owner, epoch, bytes, .. } = hello;
                        let what = if bytes > 0 { "a new copy" } else { "its copy" };
                        here.trace(|| format!("owner {owner}, epoch {epoch}, has {what} over connection {conn}"));
                        side.admit(accepted.bytes);
                        *session = Some(begun);
                        Said::Accepted(accepted)
                    }
                    Err(refused) => {
                        here.trace(|| format!("refuses a hello: {refused:?}"));
                        return answer(here, conn, frame.tag, Said::Refused(refused));
                    }
                }
            }
            (Asked::LetGo, Some(session)) => {
                if let Err(over) = here.with(|world| world.may(here.who, session)) {
                    return say_over(here, conn, over);
                }
                let said = if here.with(|world| world.forget(here.who, session)) {
                    Said::Done
                } else {
                    Said::Failed(Errno::IO)
                };
                return answer(here, conn, frame.tag, said);
            }
            (asked, Some(session)) => {
                let done = here.with(|world| {
                    world.may(here.who, session)?;
                    if let Some(answer) = world.carry_out(here.who, frame.tag, &asked) {
                        world.send(conn, true, answer);
                    }
                    Ok(())
                });
                if let Err(over) = done {
                    return say_over(here, conn, over);
                }
                continue;
            }
            (_, None) => return,
        };
        self::answer(here, conn, frame.tag, answer);
    }
}

fn answer(here: &Here, conn: usize, tag: u64, said: Said<'static>) {
    here.with(|world| world.send(conn, true, Frame::of(tag, said)));
}

fn say_over(here: &Here, conn: usize, over: Over) {
    if let Over::Deposed(owner) = over {
        answer(here, conn, 0, Said::Deposed(owner));
    }
}

/// The server's own thread: what was written goes to disk.
pub(crate) async fn settle(here: Here) {
    loop {
        here.sleep(SETTLE).await;
        here.host(|host| {
            if let Some(stored) = host.store.as_mut().filter(|stored| stored.lock == Some(here.who)) {
                stored.device.sync();
            }
        });
    }
}

/// `hold_copy`: waits until the server has let the copy go, and brings it to disk.
pub(crate) async fn hold(here: &Here) -> Result<(), StoreError> {
    here.sleep_below(10).await;
    let forgets = here.with(|world| world.is_planted(PlantedHosts::NumberNotKept));
    let (host, who) = (here.who.host, here.who);
    here.host(|host| {
        let boot = host.boot;
        let stored = host.store.as_mut().ok_or(StoreError::NothingKept)?;
        if !stored.counts(boot) && !stored.taken_over {
            return Err(StoreError::DoesNotCount);
        }
        stored.held = Some(who);
        Ok(())
    })?;
    let mut locked = false;
    for _ in 0..LET_GO.0 / LOOK_AT_LOCK.0 {
        locked = here.with(|world| {
            let Some(stored) = world.hosts[host].store.as_mut() else { return false };
            let free = stored.lock.is_none_or(|lock| lock == who) || forgets;
            if free {
                stored.lock = Some(who);
            }
            free
        });
        if locked {
            break;
        }
        here.sleep(LOOK_AT_LOCK).await;
    }
    if !locked {
        let_go(here);
        return Err(StoreError::InUse);
    }
    here.sleep_below(30).await;
    here.host(|host| {
        let boot = host.boot;
        let stored = host.store.as_mut().ok_or(StoreError::NothingKept)?;
        stored.device.sync();
        if stored.counts(boot) || stored.taken_over { Ok(()) } else { Err(StoreError::DoesNotCount) }
    })
}

/// The hold is dropped: the owner may connect again.
pub(crate) fn let_go(here: &Here) {
    let who = here.who;
    here.host(|host| {
        if let Some(stored) = host.store.as_mut() {
            stored.held = stored.held.filter(|held| *held != who);
            stored.lock = stored.lock.filter(|lock| *lock != who);
        }
    });
}

/// `HeldCopy::take`: raises the owner's number, durably.
pub(crate) fn raise(here: &Here, owner: u64) -> Result<u64, StoreError> {
    let who = here.who;
    here.host(|host| {
        let stored = host.store.as_mut().filter(|stored| stored.lock == Some(who)).ok_or(StoreError::InUse)?;
        stored.owner = owner;
        (stored.taken_over, stored.settled, stored.held) = (true, true, None);
        Ok(owner)
    })
}
