//! etcd as the registry, through its JSON gateway: version 3.4 and later.
//!
//! Invariants
//! - Reads are linearizable, which is etcd's way unless one asks for another.
//! - Each question ends within [`PATIENCE`] for each address. The first address that answers counts, whatever it says. So
//!   a transaction may be carried out at one address and refused at the next: who takes a lease looks whether it has it.
//!
//! Source of the questions: etcd's `rpc.proto`, whose messages the gateway has as JSON: numbers of 64 bits as text, and
//! bytes in base64.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headpond_base::{PoolId, hex};
use headpond_claim::{Node, OwnerRecord, RecordSeen};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::registry::{Granted, LeaseId, Registry, RegistryError, SeenAt};
use crate::written::{decode, decode_node, encode, encode_node};

/// How long one address is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_millis(800);

/// Where an etcd listens for clients: `http://HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdAddress(String);

impl FromStr for EtcdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.trim_end_matches('/');
        let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
        match rest {
            Some(rest) if rest.contains(':') && !rest.contains('/') => Ok(Self(address.to_owned())),
            _ => Err("an address of etcd is http://HOST:PORT or https://HOST:PORT".to_owned()),
        }
    }
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who this host is to an etcd, and whom it takes for one: PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdTls {
    /// The authority's certificate.
    pub authority: Vec<u8>,
    /// This host's certificate.
    pub certificate: Vec<u8>,
    /// The key of that.
    pub key: Vec<u8>,
}

/// Reads the certificates once more. `None` if they cannot be read now.
pub type ReadTls = dyn Fn() -> Option<EtcdTls> + Send + Sync;

/// An etcd.
pub struct Etcd {
    addresses: Vec<EtcdAddress>,
    /// The one that answered last.
    answered: AtomicUsize,
    speaks: Mutex<Speaks>,
    /// Certificates end, and are renewed while a mount lasts for months.
    again: Option<Box<ReadTls>>,
}

/// As whom this host speaks.
struct Speaks {
    agent: Agent,
    tls: Option<EtcdTls>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The two keys of a pool.
fn keys(pool: PoolId) -> [String; 2] {
    ["owner", "lease"].map(|which| format!("headpond/pools/{}/{which}", hex(&pool.0)))
}

fn as_text(bytes: &str) -> String {
    STANDARD.encode(bytes)
}

/// A number of 64 bits. One that is zero is left out.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Null => Some(0),
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}

/// Whether the key is the certificate's. In the midst of a renewal one of the two may be new, and ureq takes the pair for
/// granted: it panics at the first question.
fn check(certificate: &[u8], key: &[u8]) -> Result<(), rustls::Error> {
    let none = |error: rustls::pki_types::pem::Error| rustls::Error::General(error.to_string());
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>().map_err(none)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(none)?;
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let client = client.with_safe_default_protocol_versions()?.with_root_certificates(RootCertStore::empty());
    client.with_client_auth_cert(chain, key).map(drop)
}

impl Etcd {
    /// One that is asked at these addresses, in this order. With `again` it looks for other certificates whenever no address
    /// answers.
    ///
    /// # Errors
    /// If a certificate or key is none, or the key is another certificate's.
    pub fn at(addresses: Vec<EtcdAddress>, tls: Option<EtcdTls>, again: Option<Box<ReadTls>>) -> Result<Self, String> {
        let speaks = Mutex::new(Speaks { agent: Self::agent(tls.as_ref())?, tls });
        Ok(Self { addresses, answered: AtomicUsize::new(0), speaks, again })
    }

    fn agent(tls: Option<&EtcdTls>) -> Result<Agent, String> {
        let mut config = Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        if let Some(EtcdTls { authority, certificate, key }) = tls {
            check(certificate, key).map_err(|error| error.to_string())?;
            let pem =
                |pem: &[u8]| Certificate::from_pem(pem).map(|read| read.to_owned()).map_err(|error| error.to_string());
            let key = PrivateKey::from_pem(key).map_err(|error| error.to_string())?.to_owned();
            let own = ClientCert::new_with_certs(&[pem(certificate)?], key);
            let known = RootCerts::new_with_certs(&[pem(authority)?]);
            config = config.tls_config(TlsConfig::builder().root_certs(known).client_cert(Some(own)).build());
        }
        Ok(config.build().into())
    }

    fn speaks(&self) -> MutexGuard<'_, Speaks> {
        // Each change of it is whole.
        self.speaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are other certificates by now. From then on they are used.
    fn has_new_certificates(&self) -> bool {
        let Some(tls) = self.again.as_ref().and_then(|again| again()) else { return false };
        let mut speaks = self.speaks();
        if speaks.tls.as_ref() == Some(&tls) {
            return false;
        }
        // Two of three files may be new: the next question looks again.
        let Ok(agent) = Self::agent(Some(&tls)) else { return false };
        *speaks = Speaks { agent, tls: Some(tls) };
        true
    }

    /// Asks the address that answered last, and then the others.
    fn ask(&self, path: &str, question: &Value) -> Result<Answer, RegistryError> {
        match self.ask_each(path, question) {
            Err(RegistryError::Silent { .. }) if self.has_new_certificates() => self.ask_each(path, question),
            answered => answered,
        }
    }

    fn ask_each(&self, path: &str, question: &Value) -> Result<Answer, RegistryError> {
        let agent = self.speaks().agent.clone();
        let mut last = RegistryError::Silent { address: "nowhere".to_owned(), what: "no address was given".to_owned() };
        let first = self.answered.load(Ordering::Relaxed);
        let all = self.addresses.len();
        for at in (0..all).map(|next| (first + next) % all) {
            let address = &self.addresses[at];
            let answered = agent.post(format!("{address}{path}")).send_json(question);
            let read = answered.and_then(|mut answer| {
                let text = answer.body_mut().read_to_string()?;
                Ok((answer.status().as_u16(), text))
            });
            let address = address.to_string();
            last = match read {
                Ok((200, text)) => match serde_json::from_str(&text) {
                    Ok(value) => {
                        self.answered.store(at, Ordering::Relaxed);
                        return Ok(Answer { address, value });
                    }
                    Err(error) => RegistryError::Strange { address, what: error.to_string() },
                },
                // One that has no leader, or is just starting: another may do better.
                Ok((status, text)) => {
                    let what = format!("status {status}: {}", text.trim());
                    RegistryError::Silent { address, what }
                }
                Err(error) => RegistryError::Silent { address, what: error.to_string() },
            };
        }
        Err(last)
    }

    /// Writes the record, and the lease's key with a new lease, if both are as they were seen.
    fn write(
        &self,
        pool: PoolId,
        seen: &SeenAt,
        record: Option<&OwnerRecord>,
        lease: Option<(LeaseId, &Node)>,
    ) -> Result<Option<i64>, RegistryError> {
        let [owner_key, lease_key] = keys(pool).map(|key| as_text(&key));
        let is_at = |key: &str, version: i64| json!({"key": key, "target": "MOD", "result": "EQUAL", "modRevision": version.to_string()});
        let mut puts = Vec::new();
        if let Some(record) = record {
            puts.push(json!({"requestPut": {"key": owner_key, "value": as_text(&encode(record))}}));
        }
        if let Some((LeaseId(lease), node)) = lease {
            let value = as_text(&encode_node(node));
            puts.push(json!({"requestPut": {"key": lease_key, "value": value, "lease": lease.to_string()}}));
        }
        let compare = json!([is_at(&owner_key, seen.record), is_at(&lease_key, seen.lease)]);
        let answer = self.ask("/v3/kv/txn", &json!({"compare": compare, "success": puts}))?;
        let version = answer.number(&answer.value["header"]["revision"])?;
        Ok((answer.value["succeeded"] == true).then_some(version))
    }

    /// Both keys of a pool, as they are now, of one moment.
    fn both(&self, pool: PoolId) -> Result<Answer, RegistryError> {
        let get = |key: String| json!({"requestRange": {"key": as_text(&key)}});
        let answer = self.ask("/v3/kv/txn", &json!({"success": keys(pool).map(get)}))?;
        if answer.value["responses"][1].is_object() { Ok(answer) } else { Err(answer.strange()) }
    }

    /// In which version the lease's key has this lease. A transaction whose answer was lost, or that another address
    /// had carried out already, is found so.
    fn has_lease(&self, pool: PoolId, lease: LeaseId) -> Result<Option<i64>, RegistryError> {
        let answer = self.both(pool)?;
        let found = answer.found(1);
        let is_ours = found.is_object() && answer.number(&found["lease"])? == lease.0;
        is_ours.then(|| answer.number(&found["mod_revision"])).transpose()
    }
}

/// What an address said.
struct Answer {
    address: String,
    value: Value,
}

impl Answer {
    fn strange(&self) -> RegistryError {
        RegistryError::Strange { address: self.address.clone(), what: self.value.to_string() }
    }

    fn number(&self, value: &Value) -> Result<i64, RegistryError> {
        number(value).ok_or_else(|| self.strange())
    }

    /// What a key has; null if there is none.
    fn found(&self, at: usize) -> &Value {
        &self.value["responses"][at]["response_range"]["kvs"][0]
    }

    fn length(&self, value: &Value) -> Result<Duration, RegistryError> {
        Ok(Duration::from_secs(u64::try_from(self.number(value)?).unwrap_or(0)))
    }
}

/// The value of a key.
fn value_of<T>(found: &Value, key: &str, decode: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, RegistryError> {
    let not_ours = |what: String| RegistryError::NotOurs { key: key.to_owned(), what };
    let text = STANDARD.decode(found["value"].as_str().unwrap_or_default());
    decode(&text.map_err(|error| not_ours(error.to_string()))?).map_err(not_ours)
}

impl Registry for Etcd {
    fn read(&self, pool: PoolId) -> Result<SeenAt, RegistryError> {
        let answer = self.both(pool)?;
        let (owner, lease) = (answer.found(0), answer.found(1));
        let mut seen_at = SeenAt {
            seen: None,
            record: answer.number(&owner["mod_revision"])?,
            lease: answer.number(&lease["mod_revision"])?,
        };
        if owner.is_object() {
            let [owner_key, lease_key] = keys(pool);
            let record = value_of(owner, &owner_key, decode)?;
            let leased = lease.is_object().then(|| value_of(lease, &lease_key, decode_node)).transpose()?;
            seen_at.seen = Some(RecordSeen { record, leased });
        }
        Ok(seen_at)
    }

    fn take(
        &self,
        pool: PoolId,
        seen: &SeenAt,
        node: &Node,
        record: Option<&OwnerRecord>,
        length: Duration,
    ) -> Result<Option<Granted>, RegistryError> {
        let answer = self.ask("/v3/lease/grant", &json!({"TTL": length.as_secs().to_string()}))?;
        let lease = LeaseId(answer.number(&answer.value["ID"])?);
        let length = answer.length(&answer.value["TTL"])?;
        let written = match self.write(pool, seen, record, Some((lease, node))) {
            Ok(Some(version)) => Ok(Some(version)),
            written => self.has_lease(pool, lease).and_then(|found| found.map_or(written, |version| Ok(Some(version)))),
        };
        if !matches!(written, Ok(Some(_))) {
            // It would end by itself.
            let _ = self.release(lease);
        }
        Ok(written?.map(|version| Granted { lease, length, version }))
    }

    fn renew(&self, lease: LeaseId) -> Result<Option<Duration>, RegistryError> {
        let answer = self.ask("/v3/lease/keepalive", &json!({"ID": lease.0.to_string()}))?;
        let result = &answer.value["result"];
        if !result.is_object() {
            return Err(answer.strange());
        }
        let length = answer.length(&result["TTL"])?;
        Ok((!length.is_zero()).then_some(length))
    }

    fn change(&self, pool: PoolId, seen: &SeenAt, record: &OwnerRecord) -> Result<Option<i64>, RegistryError> {
        self.write(pool, seen, Some(record), None)
    }

    fn release(&self, lease: LeaseId) -> Result<(), RegistryError> {
        self.ask("/v3/lease/revoke", &json!({"ID": lease.0.to_string()})).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    /// A certificate and its key. `None` where nobody can make them.
    fn tls(dir: &Path, name: &str) -> Option<EtcdTls> {
        let file = |end: &str| dir.join(format!("{name}.{end}"));
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-noenc",
            "-days",
            "9",
        ]);
        openssl.args(["-subj", &format!("/CN={name}"), "-keyout"]).arg(file("key")).arg("-out").arg(file("pem"));
        let made = openssl.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        let read = |end: &str| std::fs::read(file(end)).expect("it was made");
        made.then(|| EtcdTls { authority: read("pem"), certificate: read("pem"), key: read("key") })
    }

    /// A mount lasts longer than a certificate.
    #[test]
    fn certificates_that_were_renewed_are_used_once_nobody_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let (Some(first), Some(next)) = (tls(dir.path(), "first"), tls(dir.path(), "next")) else {
            eprintln!("left out: openssl is missing");
            return;
        };
        let on_disk = Arc::new(Mutex::new(Some(first.clone())));
        let read = {
            let on_disk = on_disk.clone();
            move || on_disk.lock().expect("no panic").clone()
        };
        // It takes connections and says nothing, so that each question comes to TLS.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("https://{}", silent.local_addr().expect("it listens"));
        let there = vec![address.parse().expect("an address")];
        let etcd = Etcd::at(there, Some(first.clone()), Some(Box::new(read))).expect("certificates");
        let speaks_after = |now: Option<EtcdTls>| {
            *on_disk.lock().expect("no panic") = now;
            assert!(matches!(etcd.read(PoolId([1; 16])), Err(RegistryError::Silent { .. })));
            etcd.speaks().tls.clone()
        };
        assert_eq!(speaks_after(Some(first.clone())), Some(first.clone()));
        // In the midst of a renewal.
        assert_eq!(speaks_after(None), Some(first.clone()));
        assert_eq!(speaks_after(Some(EtcdTls { key: first.key.clone(), ..next.clone() })), Some(first.clone()));
        assert_eq!(speaks_after(Some(EtcdTls { key: b"half".to_vec(), ..next.clone() })), Some(first));
        assert_eq!(speaks_after(Some(next.clone())), Some(next));
    }
}
