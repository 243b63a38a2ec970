//! Write-through: a write is acknowledged by the origin, and what was written is kept in the
//! pool as clean. A sync is the origin's. Reads hit what was just written.

use super::Rules;

pub(super) const RULES: Rules = Rules { log_writes: false, keep_writes: true, serve_hits: true, admit_reads: true };
