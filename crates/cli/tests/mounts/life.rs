//! The life of a mount, from outside: the real command on a real mount.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::lacking::has_root;
use crate::loop_device::{Loop, make_ext4};
use crate::pond::{Pond, SIZE, Said, headpond, is_mounted, pattern, run, tree, wait_until, write_and_sync};

#[test]
fn an_unmount_leaves_the_origin_complete_and_without_a_trace() {
    let pond = Pond::new();
    fs::write(pond.origin().join("old"), pattern(100_000, 1)).unwrap();
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    assert_eq!(fs::read(mnt.join("old")).unwrap(), pattern(100_000, 1));
    fs::create_dir(mnt.join("db")).unwrap();
    for file in 0..20 {
        write_and_sync(&mnt.join(format!("db/{file}")), &pattern(50_000 + file * 4099, file as u64));
    }
    let old = OpenOptions::new().write(true).open(mnt.join("old")).unwrap();
    old.write_all_at(b"changed in the middle", 33_333).unwrap();
    drop(old);
    assert_eq!(fs::read_dir(&mnt).unwrap().count(), 2, "the marker is hidden");
    assert_eq!(pond.marker().unwrap()["state"], "mounted");
    let seen = tree(&mnt);

    let said = pond.unmount(&[]);
    said.ok();
    assert!(said.text.contains("complete"), "{}", said.text);
    assert!(!is_mounted(&mnt));
    assert!(!pond.origin().join(".headpond").exists());
    assert_eq!(tree(&pond.origin()), seen);
}

#[test]
fn status_tells_people_and_programs() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 3));
    let status = pond.status();
    assert_eq!(status["mountpoint"], pond.mnt().to_str().unwrap());
    assert_eq!(status["origin"], pond.origin().to_str().unwrap());
    assert_eq!(status["mode"], "write-back");
    assert_eq!(status["size_bytes"], 64 << 20);
    assert_eq!(status["dirty_bytes"], 1 << 20);
    let table = run([OsStr::new("status"), pond.mnt().as_os_str()]);
    table.ok().refused(0, &["write-back", "1 MiB", "origin"]);
    let all = run(["status", "--json"]).ok().json();
    let ours = |status: &serde_json::Value| status["mountpoint"] == pond.mnt().to_str().unwrap();
    assert!(all.as_array().unwrap().iter().any(ours));
    pond.unmount(&[]).ok();
    run([OsStr::new("status"), pond.mnt().as_os_str()]).refused(71, &["no headpond is mounted there"]);
}

#[test]
fn a_flush_returns_when_nothing_is_dirty() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(3 << 20, 5));
    assert_eq!(pond.status()["dirty_bytes"], 3 << 20);
    pond.flush().ok();
    let status = pond.status();
    assert_eq!((&status["dirty_bytes"], &status["flush"]), (&0.into(), &"done".into()));
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), pattern(3 << 20, 5));
    pond.unmount(&[]).ok();
}

#[test]
fn killed_and_mounted_again_it_has_all_that_was_synced() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    for file in 0..8 {
        write_and_sync(&pond.mnt().join(format!("f{file}")), &pattern(300_000, file));
    }
    pond.kill(daemon);
    let dead = format!("{}: no headpond is mounted there", pond.mnt().display());
    run(["status"]).ok().refused(0, &[&dead, "Its daemon is gone"]);
    // The dead mount is in the way, and is taken out of it; no size is needed any more.
    pond.mount(&[]).ok();
    for file in 0..8 {
        assert_eq!(fs::read(pond.mnt().join(format!("f{file}"))).unwrap(), pattern(300_000, file));
    }
    assert!(pond.status()["dirty_bytes"].as_u64().unwrap() > 0, "it was dirty and still is");
    pond.unmount(&[]).ok();
    for file in 0..8 {
        assert_eq!(fs::read(pond.origin().join(format!("f{file}"))).unwrap(), pattern(300_000, file));
    }
}

#[test]
fn left_dirty_and_mounted_again_it_goes_on() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(2 << 20, 9));
    pond.unmount(&["--keep-dirty"]).ok().refused(0, &["2 MiB", "stay in the pool"]);
    // In another mode, old dirty data is as old as it was.
    pond.mount(&["--mode", "write-through"]).ok().refused(0, &["an earlier mount left in the pool (1 file)"]);
    pond.unmount(&["--keep-dirty"]).ok();
    pond.mount(&["--mode", "write-back"]).ok();
    pond.unmount(&["--keep-dirty"]).ok().refused(0, &["2 MiB", "stay in the pool"]);
    let marker = pond.marker().unwrap();
    assert_eq!((&marker["state"], &marker["dirty_bytes"]), (&"dirty-left".into(), &(2 << 20).into()));
    assert_eq!(marker["flash"], pond.flash().to_str().unwrap());
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), pattern(2 << 20, 9));
    pond.unmount(&[]).ok();
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), pattern(2 << 20, 9));
    assert_eq!(pond.marker(), None);
}

#[test]
fn warm_after_an_orderly_unmount_and_a_changed_file_is_dropped() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("same"), &pattern(1 << 20, 1));
    write_and_sync(&pond.mnt().join("changed"), &pattern(1 << 20, 2));
    pond.unmount(&[]).ok();
    fs::write(pond.origin().join("changed"), pattern(1 << 20, 3)).unwrap();
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("same")).unwrap(), pattern(1 << 20, 1));
    let status = pond.status();
    assert_eq!(status["origin_reads"], 0, "the unchanged file comes from flash");
    assert_eq!(fs::read(pond.mnt().join("changed")).unwrap(), pattern(1 << 20, 3), "never stale");
    pond.unmount(&[]).ok();
}

#[test]
fn sigterm_flushes_within_its_bound_and_ctrl_c_keeps_everything_in_the_pool() {
    for (signal, bound, state) in
        [("-TERM", "30s", None), ("-TERM", "off", Some("dirty-left")), ("-INT", "30s", Some("dirty-left"))]
    {
        let mut pond = Pond::new();
        let daemon = pond.mount_foreground(&["--size", SIZE]);
        run(["set".as_ref(), pond.mnt().as_os_str(), format!("shutdown-flush={bound}").as_ref()]).ok();
        write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 4));
        assert_eq!(pond.signal(daemon, signal), 0, "{}", pond.log());
        let marker = pond.marker().map(|marker| marker["state"].as_str().unwrap().to_owned());
        assert_eq!(marker.as_deref(), state, "{signal} {bound}: {}", pond.log());
        if state.is_none() {
            assert_eq!(fs::read(pond.origin().join("file")).unwrap(), pattern(1 << 20, 4));
        }
    }
}

/// That the mount ends at the bound, with the rest in the pool. `end` ends it.
fn ends_at_the_bound_and_keeps_the_rest(end: impl FnOnce(&mut Pond, usize)) {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE, "--model-disk", "hdd-7200"]);
    run(["set".as_ref(), pond.mnt().as_os_str(), "shutdown-flush=1s".as_ref()]).ok();
    pond.make_dirty_for_long();
    end(&mut pond, daemon);
    assert!(!is_mounted(&pond.mnt()));
    let marker = pond.marker().unwrap();
    assert_eq!(marker["state"], "dirty-left", "{}", pond.log());
    assert!(marker["dirty_bytes"].as_u64().unwrap() > 0, "{marker}");
    pond.mount(&[]).ok();
    pond.check_dirty_for_long(&pond.mnt());
    pond.unmount(&[]).ok();
    pond.check_dirty_for_long(&pond.origin());
    assert_eq!(pond.marker(), None);
}

#[test]
fn a_flush_at_sigterm_ends_at_its_bound_and_the_next_mount_has_the_rest() {
    ends_at_the_bound_and_keeps_the_rest(|pond, daemon| {
        assert_eq!(pond.signal(daemon, "-TERM"), 0, "{}", pond.log());
    });
}

/// A service manager that shuts the host down, as far as commands ask it.
#[test]
fn an_unmount_while_the_host_shuts_down_ends_at_the_bound_and_the_next_mount_has_the_rest() {
    ends_at_the_bound_and_keeps_the_rest(|pond, daemon| {
        fs::create_dir(pond.at("bin")).unwrap();
        let script = "#!/bin/sh\n[ \"$*\" = is-system-running ] && echo stopping\nexit 1\n";
        let make = "printf %s \"$1\" > \"$0\" && chmod +x \"$0\"";
        // By another process, as no child of this one may have it open for writing.
        let made = Command::new("sh").args(["-c", make]).arg(pond.at("bin/systemctl")).arg(script).status().unwrap();
        assert!(made.success());
        let path = format!("{}:{}", pond.at("bin").display(), std::env::var("PATH").unwrap());
        let mut unmount = headpond();
        unmount.arg("unmount").arg(pond.mnt()).env("PATH", path);
        let mut user = Command::new("sleep").arg("60").current_dir(pond.mnt()).spawn().unwrap();
        Said::from(unmount.output().unwrap()).refused(70, &["in use"]);
        user.kill().unwrap();
        user.wait().unwrap();
        Said::from(unmount.output().unwrap()).ok().refused(0, &["of dirty data stay in the pool"]);
        assert_eq!(pond.wait(daemon), 0, "{}", pond.log());
    });
}

#[test]
fn sigint_leaves_quickly_and_safely_and_says_so() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 4));
    assert_eq!(pond.signal(daemon, "-INT"), 0, "{}", pond.log());
    assert!(!is_mounted(&pond.mnt()));
    let log = pond.log();
    assert!(log.contains("SIGINT") && log.contains("1 MiB"), "{log}");
    assert_eq!(pond.marker().unwrap()["state"], "dirty-left");
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), pattern(1 << 20, 4));
    pond.unmount(&[]).ok();
}

#[test]
fn sigterm_ends_a_mount_that_is_in_use() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let mut file = File::create(pond.mnt().join("file")).unwrap();
    file.write_all(&pattern(1 << 20, 4)).unwrap();
    file.sync_all().unwrap();
    assert_eq!(pond.signal(daemon, "-TERM"), 0, "{}", pond.log());
    drop(file);
    assert!(!is_mounted(&pond.mnt()));
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), pattern(1 << 20, 4));
    pond.unmount(&[]).ok();
}

#[test]
fn unmounted_by_somebody_else_it_still_completes_the_origin() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 4));
    pond.plain_umount();
    assert_eq!(pond.wait(daemon), 0, "{}", pond.log());
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), pattern(1 << 20, 4));
    assert_eq!(pond.marker(), None);
}

/// The processes are gone with all that they had open when the command returns.
#[test]
fn the_volumes_of_origin_and_flash_are_free_as_soon_as_an_unmount_returns() {
    let pond = Pond::new();
    fs::create_dir(pond.at("fast")).unwrap();
    for (image, bytes) in [("slow.img", 64 << 20), ("fast.img", 96 << 20)] {
        make_ext4(&pond.at(image), bytes);
    }
    for round in 0..10 {
        let Some(mut slow) = Loop::over(&pond.at("slow.img")) else { return };
        let Some(mut fast) = Loop::over(&pond.at("fast.img")) else { return };
        slow.mount(&pond.origin(), "rw");
        fast.mount(&pond.at("fast"), "rw");
        pond.mount_places("origin", "mnt", "fast/flash", &["--size", SIZE]).ok();
        write_and_sync(&pond.mnt().join("file"), &pattern(3 << 20, round));
        // Every other time dirty data stays, and the next round finds it.
        pond.unmount(if round % 2 == 0 { &["--keep-dirty"] } else { &[] }).ok();
        slow.unmount();
        fast.unmount();
    }
}

#[test]
fn an_unmount_whose_daemon_does_not_end_says_so_and_is_no_success() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), b"data");
    let holder = pond.status()["holder"].to_string();
    assert!(Command::new("kill").args(["-STOP", &holder]).status().unwrap().success());
    pond.unmount(&[]).refused(1, &["it did not come within", &format!("kill -KILL {holder}")]);
    assert!(!is_mounted(&pond.mnt()));
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"data");
    pond.signal(daemon, "-CONT");
}

#[test]
fn a_busy_mount_stays_and_says_who_uses_it() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), b"data");
    let mut user = Command::new("sleep").arg("60").current_dir(pond.mnt()).spawn().unwrap();
    pond.unmount(&[]).refused(70, &["in use", "sleep", &user.id().to_string()]);
    pond.unmount(&["--keep-dirty"]).refused(70, &["in use"]);
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"data");
    user.kill().unwrap();
    user.wait().unwrap();
    pond.unmount(&[]).ok();
}

#[test]
fn an_interrupted_unmount_leaves_the_mount_as_it_was() {
    let pond = Pond::new();
    pond.mount_slow_and_dirty();
    let mut unmount = headpond().arg("unmount").arg(pond.mnt()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 8];
    unmount.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert!(Command::new("kill").args(["-INT", &unmount.id().to_string()]).status().unwrap().success());
    let mut said = String::from_utf8(said.to_vec()).unwrap();
    unmount.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(unmount.wait().unwrap().code(), Some(73), "{said}");
    assert!(said.contains("MiB left") && said.contains("stays mounted"), "{said}");
    assert!(is_mounted(&pond.mnt()));
    let file = File::open(pond.mnt().join("file")).unwrap();
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, 599 * 37 * 65536).unwrap();
    assert_eq!(block, pattern(4096, 599));
    drop(file);
    pond.unmount(&["--keep-dirty"]).ok();
}

#[test]
fn the_mode_is_changed_while_files_are_open_and_is_kept() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let mut file = File::create(pond.mnt().join("file")).unwrap();
    file.write_all(&pattern(100_000, 1)).unwrap();
    let said = run([OsStr::new("set"), pond.mnt().as_os_str(), OsStr::new("mode=write-through")]);
    said.ok().refused(0, &["mode: write-back -> write-through"]);
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), pattern(100_000, 1));
    file.write_all(&pattern(100_000, 2)).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(pond.origin().join("file")).unwrap()[100_000..], pattern(100_000, 2));
    drop(file);
    assert_eq!(pond.status()["mode"], "write-through");
    pond.unmount(&[]).ok();
    pond.mount(&[]).ok();
    assert_eq!(pond.status()["mode"], "write-through", "a pool keeps its mode");
    pond.unmount(&[]).ok();
    pond.mount(&["--mode", "write-back"]).ok();
    assert_eq!(pond.status()["mode"], "write-back");
    pond.unmount(&[]).ok();
}

#[test]
fn each_mode_serves_and_leaves_the_origin_equal() {
    for mode in ["write-back", "write-through", "write-around", "pass-through"] {
        for backend in ["uring", "psync"] {
            let pond = Pond::new();
            pond.mount(&["--size", SIZE, "--mode", mode, "--backend", backend]).ok();
            write_and_sync(&pond.mnt().join("file"), &pattern(777_777, 8));
            assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), pattern(777_777, 8), "{mode} {backend}");
            assert_eq!(pond.status()["backend"], backend);
            pond.unmount(&[]).ok();
            assert_eq!(fs::read(pond.origin().join("file")).unwrap(), pattern(777_777, 8), "{mode} {backend}");
        }
    }
}

#[test]
fn an_ordinary_user_mounts_own_files() {
    // Without it every other test here shows the same.
    if !has_root("to become another user") {
        return;
    }
    let pond = Pond::new();
    let own = Command::new("chown").args(["-R", "nobody"]).arg(pond.at("")).status().unwrap();
    assert!(own.success());
    // The user must be able to reach the binary, wherever it was built.
    let binary = pond.program(env!("CARGO_BIN_EXE_headpond"), "headpond");
    let as_nobody = |arguments: &[&OsStr]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]).arg(&binary).args(arguments);
        Said::from(command.env_remove("XDG_RUNTIME_DIR").output().unwrap())
    };
    let (origin, mnt, flash, log) = (pond.origin(), pond.mnt(), pond.flash(), pond.at("log"));
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    let mut mount =
        vec![OsStr::new("mount"), origin.as_os_str(), mnt.as_os_str(), OsStr::new("--flash"), flash.as_os_str()];
    mount.extend(words("--size 64M --background --log"));
    mount.push(log.as_os_str());
    as_nobody(&mount).ok();
    let write = "echo hello > \"$0/file\" && sync \"$0/file\" && cat \"$0/file\"";
    let said = Command::new("setpriv")
        .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "sh", "-c", write])
        .arg(&mnt)
        .output()
        .unwrap();
    assert_eq!(said.stdout, b"hello\n", "{said:?}");
    // Root finds the daemon of another user.
    let status = run([OsStr::new("status"), mnt.as_os_str()]);
    status.ok();
    as_nobody(&[OsStr::new("unmount"), mnt.as_os_str()]).ok();
    wait_until("it is unmounted", || !is_mounted(&mnt));
    assert_eq!(fs::read(origin.join("file")).unwrap(), b"hello\n");
    // The user's directory for sockets, if it was not in use for anything else.
    let _ = Command::new("rmdir").arg("/tmp/headpond-65534").stderr(Stdio::null()).status();
}

/// As with a log on a full disk.
#[test]
fn a_mount_goes_on_although_its_log_takes_no_line() {
    let pond = Pond::new();
    let mut command = headpond();
    command.arg("mount").arg(pond.origin()).arg(pond.mnt()).arg("--flash").arg(pond.flash()).args(["--size", SIZE]);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full).spawn().unwrap();
    wait_until("it is mounted", || {
        assert!(daemon.try_wait().unwrap().is_none(), "it has ended");
        is_mounted(&pond.mnt()) && run([OsStr::new("status"), pond.mnt().as_os_str()]).status == 0
    });
    write_and_sync(&pond.mnt().join("file"), b"synced");
    // Worker and holder have something to say now.
    pond.another_worker("mnt", 1);
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"synced");
    pond.unmount(&[]).ok();
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn the_service_manager_is_told_when_the_mount_stands_and_when_it_ends() {
    let mut pond = Pond::new();
    let path = pond.at("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let hear = || {
        let mut said = [0; 64];
        let len = manager.recv(&mut said).unwrap();
        String::from_utf8_lossy(&said[..len]).into_owned()
    };
    let daemon = pond.mount_foreground_with(&["--size", SIZE], &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    assert_eq!(hear(), "READY=1");
    pond.unmount(&[]).ok();
    assert_eq!(hear(), "STOPPING=1");
    assert_eq!(pond.wait(daemon), 0);
}

#[test]
fn the_service_managers_watchdog_is_fed_while_files_come_and_go_without_a_pause() {
    let mut pond = Pond::new();
    let path = pond.at("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let hear = || {
        let mut said = [0; 64];
        manager.recv(&mut said).map(|len| said[..len].to_vec())
    };
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "60000000")];
    pond.mount_foreground_with(&["--size", SIZE], &environment);
    while hear().is_ok() {}
    // The holder gets two messages for each file that is removed while it is open.
    let file = pond.mnt().join("file");
    let mut fed = 0;
    wait_until("the watchdog is fed", || {
        for _ in 0..100 {
            let open = fs::File::create(&file).unwrap();
            fs::remove_file(&file).unwrap();
            open.write_all_at(b"bytes", 0).unwrap();
        }
        while let Ok(said) = hear() {
            fed += u32::from(said == b"WATCHDOG=1");
        }
        fed >= 3
    });
    pond.unmount(&[]).ok();
}

#[test]
fn each_line_of_a_daemons_log_has_its_time_and_the_first_says_what_was_mounted() {
    let pond = Pond::new();
    pond.mount(&["--size", "64M"]).ok();
    pond.unmount(&[]).ok();
    let log = fs::read_to_string(pond.at("log")).unwrap();
    assert!(log.lines().next().is_some_and(|line| line.contains(" mounts ")), "{log}");
    for line in log.lines() {
        let time = line.split(' ').next().unwrap();
        assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{line}");
    }
}
