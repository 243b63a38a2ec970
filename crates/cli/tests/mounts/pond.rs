//! A pond for tests: an origin, a mount point and a flash in a directory of their own, and the real
//! `headpond` on them. Whatever a test does, its mount is gone at the end.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The smallest pool: quick to make.
pub const SIZE: &str = "64M";

/// How long anything may take at most: only to end a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Pond {
    root: TempDir,
    daemons: Vec<Child>,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub status: i32,
    /// What it said to programs and, behind it, to people.
    pub text: String,
    /// What it said to programs alone: what it said to people may be of a mount that another test has just killed.
    stdout: String,
}

impl Said {
    #[track_caller]
    pub fn ok(&self) -> &Self {
        assert_eq!(self.status, 0, "{}", self.text);
        self
    }

    /// Ended with this status, and said each of these.
    #[track_caller]
    pub fn refused(&self, status: i32, says: &[&str]) -> &Self {
        assert_eq!(self.status, status, "{}", self.text);
        for part in says {
            assert!(self.text.contains(part), "'{part}' is missing in:\n{}", self.text);
        }
        self
    }

    /// Its answer to a program.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}:\n{}", self.text))
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
        Self { status: output.status.code().unwrap_or(-1), text, stdout }
    }
}

pub fn headpond() -> Command {
    Command::new(env!("CARGO_BIN_EXE_headpond"))
}

pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Said {
    headpond().args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// Gives a command again that is refused as the mount is in use, while that names a thread of these tests.
pub fn once_no_test_holds_it(command: impl Fn() -> Said) -> Said {
    let started = Instant::now();
    loop {
        let said = command();
        if said.status != 70 || !names_own_thread(&said.text) || started.elapsed() > PATIENCE {
            return said;
        }
    }
}

/// Whether this names one of the threads of these tests. While such a thread starts a command, the new process has its
/// name, and the files open that the tests have.
fn names_own_thread(text: &str) -> bool {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| text.contains(name.trim()))
}

/// Waits until something is so.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn is_mounted(path: &Path) -> bool {
    let path = path.to_str().unwrap();
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|line| line.split(' ').nth(4) == Some(path))
}

impl Pond {
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("headpond-test-").tempdir().unwrap();
        for dir in ["origin", "other", "mnt", "mnt2"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self { root, daemons: Vec::new() }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A program under another name: the kernel names a process after its program's file. Another process copies it: a
    /// child that another test starts meanwhile inherits what this one has open until it runs its own program, and a
    /// file that a program has open for writing does not run (ETXTBSY).
    pub fn program(&self, from: &str, name: &str) -> PathBuf {
        let path = self.at(name);
        if !path.exists() {
            assert!(Command::new("cp").arg(from).arg(&path).status().unwrap().success());
        }
        path
    }

    /// A script that can be run, written in the same way.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let source = self.at(&format!("source of {name}"));
        fs::write(&source, text).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
        self.program(source.to_str().unwrap(), name)
    }

    pub fn origin(&self) -> PathBuf {
        self.at("origin")
    }

    pub fn mnt(&self) -> PathBuf {
        self.at("mnt")
    }

    pub fn flash(&self) -> PathBuf {
        self.at("flash")
    }

    /// `headpond mount` in the background with the usual places.
    pub fn mount(&self, more: &[&str]) -> Said {
        self.mount_places("origin", "mnt", "flash", more)
    }

    pub fn mount_places(&self, origin: &str, mnt: &str, flash: &str, more: &[&str]) -> Said {
        let mut command = headpond();
        command.arg("mount").arg(self.at(origin)).arg(self.at(mnt)).arg("--flash").arg(self.at(flash));
        command.arg("--background").arg("--log").arg(self.at("log")).args(more);
        command.stdin(Stdio::null()).output().unwrap().into()
    }

    /// `headpond mount` in the foreground, so that it can be killed.
    pub fn mount_foreground(&mut self, more: &[&str]) -> usize {
        self.mount_foreground_with(more, &[])
    }

    /// The same with more in its environment.
    pub fn mount_foreground_with(&mut self, more: &[&str], environment: &[(&str, &str)]) -> usize {
        let mut daemon = self.start_foreground_with(more, environment);
        let mnt = self.mnt();
        // A mount whose daemon was killed is still in the kernel's list: this one answers.
        wait_until("the mount stands", || {
            assert!(daemon.try_wait().unwrap().is_none(), "{}", fs::read_to_string(self.at("log")).unwrap());
            run([OsStr::new("status"), mnt.as_os_str()]).status == 0 && is_mounted(&mnt)
        });
        self.daemons.push(daemon);
        self.daemons.len() - 1
    }

    /// Starts a daemon that may never come to serve.
    pub fn start_foreground(&self, more: &[&str]) -> Child {
        self.start_foreground_with(more, &[])
    }

    fn start_foreground_with(&self, more: &[&str], environment: &[(&str, &str)]) -> Child {
        let mut command = headpond();
        command.envs(environment.iter().copied());
        command.arg("mount").arg(self.origin()).arg(self.mnt()).arg("--flash").arg(self.flash()).args(more);
        let log = fs::File::create(self.at("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// SIGKILL for the holder, and with it the worker: what a crash of the whole daemon is.
    pub fn kill(&mut self, daemon: usize) {
        kill_with_workers(&mut self.daemons[daemon]);
    }

    /// A signal for the holder and the worker.
    pub fn signal_both(&self, daemon: usize, signal: &str) {
        let holder = self.daemons[daemon].id();
        for process in [holder].into_iter().chain(children(holder)) {
            assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
        }
    }

    /// SIGKILL for the worker alone.
    pub fn kill_worker(&self, daemon: usize) {
        for worker in children(self.daemons[daemon].id()) {
            assert!(Command::new("kill").args(["-KILL", &worker.to_string()]).status().unwrap().success());
        }
    }

    /// SIGKILL for the worker that serves this mount, which may be in the background. Waits for the next one, by its number.
    pub fn another_worker(&self, mnt: &str, takeovers: u64) {
        let status = || run([OsStr::new("status"), self.at(mnt).as_os_str(), OsStr::new("--json")]);
        let worker = status().ok().json()["pid"].to_string();
        assert!(Command::new("kill").args(["-KILL", &worker]).status().unwrap().success());
        wait_until("the next worker answers", || {
            let said = status();
            said.status == 0 && said.json()["takeovers"] == takeovers
        });
    }

    /// A signal by its name, and the daemon's end.
    pub fn signal(&mut self, daemon: usize, signal: &str) -> i32 {
        let pid = self.daemons[daemon].id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.wait(daemon)
    }

    pub fn wait(&mut self, daemon: usize) -> i32 {
        self.daemons[daemon].wait().unwrap().code().unwrap_or(-1)
    }

    /// Mounts with a slow origin, and makes a file dirty at so many places that a flush is under way when a test
    /// interrupts it.
    pub fn mount_slow_and_dirty(&self) {
        self.mount(&["--size", SIZE, "--model-disk", "hdd-7200"]).ok();
        self.make_dirty_for_long();
    }

    /// Makes so many places dirty that a modelled disk takes seconds for them.
    pub fn make_dirty_for_long(&self) {
        let file = fs::File::create(self.mnt().join("file")).unwrap();
        for block in 0..600_u64 {
            file.write_all_at(&pattern(4096, block), block * 37 * 65536).unwrap();
        }
        file.sync_all().unwrap();
    }

    /// That all of it is below `dir`.
    #[track_caller]
    pub fn check_dirty_for_long(&self, dir: &Path) {
        let file = fs::File::open(dir.join("file")).unwrap();
        for block in 0..600_u64 {
            let mut there = vec![0; 4096];
            file.read_exact_at(&mut there, block * 37 * 65536).unwrap();
            assert!(there == pattern(4096, block), "block {block}");
        }
    }

    pub fn unmount(&self, more: &[&str]) -> Said {
        let mnt = self.mnt();
        once_no_test_holds_it(|| {
            run([OsStr::new("unmount"), mnt.as_os_str()].into_iter().chain(more.iter().map(OsStr::new)))
        })
    }

    /// The system's own `umount`, which does not ask headpond first.
    #[track_caller]
    pub fn plain_umount(&self) {
        wait_until("nothing holds it that another test starts", || {
            Command::new("umount").arg(self.mnt()).status().unwrap().success()
        });
    }

    pub fn flush(&self) -> Said {
        run([OsStr::new("flush"), self.mnt().as_os_str()])
    }

    /// Lets something go wrong with the flash of a mount that was made with `--test-fault`.
    pub fn fault(&self, faults: &str) -> Said {
        run([OsStr::new("fault"), self.mnt().as_os_str(), OsStr::new(faults)])
    }

    pub fn status(&self) -> serde_json::Value {
        run([OsStr::new("status"), self.mnt().as_os_str(), OsStr::new("--json")]).ok().json()
    }

    pub fn marker(&self) -> Option<serde_json::Value> {
        let text = fs::read(self.origin().join(".headpond/marker.json")).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    fn clean(&mut self) {
        for daemon in &mut self.daemons {
            if daemon.try_wait().is_ok_and(|ended| ended.is_none()) {
                kill_with_workers(daemon);
            }
        }
        for name in ["mnt", "mnt2"] {
            let mnt = self.at(name);
            if is_mounted(&mnt) {
                let _ = headpond().arg("unmount").arg(&mnt).arg("--keep-dirty").output();
            }
            for command in [["umount", "-l"].as_slice(), &["fusermount3", "-u", "-z"]] {
                if is_mounted(&mnt) {
                    let _ = Command::new(command[0]).args(&command[1..]).arg(&mnt).output();
                }
            }
        }
    }
}

impl Drop for Pond {
    fn drop(&mut self) {
        self.clean();
        if std::thread::panicking() {
            eprintln!("what the daemons said last:\n{}", self.log());
        }
    }
}

/// Kills a holder. The kernel then kills its worker, which is gone on return.
pub fn kill_with_workers(holder: &mut Child) {
    let workers = children(holder.id());
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the worker is gone, too", || workers.iter().all(|worker| headpond_control::has_ended(*worker)));
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Writes a new file and syncs it.
pub fn write_and_sync(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Some bytes that are not the same at any two places.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Every file below a directory with its content, by its path.
pub fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    fn walk(dir: &Path, root: &Path, into: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, into);
            } else {
                into.push((path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    walk(dir, dir, &mut files);
    files.sort();
    files
}
