//! Changes that the engine makes at the origin itself, past the pool. The simulator learns of each when it begins, as the
//! engine does not say which way a request went.

use headpond_engine::Effect;

use super::World;
use crate::content::ContentChange;
use crate::origin::FileId;
use crate::scenario::USER;

/// What a request at the origin asks for, if one of an application asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Write { offset: u64, len: u64 },
    Zero { offset: u64 },
    Size(u64),
}

/// A change at the origin that may be one of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WentPast {
    pub(crate) file: FileId,
    part: Part,
}

impl WentPast {
    /// Whether it is this change, or a part of it.
    pub(crate) fn is_of(&self, change: ContentChange) -> bool {
        match (self.part, change) {
            (Part::Write { offset, len }, ContentChange::Write { offset: from, len: asked, .. }) => {
                (offset, len) == (from, asked)
            }
            (Part::Zero { offset }, ContentChange::Zero { offset: from, .. }) => offset == from,
            (Part::Size(size), ContentChange::Truncate { size: to }) => size == to,
            (
                Part::Size(size),
                ContentChange::Zero { offset, len, extend: true }
                | ContentChange::Allocate { offset, len, extend: true },
            ) => size == offset + len,
            _ => false,
        }
    }
}

impl World {
    /// The engine begins something at the origin.
    pub(super) fn note_past_pool(&mut self, effect: &Effect) {
        let (object, part) = match effect {
            // Destage writes in nobody's name.
            Effect::OriginWrite { object, offset, data, user: USER, .. } => {
                let len = data.iter().map(|piece| piece.len() as u64).sum();
                (object, Part::Write { offset: *offset, len })
            }
            Effect::OriginZero { object, offset, keep_space: false, .. } => (object, Part::Zero { offset: *offset }),
            Effect::OriginResize { object, size, .. } => (object, Part::Size(*size)),
            _ => return,
        };
        if let Some(file) = self.objects.get(object) {
            self.went_past.push(WentPast { file: *file, part });
        }
    }
}
