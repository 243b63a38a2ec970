//! What users ask of a volume, and what others do to it: as of a file, but that it has a fixed size, no times, and no
//! name.

use headpond_engine::{Effect, Mutation, OpenObject, OpenVolume, Treatment};
use headpond_format::Witness;
use headpond_timed::Rng;

use crate::content::{Content, ContentChange};
use crate::origin::FileId;
use crate::scenario::Kind;
use crate::sim::Sim;
use crate::world::World;

impl Sim<'_> {
    /// The origin has one from the start.
    pub(crate) fn make_volume(&mut self, size: u64) -> Result<(), String> {
        let file = self.world.origin.create_volume(size);
        let content = Content::of(self.writer(), size);
        self.fill_volume(file, &content)?;
        self.model.add_file(file, content);
        Ok(())
    }

    /// Others write all of it.
    pub(crate) fn meddle_with_volume(&mut self, file: FileId) -> Result<Content, String> {
        let size = self.world.origin.stamp(file).map_or(0, |stamp| stamp.size);
        let content = Content::of(self.writer(), size);
        self.fill_volume(file, &content)?;
        self.world.origin.note_changed_volume(file);
        self.world.origin.sync_all();
        Ok(content)
    }

    fn fill_volume(&mut self, file: FileId, content: &Content) -> Result<(), String> {
        let all = crate::origin::OriginChange::Write { offset: 0, data: vec![content.bytes()] };
        self.world.origin.change(file, all).map_err(|error| format!("a volume has its space: {error:?}"))
    }

    /// What its door says of a volume at a start: with a bug planted in it, what the pool knows anyway.
    pub(crate) fn told_of_a_volume(&self, found: OpenObject, left: Witness) -> OpenObject {
        match (found, left) {
            (OpenObject::Volume(volume), Witness::Volume(left))
                if Mutation::BelieveVolumes.is_planted(self.options.mutation) =>
            {
                OpenVolume { witness: left, ..volume }.into()
            }
            (found, _) => found,
        }
    }

    /// One operation at a place that was drawn for a file.
    pub(crate) fn operate_on_volume(
        &mut self,
        kind: Kind,
        file: FileId,
        (offset, len): (u64, u64),
        how: Treatment,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let size = self.model.some_size(file);
        let offset = offset % size;
        let len = len.min(size - offset);
        let may_change = self.model.open_changes(file) < 3;
        match kind {
            Kind::Read => self.read(file, offset, len + rng.below(5000), false, how).map(|_| ()),
            Kind::Write | Kind::DurableWrite if may_change => {
                let writer = self.writer();
                self.change(file, ContentChange::Write { offset, len, writer }, kind == Kind::DurableWrite, how)
            }
            Kind::Zero if may_change => {
                let len = if rng.chance(300) { rng.between(1, size - offset) } else { len };
                self.change(file, ContentChange::Zero { offset, len, extend: rng.chance(300) }, false, how)
            }
            Kind::Sync => self.sync(file),
            Kind::Seek => self.seek(file, offset, rng.chance(500)),
            Kind::Close => {
                let idle = self.doors.get(&file).is_some_and(|door| door.busy == 0 && door.opening == 0);
                if idle { self.close(file) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}

impl World {
    /// What the engine must not ask of a volume: it has its size, its space and no times.
    pub(crate) fn check_asked(&self, effect: &Effect) -> Result<(), String> {
        let object = match effect {
            Effect::OriginResize { object, .. }
            | Effect::OriginStamp { object, .. }
            | Effect::OriginReserve { object, .. }
            | Effect::OriginSpace { object, .. } => object,
            _ => return Ok(()),
        };
        match self.objects.get(object) {
            Some(file) if self.origin.is_volume(*file) => Err(format!("asked of a volume: {effect:?}")),
            _ => Ok(()),
        }
    }
}
