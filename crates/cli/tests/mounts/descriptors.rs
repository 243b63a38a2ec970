//! Many more files than the daemon may have descriptors: made, looked at, renamed above, left dirty, brought back and
//! flushed; as root, and as an ordinary user.

use std::process::{Command, Stdio};

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

    fn mount(&self) {
        let [origin, mnt, flash, log] = ["origin", "mnt", "flash", "log"].map(|name| self.pond.at(name));
        let [origin, mnt, flash, log] = [&origin, &mnt, &flash, &log].map(|path| path.to_str().unwrap());
        self.headpond(&["mount", origin, mnt, "--flash", flash, "--size", SIZE, "--background", "--log", log]).ok();
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
    few.mount();
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
    few.mount();
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
