//! The figures of both sides next to each other, for the terminal and for the page.

use super::Outcome;
use super::side::Side;

/// From here on the processors are what limits the load: the kernel's share of the work (flash,
/// FUSE, timers) is not counted to any process.
const CPU_IS_THE_LIMIT: f64 = 0.6;

/// A figure of both sides.
pub struct Row {
    /// What it is.
    pub label: &'static str,
    /// Without headpond, with it.
    pub values: [String; 2],
    /// How they compare, where that says something.
    pub ratio: String,
}

impl Row {
    fn of(label: &'static str, sides: [&Side; 2], value: impl Fn(&Side) -> String) -> Self {
        Self { label, values: sides.map(value), ratio: String::new() }
    }

    fn compared(mut self, sides: [&Side; 2], value: impl Fn(&Side) -> f64) -> Self {
        let [without, with] = sides.map(value);
        if without > 0.0 && with > 0.0 {
            self.ratio = if with >= without {
                format!("{} x", short(with / without))
            } else {
                format!("1/{}", short(without / with))
            };
        }
        self
    }
}

/// A number with as many digits as mean something.
pub fn short(number: f64) -> String {
    if number == 0.0 {
        "0".to_owned()
    } else if number >= 100.0 {
        format!("{number:.0}")
    } else if number >= 10.0 {
        format!("{number:.1}")
    } else if number >= 0.1 {
        format!("{number:.2}")
    } else {
        format!("{number:.3}")
    }
}

/// All figures of the measured part.
pub fn rows(outcome: &Outcome) -> Vec<Row> {
    let sides = [&outcome.without, &outcome.with];
    let per_transaction = |side: &Side, rate: f64| {
        format!("{} ({} per transaction)", short(rate), short(rate / side.totals.tps.max(f64::MIN_POSITIVE)))
    };
    let reads = |side: &Side| side.rate(|figures| figures.origin_reads);
    let writes = |side: &Side| side.rate(|figures| figures.origin_writes);
    let bytes = |side: &Side| {
        let mib = |rate: f64| short(rate / f64::from(1 << 20));
        format!("{} / {}", mib(side.rate(|f| f.origin_read_bytes)), mib(side.rate(|f| f.origin_write_bytes)))
    };
    vec![
        Row::of("transactions per second", sides, |side| short(side.totals.tps))
            .compared(sides, |side| side.totals.tps),
        Row::of("latency, mean (ms)", sides, |side| short(side.totals.mean_ms))
            .compared(sides, |side| side.totals.mean_ms),
        Row::of("latency, 95th percentile (ms)", sides, |side| short(side.totals.p95_ms))
            .compared(sides, |side| side.totals.p95_ms),
        Row::of("latency, longest (ms)", sides, |side| short(side.totals.max_ms))
            .compared(sides, |side| side.totals.max_ms),
        Row::of("origin reads per second", sides, |side| per_transaction(side, reads(side))),
        Row::of("origin writes per second", sides, |side| per_transaction(side, writes(side))),
        Row::of("origin MiB/s, read / written", sides, bytes),
        Row::of("reads found on flash", sides, |side| {
            side.hit_ratio().map_or("-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
        }),
        Row::of("headpond's CPU seconds for a million requests", sides, |side| {
            side.processor_cost().map_or("-".to_owned(), short)
        }),
        Row::of("spread of the 10 s averages", sides, |side| {
            format!("within {:.1} % of their mean", side.spread() * 100.0)
        }),
        Row::of("what was the limit", sides, |side| {
            let share = side.cpu_share();
            let limit = if share >= CPU_IS_THE_LIMIT { "the processors" } else { "storage" };
            format!("{limit} ({:.0} % of the processors used)", share * 100.0)
        }),
    ]
}

/// How the data came home, in a sentence.
pub fn return_home(outcome: &Outcome) -> String {
    let after = &outcome.after;
    let mut text = String::new();
    if outcome.with.cached {
        text = format!(
            "When the load ended, {:.0} MiB were newer on flash than on the origin; `headpond unmount` wrote them back in {:.1} s. ",
            after.dirty_mib,
            after.unmount.as_secs_f64()
        );
    }
    text + &format!(
        "A server on the origin alone, without headpond, found {} of {} tables whole (CHECK TABLE ... EXTENDED).",
        after.tables_checked, outcome.plan.load.tables
    )
}

/// The table as text.
pub fn text(outcome: &Outcome) -> String {
    let header = Row {
        label: "",
        values: [outcome.without.title.to_owned(), outcome.with.title.to_owned()],
        ratio: "with : without".to_owned(),
    };
    let rows: Vec<Row> = std::iter::once(header).chain(rows(outcome)).collect();
    let width = |column: usize| {
        let cell = |row: &Row| match column {
            0 => row.label.len(),
            column => row.values[column - 1].len(),
        };
        rows.iter().map(cell).max().unwrap_or(0)
    };
    let (first, second, third) = (width(0), width(1), width(2));
    let line = |row: &Row| {
        let [without, with] = &row.values;
        format!("{:first$}  {without:>second$}  {with:>third$}  {:>14}", row.label, row.ratio).trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(1, "-".repeat(first + second + third + 20));
    lines.push(String::new());
    lines.push(return_home(outcome));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_keep_the_digits_that_mean_something() {
        assert_eq!(
            [short(0.0), short(0.456), short(7.891), short(45.67), short(0.0042)],
            ["0", "0.46", "7.89", "45.7", "0.004"]
        );
    }
}
