//! The dashboard and the alert rules that the packages bring ask only for what a mount tells.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lacking::lacks_nothing;
use crate::numbers::{free_port, http_get};
use crate::pond::{Pond, SIZE, Said, run};

fn packaged(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// Every name of a metric in a text: `headpond_` and what goes on as a name.
fn names(text: &str) -> BTreeSet<&str> {
    const PREFIX: &str = "headpond_";
    let name = |at: usize| {
        let rest = &text[at..];
        let end = rest.find(|letter: char| !(letter.is_ascii_lowercase() || letter == '_')).unwrap_or(rest.len());
        &rest[..end]
    };
    text.match_indices(PREFIX).map(|(at, _)| name(at)).collect()
}

/// The names of the samples on a page of the exporter.
fn exported(page: &str) -> BTreeSet<&str> {
    let samples = page.lines().filter(|line| line.starts_with("headpond_"));
    samples.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[test]
fn each_metric_of_the_dashboard_and_the_alerts_is_one_that_a_mount_tells() {
    let pond = Pond::new();
    let port = free_port();
    pond.mount(&["--size", SIZE, "--metrics", &format!("127.0.0.1:{port}")]).ok();
    let page = http_get(port);
    pond.unmount(&[]).ok();
    let told = exported(&page);
    for file in ["grafana/headpond.json", "prometheus/headpond.rules.yml"] {
        let text = fs::read_to_string(packaged(file)).unwrap();
        let asked = names(&text);
        assert!(asked.contains("headpond_takeovers_total") && asked.len() >= 8, "{file}: {asked:?}");
        let missing: Vec<_> = asked.difference(&told).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}, and no mount tells them:\n{page}");
    }
}

#[test]
fn the_dashboard_is_json_and_each_panel_asks_for_something() {
    let text = fs::read_to_string(packaged("grafana/headpond.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert!(panels.len() >= 13 && ids.len() == panels.len(), "{ids:?}");
    for panel in panels {
        let expression = panel["targets"][0]["expr"].as_str().unwrap();
        assert!(panel["title"].is_string() && expression.contains("headpond_"), "{panel}");
        assert!(panel["gridPos"]["x"].as_u64().unwrap() + panel["gridPos"]["w"].as_u64().unwrap() <= 24, "{panel}");
    }
}

/// Prometheus' own program, from the set-up of `./test` or installed.
fn promtool() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/promtool");
    let here = [built, "promtool".into()].into_iter().find(|path| Command::new(path).arg("--version").output().is_ok());
    lacks_nothing(here.is_none().then_some("promtool (Debian: package prometheus)")).then_some(here).flatten()
}

#[test]
fn each_alert_says_what_is_wrong_and_what_to_do() {
    let text = fs::read_to_string(packaged("prometheus/headpond.rules.yml")).unwrap();
    let count = |key: &str| text.lines().filter(|line| line.trim_start().starts_with(key)).count();
    let alerts = count("- alert: ");
    assert!(alerts >= 8, "{text}");
    for key in ["expr: ", "severity: ", "summary: ", "description: "] {
        assert_eq!(count(key), alerts, "{key}");
    }
}

/// `alerts.yml` has for each alert a mount that it is about, and one that is well.
#[test]
fn prometheus_takes_the_rules_and_each_alert_fires_when_it_must_and_only_then() {
    let Some(promtool) = promtool() else { return };
    let dir = tempfile::tempdir().unwrap();
    let rules = packaged("prometheus/headpond.rules.yml");
    fs::copy(&rules, dir.path().join("headpond.rules.yml")).unwrap();
    let cases = include_str!("alerts.yml");
    let names = |text: &str, before: &str| -> BTreeSet<String> {
        text.lines().filter_map(|line| line.trim_start().strip_prefix(before).map(str::to_owned)).collect()
    };
    let text = fs::read_to_string(&rules).unwrap();
    assert_eq!(names(&text, "- alert: "), names(cases, "alertname: "), "each alert has its case");
    let file = dir.path().join("alerts.yml");
    fs::write(&file, cases).unwrap();
    for (command, file) in [("check", &rules), ("test", &file)] {
        Said::from(Command::new(&promtool).args([command, "rules"]).arg(file).output().unwrap()).ok();
    }
}

#[test]
fn prometheus_takes_what_a_mount_tells() {
    let Some(promtool) = promtool() else { return };
    let pond = Pond::new();
    let port = free_port();
    pond.mount(&["--size", SIZE, "--metrics", &format!("127.0.0.1:{port}")]).ok();
    let page = http_get(port);
    pond.unmount(&[]).ok();
    let body = page.split_once("\r\n\r\n").unwrap().1;
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let said = Said::from(check.wait_with_output().unwrap());
    said.ok();
}

#[test]
fn the_numbers_say_what_the_alerts_compare_with() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    let metric = |name: &str| {
        let json = run(["stats".as_ref(), mnt.as_os_str(), "--json".as_ref()]).ok().json();
        json["metrics"][name].as_f64().unwrap()
    };
    assert_eq!((metric("flush_period_seconds"), metric("claim_lost")), (300.0, 0.0));
    let (limit, room) = (metric("dirty_limit_bytes"), metric("pool_capacity_bytes"));
    assert!((0.59..=0.6).contains(&(limit / room)), "ten points above the threshold of half: {limit} of {room}");
    run(["set".as_ref(), mnt.as_os_str(), "flush-period=off".as_ref()]).ok();
    assert_eq!(metric("flush_period_seconds"), 0.0);
    pond.unmount(&[]).ok();
}
