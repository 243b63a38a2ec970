//! Checks each answer of the engine when it comes: against the model, against the origin if a promise is about it,
//! and errors against the injected faults.

use std::collections::BTreeSet;

use headpond_base::{Buf, CacheMode, Errno, MemberId};
use headpond_engine::{Reply, RequestId};
use headpond_format::MemberState;
use headpond_timed::mix;

use super::{Asked, Sim, StatusChange, busy_file};
use crate::configuration::{Moment, MutationId};
use crate::content::{Content, ContentChange};
use crate::found::Found;
use crate::origin::{FileId, SpaceKind};
use crate::roster::Change;
use crate::synced_here::SyncedFile;

impl Sim<'_> {
    /// Checks the answers.
    pub(crate) fn answers(&mut self) -> Result<(), String> {
        self.note_past_pool();
        while let Some((id, reply)) = self.world.replies.pop_front() {
            self.world.trace(|| format!("reply {id:?} {}", short_reply(&reply)));
            let Some(asked) = self.requests.remove(&id) else {
                return Err(format!("{id:?} is answered twice, or was never asked: {reply:?}"));
            };
            self.world.hash = mix(self.world.hash ^ id.0 ^ u64::from(matches!(reply, Reply::Failed(_))) << 63);
            if let Some(door) = busy_file(&asked).and_then(|file| self.doors.get_mut(&file)) {
                door.busy = door.busy.saturating_sub(1);
            }
            self.answer(id, asked.clone(), reply).map_err(|why| format!("{asked:?}: {why}"))?;
        }
        Ok(())
    }

    /// Changes under way that went to the origin past the pool have the origin's promises. In write-back a quota sends
    /// them there where only destage meets it; without one none may go there but as `Sim::is_strict` says.
    pub(crate) fn note_past_pool(&mut self) {
        let went_past = std::mem::take(&mut self.world.went_past);
        if self.scenario.quota_blocks.is_none() || self.world.origin.kind() == SpaceKind::Keeps {
            return;
        }
        for asked in self.requests.values() {
            if let Asked::Change { file, id, .. } = asked
                && went_past.iter().any(|past| past.file == *file && past.is_of(self.model.change(*id)))
            {
                self.model.make_loose(*id);
            }
        }
    }

    /// Whether a member is in use no more.
    fn is_out(&self, member: MemberId) -> bool {
        let members = self.world.core.as_ref().map(|core| core.members()).unwrap_or_default();
        members.get(usize::from(member.0)).is_none_or(|now| now.state != MemberState::InUse)
    }

    fn check_error(&self, asked: &Asked, error: Errno) -> Result<(), String> {
        let excused = match error {
            Errno::NOSPC if matches!(asked, Asked::Members { .. }) => true,
            Errno::NOSPC => self.world.injected.no_space > 0 || self.world.may_pass_by(),
            Errno::DQUOT => self.scenario.quota_blocks.is_some(),
            Errno::OPNOTSUPP if self.world.origin.kind() != SpaceKind::Keeps => true,
            Errno::SHUTDOWN => self.stopping,
            _ if matches!(asked, Asked::Members { change } if is_refusal(*change, error)) => true,
            // It was lost while this waited.
            Errno::INVAL if matches!(asked, Asked::Members { change: Change::Grow { member } } if self.is_out(*member)) => {
                true
            }
            Errno::IO | Errno::NODEV if matches!(asked, Asked::Members { .. }) && self.world.has_lost() => true,
            Errno::NXIO => matches!(asked, Asked::Seek { .. }),
            Errno::BUSY | Errno::CANCELED if matches!(asked, Asked::Scrub { .. }) => true,
            Errno::NOENT => matches!(asked, Asked::CancelFlush | Asked::CancelScrub),
            Errno::CANCELED => matches!(asked, Asked::Flush { .. }),
            // Bits that rotted in an earlier life are still there.
            Errno::IO => self.damaged || self.world.injected.excuses_errors(),
            _ => false,
        };
        if excused {
            Ok(())
        } else {
            Err(format!("failed with {error:?} though nothing was wrong ({:?})", self.world.injected))
        }
    }

    fn answer(&mut self, id: RequestId, asked: Asked, reply: Reply) -> Result<(), String> {
        if let Reply::Failed(error) = reply {
            self.check_error(&asked, error)?;
        }
        match (asked, reply) {
            (Asked::Open { file }, reply) => {
                let door = self.doors.entry(file).or_default();
                door.opening -= 1;
                if let Reply::Opened { object, attributes } = reply {
                    if door.handles > 0 && door.object != Some(object) {
                        return Err(format!("one file is two objects: {:?} and {object:?}", door.object));
                    }
                    door.handles += 1;
                    door.object = Some(object);
                    self.seen_ctimes.insert(file, attributes.ctime.0);
                    return self.model.check_size(id.0, attributes.size);
                }
                self.model.unwatch(id.0);
                matches!(reply, Reply::Failed(_)).then_some(()).ok_or_else(|| wrong(&reply))
            }
            (Asked::StatusBegins { file }, reply) => {
                if matches!(reply, Reply::Done) {
                    self.status_changes.push(StatusChange { file, made: false });
                } else {
                    self.doors.entry(file).or_default().changing = false;
                }
                Ok(())
            }
            (Asked::Read { offset, len, keep, .. }, Reply::Data(pieces, _)) => {
                self.summary.bytes_read += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
                if keep {
                    self.kept.insert(id, Ok(pieces));
                    return Ok(());
                }
                self.model.check_read(id.0, offset, len, &Found::at(offset, pieces))
            }
            (Asked::Read { keep, .. }, Reply::Failed(error)) => {
                self.model.unwatch(id.0);
                if keep {
                    self.kept.insert(id, Err(error));
                }
                Ok(())
            }
            (Asked::Change { file, id: change, asked_at, direct }, Reply::Changed(attributes)) => {
                if !self.is_strict() {
                    self.model.make_loose(change);
                }
                self.model.acknowledge(change);
                let seen = self.seen_ctimes.entry(file).or_default();
                *seen = attributes.ctime.0.max(*seen);
                // Durable data is of no use without a name.
                self.doors.entry(file).or_default().anchored |= self.model.is_durable(change);
                self.model.check_size(id.0, attributes.size)?;
                let alone = self.model.moment() == asked_at + 2 && self.model.open_changes(file) == 0;
                if alone && self.model.is_durable(change) {
                    self.model.synced_at_origin(file, asked_at + 2);
                }
                self.check_written_through(file, change, asked_at, direct)
            }
            (Asked::Change { file, id: change, .. }, Reply::Failed(_)) => {
                self.model.unwatch(id.0);
                // It may be there in part.
                self.seen_ctimes.remove(&file);
                if self.world.injected.flash_write > 0 {
                    // The flash failed before its turn, so it went to the origin.
                    self.model.make_loose(change);
                }
                self.model.fail(change);
                Ok(())
            }
            (Asked::Sync { file, moment, copies }, Reply::Done) => {
                match copies {
                    Some(0) => {
                        let flashes = self.world.own_flashes();
                        self.synced_here.note(SyncedFile { file, moment, flashes });
                    }
                    _ => self.model.synced(file, moment),
                }
                self.doors.entry(file).or_default().anchored = true;
                Ok(())
            }
            (Asked::SyncAll { moment, files }, Reply::Done) => {
                // After the last name is gone, no sync covers direct writes to the file. If a power cut brings the
                // name back, the file is as it was at some moment since its own last sync.
                self.model.synced_all(moment, &self.gone());
                for file in files {
                    self.doors.entry(file).or_default().anchored = true;
                }
                Ok(())
            }
            (Asked::Flush { moment, files }, Reply::Done) => self.check_flushed(moment, files),
            (Asked::SetMode { mode }, Reply::Done) => {
                self.mode = mode;
                self.mode_open = false;
                Ok(())
            }
            (Asked::Stop { moment }, Reply::Done) => {
                self.stopped_well = true;
                // All of it is durable everywhere.
                self.synced_here.take();
                self.model.synced_all(moment, &self.gone());
                Ok(())
            }
            (Asked::Seek { file, offset, data, asked_at }, reply @ (Reply::Offset(_) | Reply::Failed(Errno::NXIO))) => {
                let quiet = asked_at == Some(self.model.moment()) && self.model.open_changes(file) == 0;
                let contents = if quiet { self.model.contents(file) } else { Vec::new() };
                let checked: Vec<_> =
                    contents.iter().map(|content| check_seek(content, offset, data, &reply)).collect();
                if checked.iter().any(Result::is_ok) { Ok(()) } else { checked.into_iter().next().unwrap_or(Ok(())) }
            }
            (
                Asked::Close { .. } | Asked::StatusEnds | Asked::Configure | Asked::CancelFlush | Asked::Settled,
                Reply::Done,
            ) => Ok(()),
            (Asked::CancelScrub, Reply::Done) => Ok(()),
            (Asked::Scrub { mirrors }, Reply::Done) => self.scrubbed(mirrors),
            (Asked::Members { change }, Reply::Done) => self.members_changed(change),
            (Asked::Names { .. }, Reply::Done) => {
                // It has a later time, which no answer shows.
                self.seen_ctimes.clear();
                Ok(())
            }
            (Asked::Members { change }, Reply::Failed(_)) => {
                self.members_not_changed(change);
                Ok(())
            }
            (_, Reply::Failed(_)) => Ok(()),
            (_, reply) => Err(wrong(&reply)),
        }
    }

    /// In all modes but write-back, and with such a treatment, an acknowledged write is at the origin.
    fn check_written_through(
        &self,
        file: FileId,
        change: MutationId,
        asked_at: Moment,
        direct: bool,
    ) -> Result<(), String> {
        let quiet = self.model.moment() == asked_at + 2 && self.model.open_changes(file) == 0;
        if !direct && (self.mode == CacheMode::WriteBack || self.mode_open) || !quiet {
            return Ok(());
        }
        if let ContentChange::Write { offset, len, writer } = self.model.change(change) {
            let bytes = self.world.origin.read(file, offset, len as usize).unwrap_or_else(|_| Buf::empty());
            if bytes.len() as u64 != len || !crate::content::is_from(Some(writer), offset, &bytes) {
                return Err(format!("acknowledged in mode {} and not at the origin", self.mode));
            }
        }
        Ok(())
    }

    /// After a flush the origin alone has everything, even after a power cut.
    fn check_flushed(&mut self, moment: Moment, files: Option<BTreeSet<FileId>>) -> Result<(), String> {
        if files.is_none() {
            self.model.synced_all(moment, &self.gone());
        }
        self.summary.flushes += 1;
        if self.model.moment() != moment {
            return Ok(());
        }
        let named: BTreeSet<FileId> = self.world.origin.names().values().copied().collect();
        for file in named {
            if self.model.open_changes(file) > 0 || files.as_ref().is_some_and(|files| !files.contains(&file)) {
                continue;
            }
            let live = self.world.origin.live(file).map_err(|error| error.to_string())?;
            let durable = self.world.origin.durable(file).map_err(|error| error.to_string())?;
            let incomplete = |what, why| format!("after a flush the origin's {what} {file:?} is incomplete: {why}");
            self.model.check_whole(file, &live).map_err(|why| incomplete("live", why))?;
            if !durable.is_same(&live) {
                self.model.check_whole(file, &durable).map_err(|why| incomplete("durable", why))?;
            }
        }
        Ok(())
    }

    fn gone(&self) -> BTreeSet<FileId> {
        self.doors.iter().filter(|(_, door)| door.unlinked).map(|(file, _)| *file).collect()
    }
}

fn wrong(reply: &Reply) -> String {
    format!("an answer of the wrong kind: {reply:?}")
}

fn short_reply(reply: &Reply) -> String {
    match reply {
        Reply::Data(pieces, _) => format!("{} bytes", pieces.iter().map(|piece| piece.len()).sum::<usize>()),
        other => format!("{other:?}"),
    }
}

/// Whether an answer to a search for data or a hole fits the content.
fn check_seek(content: &Content, offset: u64, data: bool, reply: &Reply) -> Result<(), String> {
    let has_data = |from: u64, to: u64| content.has_data(from, to);
    match reply {
        Reply::Offset(found) if data => {
            let fits = *found >= offset && *found < content.size && !has_data(offset, *found);
            fits.then_some(())
                .ok_or_else(|| format!("data is said to start at {found}: some lies before, or none there"))
        }
        Reply::Offset(found) => {
            let end = (found + 1).next_multiple_of(4096).min(content.size).max(*found);
            let fits = *found >= offset && *found <= content.size && !has_data(*found, end);
            fits.then_some(()).ok_or_else(|| format!("a hole is said to start at {found}: there is data"))
        }
        _ if offset >= content.size || data && !has_data(offset, content.size) => Ok(()),
        _ => Err(format!("nothing found from {offset} on in a file of {} bytes", content.size)),
    }
}

/// Whether this error of a change of the list needs no other excuse.
const fn is_refusal(change: Change, error: Errno) -> bool {
    // What would be left is too small to work.
    let too_small = matches!(change, Change::Shrink { .. } | Change::Remove { .. }) && matches!(error, Errno::INVAL);
    let offline = matches!(change, Change::Offline { .. }) && matches!(error, Errno::INVAL | Errno::AGAIN);
    too_small || offline || matches!(error, Errno::NOSPC | Errno::BUSY | Errno::CANCELED | Errno::NOENT)
}
