//! Checks what a crash left. All files together must show one moment since the last sync. A file whose writes went to
//! the origin itself must hold, sector by sector, what may lie there. The model goes on from what was found.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Model;
use crate::configuration::{Configuration, Event, Moment, MutationId, step};
use crate::content::{Content, ContentChange};
use crate::found::Found;
use crate::origin::FileId;

impl Model {
    /// A crash came and the files were read again. `found` has every file that still exists.
    ///
    /// On success the model continues from what was found.
    pub(crate) fn check_crash(&mut self, found: &BTreeMap<FileId, Found>, kept_origin: bool) -> Result<Moment, String> {
        let moments = self.events.len() + 1;
        let mut possible: Vec<bool> = (0..moments).map(|moment| moment >= self.floor).collect();
        let mut told = String::new();
        let mut replacements = Vec::new();
        let mut shown = Vec::new();
        for (&file, bytes) in found {
            if !self.files.contains_key(&file) {
                return Err(format!("{file:?} is there after the crash, and nobody made it"));
            }
            if self.is_loose(file) {
                replacements.push((file, self.check_loose(file, bytes)?));
                continue;
            }
            let contents = self.moments_of(file, bytes);
            let at: Vec<bool> = contents.iter().map(Option::is_some).collect();
            if !at.iter().any(|found| *found) {
                return Err(self.explain_crash(file, bytes));
            }
            told += &format!("  {file:?} is as after events {}\n", ranges(&at));
            for (possible, here) in possible.iter_mut().zip(&at) {
                *possible &= here;
            }
            shown.push((file, contents));
        }
        let Some(moment) = possible.iter().rposition(|possible| *possible) else {
            return Err(format!(
                "no moment since the last sync (event {} of {}) explains all files together: what survived is no prefix\n{told}",
                self.floor,
                self.events.len()
            ));
        };
        let mut continued = BTreeMap::new();
        for (file, mut contents) in shown {
            if let Some(content) = contents[moment].take() {
                continued.insert(file, (*content).clone());
            }
        }
        let mut files = std::mem::take(&mut self.files);
        for (file, content) in continued {
            self.add_file(file, content);
        }
        for (file, (content, sizes)) in replacements {
            self.add_file(file, content);
            if kept_origin && let Some(old) = files.remove(&file) {
                let changes: Vec<ContentChange> =
                    self.mutations.iter().filter(|m| m.file == file && m.loose).map(|m| m.change).collect();
                let new = self.files.entry(file).or_default();
                new.earlier = old.earlier;
                new.earlier.extend(old.base.into_iter().map(|configuration| configuration.content));
                new.earlier_changes = old.earlier_changes;
                new.earlier_changes.extend(changes);
                new.earlier_sizes = sizes;
            }
        }
        self.events.clear();
        self.floor = 0;
        self.musts.clear();
        self.watches.clear();
        for mutation in &mut self.mutations {
            // Events count from the start again: what was acknowledged is part of the base now.
            mutation.acknowledged = Some(0);
            mutation.loose = false;
        }
        Ok(moment)
    }

    fn is_loose(&self, file: FileId) -> bool {
        let carried = self.files.get(&file).is_some_and(|model| !model.earlier.is_empty());
        carried || self.window(file).any(|id| self.mutations[id.0 as usize].loose)
    }

    fn loose_floor(&self, file: FileId) -> Moment {
        self.files.get(&file).map_or(0, |model| model.loose_floor)
    }

    /// The changes of a file that a crash may undo, or may never have seen.
    fn window(&self, file: FileId) -> impl Iterator<Item = MutationId> {
        let floor = self.loose_floor(file);
        self.events.iter().filter_map(move |event| match event {
            Event::Asked(id) => {
                let mutation = &self.mutations[id.0 as usize];
                (mutation.file == file && mutation.acknowledged.is_none_or(|moment| moment > floor)).then_some(*id)
            }
            _ => None,
        })
    }

    /// Replays the file's events from the base, and collects what `look` returns at each moment.
    fn replay<T>(
        &self,
        file: FileId,
        mut look: impl FnMut(Moment, &[Configuration], &[MutationId]) -> Option<T>,
    ) -> Vec<T> {
        let Some(model) = self.files.get(&file) else { return Vec::new() };
        let mut configurations = model.base.clone();
        let mut open = Vec::new();
        let mut seen: Vec<T> = look(0, &configurations, &open).into_iter().collect();
        for (index, event) in self.events.iter().enumerate() {
            if self.file_of(*event) == file {
                step(&mut configurations, &mut open, *event, &self.mutations, &self.findings);
            }
            seen.extend(look(index + 1, &configurations, &open));
        }
        seen
    }

    /// For each moment the content, if the file may have had exactly these bytes then.
    fn moments_of(&self, file: FileId, bytes: &Found) -> Vec<Option<Rc<Content>>> {
        let musts: Vec<MutationId> =
            self.musts.iter().copied().filter(|id| self.mutations[id.0 as usize].file == file).collect();
        let mut known: Vec<(Rc<Content>, bool)> = Vec::new();
        self.replay(file, |moment, configurations, _| {
            let mut fits = |content: &Rc<Content>| {
                if let Some((_, fits)) = known.iter().find(|(seen, _)| Rc::ptr_eq(seen, content)) {
                    return *fits;
                }
                let fits = content.is(bytes);
                known.push((content.clone(), fits));
                fits
            };
            let mut shown =
                |configuration: &Configuration| fits(&configuration.content).then(|| configuration.content.clone());
            let possible = configurations.iter().any(|configuration| {
                let has = |id: &MutationId| {
                    configuration.applied.contains(id)
                        || self.mutations[id.0 as usize].acknowledged.is_some_and(|at| at <= moment)
                };
                musts.iter().all(has)
                    && configuration.applied.iter().all(|id| self.may_be_early(*id))
                    && shown(configuration).is_some()
            });
            Some(if possible { configurations.iter().find_map(shown) } else { None })
        })
    }

    /// Whether a crash may keep this change without all changes acknowledged before it: only if this one was never
    /// acknowledged, or waited for the flash. Plain writes survive in the order of their acknowledgements.
    fn may_be_early(&self, id: MutationId) -> bool {
        let mutation = &self.mutations[id.0 as usize];
        let write = matches!(mutation.change, ContentChange::Write { .. } | ContentChange::Together { .. });
        let plain = write && !mutation.durable && !mutation.loose;
        mutation.acknowledged.is_none() || mutation.failed || !plain
    }

    /// Checks a file whose unsynced changes went to the origin: sector by sector.
    /// Gives the content, and all sizes that the file had since it was synced there.
    fn check_loose(&self, file: FileId, bytes: &Found) -> Result<(Content, Vec<u64>), String> {
        let mut contents: Vec<Rc<Content>> = self.files.get(&file).map_or(Vec::new(), |model| model.earlier.clone());
        let mut sizes: Vec<u64> = self.files.get(&file).map_or(Vec::new(), |model| model.earlier_sizes.clone());
        let floor = self.loose_floor(file);
        self.replay(file, |moment, configurations, _| {
            if moment == floor {
                contents.extend(configurations.iter().map(|configuration| configuration.content.clone()));
            }
            if moment >= floor {
                sizes.extend(configurations.iter().map(|configuration| configuration.content.size));
            }
            None::<()>
        });
        let mut changes: Vec<ContentChange> =
            self.window(file).map(|id| self.mutations[id.0 as usize].change).collect();
        changes.extend(self.files.get(&file).iter().flat_map(|model| model.earlier_changes.iter().copied()));
        sizes.sort_unstable();
        sizes.dedup();
        Ok((self.explain_sectors(file, bytes, &contents, changes, sizes.clone())?, sizes))
    }

    fn explain_crash(&self, file: FileId, bytes: &Found) -> String {
        let best = self
            .replay(file, |moment, configurations, _| {
                configurations
                    .iter()
                    .map(|c| (c.content.difference(0, u64::MAX / 2, bytes).unwrap_or(u64::MAX), moment, c.clone()))
                    .max_by_key(|(at, _, _)| *at)
            })
            .into_iter()
            .max_by_key(|(at, moment, _)| (*at, *moment));
        let Some((at, moment, configuration)) = best else { return format!("{file:?} is not known") };
        if at == u64::MAX {
            return format!(
                "{file:?} after the crash is as it was after event {moment}, but what was synced since then (floor {}, {} durable writes) is lost, \
                 or a later write came before an earlier one",
                self.floor,
                self.musts.len()
            );
        }
        format!(
            "{file:?} after the crash ({} bytes) is as it never was: closest is its content ({} bytes) after event {moment} of {} (floor {}), \
             which differs from byte {at}: found {}, expected {:?}",
            bytes.len(),
            configuration.content.size,
            self.events.len(),
            self.floor,
            self.who(file, bytes, at),
            configuration.content.pieces(at, at + 1),
        )
    }
}

fn ranges(moments: &[bool]) -> String {
    let mut parts = Vec::new();
    let mut start = None;
    for (moment, here) in moments.iter().chain([&false]).enumerate() {
        match (start, here) {
            (None, true) => start = Some(moment),
            (Some(first), false) => {
                parts.push(if first + 1 == moment { format!("{first}") } else { format!("{first}-{}", moment - 1) });
                start = None;
            }
            _ => {}
        }
    }
    parts.join(", ")
}
