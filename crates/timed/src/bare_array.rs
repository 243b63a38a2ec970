//! Devices without headpond, as a store of pages: striped by the page, or each page on two neighbours.
//!
//! Keeps true: a write is answered when all its copies are there, and synced on each device after that device has it.
//! Two writes of one page under way may leave copies that differ, which costs no time and is not looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headpond_base::{Buf, Nanos};
use headpond_engine::Outcome;

use crate::machine::some_data;
use crate::modelled_flash::ModelledFlash;
use crate::page_store::{PAGE_BYTES, PageAccess, PageStore};

/// Something that ends on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    at: Nanos,
    request: u64,
    device: usize,
    /// A sync follows.
    then_sync: bool,
}

/// The devices.
pub struct BareArray {
    devices: Vec<ModelledFlash>,
    lost: Vec<bool>,
    copies: u64,
    data: Buf,
    now: Nanos,
    requests: u64,
    coming: BinaryHeap<Reverse<End>>,
    /// How many copies each request still waits for.
    waiting: BTreeMap<u64, usize>,
}

impl BareArray {
    /// New and empty devices. Each page has so many copies.
    #[must_use]
    pub fn new(mut devices: Vec<ModelledFlash>, copies: u64) -> Self {
        for device in &mut devices {
            device.trim_all();
        }
        let lost = vec![false; devices.len()];
        let data = some_data().slice(0..PAGE_BYTES as usize);
        let (coming, waiting) = (BinaryHeap::new(), BTreeMap::new());
        Self { devices, lost, copies, data, now: Nanos(1), requests: 0, coming, waiting }
    }

    /// The places of a page that are left: devices with offsets.
    fn places(&self, page: u64) -> Vec<(usize, u64)> {
        let devices = self.devices.len() as u64;
        let place = |copy| (((page + copy) % devices) as usize, (page / devices * self.copies + copy) * PAGE_BYTES);
        let places: Vec<_> = (0..self.copies).map(place).filter(|(device, _)| !self.lost[*device]).collect();
        assert!(!places.is_empty(), "page {page} went with its only device");
        places
    }

    fn end(&mut self, (at, outcome): (Nanos, Outcome), device: usize, then_sync: bool, request: u64) {
        assert!(!matches!(outcome, Outcome::Failed(_)), "a device that is there does what it is asked");
        self.coming.push(Reverse(End { at, request, device, then_sync }));
    }
}

impl PageStore for BareArray {
    fn now(&self) -> Nanos {
        self.now
    }

    fn ask(&mut self, page: u64, access: PageAccess) -> u64 {
        self.requests += 1;
        let (now, request, mut places) = (self.now, self.requests, self.places(page));
        if access == PageAccess::Read {
            // The copies take turns.
            places = vec![places[request as usize % places.len()]];
        }
        self.waiting.insert(request, places.len());
        for (device, offset) in places {
            let flash = &mut self.devices[device];
            let end = match access {
                PageAccess::Read => flash.read_at(now, offset, PAGE_BYTES as u32),
                PageAccess::Write | PageAccess::SyncedWrite => flash.write_at(now, offset, &self.data),
            };
            self.end(end, device, access == PageAccess::SyncedWrite, request);
        }
        request
    }

    fn next_answers(&mut self) -> Vec<u64> {
        let Some(Reverse(End { at, request, device, then_sync })) = self.coming.pop() else {
            panic!("a request is answered");
        };
        self.now = at;
        if then_sync && !self.lost[device] {
            let end = self.devices[device].sync_at(at);
            self.end(end, device, false, request);
            return Vec::new();
        }
        let left = self.waiting.get_mut(&request).expect("it waits for this");
        *left -= 1;
        if *left > 0 {
            return Vec::new();
        }
        self.waiting.remove(&request);
        vec![request]
    }

    fn pull(&mut self, device: u8) {
        self.devices[usize::from(device)].lose();
        self.lost[usize::from(device)] = true;
    }

    fn sync(&mut self) {}

    fn come_to_rest(&mut self) {}

    fn amplification(&self) -> Option<f64> {
        ModelledFlash::amplification(&self.devices)
    }
}
