//! Write-around: a write goes to the origin alone, and what the pool has of those blocks is
//! dropped. For loads that write much and seldom read it back.

use super::Rules;

pub(super) const RULES: Rules = Rules { log_writes: false, keep_writes: false, serve_hits: true, admit_reads: true };
