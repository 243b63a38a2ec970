//! What other people's tests of file systems say of a mount: the short form of `cargo xtask conformance`.
//!
//! `HEADPOND_FSX_OPERATIONS` sets how much fsx does, `HEADPOND_CONFORMANCE_SEED` what is random.

mod machine;

use headpond_lab::conformance::{self, Options};

#[test]
fn fsx_fio_and_pjdfstest_find_nothing_that_the_origin_does_not_have() {
    if !machine::lacks_nothing(conformance::missing()) {
        return;
    }
    let options = Options {
        fsx_operations: machine::number("HEADPOND_FSX_OPERATIONS", 40_000),
        fio_files: 1,
        seed: machine::number("HEADPOND_CONFORMANCE_SEED", 1),
    };
    let directory = machine::scratch("headpond-");
    match conformance::run(&machine::headpond(), directory.path(), &options, |line| println!("{line}")) {
        Ok(report) => {
            assert_eq!(report.fsx_operations, options.fsx_operations);
            let modes: Vec<_> = report.posix.iter().map(|(mode, _)| *mode).collect();
            assert_eq!(modes, ["write-back", "write-through", "write-around", "pass-through"]);
            assert!(report.posix.iter().all(|(_, compared)| compared.passed > 100), "{report:?}");
        }
        Err(failure) => panic!(
            "HEADPOND_CONFORMANCE_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            directory.keep().display()
        ),
    }
}
