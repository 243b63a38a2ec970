//! etcd as the registry, through its JSON gateway: version 3.4 and later.
//!
//! Invariants
//! - Reads are linearizable, which is etcd's way unless one asks for another.
//! - Each question ends within [`PATIENCE`] for each address. The first address that answers counts, whatever it says.
//!
//! Source of the questions: etcd's `rpc.proto`, whose messages the gateway has as JSON: numbers of 64 bits as text, and
//! bytes in base64.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headpond_base::{PoolId, hex};
use headpond_claim::{OwnerRecord, RecordSeen};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::registry::{Granted, LeaseId, Registry, RegistryError, SeenAt};
use crate::written::{decode, encode};

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
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authority's certificate.
    pub authority: Vec<u8>,
    /// This host's certificate.
    pub certificate: Vec<u8>,
    /// The key of that.
    pub key: Vec<u8>,
}

/// An etcd.
pub struct Etcd {
    addresses: Vec<EtcdAddress>,
    agent: Agent,
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

impl Etcd {
    /// One that is asked at these addresses, in this order.
    ///
    /// # Errors
    /// If a certificate or key is none.
    pub fn at(addresses: Vec<EtcdAddress>, tls: Option<&EtcdTls>) -> Result<Self, ureq::Error> {
        let mut config = Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        if let Some(EtcdTls { authority, certificate, key }) = tls {
            let own = ClientCert::new_with_certs(
                &[Certificate::from_pem(certificate)?.to_owned()],
                PrivateKey::from_pem(key)?.to_owned(),
            );
            let known = RootCerts::new_with_certs(&[Certificate::from_pem(authority)?.to_owned()]);
            config = config.tls_config(TlsConfig::builder().root_certs(known).client_cert(Some(own)).build());
        }
        Ok(Self { addresses, agent: config.build().into() })
    }

    fn ask(&self, path: &str, question: &Value) -> Result<Answer, RegistryError> {
        let mut last = RegistryError::Silent { address: "nowhere".to_owned(), what: "no address was given".to_owned() };
        for address in &self.addresses {
            let answered = self.agent.post(format!("{address}{path}")).send_json(question);
            let read = answered.and_then(|mut answer| {
                let text = answer.body_mut().read_to_string()?;
                Ok((answer.status().as_u16(), text))
            });
            let address = address.to_string();
            last = match read {
                Ok((200, text)) => match serde_json::from_str(&text) {
                    Ok(value) => return Ok(Answer { address, value }),
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
        record: &OwnerRecord,
        lease: Option<LeaseId>,
    ) -> Result<Option<i64>, RegistryError> {
        let [owner_key, lease_key] = keys(pool).map(|key| as_text(&key));
        let is_at = |key: &str, version: i64| json!({"key": key, "target": "MOD", "result": "EQUAL", "modRevision": version.to_string()});
        let mut puts = vec![json!({"requestPut": {"key": owner_key, "value": as_text(&encode(record))}})];
        if let Some(LeaseId(lease)) = lease {
            let value = as_text(&record.node.name);
            puts.push(json!({"requestPut": {"key": lease_key, "value": value, "lease": lease.to_string()}}));
        }
        let compare = json!([is_at(&owner_key, seen.record), is_at(&lease_key, seen.lease)]);
        let answer = self.ask("/v3/kv/txn", &json!({"compare": compare, "success": puts}))?;
        let version = answer.number(&answer.value["header"]["revision"])?;
        Ok((answer.value["succeeded"] == true).then_some(version))
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

    fn length(&self, value: &Value) -> Result<Duration, RegistryError> {
        Ok(Duration::from_secs(u64::try_from(self.number(value)?).unwrap_or(0)))
    }
}

impl Registry for Etcd {
    fn read(&self, pool: PoolId) -> Result<SeenAt, RegistryError> {
        let [owner_key, lease_key] = keys(pool);
        // In one transaction: so both are of one moment.
        let get = |key: &str| json!({"requestRange": {"key": as_text(key)}});
        let answer = self.ask("/v3/kv/txn", &json!({"success": [get(&owner_key), get(&lease_key)]}))?;
        let found = |at: usize| &answer.value["responses"][at]["response_range"]["kvs"][0];
        if !answer.value["responses"][1].is_object() {
            return Err(answer.strange());
        }
        let (owner, lease) = (found(0), found(1));
        let mut seen_at = SeenAt {
            seen: None,
            record: answer.number(&owner["mod_revision"])?,
            lease: answer.number(&lease["mod_revision"])?,
        };
        if owner.is_object() {
            let not_ours = |what: String| RegistryError::NotOurs { key: owner_key.clone(), what };
            let text = owner["value"].as_str().unwrap_or_default();
            let text = STANDARD.decode(text).map_err(|error| not_ours(error.to_string()))?;
            let record = decode(&text).map_err(not_ours)?;
            seen_at.seen = Some(RecordSeen { record, leased: lease.is_object() });
        }
        Ok(seen_at)
    }

    fn take(
        &self,
        pool: PoolId,
        seen: &SeenAt,
        record: &OwnerRecord,
        length: Duration,
    ) -> Result<Option<Granted>, RegistryError> {
        let answer = self.ask("/v3/lease/grant", &json!({"TTL": length.as_secs().to_string()}))?;
        let lease = LeaseId(answer.number(&answer.value["ID"])?);
        let length = answer.length(&answer.value["TTL"])?;
        let written = self.write(pool, seen, record, Some(lease));
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
        self.write(pool, seen, record, None)
    }

    fn release(&self, lease: LeaseId) -> Result<(), RegistryError> {
        self.ask("/v3/lease/revoke", &json!({"ID": lease.0.to_string()})).map(drop)
    }
}
