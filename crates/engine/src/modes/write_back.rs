//! Write-back: a write is acknowledged once it is in the log's open batch, durable with the next
//! sync, and reaches the origin by destage. The fastest, and the only one with dirty data.

use super::Rules;

pub(super) const RULES: Rules = Rules { log_writes: true, keep_writes: true, serve_hits: true, admit_reads: true };
