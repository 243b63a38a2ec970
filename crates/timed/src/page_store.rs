//! What serves pages in virtual time, and a client that always has so many requests under way.
//!
//! Keeps true: a request counts when it is answered, and every request is answered. A client's own work takes no time:
//! neither its processor's nor headpond's is modelled.

use std::collections::BTreeMap;

use headpond_base::Nanos;
use headpond_measure::Latency;

use crate::rng::Rng;

/// Bytes of a page: what is read or written at once.
pub const PAGE_BYTES: u64 = 16 << 10;

/// What is asked of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageAccess {
    /// A read.
    Read,
    /// A write, answered once it is taken.
    Write,
    /// A write, answered once it survives a loss of power.
    SyncedWrite,
}

/// What serves pages.
pub trait PageStore {
    /// The time.
    fn now(&self) -> Nanos;

    /// Asks for a page. Returns the request's number.
    fn ask(&mut self, page: u64, access: PageAccess) -> u64;

    /// Lets time pass up to the next event, and returns the requests that are answered then.
    fn next_answers(&mut self) -> Vec<u64>;

    /// A device is taken out, with all that it has.
    fn pull(&mut self, device: u8);

    /// Waits until all that was answered survives a loss of power.
    fn sync(&mut self);

    /// Has all that was written where it is to stay, so that nothing goes on by itself.
    fn come_to_rest(&mut self);

    /// Pages that flash wrote for each page that the store gave it. `None` if the devices do not count.
    fn amplification(&self) -> Option<f64>;
}

/// A stretch of requests.
#[derive(Clone, Debug, Default)]
pub struct ServedStretch {
    /// How long each took that was answered.
    pub latency: Latency,
    /// From its start to its last answer.
    pub took: Nanos,
}

impl ServedStretch {
    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        (self.latency.count() * PAGE_BYTES) as f64 * 1e9 / self.took.0.max(1) as f64
    }
}

/// A client of random pages.
pub struct RandomClient<'a> {
    store: &'a mut dyn PageStore,
    rng: Rng,
    asked: BTreeMap<u64, Nanos>,
}

impl<'a> RandomClient<'a> {
    /// A client without a request under way. Equal seeds ask for equal pages.
    pub fn new(store: &'a mut dyn PageStore, seed: u64) -> Self {
        Self { store, rng: Rng::for_part(seed, 0), asked: BTreeMap::new() }
    }

    /// What it asks.
    pub fn store(&mut self) -> &mut dyn PageStore {
        self.store
    }

    fn ask(&mut self, page: u64, access: PageAccess) {
        let now = self.store.now();
        self.asked.insert(self.store.ask(page, access), now);
    }

    /// How long each request took that is answered at the next event.
    fn answers(&mut self) -> Vec<Nanos> {
        let answers = self.store.next_answers();
        let now = self.store.now();
        let since = answers.iter().filter_map(|number| self.asked.remove(number));
        since.map(|since| now.since(since)).collect()
    }

    /// Keeps `depth` requests for any of the first `pages` under way until so many are answered. They stay under way.
    pub fn keep_asking(
        &mut self,
        access: impl Fn(&mut Rng) -> PageAccess,
        depth: u64,
        pages: u64,
        requests: u64,
    ) -> ServedStretch {
        let begun = self.store.now();
        let mut stretch = ServedStretch::default();
        while stretch.latency.count() < requests {
            while (self.asked.len() as u64) < depth {
                let page = self.rng.below(pages);
                let access = access(&mut self.rng);
                self.ask(page, access);
            }
            self.answers().into_iter().for_each(|took| stretch.latency.record(took));
        }
        stretch.took = self.store.now().since(begun);
        stretch
    }

    /// The same, from when all is on flash until all is on flash again. So what memory takes counts only once flash has it.
    pub fn ask_until_on_flash(
        &mut self,
        access: impl Fn(&mut Rng) -> PageAccess,
        depth: u64,
        pages: u64,
        requests: u64,
    ) -> ServedStretch {
        self.store.sync();
        let begun = self.store.now();
        let stretch = self.keep_asking(access, depth, pages, requests);
        self.store.sync();
        ServedStretch { took: self.store.now().since(begun), ..stretch }
    }

    /// Waits for all that is under way.
    pub fn drain(&mut self) {
        while !self.asked.is_empty() {
            self.answers();
        }
    }

    /// Writes some pages once each, `depth` at a time: in order, or at random.
    pub fn write_once(&mut self, pages: std::ops::Range<u64>, depth: u64, at_random: bool) {
        let mut pages: Vec<u64> = pages.rev().collect();
        if at_random {
            self.rng.shuffle(&mut pages);
        }
        while !pages.is_empty() {
            while (self.asked.len() as u64) < depth
                && let Some(page) = pages.pop()
            {
                self.ask(page, PageAccess::Write);
            }
            self.answers();
        }
        self.drain();
    }
}
