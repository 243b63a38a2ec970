//! The guide to copies on another host, followed word for word.

mod machine;

use headpond_lab::hosts::{self, Guide};
use std::path::Path;

#[test]
fn two_hosts_and_a_witness_are_set_up_by_the_guide_and_the_second_goes_on_when_the_first_dies() {
    if !machine::lacks_nothing(hosts::guide_lacks()) {
        return;
    }
    let _beside = machine::side_by_side();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project");
    let document = std::fs::read_to_string(root.join("docs/copies.md")).expect("the guide");
    let directory = machine::scratch("headpond-guide-");
    let guide = Guide { document: &document, headpond: machine::program(), units: &root.join("packaging/systemd") };
    match hosts::follow(&guide, directory.path()) {
        Ok(printed) => println!("{printed}"),
        Err(failure) => panic!("{failure}\neverything is kept in {}", directory.keep().display()),
    }
}
