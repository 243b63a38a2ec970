//! The cache modes: a table of what each does with requests. Writes that do not go to the log are `ops/direct.rs`.

use headpond_base::CacheMode;

/// What a cache mode does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeBehaviour {
    /// The log acknowledges writes; otherwise the origin does.
    pub(crate) log_writes: bool,
    /// The pool lets in data that programs wrote to the origin directly.
    pub(crate) keep_writes: bool,
    /// Clean blocks in the pool may serve reads.
    pub(crate) serve_hits: bool,
    /// The pool lets in data read from the origin.
    pub(crate) admit_reads: bool,
}

/// What a mode does.
pub(crate) const fn behaviour(mode: CacheMode) -> ModeBehaviour {
    let (log_writes, keep_writes, serve_hits, admit_reads) = match mode {
        // A write is acknowledged once it is in the log's open batch, durable with the next sync, and reaches the
        // origin by destage. The fastest, and the only one with dirty data.
        CacheMode::WriteBack => (true, true, true, true),
        // A write is acknowledged by the origin, and kept in the pool as clean. A sync is the origin's.
        CacheMode::WriteThrough => (false, true, true, true),
        // A write goes to the origin alone, and what the pool has of those blocks is dropped. For loads that write much
        // and seldom read it back.
        CacheMode::WriteAround => (false, false, true, true),
        // Everything goes to the origin, and nothing new comes into the pool. What is still dirty there is served from
        // there, because the origin has not got it.
        CacheMode::PassThrough => (false, false, false, false),
    };
    ModeBehaviour { log_writes, keep_writes, serve_hits, admit_reads }
}
