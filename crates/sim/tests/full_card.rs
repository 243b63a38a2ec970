//! Why headpond's flash is a log: random writes through it hardly know how full the card is, where the raw card loses
//! most of its speed. The whole engine in virtual time, on a modelled card and an origin that takes whatever destage
//! gives it, so that the flash is what limits. What it comes to: docs/results.

use headpond_engine::Config;
use headpond_format::Geometry;
use headpond_models::Network;
use headpond_models::flash::{Card, Model};
use headpond_sim::{Arrival, OnCard, PAGE, PagedLoad, TimedReport, run_paged};

/// The cards of which a study has the whole curve.
const CARDS: [Model; 2] = [Model::TACHION, Model::DUO];
const POOL: u64 = 64 << 20;
const SEGMENT: u64 = 1 << 20;
/// Seconds in which the pool is written over several times before anything counts.
/// So many times slower than the real card is the modelled one.
const SLOWER: f64 = OnCard::SLOWER;
const WARM_UP: usize = 12;
const SECONDS: u64 = 32;

/// Pages of 16 KiB a second that are written at random through headpond, where the pool takes this share of the card
/// and the data this share of the pool; and the card's own amplification.
fn through_headpond(model: Model, share: f64, full: f64) -> (f64, f64) {
    let room = Geometry::with_segment_bytes(POOL, SEGMENT).data_blocks() * 4096;
    let load = PagedLoad {
        pool: POOL,
        file: (room as f64 * full) as u64 / PAGE * PAGE,
        arrival: Arrival::Depth(32),
        seconds: SECONDS,
        origin: Network { iops: 1e6, rate: 1e10, latency: 50_000.0 },
        card: Some(OnCard { model, share }),
        seed: 1,
    };
    let report = run_paged(&load, Config::default());
    (TimedReport::mean(&report.writes[WARM_UP..]), report.amplification)
}

/// A table and no test: what the raw card writes, and what goes through headpond, by how much of the card is taken.
#[test]
#[ignore = "a table: -- --ignored --nocapture"]
fn by_how_much_of_the_card_is_taken() {
    for model in CARDS {
        for tenth in 2..=10 {
            let share = f64::from(tenth) / 10.0;
            let raw = Card::filled(model, share, 1).settled();
            let (through, amplification) = through_headpond(model, share, 1.0);
            println!(
                "{} {tenth}0 %: raw {:.0} MiB/s, amplification {:.2}; through headpond {:.0}, {amplification:.3}",
                model.name,
                raw.rate,
                raw.amplification,
                through * SLOWER * PAGE as f64 / f64::from(1 << 20)
            );
        }
    }
}

#[test]
fn random_writes_through_headpond_on_a_full_card_keep_nine_tenths_of_their_speed_on_a_third_of_it() {
    for model in CARDS {
        let raw = |used: f64| Card::filled(model, used, 1).settled().rate;
        let (third, full) = (through_headpond(model, 1.0 / 3.0, 1.0), through_headpond(model, 1.0, 1.0));
        let (third_of_data, ratio) = (through_headpond(model, 1.0, 1.0 / 3.0), full.0 / third.0);
        println!(
            "{}: raw {:.0} MiB/s on a third, {:.0} full: {:.2}. Through headpond, on a card forty times slower: {:.0} and {:.0} \
             writes/s: {ratio:.2}; a third of the pool in use on the whole card: {:.0}. Amplification in the card {:.3}, \
             {:.3}, {:.3}",
            model.name,
            raw(1.0 / 3.0),
            raw(1.0),
            raw(1.0) / raw(1.0 / 3.0),
            third.0,
            full.0,
            third_of_data.0,
            third.1,
            full.1,
            third_of_data.1
        );
        assert!(raw(1.0) / raw(1.0 / 3.0) < 0.5, "{}: a card that does not slow down shows nothing", model.name);
        assert!(ratio >= 0.9, "{}: {third:?} on a third of the card, {full:?} on all of it", model.name);
        // What reclaim and destage cost once all of the pool is in use, which has nothing to do with the card.
        assert!(full.0 / third_of_data.0 >= 0.85, "{}: {third_of_data:?} with a third of the data", model.name);
    }
}
