//! A record, and the node that has a lease, as text: JSON. A reader refuses a version that it does not know.

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
}

pub(crate) fn encode(record: &OwnerRecord) -> String {
    let OwnerRecord { node, owner, members, left, handed_to } = record.clone();
    let Node { name, boot } = node;
    let written = Written { version: VERSION, node: name, boot, owner, members, left, handed_to };
    serde_json::to_string(&written).unwrap_or_default()
}

pub(crate) fn decode(text: &[u8]) -> Result<OwnerRecord, String> {
    let written: Written = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let Written { version, node, boot, owner, members, left, handed_to } = written;
    if version != VERSION {
        return Err(format!("it has version {version}, and this headpond reads {VERSION}"));
    }
    Ok(OwnerRecord { node: Node { name: node, boot }, owner, members, left, handed_to })
}

#[derive(Serialize, Deserialize)]
struct WrittenNode {
    node: String,
    boot: String,
}

pub(crate) fn encode_node(node: &Node) -> String {
    let Node { name, boot } = node.clone();
    serde_json::to_string(&WrittenNode { node: name, boot }).unwrap_or_default()
}

pub(crate) fn decode_node(text: &[u8]) -> Result<Node, String> {
    let WrittenNode { node, boot } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    Ok(Node { name: node, boot })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_a_later_version_is_refused() {
        let node = Node { name: "db1".to_owned(), boot: "b".to_owned() };
        let record = OwnerRecord { node, owner: 3, members: 9, left: true, handed_to: Some("db2".to_owned()) };
        for record in [OwnerRecord { handed_to: None, ..record.clone() }, record] {
            assert_eq!(decode(encode(&record).as_bytes()), Ok(record.clone()));
            let later = encode(&record).replace("\"version\":1", "\"version\":2");
            assert!(decode(later.as_bytes()).unwrap_err().contains("version 2"));
        }
        assert!(decode(b"{}").is_err());
        let node = Node { name: "db1".to_owned(), boot: "b".to_owned() };
        assert_eq!(decode_node(encode_node(&node).as_bytes()), Ok(node));
    }
}
