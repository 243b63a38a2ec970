//! What no cache without foresight can beat on random reads by Zipf's law: the bound for the loads `cold-zipf` and
//! `warm-zipf` of the lab (docs/results).
//!
//! The cache keeps every page that was asked for, and fills the rest of its room with other pages, which are all alike
//! to it. After `n` requests it has not seen a page of popularity `p` with probability `exp(-n p)`. A request misses if
//! its page is one of those and not among the others that the cache holds.

/// 3 GiB in pages of 8 KiB.
const PAGES: usize = 393_216;
/// Pages in a GiB.
const GIB: f64 = 131_072.0;
const EXPONENT: f64 = 1.1;
/// What the origin serves in a second.
const IOPS: f64 = 200.0;

/// What fio multiplies a rank by, in 64 bits, before it takes the remainder by the number of pages.
const FIO_HASH: u64 = 0x61C8_8646_80B5_83EB;

/// Popularities of the pages that are asked for at all. fio hashes ranks to pages. It multiplies by an odd number, and
/// 2^17 divides the number of pages: so of any 2^17 ranks in a row no two meet, and few pages have several.
fn popularities() -> Vec<f64> {
    let mut pages = vec![0.0; PAGES];
    let mut whole = 0.0;
    for rank in 0..PAGES {
        let weight = (rank as f64 + 1.0).powf(-EXPONENT);
        pages[(rank as u64).wrapping_mul(FIO_HASH) as usize % PAGES] += weight;
        whole += weight;
    }
    pages.retain(|weight| *weight > 0.0);
    pages.iter_mut().for_each(|weight| *weight /= whole);
    pages
}

/// Requests a second, on the average from one second to another.
fn rate(popularities: &[f64], room: f64, reads: f64, from: f64, to: f64) -> f64 {
    let (mut requests, mut seconds) = (1.0, 0.0);
    let mut before = 0.0;
    while seconds < to {
        let (mut seen, mut new) = (0.0, 0.0);
        for popularity in popularities {
            let unseen = (-popularity * requests).exp();
            seen += 1.0 - unseen;
            new += popularity * unseen;
        }
        let held = ((room - seen) / (PAGES as f64 - seen)).max(0.0);
        let rate = IOPS / (reads * new * (1.0 - held));
        let step = (0.04 * requests).max(400.0).min((to - seconds) * rate);
        if seconds < from && seconds + step / rate >= from {
            before = requests + (from - seconds) * rate;
        }
        (requests, seconds) = (requests + step, seconds + step / rate);
    }
    (requests - before) / (to - from)
}

#[test]
fn the_bounds_of_the_loads_on_a_slow_volume_are_as_the_results_say() {
    let popularities = popularities();
    for (load, reads, room, from, to, expected) in [
        ("reads, the first 180 s, room of the pool", 1.0, GIB, 0.0, 180.0, 1_740.0),
        ("the same and 256 MiB", 1.0, 1.25 * GIB, 0.0, 180.0, 2_076.0),
        ("80/20, from 240 s to 360 s, 80 % of the pool", 0.8, 0.8 * GIB, 240.0, 360.0, 3_287.0),
        ("the same, the pool", 0.8, GIB, 240.0, 360.0, 3_749.0),
        ("the same and 256 MiB", 0.8, 1.25 * GIB, 240.0, 360.0, 4_510.0),
    ] {
        let found = rate(&popularities, room, reads, from, to);
        println!("{load}: {found:.0} requests a second");
        assert!((found / expected - 1.0).abs() < 0.02, "{load}: {found}, expected {expected}");
    }
}
