//! Several writes as one, as SQLite asks for them of F2FS: start, writes, commit or abort.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::pond::{Pond, SIZE, run, wait_until};

/// Carries out commands, line by line, with one open file, and answers: `ok`, what it read, or `errno N`.
const CLIENT: &str = r#"
    use Fcntl; $| = 1;
    sysopen(my $f, $ARGV[0], O_RDWR) or die "open: $!";
    sub said { my $ok = shift; print $ok ? "$ok\n" : "errno " . ($! + 0) . "\n"; }
    my %ask = (start => 0xf501, commit => 0xf502, abort => 0xf505);
    while (my $line = <STDIN>) {
        my ($what, @with) = split ' ', $line;
        if ($what eq "features") { my $bits = pack("L", 0); ioctl($f, 0x8004f50c, $bits) ? print unpack("L", $bits) . "\n" : said(0); }
        elsif (exists $ask{$what}) { said(ioctl($f, $ask{$what}, 0) ? "ok" : 0); }
        elsif ($what eq "write") { sysseek($f, $with[0], 0); said(defined syswrite($f, $with[1] x $with[2]) ? "ok" : 0); }
        elsif ($what eq "read") { sysseek($f, $with[0], 0); my $b; sysread($f, $b, 1); print "$b\n"; }
        elsif ($what eq "close") { close($f); print "ok\n"; }
    }
"#;

const PAGE: usize = 4096;
const PAGES: usize = 100;

struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(file: &Path) -> Self {
        let mut command = Command::new("perl");
        let mut child =
            command.arg("-e").arg(CLIENT).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn tell(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").unwrap();
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        said.trim().to_owned()
    }

    #[track_caller]
    fn ok(&mut self, what: &str) {
        assert_eq!(self.tell(what), "ok", "{what}");
    }

    /// Writes some pages that lie apart.
    fn write_pages(&mut self, byte: char) {
        for page in [3, 50, 51, 99] {
            self.ok(&format!("write {} {byte} {PAGE}", page * PAGE));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mount with a file of pages of `a`.
fn pond() -> Pond {
    let pond = Pond::new();
    fs::write(pond.origin().join("app.db"), vec![b'a'; PAGE * PAGES]).unwrap();
    pond.mount(&["--size", SIZE]).ok();
    pond
}

/// How many bytes of each letter the file has, past the kernel's cache.
fn letters(pond: &Pond) -> (usize, usize) {
    let from = format!("if={}", pond.mnt().join("app.db").display());
    let read = Command::new("dd").args([&from, "bs=64K", "iflag=direct"]).stderr(Stdio::null()).output().unwrap();
    let count = |letter| read.stdout.iter().filter(|byte| **byte == letter).count();
    (count(b'a'), count(b'b'))
}

const OLD: (usize, usize) = (PAGE * PAGES, 0);
const NEW: (usize, usize) = (PAGE * (PAGES - 4), PAGE * 4);

#[test]
fn writes_between_start_and_commit_are_seen_by_nobody_and_then_by_everybody() {
    let pond = pond();
    let mut client = Client::start(&pond.mnt().join("app.db"));
    assert_eq!(client.tell("features"), "4");
    client.ok("start");
    client.write_pages('b');
    assert_eq!(letters(&pond), OLD);
    // Through the kernel's cache, too, once it has forgotten what was written.
    let cached = || fs::read(pond.mnt().join("app.db")).unwrap().iter().filter(|byte| **byte == b'b').count();
    wait_until("the kernel has forgotten the pages", || cached() == 0);
    client.ok("commit");
    assert_eq!(letters(&pond), NEW);
    assert_eq!(cached(), 4 * PAGE);
    assert_eq!(client.tell("commit"), "errno 22", "there is nothing to commit any more");
    // After it, writes are writes again.
    client.ok(&format!("write 0 b {PAGE}"));
    assert_eq!(letters(&pond).1, 5 * PAGE);
    drop(client);
    pond.unmount(&[]).ok();
    let there = fs::read(pond.origin().join("app.db")).unwrap();
    assert_eq!(there.iter().filter(|byte| **byte == b'b').count(), 5 * PAGE);
}

#[test]
fn what_is_aborted_or_never_committed_was_never_written() {
    let pond = pond();
    let file = pond.mnt().join("app.db");
    for end in ["abort", "close"] {
        let mut client = Client::start(&file);
        client.ok("start");
        client.write_pages('b');
        // Beyond the file's end as well.
        client.ok(&format!("write {} b {PAGE}", PAGES * PAGE));
        client.ok(end);
        wait_until("the file is as it was", || fs::read(&file).unwrap() == vec![b'a'; PAGE * PAGES]);
        assert_eq!(letters(&pond), OLD, "{end}");
        assert_eq!(fs::metadata(&file).unwrap().len(), (PAGE * PAGES) as u64, "{end}");
    }
    let mut client = Client::start(&file);
    client.ok("start");
    assert_eq!(client.tell("start"), "errno 22");
    client.ok("commit");
    client.ok("abort");
    drop(client);
    pond.unmount(&[]).ok();
}

#[test]
fn a_daemon_that_is_killed_leaves_what_was_committed_and_nothing_else() {
    let mut pond = pond();
    pond.unmount(&[]).ok();
    let held_back = ["--test-fault", "lose-unsynced,early=500,torn=500,seed=3"];
    let daemon = pond.mount_foreground(&held_back);
    let mut client = Client::start(&pond.mnt().join("app.db"));
    client.ok("start");
    client.write_pages('b');
    pond.kill(daemon);
    drop(client);
    let _ = Command::new("umount").arg("-l").arg(pond.mnt()).status();
    let daemon = pond.mount_foreground(&held_back);
    assert_eq!(letters(&pond), OLD);
    let mut client = Client::start(&pond.mnt().join("app.db"));
    client.ok("start");
    client.write_pages('b');
    // A commit is durable when it is answered.
    client.ok("commit");
    pond.kill(daemon);
    drop(client);
    let _ = Command::new("umount").arg("-l").arg(pond.mnt()).status();
    pond.mount_foreground(&held_back);
    assert_eq!(letters(&pond), NEW);
}

#[test]
fn what_is_too_much_for_one_batch_is_refused_and_nothing_of_it_is_there() {
    let pond = pond();
    let mut client = Client::start(&pond.mnt().join("app.db"));
    client.ok("start");
    let mut said = String::from("ok");
    for page in 0..100 {
        if said == "ok" {
            said = client.tell(&format!("write {} b {PAGE}", page * 65536));
        }
    }
    assert_eq!(said, "errno 27");
    assert_eq!(client.tell("commit"), "errno 27");
    assert_eq!(letters(&pond), OLD);
    // A mebibyte in one place is not too much.
    client.ok("start");
    for part in 0..16 {
        client.ok(&format!("write {} b 65536", part * 65536));
    }
    client.ok("commit");
    assert_eq!(letters(&pond).1, 1 << 20);
    drop(client);
    pond.unmount(&[]).ok();
}

#[test]
fn where_writes_are_not_whole_nobody_is_offered_batches() {
    let pond = pond();
    let mnt = pond.mnt();
    let refused = |when: &str| {
        let mut client = Client::start(&mnt.join("app.db"));
        assert_eq!((client.tell("features"), client.tell("start")), ("errno 25".into(), "errno 25".into()), "{when}");
    };
    for mode in ["write-through", "write-around", "pass-through"] {
        run(["set", mnt.to_str().unwrap(), &format!("mode={mode}")]).ok();
        refused(mode);
    }
    run(["set", mnt.to_str().unwrap(), "mode=write-back"]).ok();
    run(["rules", "add", mnt.to_str().unwrap(), "path=*.db", "action=bypass"]).ok();
    refused("a rule");
    run(["rules", "remove", mnt.to_str().unwrap(), "1"]).ok();
    // One that began before fails as a whole: nothing is lost but the batch.
    let mut client = Client::start(&mnt.join("app.db"));
    client.ok("start");
    client.write_pages('b');
    run(["set", mnt.to_str().unwrap(), "mode=write-around"]).ok();
    assert_eq!(client.tell("commit"), "errno 95");
    assert_eq!(letters(&pond), OLD);
    drop(client);
    pond.unmount(&[]).ok();
}
