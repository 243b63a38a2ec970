//! Which place of an origin's file an effect changes.

use headpond_base::ObjectId;
use headpond_engine::Effect;

/// The object, the first byte, and the byte behind the last. `None` if the effect changes no content.
pub(crate) fn changed_range(effect: &Effect) -> Option<(ObjectId, u64, u64)> {
    match effect {
        Effect::OriginWrite { object, offset, data, .. } => {
            Some((*object, *offset, offset + data.iter().map(|piece| piece.len() as u64).sum::<u64>()))
        }
        Effect::OriginZero { object, offset, len, .. } => Some((*object, *offset, offset + len)),
        Effect::OriginResize { object, size, .. } => Some((*object, *size, u64::MAX)),
        _ => None,
    }
}
