//! The documents say what the program does.

use std::fs;
use std::path::Path;

use headpond_control::ExitStatus;

use crate::pond::run;

#[test]
fn the_operations_guide_and_the_help_list_every_exit_status() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let guide = fs::read_to_string(guide).unwrap();
    let help = run(["--help"]).ok().text.clone();
    for (status, meaning) in ExitStatus::TABLE {
        let row = format!("| {} | {meaning} |", status.code());
        assert!(guide.contains(&row), "docs/operations.md lacks:\n{row}");
        assert!(help.contains(&format!("{:>4}  {meaning}", status.code())), "--help lacks {meaning}:\n{help}");
    }
}
