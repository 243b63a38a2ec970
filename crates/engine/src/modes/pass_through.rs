//! Pass-through: everything goes to the origin, and nothing new comes into the pool. What is
//! still dirty there is served from there, because the origin has not got it.

use super::Rules;

pub(super) const RULES: Rules = Rules { log_writes: false, keep_writes: false, serve_hits: false, admit_reads: false };
