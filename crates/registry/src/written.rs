//! A record as text: JSON. A reader refuses a version that it does not know.

use headpond_claim::{Node, OwnerRecord};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    node: String,
    boot: String,
    owner: u64,
    members: u64,
    #[serde(default)]
    left: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handed_to: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unfenced: Vec<String>,
}

pub(crate) fn encode(record: &OwnerRecord) -> String {
    let OwnerRecord { node, owner, members, left, handed_to, unfenced } = record.clone();
    let Node { name, boot } = node;
    let written = Written { version: VERSION, node: name, boot, owner, members, left, handed_to, unfenced };
    serde_json::to_string(&written).unwrap_or_default()
}

pub(crate) fn decode(text: &[u8]) -> Result<OwnerRecord, String> {
    let written: Written = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let Written { version, node, boot, owner, members, left, handed_to, unfenced } = written;
    if version != VERSION {
        return Err(format!("it has version {version}, and this headpond reads {VERSION}"));
    }
    Ok(OwnerRecord { node: Node { name: node, boot }, owner, members, left, handed_to, unfenced })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_a_later_version_is_refused() {
        let node = Node { name: "db1".to_owned(), boot: "b".to_owned() };
        let handed_to = Some("db2".to_owned());
        let record =
            OwnerRecord { node, owner: 3, members: 9, left: true, handed_to, unfenced: vec!["db3".to_owned()] };
        let plain = OwnerRecord { handed_to: None, unfenced: Vec::new(), ..record.clone() };
        for record in [plain, record] {
            assert_eq!(decode(encode(&record).as_bytes()), Ok(record.clone()));
            let later = encode(&record).replace("\"version\":1", "\"version\":2");
            assert!(decode(later.as_bytes()).unwrap_err().contains("version 2"));
        }
        assert!(decode(b"{}").is_err());
    }
}
