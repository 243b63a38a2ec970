//! Names and keys that nobody can guess. Uses `refusal` of this crate.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::refusal::Refusal;

/// Random bytes; `what` they are for is said if there are none.
pub(crate) fn random(what: &str) -> Result<[u8; 16], Refusal> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(16) => Ok(bytes),
        other => Err(Refusal::Failed {
            doing: format!("get random bytes for {what}"),
            error: other.err().map_or_else(|| std::io::Error::other("too few"), Into::into),
        }),
    }
}
