//! Promises 1 to 3 and 6 on a whole machine that loses power: origin and flash lose, tear and reorder what they had not
//! flushed, at the same moment, and every record that was acknowledged is there afterwards.
//!
//! `HEADPOND_POWER_CUTS` sets the number of cuts, `HEADPOND_POWER_SEED` what decides them.

mod machine;

use headpond_lab::power_cuts::{self, CutReport, Options, Programs, power::Which};
use std::path::PathBuf;

/// Runs some cuts. A failure of the bed itself ends the test; what is wrong with headpond is in the report.
fn cut(cuts: u32, seed: u64, lies: Option<Which>) -> Option<CutReport> {
    if !machine::lacks_nothing(power_cuts::missing()) {
        return None;
    }
    let _beside = machine::side_by_side();
    let lab = PathBuf::from(env!("CARGO_BIN_EXE_headpond-lab"));
    let programs = Programs { headpond: machine::program().to_owned(), lab };
    let directory = machine::scratch("headpond-power-cuts-");
    let options = Options { cuts, seed, lies };
    let outcome = power_cuts::run(&programs, directory.path(), &options, |round| println!("{round}"));
    let wrong = outcome.as_ref().map_or(true, |report| report.wrong.is_some());
    if wrong && lies.is_none() {
        println!("HEADPOND_POWER_SEED={seed}; everything is kept in {}", directory.keep().display());
    }
    let report = outcome.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    Some(report)
}

#[test]
fn every_acknowledged_record_survives_power_cuts_of_the_whole_machine() {
    let cuts = machine::number("HEADPOND_POWER_CUTS", 5) as u32;
    let Some(report) = cut(cuts, machine::number("HEADPOND_POWER_SEED", 1), None) else { return };
    assert_eq!(report.wrong, None);
    assert_eq!(report.rounds.len(), cuts as usize);
    let to_lose = |round: &power_cuts::Round| round.cut.unflushed.iter().any(|disk| disk.writes > 0);
    assert!(report.rounds.iter().all(to_lose), "a cut with nothing to lose does not count");
}

/// The control: a pool whose flushes are answered and not carried out loses what was acknowledged, and that must be
/// found: by headpond itself, which refuses, or by the ledger.
#[test]
fn on_flash_that_lies_about_its_flushes_the_power_cut_is_found_to_lose() {
    let Some(report) = cut(12, 1, Some(Which::Flash)) else { return };
    let wrong = report.wrong.expect("the flash lied, and nothing was wrong");
    let found = ["headpond check, status", "mount refused, status", "lost at the"];
    assert!(found.iter().any(|found| wrong.starts_with(found)), "{wrong}");
}
