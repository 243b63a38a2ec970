//! The numbers as Prometheus reads them (text exposition format 0.0.4).

use std::fmt::Write;

use super::{METRICS, MetricKind, Numbers, number};

/// Upper bounds of the histograms' buckets, in seconds: from the latency of memory to one that makes people call.
const BOUNDS: [f64; 19] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

const DURATION: &str = "headpond_request_duration_seconds";

/// The labels of each latency.
const SOURCES: [(&str, &str); 6] = [
    ("read_hit", "operation=\"read\",source=\"hit\""),
    ("read_miss", "operation=\"read\",source=\"miss\""),
    ("read_bypass", "operation=\"read\",source=\"bypass\""),
    ("write", "operation=\"write\",source=\"cache\""),
    ("write_bypass", "operation=\"write\",source=\"bypass\""),
    ("sync", "operation=\"sync\""),
];

/// All numbers of a mount.
pub(crate) fn exposition(numbers: &Numbers) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Writing to a string does not fail.
    let _ = write_all(&mut text, numbers);
    text
}

fn write_all(text: &mut String, numbers: &Numbers) -> std::fmt::Result {
    writeln!(text, "# HELP headpond_info Origin, mount point and flash, as labels\n# TYPE headpond_info gauge")?;
    let label = |path: &std::path::Path| escaped(&path.to_string_lossy());
    writeln!(
        text,
        "headpond_info{{mountpoint=\"{}\",origin=\"{}\",flash=\"{}\",mode=\"{}\",version=\"{}\"}} 1",
        label(&numbers.mountpoint),
        label(&numbers.origin),
        label(&numbers.flash),
        numbers.mode,
        env!("CARGO_PKG_VERSION"),
    )?;
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let name = metric.name;
        writeln!(text, "# HELP headpond_{name} {}\n# TYPE headpond_{name} {kind}", metric.help)?;
        writeln!(text, "headpond_{name} {}", number(numbers.metric(name)))?;
    }
    writeln!(text, "# HELP {DURATION} Latency of requests\n# TYPE {DURATION} histogram")?;
    for (name, labels) in SOURCES {
        let Some(latency) = numbers.latency.get(name) else { continue };
        for bound in BOUNDS {
            writeln!(text, "{DURATION}_bucket{{{labels},le=\"{bound}\"}} {}", latency.at_most(bound))?;
        }
        writeln!(text, "{DURATION}_bucket{{{labels},le=\"+Inf\"}} {}", latency.count)?;
        writeln!(text, "{DURATION}_sum{{{labels}}} {}", number(latency.sum_seconds))?;
        writeln!(text, "{DURATION}_count{{{labels}}} {}", latency.count)?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::LatencyDistribution;
    use headpond_shard::Histogram;

    #[test]
    fn every_line_is_a_comment_or_a_name_with_labels_and_a_number() {
        let mut histogram = Histogram::default();
        [30_000, 40_000_000].into_iter().for_each(|nanos| histogram.record(nanos));
        let latency = LatencyDistribution::from(&histogram);
        let numbers = Numbers {
            mountpoint: "/srv/\"my\" db".into(),
            metrics: [("reads_total".to_owned(), 3.0)].into(),
            latency: SOURCES.map(|(name, _)| (name.to_owned(), latency.clone())).into(),
            ..Numbers::default()
        };
        let text = exposition(&numbers);
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("headpond_") && value.parse::<f64>().is_ok(), "{line}");
        }
        for line in [
            "headpond_reads_total 3",
            "headpond_request_duration_seconds_bucket{operation=\"read\",source=\"hit\",le=\"0.00005\"} 1",
            "headpond_request_duration_seconds_bucket{operation=\"write\",source=\"cache\",le=\"+Inf\"} 2",
            "headpond_request_duration_seconds_count{operation=\"sync\"} 2",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is missing in:\n{text}");
        }
        assert!(text.contains("mountpoint=\"/srv/\\\"my\\\" db\""), "{text}");
    }
}
