//! The `headpond` command.

fn main() {}
