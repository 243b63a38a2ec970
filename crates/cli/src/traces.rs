//! How commands read a trace, and what people should know of one before they trust an answer.

use std::fmt::Write;
use std::path::Path;

use clap::{Args, ValueEnum};
use headpond_control::{HowMany, Refusal};
use headpond_trace::{Format, LoadOptions, LoadedTrace, TraceError, TraceFacts, Unit};

/// How to read a trace.
#[derive(Args, Clone, Copy, Debug)]
pub struct ReadingArgs {
    /// The trace's format: headpond, vscsi, oracle, lis, csv, msr or keys [default: by its first bytes, or by the end
    /// of its name]
    #[arg(long)]
    pub format: Option<Format>,
    /// The unit of the trace's addresses, for formats that do not define it
    #[arg(long, value_enum)]
    pub unit: Option<UnitArg>,
}

/// The unit of an address.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitArg {
    /// blocks of 4096 bytes
    #[value(name = "4096")]
    Block,
    /// sectors of 512 bytes
    #[value(name = "512")]
    Sector,
    /// pages or keys; each is one block of the cache, whatever its size
    Page,
}

impl ReadingArgs {
    /// How to read the whole of this trace.
    pub fn options(self, trace: &Path) -> Result<LoadOptions, Refusal> {
        let found = match self.format {
            Some(format) => Some(format),
            None => Format::of_file(trace).map_err(|error| {
                let doing = format!("open trace {}", trace.display());
                Refusal::Failed { doing, error }
            })?,
        };
        let format = found.ok_or_else(|| {
            let what = "it is none of `headpond record`, and the end of its name is no known format. Add --format vscsi, \
                        oracle, lis, csv, msr or keys";
            Refusal::Usage(format!("trace {}: {what}", trace.display()))
        })?;
        let unit = self.unit.map(|unit| match unit {
            UnitArg::Block => Unit::Block,
            UnitArg::Sector => Unit::Sector,
            UnitArg::Page => Unit::Page,
        });
        Ok(LoadOptions { format, unit, reads_only: false, sample: 0 })
    }
}

/// Reads a trace into memory.
pub fn load(trace: &Path, options: LoadOptions) -> Result<LoadedTrace, Refusal> {
    LoadedTrace::read(trace, options).map_err(refusal)
}

/// Why a trace cannot be read.
pub fn refusal(error: TraceError) -> Refusal {
    match error {
        TraceError::Io { doing, path, error } => Refusal::Failed { doing: format!("{doing} trace {path}"), error },
        other => Refusal::Usage(format!("trace {other}")),
    }
}

/// What a recorded trace lacks, a line for each.
#[allow(clippy::cast_precision_loss)] // shares to show
pub fn caveats(facts: &TraceFacts) -> String {
    let mut text = String::new();
    if facts.dropped > 0 {
        let share = facts.dropped as f64 * 100.0 / (facts.dropped + facts.requests) as f64;
        let _ = writeln!(text, "  {} ({share:.1} %) were dropped while it was recorded", requests(facts.dropped));
    }
    if let Some(bytes) = facts.good_bytes {
        let _ = writeln!(text, "  the trace is cut or damaged: only its first {bytes} bytes were read");
    }
    let past = facts.past_reads + facts.past_writes;
    if past > 0 {
        let _ = writeln!(
            text,
            "  {} that passed by the pool, by a rule or in a long sequential run, are left out",
            requests(past)
        );
    }
    if text.is_empty() { text } else { format!("\nTo know of this trace:\n{text}") }
}

fn requests(count: u64) -> HowMany<'static> {
    HowMany(count, "request")
}
