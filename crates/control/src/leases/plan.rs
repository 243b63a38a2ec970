//! Which registry an operator has named, and as whom this host speaks there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headpond_base::hex;
use headpond_claim::Node;
use headpond_registry::{Etcd, EtcdAddress, EtcdTls, ReadTls, Registry};

use crate::process::boot;
use crate::refusal::Refusal;

/// A registry, and as whom this host speaks there.
#[derive(Clone, Debug)]
pub struct LeasePlan {
    /// Where etcd listens: each of its machines.
    pub registry: Vec<EtcdAddress>,
    /// The directory of this host's certificates, for addresses with https.
    pub certificates: Option<PathBuf>,
    /// How long a lease is, in seconds.
    pub seconds: u64,
    /// This host's name there. Without it: the system's.
    pub node: Option<String>,
}

impl LeasePlan {
    /// How long a lease is.
    pub(crate) const fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// This host, in this boot.
    pub(crate) fn node(&self) -> Node {
        let system = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Node { name: self.node.clone().unwrap_or_else(system), boot: hex(&boot()) }
    }

    /// The registry. Nothing is asked yet.
    pub(crate) fn open(&self) -> Result<Arc<dyn Registry>, Refusal> {
        let tls = self.certificates.as_deref().map(read).transpose()?;
        // The daemon leaves the directory in which it was started.
        let dir = self.certificates.as_deref().and_then(|dir| std::path::absolute(dir).ok());
        let again = dir.map(|dir| Box::new(move || read(&dir).ok()) as Box<ReadTls>);
        let etcd = Etcd::at(self.registry.clone(), tls, again);
        Ok(Arc::new(etcd.map_err(|error| Refusal::Usage(format!("the certificates for the registry: {error}")))?))
    }
}

/// The certificates in a directory.
fn read(dir: &Path) -> Result<EtcdTls, Refusal> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read(&path).map_err(|error| Refusal::from_io("read", &path, error))
    };
    Ok(EtcdTls { authority: read("ca.pem")?, certificate: read("certificate.pem")?, key: read("key.pem")? })
}
