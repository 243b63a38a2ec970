//! All promises at once on real software, for a minute: the short form of `cargo xtask soak`.
//!
//! `HEADPOND_SOAK_SECONDS` sets how long, `HEADPOND_SOAK_SEED` what the operator does.

mod machine;

use headpond_lab::soak::{self, Options};
use std::time::Duration;

#[test]
fn a_minute_of_everything_breaks_no_promise() {
    if !machine::lacks_nothing(soak::missing()) {
        return;
    }
    let options = Options {
        duration: Duration::from_secs(machine::number("HEADPOND_SOAK_SECONDS", 45)),
        leg_max: Duration::from_secs(8),
        seed: machine::number("HEADPOND_SOAK_SEED", 1),
    };
    let directory = tempfile::Builder::new().prefix("headpond-soak-").tempdir_in("/var/tmp").expect("a directory");
    match soak::run(&machine::headpond(), directory.path(), &options, |sum| println!("{sum}")) {
        Ok(sum) => {
            assert!(sum.tried_everything(), "not everything was tried: {sum}");
        }
        Err(failure) => panic!(
            "HEADPOND_SOAK_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            directory.keep().display()
        ),
    }
}
