//! The cache modes: a table of what each does with requests. Writes that do not go to the log are `ops/direct.rs`.

use headpond_base::CacheMode;

/// What a cache mode does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeRules {
    /// Writes are acknowledged by the log; otherwise by the origin.
    pub(crate) log_writes: bool,
    /// Data that was written to the origin directly is let into the pool too.
    pub(crate) keep_writes: bool,
    /// Reads may be served from clean blocks in the pool.
    pub(crate) serve_hits: bool,
    /// Data read from the origin is let into the pool.
    pub(crate) admit_reads: bool,
}

/// The rules of a mode.
pub(crate) const fn rules(mode: CacheMode) -> ModeRules {
    let (log_writes, keep_writes, serve_hits, admit_reads) = match mode {
        // A write is acknowledged once it is in the log's open batch, durable with the next sync, and reaches the origin by
        // destage. The fastest, and the only one with dirty data.
        CacheMode::WriteBack => (true, true, true, true),
        // A write is acknowledged by the origin, and kept in the pool as clean. A sync is the origin's.
        CacheMode::WriteThrough => (false, true, true, true),
        // A write goes to the origin alone, and what the pool has of those blocks is dropped. For loads that write much and
        // seldom read it back.
        CacheMode::WriteAround => (false, false, true, true),
        // Everything goes to the origin, and nothing new comes into the pool. What is still dirty there is served from there,
        // because the origin has not got it.
        CacheMode::PassThrough => (false, false, false, false),
    };
    ModeRules { log_writes, keep_writes, serve_hits, admit_reads }
}
