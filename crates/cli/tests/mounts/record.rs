//! `headpond record`: the trace has what was asked, and nothing else, however the recording ends.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use headpond_control::Daemon;
use headpond_recording::{AskedKind, AskedRequest, TraceEnd, TraceReader, WhyEnded};
use rustix::fs::{FallocateFlags, fallocate};

use crate::pond::{Pond, SIZE, Said, headpond, pattern, run, write_and_sync};

/// A recording under way.
struct Recording(Child);

impl Recording {
    /// Starts one, and waits until it takes in requests.
    fn start(pond: &Pond, to: &str, more: &[&str]) -> Self {
        let mut command = headpond();
        command.arg("record").arg(pond.mnt()).arg("--to").arg(pond.at(to)).args(more);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut said, told) = (String::new(), child.stderr.as_mut().unwrap());
        while !said.ends_with('\n') {
            let mut letter = [0];
            told.read_exact(&mut letter).unwrap();
            said.push(letter[0].into());
        }
        assert!(said.starts_with("recording to"), "{said}");
        Self(child)
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }

    fn end(self) -> Said {
        self.signal("-INT");
        self.wait()
    }

    fn wait(self) -> Said {
        self.0.wait_with_output().unwrap().into()
    }
}

fn read(path: &Path) -> (Vec<AskedRequest>, TraceEnd, u64) {
    let bytes = fs::read(path).unwrap();
    let mut reader = TraceReader::open(&bytes[..]).unwrap();
    let mut requests = Vec::new();
    while let Some(request) = reader.next_request().unwrap() {
        requests.push(request);
    }
    (requests, reader.end().unwrap(), reader.dropped())
}

/// Reads and writes past the kernel's page cache, so that each is one request.
fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(0o40000).open(path).unwrap()
}

/// Memory that may be read into past the page cache.
fn aligned(bytes: &mut Vec<u8>, len: usize) -> &mut [u8] {
    bytes.resize(len + 4096, 0);
    let at = bytes.as_ptr().align_offset(4096);
    &mut bytes[at..at + len]
}

#[test]
fn a_trace_has_exactly_what_was_asked_in_order_and_no_names() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let (one, two) = (pond.mnt().join("a-secret-name"), pond.mnt().join("two"));
    write_and_sync(&one, &pattern(1 << 20, 1));
    write_and_sync(&two, &pattern(1 << 16, 2));
    let (first, second) = (direct(&one), direct(&two));
    let recording = Recording::start(&pond, "trace", &["--json"]);
    let mut memory = Vec::new();
    let mut expected = Vec::new();
    for at in [7_u64, 3, 7, 200, 1] {
        first.read_exact_at(aligned(&mut memory, 8192), at * 4096).unwrap();
        expected.push((AskedKind::Read, 0, at * 4096, 8192));
    }
    let block = aligned(&mut memory, 4096);
    block.fill(9);
    second.write_all_at(block, 8192).unwrap();
    expected.push((AskedKind::Write, 1, 8192, 4096));
    second.sync_data().unwrap();
    expected.push((AskedKind::Sync, 1, 0, 0));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&first, punch, 4096, 8192).unwrap();
    expected.push((AskedKind::Discard, 0, 4096, 8192));
    second.set_len(4096).unwrap();
    expected.push((AskedKind::Truncate, 1, 4096, 0));
    drop((first, second));
    fs::remove_file(&two).unwrap();
    expected.push((AskedKind::Remove, 1, 0, 0));
    let said = recording.end();
    let (requests, end, dropped) = read(&pond.at("trace"));
    assert_eq!((end, dropped), (TraceEnd::Complete(WhyEnded::Asked), 0));
    let objects = [requests[0].object, requests[5].object];
    assert_ne!(objects[0], objects[1]);
    let seen: Vec<_> = requests.iter().map(|one| (one.kind, one.object, one.offset, one.len)).collect();
    let expected: Vec<_> = expected.into_iter().map(|(kind, of, at, len)| (kind, objects[of], at, len)).collect();
    assert_eq!(seen, expected);
    let json = said.ok().json();
    assert_eq!((&json["requests"], &json["dropped"]), (&expected.len().into(), &0.into()), "{json}");
    assert_eq!(json["ended"], "asked");
    assert!(requests.windows(2).all(|two| two[0].at <= two[1].at), "times do not go back");
    assert_eq!(requests[0].process, 1, "this process has another number in the system");
    let bytes = fs::read(pond.at("trace")).unwrap();
    assert!(!bytes.windows(6).any(|some| some == b"secret"));
    assert_eq!(fs::metadata(pond.at("trace")).unwrap().permissions().mode() & 0o777, 0o600);
    pond.unmount(&[]).ok();
}

#[test]
fn each_end_leaves_a_trace_that_reads_to_its_end() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let path = pond.mnt().join("a");
    write_and_sync(&path, &pattern(1 << 20, 1));
    let file = direct(&path);
    let mut memory = Vec::new();
    let mut ask = |times: u64| {
        (0..times).for_each(|at| file.read_exact_at(aligned(&mut memory, 4096), at % 256 * 4096).unwrap());
    };
    let trace = |name: &str| pond.at(name);

    let recording = Recording::start(&pond, "time", &["--for", "1s"]);
    // How many come within a second is no matter of this test.
    ask(20);
    recording.wait().refused(0, &["none dropped", "--for is over"]);
    assert_eq!(read(&trace("time")).1, TraceEnd::Complete(WhyEnded::Time));

    let recording = Recording::start(&pond, "size", &["--max-size", "1K"]);
    ask(200);
    recording.wait().refused(0, &["--max-size was reached"]);
    assert!(fs::metadata(trace("size")).unwrap().len() <= 1024);
    assert_eq!(read(&trace("size")).1, TraceEnd::Complete(WhyEnded::Size));

    // The client dies: the daemon stops, and another one may record.
    let recording = Recording::start(&pond, "killed", &[]);
    ask(20);
    recording.signal("-KILL");
    recording.wait();

    // The worker dies, and another one serves.
    let recording = Recording::start(&pond, "worker", &[]);
    ask(20);
    pond.kill_worker(daemon);
    recording.wait().refused(0, &["daemon went away"]);
    assert!(matches!(read(&trace("worker")).1, TraceEnd::Cut(_)));

    let recording = Recording::start(&pond, "mount", &[]);
    ask(20);
    drop(file);
    assert_eq!(pond.signal(daemon, "-TERM"), 0);
    recording.wait().refused(0, &["20 requests", "the mount ended"]);
    assert_eq!(read(&pond.at("mount")).1, TraceEnd::Complete(WhyEnded::Mount));
}

/// A pipe that nobody reads stands for a file that takes nothing.
#[test]
fn a_file_that_takes_nothing_delays_nobody_and_what_was_dropped_is_counted() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let path = pond.mnt().join("a");
    write_and_sync(&path, &pattern(1 << 16, 1));
    let (mut out, into) = std::io::pipe().unwrap();
    let (begun, begins) = mpsc::channel();
    let over = AtomicBool::new(false);
    // More than the ring and the pipe hold.
    let threads = 4;
    let each = 25_000_u64;
    let trace = std::thread::scope(|scope| {
        let daemon = Daemon::of(&pond.mnt()).unwrap();
        let over = &over;
        scope.spawn(move || {
            let begun = || begun.send(()).unwrap();
            daemon.record(600, 1 << 30, into, begun, || over.load(Ordering::Relaxed)).unwrap();
        });
        begins.recv().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let (file, mut memory) = (direct(&path), Vec::new());
                    let into = aligned(&mut memory, 512);
                    (0..each).for_each(|at| file.read_exact_at(into, at % 128 * 512).unwrap());
                });
            }
        });
        over.store(true, Ordering::Relaxed);
        let mut trace = Vec::new();
        out.read_to_end(&mut trace).unwrap();
        trace
    });
    let mut reader = TraceReader::open(&trace[..]).unwrap();
    while reader.next_request().unwrap().is_some() {}
    assert_eq!(reader.end(), Some(TraceEnd::Complete(WhyEnded::Asked)));
    assert!(reader.dropped() > 0, "{} were kept", reader.kept());
    assert_eq!(reader.kept() + reader.dropped(), threads * each);
    pond.unmount(&[]).ok();
}

#[test]
fn a_full_file_system_ends_the_recording_with_the_reason() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let daemon = Daemon::of(&pond.mnt()).unwrap();
    let refused = daemon.record(600, 1 << 30, full, || (), || false).unwrap_err().to_string();
    assert!(refused.contains("write the trace: No space left"), "{refused}");
    Recording::start(&pond, "next", &[]).end().ok();
    pond.unmount(&[]).ok();
}

#[test]
fn a_recording_overwrites_nothing_and_does_not_record_itself() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let record = |to: &Path| {
        let mnt = pond.mnt();
        run(["record".as_ref(), mnt.as_os_str(), "--to".as_ref(), to.as_os_str()].iter())
    };
    let kept = pond.at("kept");
    File::create(&kept).unwrap().write_all(b"mine").unwrap();
    record(&kept).refused(2, &["overwrites nothing"]);
    let recording = Recording::start(&pond, "first", &[]);
    record(&pond.at("second")).refused(2, &["under way"]);
    assert!(!pond.at("second").exists());
    recording.end().ok();
    assert_eq!(fs::read(&kept).unwrap(), b"mine");
    record(&pond.mnt().join("trace")).refused(2, &["lies in the mount"]);
    assert!(!pond.mnt().join("trace").exists());
    pond.unmount(&[]).ok();
}
