//! Promises 1 to 3 without a database: what survives a kill is a prefix of the writes, each whole.
//!
//! `HEADPOND_ORDER_ROUNDS` sets the number of kills, `HEADPOND_ORDER_SEED` everything random.

mod machine;

use headpond_lab::kill::FlashAtKill;
use headpond_lab::order;
use std::path::Path;

fn can_run() -> bool {
    machine::lacks_nothing((!Path::new("/dev/fuse").exists()).then_some("/dev/fuse"))
}

#[test]
fn what_survives_a_kill_is_a_prefix_of_whole_writes_not_older_than_the_last_sync() {
    if !can_run() {
        return;
    }
    let (rounds, seed) =
        (machine::number("HEADPOND_ORDER_ROUNDS", 12) as u32, machine::number("HEADPOND_ORDER_SEED", 1));
    let directory = machine::scratch("headpond-");
    let mut lost = 0;
    let outcome =
        order::run(&machine::headpond(), directory.path(), rounds, seed, FlashAtKill::EveryOtherLoses, |round| {
            println!("{round:?}");
            lost += round.acknowledged - round.survived.min(round.acknowledged);
        });
    if let Err(failure) = outcome {
        panic!("HEADPOND_ORDER_SEED={seed}: {failure}\neverything is kept in {}", directory.keep().display());
    }
    assert!(lost > 0, "no kill lost anything, so nothing was tried");
}

/// The control: flash that lies loses what was synced, and that must be seen: by the mount, as the pool lacks the claim
/// that the origin waits for, or by what is found.
#[test]
fn on_flash_that_lies_the_loss_of_synced_writes_is_found() {
    if !can_run() {
        return;
    }
    let directory = machine::scratch("headpond-");
    let failure =
        order::run(&machine::headpond(), directory.path(), 12, 1, FlashAtKill::Lies, |_| {}).expect_err("it lies");
    let said = failure.to_string();
    let found = ["older image of the pool", "no number gives what was found", "changed at the origin"];
    assert!(found.iter().any(|found| said.contains(found)), "{said}");
}
