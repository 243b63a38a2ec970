//! The dashboard and the alert rules that the packages bring ask only for what a mount tells.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::numbers::{free_port, http_get};
use crate::pond::{Pond, SIZE, run};

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

/// The key and the value of each line, with the line's depth. Reads the part of YAML that the rules use: maps and
/// lists in blocks, and values on their key's line.
fn lines_of(yaml: &str) -> Result<Vec<(usize, &str, &str)>, String> {
    let lines = yaml.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    lines
        .map(|line| {
            let text = line.trim_start();
            let (depth, text) = (line.len() - text.len(), text.strip_prefix("- ").unwrap_or(text));
            let (key, value) = text.split_once(':').ok_or_else(|| format!("no key: {line}"))?;
            let value = value.trim_start();
            let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let plain = !value.starts_with(['"', '\'', '{', '[', '>', '|', '&', '*', '%', '@', '`', '-'])
                && !value.contains(": ")
                && !value.contains(" #");
            let fits = inside.map_or(plain, |inside| !inside.contains(['"', '\\']));
            let word = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase());
            if depth % 2 == 0 && word && fits {
                Ok((depth, key, value))
            } else {
                Err(format!("not as expected: {line}"))
            }
        })
        .collect()
}

#[test]
fn the_rules_are_yaml_and_each_alert_says_what_is_wrong_and_what_to_do() {
    let file = packaged("prometheus/headpond.rules.yml");
    let text = fs::read_to_string(&file).unwrap();
    let lines = lines_of(&text).unwrap();
    assert_eq!(lines[..3], [(0, "groups", ""), (2, "name", "headpond"), (4, "rules", "")]);
    let alerts: Vec<_> = lines[3..].split_inclusive(|line| line.1 == "description").collect();
    assert!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        let of = |key: &str| alert.iter().filter(|line| line.1 == key && !line.2.is_empty()).count();
        for key in ["alert", "expr", "severity", "summary", "description"] {
            assert_eq!(of(key), 1, "{key}: {alert:?}");
        }
    }
    for broken in ["a: b: c", "a: \"b", "\ta: b", "a: 'b", "no key"] {
        assert!(lines_of(broken).is_err(), "{broken}");
    }
    // Prometheus' own opinion, where it is installed. It is too large to need it everywhere.
    match Command::new("promtool").args(["check", "rules"]).arg(&file).output() {
        Ok(said) => assert!(said.status.success(), "{said:?}"),
        Err(_) => eprintln!("promtool (Debian: package prometheus) is not here, and did not check the rules"),
    }
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
