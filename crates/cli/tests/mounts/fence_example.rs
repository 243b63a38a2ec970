//! The example of a program for `--fence`, with a stand-in for the NFS server that it asks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::pond::Said;

/// A server that exports to two hosts, and what was asked of it.
struct Server {
    dir: TempDir,
}

impl Server {
    /// With `takes_back`, an export that was taken back is gone.
    fn new(takes_back: bool) -> Self {
        let server = Self { dir: tempfile::tempdir().unwrap() };
        let at = server.dir.path().display();
        // As the real one, it fails where there is nothing to take back.
        let change = if takes_back {
            format!("grep -q '/mysql  db1(' {at}/exports && sed -i '/mysql  db1(/d' {at}/exports")
        } else {
            "true".to_owned()
        };
        let ssh = format!(
            "echo \"$@\" >> {at}/asked; for last; do :; done\n\
             case $last in 'exportfs -s') cat {at}/exports ;; 'exportfs -u '*'; exportfs -f') {change}; true ;; *) exit 9 ;; \
             esac\n"
        );
        server.program("ssh", &ssh);
        server.program("findmnt", "for last; do :; done; [ \"$last\" = /slow/mysql ] && echo 'filer:/export/mysql'\n");
        fs::write(
            server.at("exports"),
            "/export/home  db1(rw)\n/export/mysql  db1(sync,rw)\n/export/mysql  db2(sync,rw)\n",
        )
        .unwrap();
        server
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, name: &str, body: &str) {
        // Written by another process: while one that a test has just begun still has it open, nobody can run it.
        let source = self.at("source");
        fs::write(&source, format!("#!/bin/sh\n{body}")).unwrap();
        fs::set_permissions(&source, Permissions::from_mode(0o755)).unwrap();
        assert!(
            Command::new("cp").arg("--remove-destination").arg(&source).arg(self.at(name)).status().unwrap().success()
        );
    }

    fn fence(&self, origin: &str) -> Said {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples/headpond/fence-nfs");
        let path = format!("{}:{}", self.dir.path().display(), std::env::var("PATH").unwrap());
        let mut fence = Command::new(example);
        fence.args(["0123456789abcdef", "db1", "db2", "4", origin]).env("PATH", path);
        fence.output().unwrap().into()
    }
}

#[test]
fn the_example_of_a_fence_takes_the_export_from_the_old_owner_and_believes_what_the_server_then_shows() {
    let server = Server::new(true);
    server.fence("/slow/mysql").ok();
    let asked = fs::read_to_string(server.at("asked")).unwrap();
    assert!(asked.contains("root@filer exportfs -u 'db1:/export/mysql'; exportfs -f\n"), "{asked}");
    let left = fs::read_to_string(server.at("exports")).unwrap();
    assert_eq!(left, "/export/home  db1(rw)\n/export/mysql  db2(sync,rw)\n");
    // A guard that tries again.
    server.fence("/slow/mysql").ok();
}

#[test]
fn the_example_of_a_fence_fails_if_anything_is_in_doubt() {
    let stubborn = Server::new(false);
    stubborn.fence("/slow/mysql").refused(1, &["filer still exports to db1"]);
    let above = Server::new(true);
    fs::write(above.at("exports"), "/export  db1(rw,crossmnt)\n").unwrap();
    above.fence("/slow/mysql").refused(1, &["filer still exports to db1"]);
    stubborn.fence("/elsewhere").refused(1, &["/elsewhere is on no NFS mount"]);
    // The server takes the export back, and is away when it is asked for what is left.
    stubborn.program("ssh", "for last; do :; done; [ \"$last\" != 'exportfs -s' ]\n");
    stubborn.fence("/slow/mysql").refused(1, &[]);
    stubborn.program("ssh", "exit 255\n");
    stubborn.fence("/slow/mysql").refused(255, &[]);
}
