//! Who an owner and a peer are to each other: each has a certificate of one authority, and asks for the other's.
//!
//! A directory has `ca.pem`, `certificate.pem` and `key.pem`. TLS 1.3 alone.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use thiserror::Error;

/// What is wrong with a directory of certificates.
#[derive(Debug, Error)]
#[error("certificates: {}: {what}", path.display())]
pub struct CertificatesError {
    path: PathBuf,
    what: String,
}

/// The certificates of this host.
#[derive(Clone, Debug)]
pub struct Certificates {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Certificates {
    /// Reads them from a directory.
    ///
    /// # Errors
    /// When one is missing, or makes no sense, or others can read the key.
    pub fn read(dir: &Path) -> Result<Self, CertificatesError> {
        let failed = |name: &str, what: String| CertificatesError { path: dir.join(name), what };
        let chain = |name: &str| -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
            let read = CertificateDer::pem_file_iter(dir.join(name)).and_then(Iterator::collect);
            let chain: Vec<_> = read.map_err(|error| failed(name, error.to_string()))?;
            if chain.is_empty() { Err(failed(name, "has no certificate".to_owned())) } else { Ok(chain) }
        };
        const KEY: &str = "key.pem";
        let metadata = std::fs::metadata(dir.join(KEY)).map_err(|error| failed(KEY, error.to_string()))?;
        if metadata.mode() & 0o077 != 0 {
            return Err(failed(KEY, "others can read or write it. To change that: chmod 600".to_owned()));
        }
        let key = || PrivateKeyDer::from_pem_file(dir.join(KEY)).map_err(|error| failed(KEY, error.to_string()));
        let own = chain("certificate.pem")?;
        let mut roots = RootCertStore::empty();
        for authority in chain("ca.pem")? {
            roots.add(authority).map_err(|error| failed("ca.pem", error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let wrong = |error: &dyn std::fmt::Display| failed("certificate.pem", error.to_string());
        let asks = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let asks = asks.build().map_err(|error| failed("ca.pem", error.to_string()))?;
        let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13]);
        let server = server.map_err(|error| wrong(&error))?.with_client_cert_verifier(asks);
        let server = server.with_single_cert(own.clone(), key()?).map_err(|error| wrong(&error))?;
        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let client = client.map_err(|error| wrong(&error))?.with_root_certificates(roots);
        let client = client.with_client_auth_cert(own, key()?).map_err(|error| wrong(&error))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    pub(crate) fn to_host(&self, host: &str) -> Result<Connection, rustls::Error> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| rustls::Error::General(format!("{host} is no name of a host")))?;
        Ok(ClientConnection::new(self.client.clone(), name)?.into())
    }

    pub(crate) fn of_guest(&self) -> Result<Connection, rustls::Error> {
        Ok(ServerConnection::new(self.server.clone())?.into())
    }
}
