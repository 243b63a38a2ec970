//! A mount that is copied into another mount name space, as of a container: it ends with the mount unless it is in use.
//! And a mount that comes while the one before is ending: it waits. The copies need root.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::lacking::has_root;
use crate::pond::{Pond, SIZE, Said, headpond, is_mounted, pattern, wait_until, write_and_sync};

/// A shell in a mount name space of its own, with a copy of each mount that there is now.
struct Copy {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Copy {
    fn of_all() -> Option<Self> {
        if !has_root("for a mount name space") {
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut copy = Self { shell, input, output };
        copy.says("true", "0");
        Some(copy)
    }

    /// Runs a command there, which ends with this status.
    #[track_caller]
    fn says(&mut self, command: &str, status: &str) {
        writeln!(self.input, "{command}\necho $?").unwrap();
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        assert_eq!(said.trim(), status, "{command}");
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn an_unmount_ends_though_another_name_space_has_a_copy_and_what_was_written_there_is_at_the_origin() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 4));
    let Some(mut copy) = Copy::of_all() else { return };
    let mnt = pond.mnt().display().to_string();
    copy.says(&format!("printf newest > {mnt}/other"), "0");
    pond.unmount(&[]).ok();
    assert_eq!(pond.wait(daemon), 0, "{}", pond.log());
    assert_eq!(pond.marker(), None);
    assert!(fs::read(pond.origin().join("file")).unwrap() == pattern(1 << 20, 4));
    assert_eq!(fs::read(pond.origin().join("other")).unwrap(), b"newest");
    copy.says(&format!("cat {mnt}/file 2>&1 | grep -c 'not connected' > /dev/null"), "0");
}

#[test]
fn a_plain_umount_ends_a_copy_that_nobody_uses_and_the_next_mount_waits_for_that() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 4));
    let Some(copy) = Copy::of_all() else { return };
    pond.plain_umount();
    pond.mount(&[]).ok();
    assert_eq!(pond.wait(daemon), 0, "{}", pond.log());
    assert!(pond.log().contains("nothing uses it in other mount namespaces"), "{}", pond.log());
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 4));
    drop(copy);
    pond.unmount(&[]).ok();
}

#[test]
fn a_copy_that_is_in_use_is_served_on_until_it_is_not() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 4));
    let Some(mut copy) = Copy::of_all() else { return };
    let mnt = pond.mnt().display().to_string();
    copy.says(&format!("exec 3< {mnt}/file"), "0");
    // The refusal names the users, wherever they are.
    let shell = copy.shell.id().to_string();
    pond.unmount(&[]).refused(70, &["in use", &shell]);
    assert!(is_mounted(&pond.mnt()));
    pond.plain_umount();
    // A message is written piece by piece, and may be read in the midst of it.
    wait_until("the daemon names who uses it", || {
        pond.log().split_once("the mount is gone here").is_some_and(|(_, rest)| rest.contains(&shell))
    });
    copy.says(&format!("printf newest > {mnt}/other && sync {mnt}/other"), "0");
    assert!(pond.marker().is_some());
    pond.unmount(&[]).refused(70, &["in use"]);
    copy.says("exec 3<&-", "0");
    assert_eq!(pond.wait(daemon), 0, "{}", pond.log());
    assert_eq!(pond.marker(), None);
    assert_eq!(fs::read(pond.origin().join("other")).unwrap(), b"newest");
    copy.says(&format!("ls {mnt} 2> /dev/null"), "2");
}

/// A pond whose origin takes seconds to take in what is dirty.
fn slow() -> Pond {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE, "--model-disk", "hdd-7200"]).ok();
    let file = fs::File::create(pond.mnt().join("file")).unwrap();
    for block in 0..1000_u64 {
        std::os::unix::fs::FileExt::write_all_at(&file, &pattern(4096, block), block * 37 * 65536).unwrap();
    }
    file.sync_all().unwrap();
    pond
}

fn is_whole(pond: &Pond) {
    let file = fs::read(pond.mnt().join("file")).unwrap();
    for block in 0..1000_u64 {
        let at = block as usize * 37 * 65536;
        assert!(file[at..at + 4096] == pattern(4096, block), "block {block}");
    }
}

#[test]
fn a_mount_right_after_a_umount_waits_for_what_is_left_and_says_so() {
    let pond = slow();
    pond.plain_umount();
    let said = pond.mount(&[]);
    assert!(said.ok().text.contains("the daemon of the last mount"), "{}", said.text);
    is_whole(&pond);
    pond.unmount(&[]).ok();
}

#[test]
fn a_mount_that_waits_can_be_interrupted_and_nothing_is_lost() {
    let pond = slow();
    pond.plain_umount();
    let mut command = headpond();
    command.arg("mount").arg(pond.origin()).arg(pond.mnt()).arg("--flash").arg(pond.flash()).stdin(Stdio::null());
    let mut waiting = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("the daemon of the last mount"), "{said}");
    assert!(Command::new("kill").args(["-INT", &waiting.id().to_string()]).status().unwrap().success());
    waiting.wait().unwrap();
    wait_until("the origin is complete", || pond.marker().is_none());
    pond.mount(&[]).ok();
    is_whole(&pond);
    pond.unmount(&[]).ok();
}

#[test]
fn an_origin_that_is_served_is_not_waited_for() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let said: Said = pond.mount_places("origin", "mnt2", "flash2", &["--size", SIZE]);
    said.refused(11, &["is already mounted"]);
    assert!(!said.text.contains("the last mount"), "{}", said.text);
    pond.unmount(&[]).ok();
}

#[test]
fn what_was_mounted_in_its_place_meanwhile_is_left_alone() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 4));
    let Some(mut copy) = Copy::of_all() else { return };
    copy.says(&format!("exec 3< {}/file", pond.mnt().display()), "0");
    pond.plain_umount();
    assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(pond.mnt()).status().unwrap().success());
    assert_eq!(pond.signal(daemon, "-TERM"), 0, "{}", pond.log());
    assert!(is_mounted(&pond.mnt()), "it is another's");
    pond.plain_umount();
    drop(copy);
    pond.mount(&[]).ok();
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 4));
    pond.unmount(&[]).ok();
}
