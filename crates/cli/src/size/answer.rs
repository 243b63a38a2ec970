//! The answer of `headpond size`: a curve, a verdict, and what limits them; as text and as JSON.

use std::fmt;

use headpond_control::Size;
use serde::Serialize;

/// The answer.
#[derive(Serialize, Debug)]
pub struct SizeAnswer {
    /// Where it comes from: `trace` or `mount`.
    pub source: &'static str,
    /// What was seen, in words.
    #[serde(skip)]
    pub seen: String,
    /// How long that took; `None` if a trace has no times.
    pub seconds: Option<f64>,
    /// One block of so many was looked at; 1: all.
    pub one_of: u64,
    /// Blocks that reads asked for.
    pub read_blocks: u64,
    /// Those of them that were never referred to before: no pool has them. Of a mount it is not known.
    pub first_read_blocks: Option<u64>,
    /// Bytes of all different blocks that were referred to. Of a mount it is not known.
    pub footprint_bytes: Option<u64>,
    /// Twice the size is worth it if it saves this share of the misses.
    pub worth: f64,
    /// The curve, smallest pool first.
    pub curve: Vec<CurvePoint>,
    /// The verdict.
    pub verdict: SizeVerdict,
    /// The size to buy, if the verdict names one.
    pub knee: Option<CurvePoint>,
    /// The verdict, in words.
    pub why: String,
    /// What to know before you trust it.
    pub caveats: Vec<String>,
}

/// What a pool of one size does.
#[derive(Serialize, Clone, Debug)]
pub struct CurvePoint {
    /// The size of the pool: what `--size` takes.
    pub pool_bytes: u64,
    /// What it keeps. The rest is room to work in.
    pub kept_bytes: u64,
    /// The share of the blocks that reads find in it.
    pub hit_ratio: f64,
    /// Blocks that they do not find.
    pub missed_blocks: u64,
    /// Reads of the origin in a day, at the rate that was seen.
    pub origin_reads_per_day: Option<f64>,
    /// Reads that the origin is spared in a day.
    pub saved_reads_per_day: Option<f64>,
    /// The share of the written blocks that never go to the origin, because they are written again before.
    pub absorbed_ratio: Option<f64>,
}

/// What can be said.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum SizeVerdict {
    /// This size: twice as much is not worth it.
    Knee,
    /// This size or more: new data was still read at the end.
    AtLeast,
    /// The present pool is large enough. A smaller one might be, too.
    Enough,
    /// A larger pool than the present one is worth it.
    MoreHelps,
    /// Too little was seen, or nearly everything once.
    TooShort,
    /// No reads were seen.
    NoReads,
}

/// The widest bar.
const BAR: usize = 30;

impl fmt::Display for SizeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.seen)?;
        if !self.curve.is_empty() {
            let per_day = self.curve.iter().any(|point| point.origin_reads_per_day.is_some());
            let absorbed = self.curve.iter().any(|point| point.absorbed_ratio.is_some());
            write!(f, "\n{:>10}   {:<38}", "pool", "reads found in it")?;
            write!(f, "{}", if per_day { "  origin reads a day    saved a day" } else { "" })?;
            writeln!(f, "{}", if absorbed { "   writes absorbed" } else { "" })?;
            for point in &self.curve {
                self.line(f, point, per_day, absorbed)?;
            }
        }
        writeln!(f, "\n{}", self.why)?;
        if !self.caveats.is_empty() {
            writeln!(f, "\nBefore you trust it:")?;
        }
        self.caveats.iter().try_for_each(|caveat| writeln!(f, "- {caveat}"))
    }
}

impl SizeAnswer {
    fn line(&self, f: &mut fmt::Formatter<'_>, point: &CurvePoint, per_day: bool, absorbed: bool) -> fmt::Result {
        let full = filled(point.hit_ratio);
        let is_knee = self.knee.as_ref().is_some_and(|knee| knee.pool_bytes == point.pool_bytes);
        let (mark, bar) = (if is_knee { "->" } else { "" }, "#".repeat(full) + &".".repeat(BAR - full));
        write!(f, "{mark:<2}{:>8}   {bar} {:>5.1} %", Size(point.pool_bytes).to_string(), point.hit_ratio * 100.0)?;
        if per_day {
            let count = |reads: Option<f64>| reads.map_or_else(String::new, rounded);
            let (reads, saved) = (count(point.origin_reads_per_day), count(point.saved_reads_per_day));
            write!(f, "{reads:>20}{saved:>15}")?;
        }
        if absorbed {
            write!(f, "{:>16.1} %", point.absorbed_ratio.unwrap_or(0.0) * 100.0)?;
        }
        writeln!(f)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a length for a drawing
fn filled(ratio: f64) -> usize {
    ((ratio * BAR as f64).round() as usize).min(BAR)
}

/// A count, rounded, as people say it.
pub fn rounded(count: f64) -> String {
    match count {
        count if count < 10_000.0 => format!("{count:.0}"),
        count if count < 1e6 => format!("{:.0} thousand", count / 1e3),
        count if count < 1e9 => format!("{:.1} million", count / 1e6),
        count => format!("{:.1} billion", count / 1e9),
    }
}

/// A pool's size as `--size` takes it.
pub fn as_option(bytes: u64) -> String {
    Size(bytes).to_string().replace(' ', "").replace("iB", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_rounded_and_sizes_can_be_typed() {
        let shown = [0.4, 9999.0, 10_000.0, 1_234_567.0, 3e9].map(rounded);
        assert_eq!(shown, ["0", "9999", "10 thousand", "1.2 million", "3.0 billion"]);
        assert_eq!([64 << 20, 3 << 29, 4 << 40].map(as_option), ["64M", "1.5G", "4T"]);
    }
}
