//! A file behind a pool, as a store of pages.
//!
//! Keeps true: each answer is right, also after a device is pulled. The counters tell of reads that the pool could not
//! serve.

use headpond_base::{Buf, MemberId, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Reply, Request, Treatment};

use crate::machine::{Machine, some_data};
use crate::page_store::{PAGE_BYTES, PageAccess, PageStore};

/// The file, and the machine that serves it.
pub struct PoolStore {
    machine: Machine,
    object: ObjectId,
    /// What every write writes.
    data: Buf,
}

impl PoolStore {
    /// A file of so many bytes.
    #[must_use]
    pub fn new(mut machine: Machine, file: u64) -> Self {
        let object = machine.open(file);
        Self { machine, object, data: some_data().slice(0..PAGE_BYTES as usize) }
    }
}

impl PageStore for PoolStore {
    fn now(&self) -> Nanos {
        self.machine.now()
    }

    fn ask(&mut self, page: u64, access: PageAccess) -> u64 {
        let (object, offset, how) = (self.object, page * PAGE_BYTES, Treatment::default());
        let request = match access {
            PageAccess::Read => Request::Read { object, offset, len: PAGE_BYTES as u32, how },
            PageAccess::Write | PageAccess::SyncedWrite => {
                let data = self.data.clone();
                let durable = access == PageAccess::SyncedWrite;
                Request::Write { object, offset, data, mtime: UnixNanos(9), durable, how }
            }
        };
        self.machine.ask(request).0
    }

    fn next_answers(&mut self) -> Vec<u64> {
        let mut replies = self.machine.take_replies();
        // What is answered from memory is answered when it is asked, before any time has passed.
        if replies.is_empty() {
            assert!(self.machine.step(Nanos(u64::MAX)), "a request is answered");
            replies = self.machine.take_replies();
        }
        let number = |(id, reply): (_, Reply)| {
            assert!(matches!(reply, Reply::Data(..) | Reply::Changed(_)), "a page is answered with {reply:?}");
            let headpond_engine::RequestId(number) = id;
            number
        };
        replies.into_iter().map(number).collect()
    }

    fn pull(&mut self, device: u8) {
        self.machine.lose(MemberId(device.into()));
    }

    fn sync(&mut self) {
        let synced = self.machine.ask_and_wait(Request::SyncAll);
        assert!(matches!(synced, Reply::Done), "a sync is answered with {synced:?}");
    }

    fn come_to_rest(&mut self) {
        let flushed = self.machine.ask_and_wait(Request::flush_all(1));
        assert!(matches!(flushed, Reply::Done), "a flush is answered with {flushed:?}");
    }

    fn amplification(&self) -> Option<f64> {
        self.machine.amplification()
    }
}
