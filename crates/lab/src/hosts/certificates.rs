//! An authority, and a certificate of it for each host, as docs/copies.md has them made.

use super::network::Node;
use crate::command;
use crate::failure::{Failure, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"];

/// Where each host has its certificates.
pub(super) struct Certificates(PathBuf);

impl Certificates {
    /// Makes an authority and the certificates of these hosts, each in a directory of its own.
    pub(super) fn make(directory: PathBuf, nodes: &[Node]) -> Result<Self> {
        make_directory(&directory)?;
        let authority = ["req", "-x509", "-subj", "/CN=headpond", "-keyout", "ca.key", "-out", "ca.pem", "-days", "7"];
        openssl(&directory, &[&authority[..], &KEY].concat())?;
        for node in nodes {
            let name = node.name();
            let own = directory.join(name);
            make_directory(&own)?;
            let asked = ["req", "-subj", &format!("/CN={name}"), "-keyout", &format!("{name}/key.pem"), "-out", "csr"];
            openssl(&directory, &[&asked[..], &KEY].concat())?;
            let names: Vec<String> = node.addresses().map(|address| format!("IP:{address}")).collect();
            write(&directory.join("names"), &format!("subjectAltName={}\n", names.join(",")))?;
            let signed = format!("{name}/certificate.pem");
            let sign = ["x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
            openssl(&directory, &[&sign[..], &["-days", "7", "-extfile", "names", "-out", &signed]].concat())?;
            fs::copy(directory.join("ca.pem"), own.join("ca.pem"))
                .and_then(|_| fs::set_permissions(own.join("key.pem"), Permissions::from_mode(0o600)))
                .map_err(Failure::io(format!("giving {name} its certificates")))?;
        }
        Ok(Self(directory))
    }

    /// The directory for `--certificates` of a host.
    pub(super) fn of(&self, node: Node) -> PathBuf {
        self.0.join(node.name())
    }
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(Failure::io(format!("making {}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Failure::io(format!("writing {}", path.display())))
}

fn openssl(directory: &Path, arguments: &[&str]) -> Result<()> {
    let mut openssl = Command::new("openssl");
    command::run("making certificates", openssl.args(arguments).current_dir(directory)).map(drop)
}
