//! The cache modes. Each says in its file what it does; the engine asks only [`Rules`].

mod pass_through;
mod write_around;
mod write_back;
mod write_through;

use headpond_base::CacheMode;

/// What a cache mode does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
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
pub(crate) const fn rules(mode: CacheMode) -> Rules {
    match mode {
        CacheMode::WriteBack => write_back::RULES,
        CacheMode::WriteThrough => write_through::RULES,
        CacheMode::WriteAround => write_around::RULES,
        CacheMode::PassThrough => pass_through::RULES,
    }
}
