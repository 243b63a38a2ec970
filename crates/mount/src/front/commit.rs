//! How the pieces of an atomic write (`atomic_write.rs`) get from the application to the engine.
//!
//! Cost: for each write, a copy, and a message that makes the kernel forget its pages of it.

use std::ops::Range;
use std::sync::Arc;

use headpond_door::Amount;
use headpond_engine::{Reply, Request as Ask};
use headpond_rules::Direction;
use rustix::io::Errno;

use crate::caller::{Caller, Rights};
use crate::front::Front;
use crate::front::data::Writing;
use crate::fuse::answer::Answer;
use crate::handles::{ContentWay, OpenHandle};
use crate::outcome::{ReplyOutcome, unexpected};
use crate::pond::call_with;
use crate::times;

impl Front {
    /// Takes a write as a piece of the handle's atomic write. May block.
    pub(crate) fn write_later(&self, file: &Arc<OpenHandle>, writing: Writing, answer: Answer) {
        if let Err(error) = self.drop_privileges(&file.inode, || writing.kills.map(Rights::of_unprivileged)) {
            return answer.error(error);
        }
        let Writing { offset, data, caller, .. } = writing;
        let size = data.len() as u64;
        if offset.checked_add(size).is_none_or(|end| end > self.file_bytes_max) {
            return answer.error(Errno::FBIG);
        }
        match (file.atomic_writing.write(offset, &data), u32::try_from(size)) {
            (Some(Ok(())), Ok(written)) => {
                answer.written(written);
                // Only after the answer: until then the kernel may hold the pages that it must forget.
                if let Some(forgetting) = self.forgetting.get() {
                    forgetting.soon(file);
                }
            }
            (Some(Err(error)), _) => answer.error(error),
            (Some(Ok(())), Err(_)) => answer.error(Errno::INVAL),
            // The atomic write ended a moment ago.
            (None, _) => {
                let how = self.how_after_look(file, caller, size, Direction::Write);
                let writing = Writing { offset, data, ..writing };
                self.write(file, writing, how, answer, &mut |request, done| self.pond.submit(request, done));
            }
        }
    }

    /// Makes the pieces of the handle's atomic write, all or none, durably. Waits for the log.
    pub(crate) fn commit(&self, file: &OpenHandle, caller: Caller) -> ReplyOutcome<()> {
        let ContentWay::Pond { object, known } = &file.way else { return Err(Errno::NOTTY) };
        if self.pond.is_barred() {
            return Err(Errno::ROFS);
        }
        let atomic_write = file.atomic_writing.end().ok_or(Errno::INVAL)?;
        let to_forget = atomic_write.to_forget();
        let committed = atomic_write.pieces().and_then(|pieces| {
            if pieces.is_empty() {
                return Ok(());
            }
            let (object, mtime) = (*object, known.not_before(times::now()));
            let size = pieces.iter().map(|(_, data)| data.len() as u64).sum();
            let how = self.how_after_look(file, caller, size, Direction::Write);
            let (counted, known) = (self.insight.counted(known, caller.pid), known.clone());
            let changed = move |reply: &Reply| {
                if let Reply::Changed(attributes) = reply {
                    known.changed(*attributes, mtime);
                    counted.done(Amount::write(size));
                }
            };
            let request = Ask::WriteTogether { object, pieces, mtime, durable: true, how };
            match call_with(&*self.pond, request, changed) {
                Reply::Changed(_) => Ok(()),
                other => Err(unexpected(&other)),
            }
        });
        // Also after a failure: the kernel's pages of these writes are not what the file holds.
        self.forget_pages(file, to_forget);
        committed
    }

    /// Forgets the handle's atomic write, if it has one.
    pub(crate) fn abort(&self, file: &OpenHandle) {
        if let Some(atomic_write) = file.atomic_writing.end() {
            self.forget_pages(file, atomic_write.to_forget());
        }
    }

    /// Makes the kernel drop pages of these ranges. Waits for all who use the pages.
    fn forget_pages(&self, file: &OpenHandle, ranges: Vec<Range<u64>>) {
        if let Some(forgetting) = self.forgetting.get() {
            forgetting.now(file.inode.node, ranges);
        }
    }
}
