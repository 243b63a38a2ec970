//! The page of a mount: what it shows is what the mount says, and a week of history outlives the daemon.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::browser::Browser;
use crate::numbers::free_port;
use crate::pond::{Pond, SIZE, pattern, run, wait_until, write_and_sync};
use crate::several_devices::{fault, mount_over, pool, pool_status};

/// What a path answers, with its head.
fn ask(port: u16, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(format!("{request}\r\n\r\n").as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// The JSON at a path.
#[track_caller]
fn json_at(port: u16, path: &str, head: &str) -> Value {
    let said = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost{head}")).unwrap();
    let (status, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
    serde_json::from_str(body).unwrap()
}

fn set(pond: &Pond, change: &str) {
    run(["set".as_ref(), pond.mnt().as_os_str(), change.as_ref()]).ok();
}

/// The kinds of the events, the oldest first.
pub fn kinds(port: u16, head: &str) -> Vec<String> {
    let events = json_at(port, "/api/events", head);
    events["events"].as_array().unwrap().iter().rev().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

/// The sum of a column of the history.
fn sum(port: u16, step: u32, column: &str) -> u64 {
    let history = json_at(port, &format!("/api/history?step={step}"), "");
    assert_eq!(history["step_seconds"], step);
    let at = history["columns"].as_array().unwrap().iter().position(|name| name == column).unwrap();
    history["rows"].as_array().unwrap().iter().map(|row| row[at].as_u64().unwrap()).sum()
}

#[test]
fn in_a_browser_the_figures_are_those_of_status_and_a_daemon_that_is_gone_is_said_to_be_gone() {
    let mut pond = Pond::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let daemon = pond.mount_foreground(&["--size", SIZE, "--http", &address]);
    set(&pond, "protect=fewest-writes");
    write_and_sync(&pond.mnt().join("file"), &pattern(3 << 20, 1));
    write_and_sync(&pond.mnt().join("other"), &pattern(5000, 2));
    let Some(mut browser) = Browser::open(&format!("http://{address}/")) else { return };
    browser.wait_for_figures();
    let status = pond.status();
    for name in ["dirty_bytes", "cached_bytes", "used_bytes", "hit_ratio"] {
        let shown = browser.value(&format!("+document.querySelector('[data-figure={name}]').dataset.value"));
        assert_eq!(shown.as_f64(), status[name].as_f64(), "{name}: {status}");
    }
    assert!(status["dirty_bytes"].as_u64().unwrap() > 3 << 20, "{status}");
    assert_eq!(browser.text("[data-figure=dirty_bytes]"), "3.01 MiB");
    assert_eq!(browser.text("h1"), pond.mnt().to_str().unwrap());
    assert!(browser.text("#events").contains("dirty-threshold: 50% -> 70%"), "{}", browser.text("#events"));
    // A picture, the numbers behind it, and a way to them without a mouse.
    assert_eq!(browser.value("document.querySelectorAll('figure svg[tabindex=\"0\"][aria-label]').length"), 9);
    assert!(browser.value("document.querySelectorAll('figure svg path').length").as_u64().unwrap() > 3);
    browser.value("document.querySelector('#chart-written details').open = true");
    wait_until("the table is there", || browser.text("#chart-written table").contains("To flash"));
    let moved = "(() => { const chart = document.querySelector('#chart-dirty svg'); chart.dispatchEvent(new KeyboardEvent('keydown', \
                 { key: 'End' })); return chart.getAttribute('aria-label'); })()";
    let said = browser.value(moved);
    assert!(said.as_str().unwrap().contains("On flash alone 3.0"), "{said}");
    assert_eq!(browser.value("document.documentElement.scrollWidth <= innerWidth"), true, "nothing is cut off");
    assert_eq!(browser.complaints, Vec::<String>::new());

    pond.kill(daemon);
    wait_until("the page says so", || {
        browser.text("#alerts").contains("The daemon does not answer. What you see is from")
    });
    assert_eq!(browser.value("document.body.classList.contains('gone')"), true);
    assert_eq!(browser.text("#state"), "no answer");

    pond.mount(&["--http", &address]).ok();
    wait_until("the page goes on", || browser.value("document.body.classList.contains('gone')") == false);
    wait_until("the page has the events", || browser.text("#events").contains("started-after-crash"));
    assert!(browser.text("#events").contains("dirty-threshold"), "those from before are there");
    assert_eq!(browser.text("#alerts"), "");
    pond.unmount(&["--keep-dirty"]).ok();
}

/// A load that misses, hits, writes, syncs and destages. Afterwards nothing changes any more, and what the page shows
/// is held against the JSON for scripts, in the page's own words for numbers.
#[test]
fn in_a_browser_each_figure_is_that_of_now_and_each_table_that_of_the_history() {
    let pond = Pond::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    std::fs::write(pond.origin().join("larger"), pattern(96 << 20, 1)).unwrap();
    pond.mount(&["--size", SIZE, "--http", &address]).ok();
    for off in ["flush-period=off", "idle-flush=off"] {
        set(&pond, off);
    }
    let Some(mut browser) = Browser::open(&format!("http://{address}/")) else { return };
    // Past the kernel's pages.
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut larger = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(larger.read(true), direct);
    let larger = larger.open(pond.mnt().join("larger")).unwrap();
    // Twice more than the pool holds, in no order, so that what was dropped is missed.
    let mut block = vec![0; 16 << 10];
    for round in 0..2 {
        for at in (0..6144_u64).map(|at| at * 2053 % 6144) {
            std::os::unix::fs::FileExt::read_exact_at(&larger, &mut block, at * (16 << 10)).unwrap();
        }
        write_and_sync(&pond.mnt().join("written"), &pattern(4 << 20, round));
        if round == 0 {
            pond.flush().ok();
        }
    }
    // The pictures and tables of the quarter of an hour have rows of twenty seconds.
    browser.wait_for_figures();
    browser.value("document.querySelector('input[name=range]').click()");
    browser.value("document.querySelectorAll('figure details').forEach(one => { one.open = true; })");
    let tile = |browser: &mut Browser, label: &str| {
        let tile = format!(
            "[...document.querySelectorAll('.tile')].find(one => one.querySelector('dt').textContent === '{label}')"
        );
        let value =
            browser.value(&format!("[...{tile}.querySelectorAll('dd')].map(one => one.textContent).join('; ')"));
        value.as_str().unwrap_or_default().to_owned()
    };
    let said_by = |browser: &mut Browser, words: String| browser.value(&words).as_str().unwrap_or_default().to_owned();

    wait_until("the tiles are those of now", || {
        let now = json_at(port, "/api/now", "");
        if now["flush"]["by"] != "fastest-of-week" {
            // While the pool makes room for what was read, dirty data goes to the origin at once.
            write_and_sync(&pond.mnt().join("written"), &pattern(4 << 20, 3));
            return false;
        }
        let longest = now["latency"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(|one| one["max_seconds"].as_f64())
            .fold(0.0, f64::max);
        let longest = said_by(&mut browser, format!("'longest since the start ' + nanos({})", longest * 1e9));
        let saved = &now["saved"];
        assert_eq!(
            saved["saved"].as_f64().unwrap(),
            saved["requests"].as_f64().unwrap() - saved["origin_operations"].as_f64().unwrap()
        );
        let saved = said_by(
            &mut browser,
            format!("`${{count({})}}; of ${{count({})}} requests since the start`", saved["saved"], saved["requests"]),
        );
        let flush = said_by(
            &mut browser,
            format!(
                "duration({}) + '; at ' + bytes({}) + '/s, the fastest of the week'",
                now["flush"]["seconds"], now["flush"]["fastest_bytes_per_second"]
            ),
        );
        let (status, metrics) = (&now["status"], &now["metrics"]);
        let dirty = said_by(
            &mut browser,
            format!(
                "`${{bytes({})}}; in ${{some({}, 'file')}}; the oldest ${{duration({})}}`",
                status["dirty_bytes"], status["dirty_files"], metrics["oldest_dirty_age_seconds"]
            ),
        );
        let set = &now["working_set"];
        assert!(set["missed_bytes"].as_u64() > Some(0) && set["larger"][1]["saved_bytes"].as_u64() > Some(0), "{set}");
        let [quarter, double] = [0, 1].map(|at| {
            let one = &set["larger"][at];
            said_by(
                &mut browser,
                format!(
                    "bytes({}) + ' more would save ' + percent({})",
                    one["more_bytes"], one["saved_share_of_misses"]
                ),
            )
        });
        let missed = said_by(
            &mut browser,
            format!("`the misses of the last ${{duration({})}} (${{bytes({})}})`", set["seconds"], set["missed_bytes"]),
        );
        tile(&mut browser, "p99, 5 minutes").contains(&longest)
            && tile(&mut browser, "Origin I/Os saved") == saved
            && tile(&mut browser, "A flush would take") == flush
            && tile(&mut browser, "Dirty data") == dirty
            && browser.text("#working-set") == format!("{quarter} of {missed}; {double}.")
    });

    wait_until("the tables are those of the history", || {
        let history = json_at(port, "/api/history?step=10", "");
        let columns: Vec<&str> =
            history["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let rows: Vec<&Value> = history["rows"].as_array().unwrap().iter().collect();
        let of =
            |row: &Value, name: &str| row[columns.iter().position(|column| *column == name).unwrap()].as_f64().unwrap();
        // For a chart, the twenty seconds with the most of a number, by the beginning of each. Those of now still grow.
        let begins = |row: &Value| row[0].as_u64().unwrap() / 20 * 20;
        let newest = rows.iter().map(|row| begins(row)).max();
        let group = |column: &str| -> Vec<&Value> {
            let over = rows.iter().filter(|row| Some(begins(row)) < newest && of(row, column) > 0.0);
            let most = over.max_by(|one, two| of(one, column).total_cmp(&of(two, column))).map(|row| begins(row));
            rows.iter().copied().filter(|row| Some(begins(row)) == most).collect()
        };
        let sum = |rows: &[&Value], name: &str| rows.iter().map(|row| of(row, name)).sum::<f64>();
        let most = |rows: &[&Value], name: &str| rows.iter().map(|row| of(row, name)).fold(0.0, f64::max);
        let per_second = |rows: &[&Value], name: &str| 1000.0 * sum(rows, name) / sum(rows, "covered_ms");
        let rate = |rows: &[&Value], names: &[&str]| names.iter().map(|name| per_second(rows, name)).sum::<f64>();
        let [sources, work, written] = ["miss_bytes", "reads", "write_bytes"].map(group);
        let [dirty, oldest] = ["dirty_bytes", "oldest_dirty_age_ms"].map(group);
        let bytes = |rows: &[&Value], names: &[&str]| format!("bytes({}) + '/s'", rate(rows, names));
        let count = |rows: &[&Value], names: &[&str]| format!("count({}) + '/s'", rate(rows, names));
        let hits = ["flash_hit_bytes", "memory_hit_bytes", "origin_hit_bytes"];
        let hits = hits.iter().map(|name| sum(&sources, name)).sum::<f64>();
        let of_sources = vec![
            bytes(&sources, &["flash_hit_bytes"]),
            bytes(&sources, &["memory_hit_bytes"]),
            bytes(&sources, &["miss_bytes", "origin_hit_bytes"]),
            bytes(&sources, &["bypassed_read_bytes"]),
        ];
        let of_work = vec![
            count(&work, &["reads", "writes", "syncs"]),
            count(&work, &["origin_reads", "origin_writes_and_syncs"]),
        ];
        let of_written = ["write_bytes", "flash_write_bytes", "destaged_bytes"].map(|name| bytes(&written, &[name]));
        let ratio = vec![format!("percent({})", hits / (hits + sum(&sources, "miss_bytes")))];
        let of_dirty = vec![format!("bytes({})", most(&dirty, "dirty_bytes"))];
        let of_oldest = vec![format!("duration({})", most(&oldest, "oldest_dirty_age_ms") / 1000.0)];
        let mut expected = vec![
            ("sources", sources.clone(), of_sources),
            ("ratio", sources.clone(), ratio),
            ("work", work, of_work),
            ("dirty", dirty, of_dirty),
            ("oldest", oldest, of_oldest),
            ("written", written, of_written.to_vec()),
        ];
        for (chart, kind) in [("reads", "read"), ("writes", "write"), ("syncs", "sync")] {
            let p50 = format!("{kind}_p50_ns");
            let middle =
                sources.iter().map(|row| of(row, &p50) * of(row, chart)).sum::<f64>() / sum(&sources, chart).max(1.0);
            let times =
                [middle, most(&sources, &format!("{kind}_p99_ns")), most(&sources, &format!("{kind}_longest_ns"))];
            let cells = times.map(|time| format!("({time} ? nanos({time}) : '–')")).to_vec();
            expected.push((chart, sources.clone(), cells));
        }
        if expected.iter().any(|(_, rows, _)| rows.is_empty()) {
            return false;
        }
        let slowest =
            ["read_p99_ns", "write_p99_ns", "sync_p99_ns"].iter().flat_map(|name| rows.iter().map(|row| of(row, name)));
        let slowest = said_by(&mut browser, format!("nanos({})", slowest.fold(0.0, f64::max)));
        if !tile(&mut browser, "p99, 5 minutes").starts_with(&format!("{slowest}; ")) {
            return false;
        }
        expected.into_iter().all(|(chart, rows, cells)| {
            let cells: Vec<String> = cells.into_iter().map(|cell| said_by(&mut browser, cell)).collect();
            let time = said_by(&mut browser, format!("stamp({})", 1000 * begins(rows[0])));
            let row = format!(
                "[...document.querySelectorAll('#chart-{chart} tbody tr')].filter(row => row.cells[0].textContent === '{time}')\
                 .map(row => [...row.cells].slice(1).map(cell => cell.textContent).join('; ')).join('\\n')"
            );
            said_by(&mut browser, row).lines().any(|shown| shown == cells.join("; "))
        })
    });
    assert_eq!(browser.complaints, Vec::<String>::new());
    drop(larger);
    pond.unmount(&["--keep-dirty"]).ok();
}

#[test]
fn a_browser_sees_that_a_device_is_lost_and_what_to_do() {
    let pond = Pond::new();
    let address = format!("127.0.0.1:{}", free_port());
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE, "--test-fault", "none", "--http", &address]).ok();
    let Some(mut browser) = Browser::open(&format!("http://{address}/")) else { return };
    browser.wait_for_figures();
    assert_eq!(browser.text("#alerts"), "");
    browser.value("document.querySelector('#devices-part').open = true");
    let devices = browser.text("#devices");
    assert!(devices.matches("ONLINE").count() == 2 && devices.contains("flash2"), "{devices}");
    fault(&pond, "flash2", "cut");
    write_and_sync(&pond.mnt().join("file"), &pattern(2 << 20, 1));
    wait_until("the page says so", || {
        let alerts = browser.text("#alerts");
        alerts.contains("The pool is degraded") && alerts.contains("headpond pool add")
    });
    assert!(browser.text("#devices").contains("FAULTED"), "{}", browser.text("#devices"));
    assert_eq!(browser.complaints, Vec::<String>::new());
    pond.unmount(&[]).ok();
}

#[test]
fn a_browser_gets_in_with_the_token_and_stays_in_over_a_take_over() {
    let mut pond = Pond::new();
    let (port, file) = (free_port(), pond.at("token"));
    let token = "0123456789abcdef0123456789abcdef";
    let everywhere = format!("0.0.0.0:{port}");
    pond.mount(&["--size", SIZE, "--http", &everywhere]).refused(2, &["--http-token FILE", "openssl rand"]);
    assert!(!pond.flash().exists());
    let give_token = || {
        std::fs::write(&file, token).unwrap();
        assert!(Command::new("chmod").arg("600").arg(&file).status().unwrap().success());
    };
    give_token();
    pond.mount_foreground(&["--size", SIZE, "--http", &everywhere, "--http-token", file.to_str().unwrap()]);
    let bearer = format!("\r\nAuthorization: Bearer {token}");
    for path in ["/metrics", "/api/now", "/api/history", "/api/events"] {
        let said = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: dbhost")).unwrap();
        assert!(said.starts_with("HTTP/1.1 401 "), "{path}: {said}");
        let said = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: dbhost{bearer}")).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 "), "{path}: {said}");
    }
    // A worker serves the mount without the token's file, and the page once that is back.
    std::fs::remove_file(&file).unwrap();
    pond.another_worker("mnt", 1);
    give_token();
    wait_until("the page is back", || {
        ask(port, &format!("GET /metrics HTTP/1.1\r\nHost: dbhost{bearer}"))
            .is_ok_and(|said| said.starts_with("HTTP/1.1 200 "))
    });
    let Some(mut browser) = Browser::open(&format!("http://127.0.0.1:{port}/")) else { return };
    wait_until("the page asks for the token", || {
        browser.value("!!document.querySelector('input[type=password]')") == true
    });
    let login = |token: &str| format!("{{const f = document.forms[0]; f.token.value = '{token}'; f.requestSubmit();}}");
    browser.value(&login("wrong"));
    wait_until("it was wrong", || browser.value("!!document.querySelector('[role=alert]')") == true);
    browser.value(&login(token));
    browser.wait_for_figures();
    assert_eq!(browser.value("document.cookie"), "", "no script reads the cookie");
    browser.go(&format!("http://127.0.0.1:{port}/?token={token}"));
    wait_until("the token is out of the address", || {
        browser.value("location.search === '' && +document.body?.dataset.turns > 0") == true
    });

    pond.another_worker("mnt", 2);
    wait_until("the page shows it", || browser.text("#events").matches("took over").count() == 2);
    assert_eq!(kinds(port, &bearer), ["started", "taken-over", "taken-over"]);
    pond.unmount(&[]).ok();
}

#[test]
fn the_history_outlives_the_daemon_and_a_flash_that_forgets_it_is_no_reason_to_refuse() {
    let mut pond = Pond::new();
    let port = free_port();
    let http = ["--http", &format!("127.0.0.1:{port}")];
    pond.mount(&[http.as_slice(), &["--size", SIZE]].concat()).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    assert_eq!(json_at(port, "/api/now", "")["history"]["kept"], "pool");
    let written = |step| sum(port, step, "write_bytes");
    assert_eq!((written(10), written(300)), (1 << 20, 1 << 20));
    let mnt = pond.mnt();
    let bypass = ["name=secret", "action=bypass"].map(std::ffi::OsStr::new);
    run(["rules".as_ref(), "add".as_ref(), mnt.as_os_str()].into_iter().chain(bypass)).ok();
    std::fs::create_dir(mnt.join("secret")).unwrap();
    run(["flush".as_ref(), mnt.as_os_str(), "secret".as_ref()]).ok();
    for path in ["/api/events", "/api/now"] {
        let said = json_at(port, path, "").to_string();
        assert!(!said.contains("secret"), "who sees the page must not see names: {said}");
    }
    pond.unmount(&[]).ok();
    let daemon = pond.mount_foreground(&http);
    assert_eq!((written(10), written(300)), (1 << 20, 1 << 20), "as it was");
    assert_eq!(kinds(port, ""), ["started", "rule", "stopped", "started"]);
    pond.kill(daemon);
    // Only the history lies there, and whatever does now is none.
    let geometry = headpond_format::Geometry::for_bytes(64 << 20).unwrap().with_history();
    let flash = std::fs::OpenOptions::new().write(true).open(pond.flash()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&flash, &pattern(256 << 10, 9), geometry.history().unwrap()).unwrap();
    drop(flash);
    pond.mount(&http).ok();
    assert_eq!((written(10), kinds(port, "")), (0, vec!["started-after-crash".to_owned()]));
    assert_eq!(std::fs::read(pond.mnt().join("file")).unwrap(), pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
}

#[test]
fn the_history_follows_the_pool_to_other_devices() {
    let pond = Pond::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    mount_over(&pond, &["flash", "second"], &["--size", SIZE, "--http", &address]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let written = || sum(port, 300, "write_bytes");
    assert_eq!(written(), 1 << 20);
    pool(&pond, "remove", &[pond.at("flash").as_os_str()]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(2 << 20, 2));
    pond.unmount(&[]).ok();
    mount_over(&pond, &["second"], &["--http", &address]).ok();
    assert_eq!((written(), json_at(port, "/api/now", "")["history"]["kept"].clone()), (3 << 20, "pool".into()));
    assert_eq!(kinds(port, ""), ["started", "device-removed", "stopped", "started"]);
    pool(&pond, "move", &[pond.at("third").as_os_str(), "--size".as_ref(), SIZE.as_ref()]).ok();
    pond.unmount(&[]).ok();
    mount_over(&pond, &["third"], &["--http", &address]).ok();
    assert_eq!(written(), 3 << 20);
    pond.unmount(&[]).ok();
}

#[test]
fn the_history_tells_which_devices_came_and_went_and_why() {
    let pond = Pond::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let start = ["--size", SIZE, "--test-fault", "none", "--http", &address];
    mount_over(&pond, &["flash"], &start).ok();
    let at = |name: &str| pond.at(name).into_os_string();
    let size = ["--size".as_ref(), SIZE.as_ref()];
    let events = || -> Vec<(String, String)> {
        let said = json_at(port, "/api/events", "");
        let text = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
        said["events"].as_array().unwrap().iter().rev().map(|one| (text(one, "kind"), text(one, "text"))).collect()
    };
    let has_copies = |times: usize| {
        wait_until("there are two copies", || {
            events().iter().filter(|(kind, _)| kind == "copies-complete").count() == times
        });
    };
    pool(&pond, "add", &[&[at("second").as_os_str()], &size[..]].concat()).ok();
    has_copies(1);
    write_and_sync(&pond.mnt().join("file"), &pattern(2 << 20, 1));
    fault(&pond, "second", "cut");
    write_and_sync(&pond.mnt().join("file"), &pattern(2 << 20, 2));
    wait_until("it is lost", || pool_status(&pond)["members"][1]["state"] == "FAULTED");
    wait_until("that is told", || kinds(port, "").last().is_some_and(|kind| kind == "device-lost"));
    let (second, third, fourth) = (at("second"), at("third"), at("fourth"));
    pool(&pond, "replace", &[&[second.as_os_str(), third.as_os_str()], &size[..]].concat()).ok();
    has_copies(2);
    pool(&pond, "replace", &[&[third.as_os_str(), fourth.as_os_str()], &size[..]].concat()).ok();
    has_copies(3);
    pool(&pond, "grow", &["96M".as_ref(), "--flash".as_ref(), fourth.as_os_str()]).ok();
    pool(&pond, "shrink", &["80M".as_ref(), "--flash".as_ref(), fourth.as_os_str()]).ok();
    pool(&pond, "remove", &[fourth.as_os_str()]).ok();
    let told: Vec<_> = events().into_iter().filter(|(kind, _)| kind != "copies-complete").collect();
    let expected = [
        ("started", "mounted"),
        ("device-added", "second has joined"),
        ("device-lost", "second refused a write or a sync"),
        ("device-replaced", "third is in the place of"),
        ("device-replaced", "fourth is in the place of"),
        ("device-grown", "96 MiB of"),
        ("device-shrunk", "80 MiB of"),
        ("device-removed", "fourth was emptied"),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((kind, text), (as_kind, part)) in told.iter().zip(expected) {
        assert!(kind == as_kind && text.contains(part), "{as_kind}, {part}: {told:?}");
    }
    pond.unmount(&["--keep-dirty"]).ok();

    // One that a start does not find.
    pond.mount(&["--http", &address]).ok();
    pool(&pond, "add", &[&[at("fifth").as_os_str()], &size[..]].concat()).ok();
    // What is dirty leaves a marker, which knows where the devices lay.
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 3));
    pond.unmount(&["--keep-dirty"]).ok();
    std::fs::rename(pond.at("fifth"), pond.at("aside")).unwrap();
    mount_over(&pond, &["flash", "fifth"], &["--http", &address]).ok();
    let last = events().pop().unwrap();
    assert!(last.0 == "device-lost" && last.1.contains("fifth was not there at the start"), "{last:?}");
    pond.unmount(&[]).ok();
}

/// Three minutes of a load that is larger than the pool, on a modelled disk.
#[test]
#[ignore = "makes the pictures of docs/page.md: cargo test -p headpond --test mounts -- --ignored pictures_of_the_page"]
fn pictures_of_the_page() {
    let pond = Pond::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    pond.mount(&["--size", "256M", "--http", &address, "--model-disk", "hdd-7200"]).ok();
    let file = pond.mnt().join("ibdata1");
    let fill = Command::new("fio")
        .args(["--name=fill", "--rw=write", "--bs=1M", "--size=320M", "--end_fsync=1", "--output=/dev/null"])
        .arg(format!("--filename={}", file.display()))
        .status();
    assert!(fill.unwrap().success());
    let load = |seconds: u32, reads: u32, rate: &str, hot: &str| {
        let mut fio = Command::new("fio");
        fio.args(["--name=load", "--rw=randrw", "--bs=16k", "--size=320M", "--direct=1", "--time_based", "--fsync=4"]);
        fio.args([format!("--runtime={seconds}"), format!("--rwmixread={reads}"), format!("--rate_iops={rate}")]);
        fio.args([format!("--random_distribution={hot}"), format!("--filename={}", file.display())]);
        fio.stdout(Stdio::null()).spawn().unwrap()
    };
    let wait = |mut fio: Child| assert!(fio.wait().unwrap().success());
    wait(load(50, 70, "600,300", "zipf:1.1"));
    set(&pond, "flush-period=1m");
    wait(load(60, 95, "900,80", "random"));
    let last = load(90, 60, "300,200", "zipf:1.2");
    std::thread::sleep(std::time::Duration::from_secs(60));
    let mut browser = Browser::open(&format!("http://{address}/")).unwrap();
    browser.wait_for_figures();
    browser.value("document.querySelector('input[name=range]').click()");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    browser.picture((1100, 2400), "light", &docs.join("page-light.png"));
    browser.picture((1100, 960), "dark", &docs.join("page-dark.png"));
    browser.picture((390, 1300), "light", &docs.join("page-phone.png"));
    drop(browser);
    wait(last);
    pond.unmount(&["--keep-dirty"]).ok();
}
