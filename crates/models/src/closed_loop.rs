//! A modelled disk under a constant number of waiting requests, in modelled time.

use std::collections::VecDeque;

use headpond_base::Nanos;
use headpond_measure::{Latency, Random};

use crate::{DiskAccess, DiskModel, Elevator, Head, Network, Spindle};

/// The order in which an arm serves waiting requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The request that came first.
    Arrival,
    /// One way, and back empty: like file systems and headpond's own modelled disk.
    OneWay,
    /// The request that the head reaches first, by seek and rotation together: like a disk with a queue.
    ShortestAccess,
}

/// Random reads of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RandomReads {
    /// How many requests wait or are served at any time.
    pub depth: usize,
    /// Bytes of each request.
    pub bytes: u64,
    /// The number of requests in all.
    pub requests: u32,
    /// Bytes of the disk.
    pub span: u64,
    /// Decides the places and the turns of the platter.
    pub seed: u64,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct LoopOutcome {
    /// Requests a second.
    pub rate: f64,
    /// The time from each request to its end.
    pub latency: Latency,
}

/// A request that waits for the arm.
#[derive(Clone, Copy)]
struct Request {
    address: u64,
    /// Where it begins on the platter's turn, from 0 to 1.
    angle: f64,
    since: f64,
}

/// Runs a load to its end.
#[must_use]
pub fn closed_loop(model: &DiskModel, order: Order, load: &RandomReads) -> LoopOutcome {
    match model {
        DiskModel::Spindle(spindle) => arm(spindle, order, load),
        DiskModel::Network(network) => paced(network, load),
    }
}

/// Waiting requests, in one of the orders.
enum Queue {
    Arrival(VecDeque<Request>),
    OneWay(Elevator<Request>),
    ShortestAccess(Vec<Request>),
}

impl Queue {
    fn new(order: Order) -> Self {
        match order {
            Order::Arrival => Self::Arrival(VecDeque::new()),
            Order::OneWay => Self::OneWay(Elevator::default()),
            Order::ShortestAccess => Self::ShortestAccess(Vec::new()),
        }
    }

    fn push(&mut self, request: Request) {
        match self {
            Self::Arrival(queue) => queue.push_back(request),
            Self::OneWay(queue) => queue.push(request.address, request),
            Self::ShortestAccess(queue) => queue.push(request),
        }
    }

    fn next(&mut self, head: u64, takes: impl Fn(&Request) -> f64) -> Option<Request> {
        match self {
            Self::Arrival(queue) => queue.pop_front(),
            Self::OneWay(queue) => queue.next(head).map(|(_, request)| request),
            Self::ShortestAccess(queue) => {
                let times = queue.iter().map(takes).enumerate();
                let (first, _) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
                Some(queue.swap_remove(first))
            }
        }
    }
}

fn arm(spindle: &Spindle, order: Order, load: &RandomReads) -> LoopOutcome {
    let mut random = Random::new(load.seed);
    let mut request = |since: f64| Request {
        address: (random.share() * load.span as f64) as u64 / load.bytes * load.bytes,
        angle: random.share(),
        since,
    };
    let mut queue = Queue::new(order);
    (0..load.depth).for_each(|_| queue.push(request(0.0)));
    let (mut head, mut now, mut latency) = (Head::default(), 0.0, Latency::default());
    for _ in 0..load.requests {
        let takes = |request: &Request| {
            let way = request.address.abs_diff(head.address) as f64 / load.span as f64;
            let arrives = now + spindle.overhead + spindle.seek(way);
            let turn = (request.angle - arrives / spindle.revolution).rem_euclid(1.0);
            spindle.access(load.span, head, DiskAccess { address: request.address, bytes: load.bytes }, turn).0 as f64
        };
        let Some(served) = queue.next(head.address, takes) else { break };
        let end = now + takes(&served);
        now = end;
        head = Head { address: served.address + load.bytes, streaming: true };
        latency.record(Nanos((now - served.since) as u64));
        queue.push(request(now));
    }
    LoopOutcome { rate: rate(&latency, now), latency }
}

fn paced(network: &Network, load: &RandomReads) -> LoopOutcome {
    let (pace, takes) = (network.pace(load.bytes).0, network.access(load.bytes).0);
    // Requests wait in the order of their last answers, because answers keep the order of requests.
    let mut asked: VecDeque<u64> = std::iter::repeat_n(0, load.depth).collect();
    let (mut free, mut end, mut latency) = (0, 0, Latency::default());
    for _ in 0..load.requests {
        let Some(since) = asked.pop_front() else { break };
        let start = free.max(since);
        free = start + pace;
        end = start + takes;
        latency.record(Nanos(end - since));
        asked.push_back(end);
    }
    LoopOutcome { rate: rate(&latency, end as f64), latency }
}

fn rate(latency: &Latency, nanos: f64) -> f64 {
    if nanos > 0.0 { latency.count() as f64 * 1e9 / nanos } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(depth: usize) -> RandomReads {
        RandomReads { depth, bytes: 4096, requests: 40_000, span: 1 << 40, seed: 17 }
    }

    fn rate(spindle: Spindle, order: Order, depth: usize) -> f64 {
        closed_loop(&DiskModel::Spindle(spindle), order, &load(depth)).rate
    }

    /// The figures of the presets, in random 4 KiB reads a second: one at a time; then at depth 8, 32 and 128 with the
    /// shortest access first; then with a one-way elevator.
    const TABLE: [(Spindle, f64, [f64; 3], [f64; 3]); 3] = [
        (Spindle::HDD_7200, 85.0, [157.0, 243.0, 372.0], [128.0, 168.0, 193.0]),
        (Spindle::HDD_10000, 129.0, [244.0, 381.0, 576.0], [191.0, 240.0, 270.0]),
        (Spindle::HDD_15000, 202.0, [384.0, 592.0, 886.0], [291.0, 365.0, 407.0]),
    ];

    fn within(found: f64, expected: f64, share: f64) {
        assert!((found / expected - 1.0).abs() <= share, "{found:.1} for {expected}");
    }

    #[test]
    fn one_at_a_time_each_disk_reads_as_often_as_published_within_3_percent() {
        for (spindle, expected, ..) in TABLE {
            for order in [Order::Arrival, Order::OneWay, Order::ShortestAccess] {
                within(rate(spindle, order, 1), expected, 0.03);
            }
        }
    }

    #[test]
    fn at_depth_8_32_and_128_each_disk_reads_as_often_as_published_within_10_percent() {
        for (spindle, _, shortest, one_way) in TABLE {
            for (index, depth) in [8, 32, 128].into_iter().enumerate() {
                within(rate(spindle, Order::ShortestAccess, depth), shortest[index], 0.10);
                within(rate(spindle, Order::OneWay, depth), one_way[index], 0.10);
            }
        }
    }

    #[test]
    fn in_order_of_arrival_a_deeper_queue_only_makes_everybody_wait() {
        let disk = DiskModel::Spindle(Spindle::HDD_7200);
        let median = |depth| {
            let outcome = closed_loop(&disk, Order::Arrival, &load(depth));
            within(outcome.rate, 85.0, 0.03);
            outcome.latency.percentile(0.5).unwrap().0 as f64
        };
        within(median(32) / median(1), 32.0, 0.10);
    }

    #[test]
    fn a_volume_is_bound_by_its_latency_and_then_by_its_limit() {
        let volume = |network: Network, depth| closed_loop(&DiskModel::Network(network), Order::Arrival, &load(depth));
        within(volume(Network::CLOUD, 1).rate, 1e9 / (0.7e6 + 4096.0 * 8.0), 0.001);
        within(volume(Network::CLOUD, 8).rate, 3000.0, 0.001);
        let deep = volume(Network::CLOUD, 30);
        within(deep.rate, 3000.0, 0.001);
        // Thirty requests that share 3,000 a second wait 10 ms each.
        within(deep.latency.percentile(0.5).unwrap().0 as f64, 10e6, 0.01);
    }
}
