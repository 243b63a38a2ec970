//! Many more files than the daemon may have descriptors: made, looked at, renamed above, left dirty, brought back and
//! flushed; as root, and as an ordinary user.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::lacking::has_root;
use crate::pond::{Pond, SIZE, Said};

/// So many descriptors the daemon may have.
const LIMIT: &str = "300";

/// As nobody where `nobody` says so, and with few descriptors.
fn command(nobody: bool, program: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={LIMIT}:{LIMIT}"));
    if nobody {
        command.args(["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
    }
    command.args(program).env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
    command
}

struct Few {
    pond: Pond,
    nobody: bool,
}

impl Few {
    fn headpond(&self, arguments: &[&str]) -> Said {
        let program = self.pond.at("headpond");
        command(self.nobody, &[program.to_str().unwrap()]).args(arguments).output().unwrap().into()
    }

    fn mount(&self, more: &[&str]) {
        let [origin, mnt, flash, log] = ["origin", "mnt", "flash", "log"].map(|name| self.pond.at(name));
        let [origin, mnt, flash, log] = [&origin, &mnt, &flash, &log].map(|path| path.to_str().unwrap());
        let arguments = ["mount", origin, mnt, "--flash", flash, "--size", SIZE, "--background", "--log", log];
        self.headpond(&[&arguments, more].concat()).ok();
    }

    fn unmount(&self, more: &[&str]) {
        let mnt = self.pond.mnt();
        let arguments = [&["unmount", mnt.to_str().unwrap(), "--quiet"], more].concat();
        self.headpond(&arguments).ok();
    }

    /// A script in the mount, or where `place` says.
    #[track_caller]
    fn shell(&self, place: &str, script: &str) -> String {
        let script = format!("set -e; cd '{}'; {script}", self.pond.at(place).display());
        let said = Said::from(command(self.nobody, &["sh", "-c", &script]).output().unwrap());
        said.ok();
        said.text
    }
}

fn many_files_with_few_descriptors(nobody: bool) {
    let few = Few { pond: Pond::new(), nobody };
    few.pond.program(env!("CARGO_BIN_EXE_headpond"), "headpond");
    if nobody {
        assert!(Command::new("chown").args(["-R", "nobody"]).arg(few.pond.at("")).status().unwrap().success());
    }
    few.mount(&[]);
    // Built into the shell, so that it is quick.
    let each = |what: &str| {
        let numbers = "for d in 0 1 2 3 4 5; do for x in 0 1 2 3 4 5 6 7 8 9; do for y in 0 1 2 3 4 5 6 7 8 9; do";
        format!("{numbers} {what}; done; done; done")
    };
    few.shell("mnt", "mkdir -p a/0/in a/1/in a/2/in a/3/in a/4/in a/5/in");
    few.shell("mnt", &each("echo $d.$x.$y > a/$d/in/$x$y"));
    few.shell("mnt", &each("read line < a/$d/in/$x$y; test $line = $d.$x.$y; test -s a/$d/in/$x$y"));
    few.shell("mnt", "mv a b; mv b/0 b/zero; mv b/zero/in b/zero/inner; mkdir c; mv b/5 c/; ls -lR . > /dev/null");
    few.unmount(&["--keep-dirty"]);
    // All of them are dirty, and wanted at once.
    few.mount(&[]);
    few.shell("mnt", "mv c/5 b/; mv b/zero/inner b/zero/in; mv b/zero b/0; mv b e");
    few.shell("mnt", "rm e/3/in/00; ln e/4/in/00 e/3/in/linked");
    few.shell("mnt", "for x in 1 2 3 4 5 6 7 8 9; do echo more >> e/2/in/${x}7; done");
    few.unmount(&[]);
    assert_eq!(few.shell("origin", "ls e/*/in | grep -c ."), "606\n", "600 files and 6 headings");
    let right = "test $d.$x.$y = 3.0.0 || { read line < e/$d/in/$x$y; test $line = $d.$x.$y; }";
    few.shell("origin", &each(right));
    few.shell("origin", "test \"$(tail -n 1 e/2/in/77)\" = more; test \"$(cat e/3/in/linked)\" = 4.0.0");
}

#[test]
fn root_mounts_many_more_files_than_descriptors() {
    if has_root("with few descriptors") {
        many_files_with_few_descriptors(false);
    }
}

#[test]
fn an_ordinary_user_mounts_many_more_files_than_descriptors() {
    if has_root("to become another user") {
        many_files_with_few_descriptors(true);
    }
}

/// Opens directories, and files without a name, until it is refused or has 500 of each; says how many it has, and keeps
/// them open until its input ends.
const HOARDER: &str = r#"
    use Fcntl; $| = 1;
    my @open;
    for my $way (O_RDONLY | 0x10000, O_RDWR | 0x410000) {
        for (1 .. 500) { sysopen(my $f, $ARGV[0], $way, 0600) or last; push @open, $f; }
        print scalar(@open) . "\n";
    }
    <STDIN>;
"#;

/// A process that takes all that it gets, as a user of this number, and how much it has.
fn hoarder(few: &Few, user: &str) -> (Child, [u32; 2]) {
    let mut hoarder = Command::new("setpriv")
        .args(["--reuid", user, "--regid", user, "--clear-groups", "perl", "-e", HOARDER])
        .arg(few.pond.at("mnt/open"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(hoarder.stdout.take().unwrap()).lines();
    let counts = [(); 2].map(|()| lines.next().unwrap().unwrap().parse().unwrap());
    (hoarder, counts)
}

#[test]
fn a_user_who_opens_all_he_can_leaves_descriptors_to_the_others() {
    if !has_root("to become another user") {
        return;
    }
    let few = Few { pond: Pond::new(), nobody: false };
    few.pond.program(env!("CARGO_BIN_EXE_headpond"), "headpond");
    few.mount(&["--allow-other"]);
    few.shell("mnt", "mkdir -m 777 open; echo here > x");
    let hoarders = ["1001", "1002", "1003", "1004", "1005"].map(|user| hoarder(&few, user));
    let counts = hoarders.each_ref().map(|(_, counts)| *counts);
    assert!(counts[0][0] > 4, "some is for everybody: {counts:?}");
    assert!(counts[0][1] < 100, "{counts:?}");
    few.shell("mnt", "read line < x; test $line = here; echo more > y; mkdir z; ls z open; test -s y; rm -r y z");
    for (mut hoarder, _) in hoarders {
        drop(hoarder.stdin.take());
        hoarder.wait().unwrap();
    }
    let (mut again, counts) = hoarder(&few, "1005");
    assert!(counts[0] > 4, "what is closed is there for others: {counts:?}");
    drop(again.stdin.take());
    again.wait().unwrap();
    few.unmount(&[]);
}
