//! `.headpond` at the top of a mount: numbers as text files, for the programs that everybody has.

use std::fs::{self, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::pond::{Pond, SIZE, pattern, run, wait_until, write_and_sync};

fn shell(line: &str, at: &Path) -> String {
    let output = Command::new("sh").arg("-c").arg(line).current_dir(at).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn numbers_can_be_read_with_cat_tail_grep_and_cp_and_are_those_of_the_commands() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let panel = pond.mnt().join(".headpond");
    assert_eq!(shell("grep '^dirty_bytes ' stats", &panel), format!("dirty_bytes {}\n", 1 << 20));
    assert_eq!(shell("head -n 1 dirty", &panel), format!("dirty_bytes {}\n", 1 << 20));
    assert_eq!(shell("tail -n 1 settings", &panel), shell("cat settings | tail -n 1", &panel));
    assert_eq!(shell("tail -c 5 settings", &panel), shell("cat settings | tail -c 5", &panel));
    assert_eq!(shell("cat settings settings | wc -c", &panel), shell("echo $((2 * $(wc -c < settings)))", &panel));
    assert_eq!(shell("awk '$1 == \"sync\" {print $2}' latency", &panel), "1\n");
    assert!(shell("cat errors", &panel).starts_with("flash_failed 0\n"));
    let copy = pond.at("copy");
    shell(&format!("cp settings {}", copy.display()), &panel);
    let settings = run(["get", pond.mnt().to_str().unwrap()]);
    assert_eq!(fs::read_to_string(copy).unwrap(), settings.ok().text);
    let stats = run(["stats", pond.mnt().to_str().unwrap()]);
    let names = |text: &str| text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&fs::read_to_string(panel.join("stats")).unwrap()), names(&stats.ok().text));
    // A file that stays open is as it was at its open, so that a reader never sees two states in one.
    let line = "exec 3< dirty; sleep 0.1; cat <&3; exec 3<&-; sync -f .; stat -f . > /dev/null";
    assert!(shell(line, &panel).starts_with("dirty_bytes "));
    // Nothing of this has disturbed the syncs of the rest.
    write_and_sync(&pond.mnt().join("file"), b"again");
    assert_eq!(shell("awk '$1 == \"sync\" {print $2}' latency", &panel), "2\n");
    pond.unmount(&[]).ok();
}

#[test]
fn the_numbers_directory_is_in_no_listing_and_can_be_switched_off_while_in_use() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    fs::write(mnt.join("file"), "x").unwrap();
    assert_eq!(shell("ls -A", &mnt), "file\n");
    assert_eq!(shell("find .", &mnt), ".\n./file\n");
    let listed = shell("ls -A .headpond", &mnt);
    assert!(listed.contains("stats\n") && listed.contains("settings\n"), "{listed}");
    let held = fs::File::open(mnt.join(".headpond/stats")).unwrap();
    let set = |value: &str| run(["set", mnt.to_str().unwrap(), &format!("numbers-directory={value}")]).ok().status;
    set("off");
    assert_eq!(fs::metadata(mnt.join(".headpond")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read(mnt.join(".headpond/stats")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(std::io::read_to_string(held).unwrap().contains("reads_total"), "what is open is read to its end");
    set("on");
    assert!(fs::read_to_string(mnt.join(".headpond/stats")).unwrap().contains("reads_total"));
    pond.unmount(&[]).ok();
}

#[test]
fn nothing_in_the_numbers_directory_can_be_made_changed_or_removed() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    let panel = mnt.join(".headpond");
    let stats = panel.join("stats");
    fs::write(mnt.join("file"), "x").unwrap();
    let refused = |what: &str, result: std::io::Result<()>| {
        let error = result.expect_err(what);
        let (rofs, perm, access) = (Some(30), Some(1), Some(13));
        assert!([rofs, perm, access].contains(&error.raw_os_error()), "{what}: {error}");
    };
    refused("make a file", fs::write(panel.join("new"), "x"));
    refused("make a directory", fs::create_dir(panel.join("new")));
    refused("make a link", symlink("x", panel.join("new")));
    refused("link into it", fs::hard_link(mnt.join("file"), panel.join("new")));
    refused("link out of it", fs::hard_link(&stats, mnt.join("new")));
    refused("remove", fs::remove_file(&stats));
    refused("rename", fs::rename(&stats, panel.join("new")));
    refused("move out", fs::rename(&stats, mnt.join("new")));
    refused("move in", fs::rename(mnt.join("file"), panel.join("new")));
    refused("replace", fs::rename(mnt.join("file"), &stats));
    refused("write", OpenOptions::new().write(true).open(&stats).map(drop));
    refused("truncate", OpenOptions::new().write(true).truncate(true).open(&stats).map(drop));
    refused("change the mode", fs::set_permissions(&stats, Permissions::from_mode(0o666)));
    refused("remove the directory", fs::remove_dir(&panel));
    refused("rename the directory", fs::rename(&panel, mnt.join("new")));
    fs::create_dir(mnt.join("directory")).unwrap();
    refused("replace the directory", fs::rename(mnt.join("directory"), &panel));
    fs::remove_dir(mnt.join("directory")).unwrap();
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "x");
    assert_eq!(shell("ls -A", &mnt), "file\n");
    pond.unmount(&[]).ok();
}

#[test]
fn a_directory_of_the_same_name_at_the_origin_is_never_seen_nor_touched() {
    let pond = Pond::new();
    let mine = pond.origin().join(".headpond");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("stats"), "mine").unwrap();
    fs::write(mine.join("other"), "mine").unwrap();
    pond.mount(&["--size", SIZE]).ok();
    let panel = pond.mnt().join(".headpond");
    assert!(fs::read_to_string(panel.join("stats")).unwrap().contains("reads_total"));
    assert_eq!(fs::metadata(panel.join("other")).unwrap_err().kind(), ErrorKind::NotFound);
    // Deeper down the name is like any other.
    fs::create_dir_all(pond.mnt().join("below/.headpond")).unwrap();
    fs::write(pond.mnt().join("below/.headpond/stats"), "mine").unwrap();
    assert_eq!(fs::read_to_string(pond.mnt().join("below/.headpond/stats")).unwrap(), "mine");
    let numbers =
        [panel.clone(), panel.join("stats"), panel.join("dirty")].map(|path| fs::metadata(path).unwrap().ino());
    let others = [pond.mnt(), pond.mnt().join("below"), pond.mnt().join("below/.headpond/stats")];
    let others = others.map(|path| fs::metadata(path).unwrap().ino());
    assert!(numbers.iter().all(|number| *number > u64::MAX / 2 && !others.contains(number)), "{numbers:?}");
    wait_until("the marker is there", || mine.join("marker.json").exists());
    pond.unmount(&[]).ok();
    assert_eq!(fs::read_to_string(mine.join("stats")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(mine.join("other")).unwrap(), "mine");
}
