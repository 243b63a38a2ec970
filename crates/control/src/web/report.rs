//! What the page and scripts get as JSON. docs/page.md describes it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headpond_format::{HISTORY_BYTES, HistoryRing, HistoryRow};
use serde_json::{Map, Value, json};

use crate::history::{COLUMNS, EventKind, KeptWhere};
use crate::numbers::Numbers;
use crate::service::{Service, Status};

/// Seconds over which the page looks at misses of evicted blocks.
const LOOKED_BACK: u32 = 86_400;

/// Seconds within which the fastest destage is what a flush is expected to reach.
const FASTEST_OF: u32 = 7 * 86_400;

/// The mount as it is now.
pub(super) fn now(service: &Service) -> Value {
    service.history.look(&service.look_for_history());
    let (status, numbers) = (without_names(service.status()), service.numbers_of_mount());
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let week = since(service, FASTEST_OF, &time);
    let kept = match service.history.kept() {
        KeptWhere::Pool => "pool",
        KeptWhere::Memory => "memory",
        KeptWhere::MemoryAfterError => "memory-after-error",
    };
    json!({
        "time_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        "flush": flush(&status, &numbers, &week),
        "saved": saved(&numbers),
        "working_set": working_set(&status, &since(service, LOOKED_BACK, &time)),
        "history": { "kept": kept, "bytes": HISTORY_BYTES },
        "latency": latency(&numbers),
        "metrics": numbers.metrics,
        "settings": numbers.settings,
        "pool": service.pool_shown(),
        "status": status,
    })
}

/// The status without names of files and directories below the origin: the page may be open to every user of this
/// machine, who may not list them.
fn without_names(mut status: Status) -> Status {
    status.nested_origins.clear();
    status.flushes.iter_mut().for_each(|flush| flush.path.clear());
    status
}

fn since(service: &Service, seconds: u32, time: &Duration) -> Vec<HistoryRow> {
    let now = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    service.history.rows(HistoryRing::Coarse, now.saturating_sub(seconds))
}

/// A column of rows.
fn column<'a>(rows: &'a [HistoryRow], name: &str) -> impl Iterator<Item = u64> + 'a {
    let at = COLUMNS.iter().position(|column| *column == name).unwrap_or(0);
    rows.iter().map(move |row| row.values[at])
}

/// The sum of a column. Rows are read from flash, where anything may lie.
fn total(rows: &[HistoryRow], name: &str) -> u64 {
    column(rows, name).fold(0, u64::saturating_add)
}

fn latency(numbers: &Numbers) -> Value {
    let few = |(name, latency): (&String, &crate::LatencyDistribution)| {
        let few: Map<_, _> = latency.few().into_iter().map(|(what, value)| (what.to_owned(), json!(value))).collect();
        (name.clone(), Value::Object(few))
    };
    Value::Object(numbers.latency.iter().map(few).collect())
}

/// How long a flush of everything takes, and how that is known.
fn flush(status: &Status, numbers: &Numbers, week: &[HistoryRow]) -> Value {
    let fastest = column(week, "destage_peak_bytes_per_second").max().unwrap_or(0);
    let (seconds, by) = match (status.dirty_bytes, numbers.metric("flush_left_seconds")) {
        (0, _) => (Some(0.0), "nothing-dirty"),
        (_, left) if left > 0.0 => (Some(left), "running"),
        (dirty, _) if fastest > 0 => (Some(dirty as f64 / fastest as f64), "fastest-of-week"),
        _ => (None, "unknown"),
    };
    json!({ "seconds": seconds, "by": by, "fastest_bytes_per_second": fastest })
}

/// Requests of applications, and what of them the origin had to do.
fn saved(numbers: &Numbers) -> Value {
    let sum = |names: [&str; 3]| names.iter().map(|name| numbers.metric(name)).sum::<f64>();
    let asked = sum(["reads_total", "writes_total", "syncs_total"]);
    let origin = sum(["origin_reads_total", "origin_writes_total", "origin_syncs_total"]);
    json!({ "requests": asked, "origin_operations": origin, "saved": asked - origin })
}

/// What a larger pool would have saved of the misses lately.
fn working_set(status: &Status, day: &[HistoryRow]) -> Value {
    let missed = total(day, "miss_bytes");
    let step = |name: &str, more: u64| {
        let saved = total(day, name).min(missed);
        let share = if missed == 0 { 0.0 } else { saved as f64 / missed as f64 };
        json!({ "more_bytes": more, "saved_bytes": saved, "saved_share_of_misses": share })
    };
    json!({
        "seconds": total(day, "covered_ms") / 1000,
        "missed_bytes": missed,
        "larger": [
            step("regretted_quarter_bytes", status.capacity_bytes / 4),
            step("regretted_double_bytes", status.capacity_bytes),
        ],
    })
}

/// The rows of one step from a time on.
pub(super) fn history(service: &Service, step: Option<&str>, since: Option<&str>) -> Result<Value, String> {
    let ring = match step {
        None | Some("10") => HistoryRing::Fine,
        Some("300") => HistoryRing::Coarse,
        Some(other) => return Err(format!("step={other}: there are step=10 (4 hours) and step=300 (a week)")),
    };
    let from = match since {
        None => 0,
        Some(text) => text.parse().map_err(|_| format!("since={text} is no time in seconds since 1970"))?,
    };
    service.history.look(&service.look_for_history());
    let rows = service.history.rows(ring, from);
    let shown: Vec<Value> = rows.iter().map(shown).collect();
    let columns: Vec<&str> = ["time"].into_iter().chain(COLUMNS).collect();
    Ok(json!({ "step_seconds": ring.step(), "columns": columns, "rows": shown }))
}

fn shown(row: &HistoryRow) -> Value {
    [u64::from(row.time)].into_iter().chain(row.values).map(Value::from).collect()
}

/// The last events, the newest first.
pub(super) fn events(service: &Service) -> Value {
    let shown = |event: headpond_format::HistoryEvent| {
        let (kind, severity) = EventKind::named(event.kind);
        json!({
            "number": event.number,
            "time": event.time,
            "kind": kind,
            "severity": severity,
            "count": event.count,
            "text": event.text,
        })
    };
    let events: Vec<Value> = service.history.events().into_iter().rev().map(shown).collect();
    json!({ "events": events })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[(&str, u64)]) -> HistoryRow {
        let mut row = HistoryRow { time: 0, values: [0; COLUMNS.len()] };
        for (name, value) in values {
            row.values[COLUMNS.iter().position(|column| column == name).unwrap()] = *value;
        }
        row
    }

    #[test]
    fn a_flush_is_estimated_by_what_is_known() {
        let numbers =
            |left: f64| Numbers { metrics: [("flush_left_seconds".to_owned(), left)].into(), ..Numbers::default() };
        let status = |dirty_bytes| Status { dirty_bytes, ..Status::default() };
        let week = [row(&[("destage_peak_bytes_per_second", 50)]), row(&[("destage_peak_bytes_per_second", 200)])];
        for (dirty, left, rows, seconds, by) in [
            (0, 0.0, &week[..], json!(0.0), "nothing-dirty"),
            (1000, 3.0, &week, json!(3.0), "running"),
            (1000, 0.0, &week, json!(5.0), "fastest-of-week"),
            (1000, 0.0, &[], Value::Null, "unknown"),
        ] {
            let shown = flush(&status(dirty), &numbers(left), rows);
            assert_eq!((&shown["seconds"], shown["by"].as_str()), (&seconds, Some(by)));
        }
    }

    #[test]
    fn a_larger_pool_saves_a_share_of_the_misses_of_the_day_and_never_more_than_all() {
        let day = [
            row(&[("miss_bytes", 600), ("regretted_quarter_bytes", 30), ("covered_ms", 300_000)]),
            row(&[("miss_bytes", 400), ("regretted_double_bytes", 5000), ("regretted_quarter_bytes", 10)]),
        ];
        let shown = working_set(&Status { capacity_bytes: 80 << 30, ..Status::default() }, &day);
        assert_eq!(shown["larger"][0]["more_bytes"], json!(20_u64 << 30));
        assert_eq!(shown["larger"][0]["saved_share_of_misses"], json!(0.04));
        assert_eq!(shown["larger"][1]["saved_share_of_misses"], json!(1.0));
        assert_eq!((&shown["seconds"], &shown["missed_bytes"]), (&json!(300), &json!(1000)));
        assert_eq!(working_set(&Status::default(), &[])["larger"][0]["saved_share_of_misses"], json!(0.0));
    }
}
