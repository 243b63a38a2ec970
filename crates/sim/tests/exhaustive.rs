//! Every short history, with a power cut after everything that a device completes.

use headpond_sim::{quiet_panics, run_exhaustive};

#[test]
fn every_sequence_of_up_to_four_operations_survives_a_cut_after_each_device_write() {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match run_exhaustive(4, None, cores, &|_, _| {}) {
        Ok(cases) => {
            println!("{cases}");
            assert_eq!(cases.sequences, 9 + 81 + 729 + 6561);
            assert!(cases.recoveries > 100_000 && cases.deaths > 10_000, "{cases}");
        }
        Err(failure) => panic!("{failure}"),
    }
}
