//! Untorn writes: which files they are promised for, and that the promise holds while a database relies on it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::pond::{Pond, SIZE, Said, pattern, run, wait_until};

/// Asks as MariaDB does (`DFS_IOCTL_ATOMIC_WRITE_SET`, 1), says what it was told, and goes on: `close` closes the file,
/// `write` writes a page, the end of its input ends it.
const DATABASE: &str = r#"
    use Fcntl; use IO::Handle; $| = 1;
    my $way = -d $ARGV[0] ? O_RDONLY : O_RDWR;
    sysopen(my $f, $ARGV[0], $way) or die "open: $!";
    my $one = pack("L", 1);
    print ioctl($f, hex($ARGV[1]), $one) ? "whole\n" : "errno " . ($! + 0) . "\n";
    while (my $line = <STDIN>) {
        if ($line =~ /close/) { close($f); print "closed\n"; }
        if ($line =~ /write/) { sysseek($f, 16384, 0); my $n = syswrite($f, "p" x 16384); print $n ? "written\n" : "errno " . ($! + 0) . "\n"; }
    }
"#;

const ASK: &str = "0x40049502";
const ENOTTY: i32 = 25;

/// A program that asks, and may count on what it was told.
struct Asker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    told: String,
}

impl Asker {
    fn start(program: &Path, file: &Path, request: &str) -> Self {
        let mut command = Command::new(program);
        command.arg("-e").arg(DATABASE).arg(file).arg(request).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut told = String::new();
        output.read_line(&mut told).unwrap();
        let input = child.stdin.take();
        Self { child, input, output, told: told.trim().to_owned() }
    }

    fn tell(&mut self, what: &str) -> String {
        writeln!(self.input.as_ref().unwrap(), "{what}").unwrap();
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        said.trim().to_owned()
    }

    fn end(mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Perl under another name.
fn program(pond: &Pond, name: &str) -> PathBuf {
    pond.program("/usr/bin/perl", name)
}

fn pond_with(mode: &str) -> Pond {
    let pond = Pond::new();
    fs::create_dir(pond.origin().join("db")).unwrap();
    fs::write(pond.origin().join("db/t1.ibd"), pattern(1 << 16, 1)).unwrap();
    pond.mount(&["--size", SIZE, "--mode", mode]).ok();
    pond
}

fn rules(pond: &Pond, words: &[&str]) -> Said {
    run(["rules", "add", pond.mnt().to_str().unwrap()].iter().chain(words))
}

fn set(pond: &Pond, setting: &str) -> Said {
    run(["set", pond.mnt().to_str().unwrap(), setting])
}

fn ask(pond: &Pond) -> Asker {
    Asker::start(&program(pond, "mariadbd"), &pond.mnt().join("db/t1.ibd"), ASK)
}

/// Waits until the kernel has reported to the mount that a file was closed, and no program counts on any.
fn nobody_counts_on_any(pond: &Pond) {
    wait_until("nobody counts on a file", || pond.status()["whole_write_files"] == 0);
}

#[test]
fn a_database_is_told_that_writes_are_whole_where_they_are_and_refused_where_they_are_not() {
    struct Case {
        what: &'static str,
        mode: &'static str,
        rules: &'static [&'static [&'static str]],
        file: &'static str,
        request: &'static str,
        whole: bool,
    }
    let usual = Case { what: "", mode: "write-back", rules: &[], file: "db/t1.ibd", request: ASK, whole: true };
    let cases = [
        Case { what: "write-back", ..usual },
        Case { what: "write-through", mode: "write-through", whole: false, ..usual },
        Case { what: "write-around", mode: "write-around", whole: false, ..usual },
        Case { what: "pass-through", mode: "pass-through", whole: false, ..usual },
        Case { what: "a rule for its file", rules: &[&["path=db/**", "action=bypass"]], whole: false, ..usual },
        Case { what: "read-only for its file", rules: &[&["path=db/**", "action=read-only"]], whole: false, ..usual },
        Case { what: "the same, through", rules: &[&["path=db/**", "action=write-through"]], whole: false, ..usual },
        Case { what: "a rule for its process", rules: &[&["name=mariadbd", "action=bypass"]], whole: false, ..usual },
        Case { what: "a rule for its pages", rules: &[&["min-size=16K", "action=bypass"]], whole: false, ..usual },
        Case { what: "a rule for its writes", rules: &[&["direction=write", "action=bypass"]], whole: false, ..usual },
        Case { what: "a rule for reads", rules: &[&["direction=read", "action=bypass"]], ..usual },
        Case { what: "a rule for others", rules: &[&["name=mysqldump", "action=bypass"]], ..usual },
        Case { what: "a rule for larger requests", rules: &[&["min-size=1M", "action=bypass"]], ..usual },
        Case {
            what: "a rule that comes first",
            rules: &[&["path=db/*.ibd", "action=cache"], &["path=db/**", "action=bypass"]],
            ..usual
        },
        Case { what: "a directory", file: "db", whole: false, ..usual },
        Case { what: "another request", request: "0x40049503", whole: false, ..usual },
    ];
    let pond = pond_with("write-back");
    for case in cases {
        set(&pond, &format!("mode={}", case.mode)).ok();
        for words in case.rules {
            rules(&pond, words).ok();
        }
        let asker = Asker::start(&program(&pond, "mariadbd"), &pond.mnt().join(case.file), case.request);
        let expected = if case.whole { "whole".to_owned() } else { format!("errno {ENOTTY}") };
        assert_eq!(asker.told, expected, "{}", case.what);
        asker.end();
        nobody_counts_on_any(&pond);
        for _ in case.rules {
            run(["rules", "remove", pond.mnt().to_str().unwrap(), "1"]).ok();
        }
    }
    pond.unmount(&[]).ok();
}

#[test]
fn the_mode_that_keeps_writes_whole_is_not_left_while_a_database_counts_on_it() {
    let pond = pond_with("write-back");
    let mut database = ask(&pond);
    assert_eq!(database.told, "whole");
    assert_eq!(pond.status()["whole_write_files"], 1);
    let listed = fs::read_to_string(pond.mnt().join(".headpond/whole")).unwrap();
    assert!(listed.lines().nth(1).unwrap().ends_with("mariadbd        db/t1.ibd"), "{listed}");
    for mode in ["write-through", "write-around", "pass-through"] {
        set(&pond, &format!("mode={mode}")).refused(2, &["mariadbd", "db/t1.ibd", "Nothing was changed"]);
    }
    run(["set", pond.mnt().to_str().unwrap(), "mode=write-around", "--dry-run"])
        .refused(2, &["relies on untorn writes"]);
    assert_eq!(pond.status()["mode"], "write-back");
    // It closes files when it has many, opens them again, and does not ask again.
    assert_eq!(database.tell("close"), "closed");
    set(&pond, "mode=write-around").refused(2, &["mariadbd"]);
    // Settings that take nothing away are changed all the same.
    set(&pond, "flush-period=5s").ok();
    database.end();
    nobody_counts_on_any(&pond);
    set(&pond, "mode=write-around").ok();
    assert_eq!(ask(&pond).told, format!("errno {ENOTTY}"));
    set(&pond, "mode=write-back").ok();
    assert_eq!(ask(&pond).told, "whole");
    nobody_counts_on_any(&pond);
    pond.unmount(&[]).ok();
}

#[test]
fn a_rule_that_sends_writes_past_the_log_waits_until_the_database_has_ended() {
    let pond = pond_with("write-back");
    let mut database = ask(&pond);
    rules(&pond, &["path=db/**", "action=bypass"]).ok();
    let bypassed = || pond.status()["engine"]["bypassed_writes"].as_u64().unwrap();
    assert_eq!(database.tell("write"), "written");
    assert_eq!(bypassed(), 0, "its writes go through the log");
    database.end();
    nobody_counts_on_any(&pond);
    let mut next = ask(&pond);
    assert_eq!(next.told, format!("errno {ENOTTY}"));
    assert_eq!(next.tell("write"), "written");
    assert_eq!(bypassed(), 1, "and now past it");
    next.end();
    pond.unmount(&[]).ok();
}

#[test]
fn a_stream_of_writes_to_a_file_that_is_counted_on_does_not_pass_by_the_log() {
    let pond = pond_with("write-back");
    set(&pond, "sequential-cutoff=1M").ok();
    let file = pond.mnt().join("db/t1.ibd");
    let stream = || {
        let target = format!("of={}", file.display());
        let copy = ["if=/dev/zero", &target, "bs=256K", "count=32", "conv=notrunc"];
        assert!(Command::new("dd").args(copy).stderr(Stdio::null()).status().unwrap().success());
    };
    let bypassed = || pond.status()["engine"]["bypassed_writes"].as_u64().unwrap();
    let database = ask(&pond);
    stream();
    assert_eq!(bypassed(), 0);
    database.end();
    nobody_counts_on_any(&pond);
    run(["flush", pond.mnt().to_str().unwrap()]).ok();
    stream();
    assert!(bypassed() > 0, "otherwise the first half says nothing");
    pond.unmount(&[]).ok();
}

#[test]
fn once_the_flash_has_failed_a_database_is_told_no_more_and_its_writes_fail_rather_than_tear() {
    let pond = pond_with("write-back");
    pond.unmount(&[]).ok();
    pond.mount(&["--test-fault", "none"]).ok();
    let mut database = ask(&pond);
    assert_eq!(database.told, "whole");
    assert_eq!(database.tell("write"), "written");
    pond.fault("write-errors=0").ok();
    fs::write(pond.mnt().join("other"), "somebody else's write finds out").unwrap();
    let _ = Command::new("sync").arg(pond.mnt().join("other")).stderr(Stdio::null()).status();
    wait_until("the flash has failed", || pond.status()["flash_failed"] == true);
    assert_eq!(database.tell("write"), "errno 5");
    fs::write(pond.mnt().join("another"), "goes to the origin").unwrap();
    wait_until("nobody else is told", || ask(&pond).told == format!("errno {ENOTTY}"));
    drop(database);
    pond.fault("heal").ok();
}

#[test]
fn who_may_only_read_a_file_binds_nobody_by_it_and_begins_no_batch() {
    // By a handle for reading: a promise, the begin and the end of a batch, and the list of batches, which any user may
    // see.
    const READER: &str = r#"
        use Fcntl; sysopen(my $f, $ARGV[0], O_RDONLY) or die "open: $!";
        for my $ask (0x40049502, 0xf501, 0xf502, 0xf505) {
            my $one = pack("L", 1);
            print ioctl($f, $ask, $ask == 0x40049502 ? $one : 0) ? "yes" : "errno " . ($! + 0), "\n";
        }
        my $bits = pack("L", 0); print ioctl($f, 0x8004f50c, $bits) ? unpack("L", $bits) : "errno " . ($! + 0), "\n";
    "#;
    const EBADF: &str = "errno 9\n";
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let file = pond.mnt().join("file");
    fs::write(&file, pattern(32 << 10, 1)).unwrap();
    let said = Said::from(Command::new("perl").arg("-e").arg(READER).arg(&file).output().unwrap());
    assert_eq!(said.ok().text, format!("{}4\n", EBADF.repeat(4)));
    run(["set", pond.mnt().to_str().unwrap(), "mode=write-through"]).ok();
    pond.unmount(&[]).ok();
}
