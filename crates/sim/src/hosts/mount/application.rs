//! The application of a mount: it reads what is there, and goes on from the last record.

use std::rc::Rc;

use headpond_base::{BLOCK, ObjectId, UnixNanos};
use headpond_engine::{Reply, Request, Treatment};

use crate::hosts::kept::TermState;
use crate::hosts::mount::Refusal;
use crate::hosts::mount::serving::{Serving, gathered};
use crate::hosts::records::{Record, Records, SLOTS};

/// How long a supervisor needs to end a mount that is not the owner's any more, in milliseconds.
const ENDS_AFTER: u64 = 20_000;

/// Blocks of a read: a part of [`SLOTS`], and no more than one record of so small a segment has.
const READ_BLOCKS: usize = 4;

impl Serving {
    /// Writes, syncs and reads for as long as this host is the owner.
    pub(super) async fn run_application(self: &Rc<Self>) -> Refusal {
        self.work().await;
        self.here.sleep_below(ENDS_AFTER).await;
        Refusal::Deposed
    }

    /// None once this host is not the owner any more.
    async fn work(&self) -> Option<()> {
        while !self.has_begun.get() || self.term() == TermState::Waits {
            self.here.sleep_below(1200).await;
        }
        let found = self.here.with(|world| world.origin.found());
        let object = match self.ask(Request::Open(found.into())).await? {
            Reply::Opened { object, .. } => object,
            other => return self.refused("the file is not opened", &other),
        };
        let mut records = self.read_all(object).await?;
        let owner = self.marker.owner;
        self.here.with(|world| world.serves(self.here.who, owner, &records));
        loop {
            self.here.sleep_below(1200).await;
            // `look_at_term` of `shard/src/turn.rs`: requests wait.
            match self.term() {
                TermState::Ended => return None,
                TermState::Waits => continue,
                TermState::Stands => {}
            }
            if self.here.with(|world| world.rng.chance(200)) {
                self.read_one(object, &records).await?;
            }
            self.append(object, &mut records).await?;
        }
    }

    /// Writes some records, and syncs them.
    async fn append(&self, object: ObjectId, records: &mut Records) -> Option<()> {
        let count = self.here.with(|world| *world.rng.pick(&[1, 1, 2, 4]));
        let mut written = Vec::new();
        for index in 0..count {
            let last = records.last();
            let id = self.here.with(|world| world.rng.next() | 1);
            let record = Record { number: last.number + 1, id, before: last.id };
            // A database's log is often opened so that each write is durable.
            let durable = index + 1 == count && self.here.with(|world| world.rng.chance(300));
            let (offset, data) = (record.offset(), record.block());
            let (mtime, how) = (UnixNanos(self.here.clock().0 as i64), Treatment::default());
            let reply = self.ask(Request::Write { object, offset, data, mtime, durable, how }).await?;
            if !matches!(reply, Reply::Changed(_)) {
                return self.refused("a write", &reply);
            }
            records.push(record);
            written.push(record);
            if durable {
                self.answered(&written);
                return Some(());
            }
        }
        let reply = self.ask(Request::sync(object)).await?;
        if !matches!(reply, Reply::Done) {
            return self.refused("a sync", &reply);
        }
        self.answered(&written);
        Some(())
    }

    fn answered(&self, written: &[Record]) {
        let batch = self.look(|engine| engine.stats().durable_host_batch);
        let (owner, epoch) = (self.marker.owner, self.marker.last.epoch);
        self.here.trace(|| format!("answers the sync of {:?}, batch {batch}", written.last().map(|last| last.number)));
        self.here.with(|world| world.answers(self.here.who, owner, written, (epoch, batch)));
    }

    async fn read(&self, object: ObjectId, offset: u64, len: u32) -> Option<Vec<u8>> {
        let request = Request::Read { object, offset, len, how: Treatment::default() };
        match self.ask(request).await? {
            Reply::Data(pieces, _) => Some(gathered(&pieces)),
            // With a clear error: nothing more can be asked of the history.
            Reply::Failed(_) if self.here.with(|world| world.may_lack) => {
                self.here.with(|world| world.is_undecidable = true);
                None
            }
            other => self.refused("a read", &other),
        }
    }

    async fn read_all(&self, object: ObjectId) -> Option<Records> {
        let mut bytes = Vec::new();
        for first in (0..SLOTS).step_by(READ_BLOCKS) {
            bytes.extend(self.read(object, first * BLOCK as u64, (READ_BLOCKS * BLOCK) as u32).await?);
        }
        match Records::read(&bytes) {
            Ok(records) => Some(records),
            Err(why) => self.breaks(&why),
        }
    }

    async fn read_one(&self, object: ObjectId, records: &Records) -> Option<()> {
        let slot = self.here.with(|world| world.rng.below(SLOTS));
        let block = self.read(object, slot * BLOCK as u64, BLOCK as u32).await?;
        match records.check(slot, &block) {
            Ok(()) => Some(()),
            Err(why) => self.breaks(&why),
        }
    }

    fn refused<T>(&self, what: &str, reply: &Reply) -> Option<T> {
        self.breaks(&format!("{what} is answered {reply:?}"))
    }

    fn breaks<T>(&self, why: &str) -> Option<T> {
        let (host, owner) = (self.here.who.host, self.marker.owner);
        self.here.with(|world| world.breaks(|| format!("an application of host {host}, owner {owner}: {why}")));
        None
    }
}
