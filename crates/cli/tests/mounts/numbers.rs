//! What a mount tells of itself: the same numbers for people, programs and Prometheus.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use headpond_control::{METRICS, metrics_reference};

use crate::lacking::lacks_nothing;
use crate::pond::{Pond, SIZE, Said, pattern, run, wait_until, write_and_sync};

fn ask(pond: &Pond, command: &str, more: &[&str]) -> Said {
    let mnt = pond.mnt();
    run([OsStr::new(command), mnt.as_os_str()].into_iter().chain(more.iter().map(OsStr::new)))
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn http_get(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn every_number_is_told_three_ways_and_they_agree() {
    let pond = Pond::new();
    let port = free_port();
    pond.mount(&["--size", SIZE, "--metrics", &format!("127.0.0.1:{port}")]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let json = ask(&pond, "stats", &["--json"]).ok().json();
    let lines = ask(&pond, "stats", &[]);
    let page = http_get(port);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for metric in METRICS {
        let name = metric.name;
        assert!(json["metrics"][name].is_number(), "{name} is missing in {json}");
        assert!(lines.ok().text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}:\n{}", lines.text);
        assert!(page.lines().any(|line| line.starts_with(&format!("headpond_{name} "))), "{name}:\n{page}");
    }
    assert_eq!(json["metrics"]["dirty_bytes"], f64::from(1 << 20));
    assert!(lines.text.contains(&format!("\ndirty_bytes {}\n", 1 << 20)), "{}", lines.text);
    assert!(page.contains(&format!("\nheadpond_dirty_bytes {}\n", 1 << 20)), "{page}");
    assert!(page.contains("headpond_request_duration_seconds_count{operation=\"sync\"} 1"), "{page}");
    assert_eq!((&json["latency"]["sync"]["count"], &json["settings"]["flush-period"]), (&1.into(), &"5m".into()));
    pond.unmount(&[]).ok();
}

#[test]
fn an_address_that_is_taken_refuses_the_mount_and_nothing_is_made() {
    let pond = Pond::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    pond.mount(&["--size", SIZE, "--http", &address]).refused(1, &["--http", &address]);
    pond.mount(&["--size", SIZE, "--http", "nowhere"]).refused(2, &["--http"]);
    assert!(!pond.flash().exists() && pond.marker().is_none());
}

#[test]
fn top_shows_one_interval_to_scripts_in_80_columns() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let said = ask(&pond, "top", &["--once"]);
    said.ok().refused(0, &["read hits", "hit ratio", "origin", "dirty", "1 MiB", "destage", "errors"]);
    assert!(said.text.lines().all(|line| line.chars().count() <= 80), "{}", said.text);
    assert!(said.text.lines().count() <= 24, "{}", said.text);
    ask(&pond, "top", &[]).refused(1, &["not a terminal", "--once"]);
    pond.unmount(&[]).ok();
}

#[test]
fn the_reference_of_numbers_is_what_the_table_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let written = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        written == metrics_reference(),
        "docs/metrics.md is not up to date: headpond stats --reference > docs/metrics.md"
    );
}

#[test]
fn the_busiest_file_and_process_are_named_while_they_work() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let to = format!("of={}", pond.mnt().join("busy").display());
    let arguments = ["if=/dev/zero", &to, "bs=16K", "oflag=dsync", "conv=notrunc", "count=10000000"];
    let mut writer = Command::new("dd").args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let process = format!("dd ({})", writer.id());
    wait_until("top names both", || {
        let text = ask(&pond, "top", &["--once"]).ok().text.clone();
        let busiest =
            text.lines().skip_while(|line| !line.starts_with("BUSIEST")).nth(1).unwrap_or_default().to_owned();
        busiest.contains("/s busy") && busiest.contains(&process)
    });
    let json = ask(&pond, "stats", &["--json"]).ok().json();
    let file = json["files"].as_array().unwrap().iter().find(|file| file["path"] == "busy").unwrap();
    assert!(file["written_bytes"].as_u64().unwrap() > 0 && file["dirty_bytes"].as_u64().unwrap() > 0, "{file}");
    let found = json["processes"].as_array().unwrap().iter().find(|found| found["pid"] == writer.id()).unwrap();
    assert_eq!(found["name"], "dd");
    writer.kill().unwrap();
    writer.wait().unwrap();
    pond.unmount(&[]).ok();
}

/// A loop that is larger than the pool: with LRU each block has just left when it is asked for again.
#[test]
fn misses_that_a_larger_pool_would_have_saved_are_told() {
    let pond = Pond::new();
    fs::write(pond.origin().join("loop"), pattern(58 << 20, 1)).unwrap();
    pond.mount(&["--size", SIZE]).ok();
    ask(&pond, "set", &["policy=lru", "sequential-cutoff=off", "fetch-size=4K"]).ok();
    let metric = |name: &str| ask(&pond, "stats", &["--json"]).ok().json()["metrics"][name].as_f64().unwrap();
    for round in 0..3 {
        let from = format!("if={}", pond.mnt().join("loop").display());
        let read = Command::new("dd").args([&from, "of=/dev/null", "bs=64K", "iflag=direct", "status=none"]).status();
        assert!(read.unwrap().success());
        if round == 0 {
            assert_eq!(metric("regretted_double_bytes_total"), 0.0, "all of it is new");
        }
    }
    let (missed, double) = (metric("read_miss_bytes_total"), metric("regretted_double_bytes_total"));
    let again = missed - f64::from(58 << 20);
    // Some blocks are still there although they were given up, more of them where reclaim is slow. How exact the
    // estimate is without them: `reach.rs`.
    assert!(again > f64::from(10 << 20), "a loop that LRU cannot hold: {missed}");
    assert!((0.3..1.2).contains(&(double / again)), "twice the pool holds it: {double} of {again}");
    pond.unmount(&[]).ok();
}

/// Files that all did the same: none of them is busier than another.
#[test]
fn the_numbers_stay_short_with_thousands_of_files_that_did_the_same() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    for file in 0..2000 {
        fs::write(pond.mnt().join(format!("file-{file}")), "same").unwrap();
    }
    let json = ask(&pond, "stats", &["--json"]).ok().json();
    let files = json["files"].as_array().unwrap().len();
    assert!((16..=112).contains(&files), "{files}");
    ask(&pond, "top", &["--once"]).ok();
    let sheet = fs::read_to_string(pond.mnt().join(".headpond/files")).unwrap();
    assert!(sheet.lines().count() <= 113, "{}", sheet.lines().count());
    pond.unmount(&["--keep-dirty"]).ok();
}

/// Names as long as the kernel takes them, of bytes that JSON writes as six.
#[test]
fn the_numbers_are_told_of_files_with_the_longest_names() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let room = 4000 - pond.mnt().as_os_str().len();
    let mut deep = pond.mnt();
    for _ in 0..room / 256 {
        deep.push("\u{1}".repeat(255));
    }
    fs::create_dir_all(&deep).unwrap();
    for file in 0..100 {
        // Each one has something of its own: the most written, or the most in the pool.
        fs::write(deep.join(format!("file-{file}")), pattern(4096 * (1 + file % 50), 1)).unwrap();
    }
    let json = ask(&pond, "stats", &["--json"]).ok().json();
    let files = json["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file["path"].as_str().unwrap().ends_with("/file-49")), "{}", files.len());
    pond.unmount(&["--keep-dirty"]).ok();
}

/// A terminal of 80 x 24 with a program in it, and gone at the end.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// `None` where there is no tmux.
    fn with(pond: &Pond, command: &str) -> Option<Self> {
        let terminal = Self { socket: pond.at("tmux") };
        match terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", command]) {
            Ok(output) if output.status.success() => Some(terminal),
            result => {
                lacks_nothing(Some(format!("tmux: {result:?}")));
                None
            }
        }
    }

    fn tmux(&self, arguments: &[&str]) -> std::io::Result<Output> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(arguments);
        command.env_remove("TMUX").stdin(Stdio::null()).output()
    }

    fn shows(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).unwrap().stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// The words that each line begins with: what stays while the numbers change.
fn structure(screen: &str) -> Vec<String> {
    let label =
        |line: &str| line.split(|letter: char| letter.is_ascii_digit() || letter == '[').next().unwrap().to_owned();
    screen.lines().map(|line| label(line).trim().to_owned()).filter(|label| !label.is_empty()).collect()
}

#[test]
fn top_on_a_terminal_shows_the_same_screen_and_q_quits() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let command = format!("{} top {}; sleep 600", env!("CARGO_BIN_EXE_headpond"), pond.mnt().display());
    let Some(terminal) = Terminal::with(&pond, &command) else { return };
    wait_until("the screen is drawn", || terminal.shows().contains("errors"));
    let once = ask(&pond, "top", &["--once"]);
    wait_until("the screen is as for scripts", || structure(&terminal.shows()) == structure(&once.ok().text));
    terminal.tmux(&["send-keys", "q"]).unwrap();
    wait_until("the terminal is as it was", || terminal.shows().trim().is_empty());
    drop(terminal);
    pond.unmount(&[]).ok();
}
