//! Chromium without a window, led over its pipe for development tools.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lacking::lacks_nothing;
use crate::pond::wait_until;

/// How long an answer may take at most: only to end a test that hangs.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Browser {
    process: Child,
    to: File,
    from: Receiver<Value>,
    session: String,
    asked: u64,
    /// What the page complained of.
    pub complaints: Vec<String>,
    _files: TempDir,
}

impl Browser {
    /// Opens a page. `None` where there is no Chromium.
    pub fn open(url: &str) -> Option<Self> {
        let there = Command::new("chromium").arg("--version").output();
        if !lacks_nothing(there.err().map(|error| format!("chromium: {error}"))) {
            return None;
        }
        let files = tempfile::tempdir().unwrap();
        let pipes = ["to", "from"].map(|name| files.path().join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // The pipe for development tools is the descriptors 3 and 4.
        let script = "to=$1; from=$2; shift 2; exec chromium \"$@\" 3<\"$to\" 4>\"$from\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(&pipes);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--remote-debugging-pipe", "--no-proxy-server"]);
        command.arg(format!("--user-data-dir={}", files.path().join("data").display())).arg("about:blank");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let to = OpenOptions::new().write(true).open(&pipes[0]).unwrap();
        let answers = File::open(&pipes[1]).unwrap();
        let (send, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                if send.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let (session, complaints) = (String::new(), Vec::new());
        let mut browser = Self { process, to, from, session, asked: 0, complaints, _files: files };
        let target = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", &attach)["sessionId"].as_str().unwrap().to_owned();
        browser.session = session;
        for part in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.ask(part, &json!({}));
        }
        browser.go(url);
        Some(browser)
    }

    /// Goes to a page.
    pub fn go(&mut self, url: &str) {
        self.ask("Page.navigate", &json!({ "url": url }));
    }

    /// Sends a command, and waits for its result.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let said = self.from.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer to {method} {params}"));
            if said["id"] == self.asked {
                return said["result"].clone();
            }
            match said["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.complaints.push(said["params"]["exceptionDetails"].to_string()),
                Some("Log.entryAdded") => self.complaints.push(said["params"]["entry"].to_string()),
                _ => {}
            }
        }
    }

    /// The value of an expression in the page; null if it has none yet, because the page is still on its way.
    pub fn value(&mut self, expression: &str) -> Value {
        self.ask("Runtime.evaluate", &json!({ "expression": expression, "returnByValue": true }))["result"]["value"]
            .clone()
    }

    /// The text of a part of the page; empty while it is not there.
    pub fn text(&mut self, selector: &str) -> String {
        let expression = format!("document.querySelector('{selector}')?.textContent");
        self.value(&expression).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page has shown the mount.
    pub fn wait_for_figures(&mut self) {
        wait_until("the page has asked", || self.value("+document.body?.dataset.turns > 0") == true);
    }

    /// Writes a picture of the page, so wide and at most so high, at a theme.
    pub fn picture(&mut self, (width, most): (u32, u64), theme: &str, to: &Path) {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.ask("Emulation.setEmulatedMedia", &media);
        let mut metrics = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.ask("Emulation.setDeviceMetricsOverride", &metrics);
        std::thread::sleep(Duration::from_secs(1));
        let height = self.value("document.documentElement.scrollHeight").as_u64().unwrap_or(most);
        metrics["height"] = height.min(most).into();
        self.ask("Emulation.setDeviceMetricsOverride", &metrics);
        std::thread::sleep(Duration::from_secs(1));
        let picture = self.ask("Page.captureScreenshot", &json!({ "format": "png" }));
        let mut decode = Command::new("base64");
        decode.arg("-d").stdin(Stdio::piped()).stdout(File::create(to).unwrap());
        let mut decode = decode.spawn().unwrap();
        decode.stdin.take().unwrap().write_all(picture["data"].as_str().unwrap().as_bytes()).unwrap();
        assert!(decode.wait().unwrap().success());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends in order with its helpers.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        for _ in 0..200 {
            if self.process.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
