//! The order in which a disk's arm serves waiting requests: one way, like an elevator that returns empty.
//!
//! Invariant: a waiting request is served within two sweeps, whatever comes meanwhile.

use std::collections::BTreeMap;

/// The requests that wait for the arm, by address.
pub struct Elevator<T> {
    waiting: BTreeMap<(u64, u64), T>,
    arrived: u64,
}

impl<T> Default for Elevator<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), arrived: 0 }
    }
}

impl<T> Elevator<T> {
    /// Adds a request at an address.
    pub fn push(&mut self, address: u64, who: T) {
        self.waiting.insert((address, self.arrived), who);
        self.arrived += 1;
    }

    /// Takes the next request, with the arm at `head`: the nearest ahead, or else the first of all. At one address,
    /// the oldest.
    pub fn next(&mut self, head: u64) -> Option<(u64, T)> {
        let next = self.waiting.range((head, 0)..).next().or_else(|| self.waiting.iter().next());
        let key = *next?.0;
        self.waiting.remove(&key).map(|who| (key.0, who))
    }

    /// How many requests wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_one_way_and_serves_equals_in_order_of_arrival() {
        let mut elevator = Elevator::default();
        for (address, name) in [(50, 'a'), (10, 'b'), (70, 'c'), (50, 'd'), (20, 'e')] {
            elevator.push(address, name);
        }
        let mut head = 40;
        let mut order = String::new();
        while let Some((address, name)) = elevator.next(head) {
            head = address;
            order.push(name);
        }
        assert_eq!(order, "adcbe");
    }
}
