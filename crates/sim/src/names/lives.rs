//! The lives of the daemon: how one ends, and how the next one begins and finds everything as promised.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use headpond_base::{Buf, Errno};
use headpond_engine::{
    FlashRead, OpenFile, OpenObject, Recovered, RecoveredObject, Reply, Request, Treatment, Verdict, recover,
};
use headpond_format::OriginName;
use headpond_names::{KnownObject, MountSettings, Names};
use headpond_timed::Rng;

use crate::flash::{Cut, SimFlash, WriteFate};
use crate::found::Found;
use crate::names::door::Descriptor;
use crate::names::env::{Answer, with};
use crate::names::kernel::Mount;
use crate::names::keys::{Engine, Origin};
use crate::names::run::Run;
use crate::origin::FileId;
use crate::outliving::OutlivingMemory;
use crate::takeover::REDO_TICKETS;
use crate::tree::{Kind, Over};

struct Reader<'a>(&'a SimFlash);

impl FlashRead for Reader<'_> {
    fn read(&mut self, offset: u64, len: usize) -> headpond_base::Result<Buf> {
        if offset + len as u64 > self.0.bytes() { Err(Errno::INVAL) } else { Ok(self.0.read(offset, len)) }
    }
}

impl Run {
    /// Kills the daemon, or cuts the power. Returns whether the origin's host still stands.
    pub(crate) fn fall(&mut self, rng: &mut Rng) -> Result<bool, String> {
        let power = rng.chance(self.scenario.power_cuts);
        let origin_falls = power && rng.chance(self.scenario.origin_falls);
        let cuts = [Cut::Random, Cut::Random, Cut::DropAll, Cut::KeepAll, Cut::OnlyLast, Cut::TearLastEnd];
        let cut = power.then(|| *rng.pick(&cuts));
        with(|env| env.world.trace(|| format!("crash: flash {cut:?}, origin falls {origin_falls}")));
        self.summary.crashes += 1;
        self.summary.at_risk += with(|env| env.model.at_risk());
        self.leave(cut, origin_falls)?;
        Ok(!origin_falls)
    }

    /// Everything that runs ends.
    pub(crate) fn leave(&mut self, cut: Option<Cut>, origin_falls: bool) -> Result<(), String> {
        let stays = cut.is_none() && with(|env| env.world.outliving.is_some());
        // What is known of the files is older than an end that nobody has looked at yet.
        let known = !std::mem::replace(&mut self.unseen_end, true);
        let promised = if known { Some(with(|env| env.model.last_logged())) } else { self.outlived };
        self.outlived = promised.filter(|_| stays);
        let left = with(|env| {
            if let Some(core) = &env.world.core {
                let [_, reclaimed, checkpoints, destaged, ..] = core.figures();
                self.summary.reclaimed += reclaimed;
                self.summary.checkpoints += checkpoints;
                self.summary.destaged += destaged;
            }
            let faulty = env.injected + env.world.injected.origin > 0;
            let left = env.lose_life();
            let named = env.tree().0.files();
            env.world.lose_daemon(cut, origin_falls);
            if faulty {
                // A removal that was not synced was lost. Later changes could not be found, because the file had no
                // name.
                let back: Vec<_> = env.tree().0.files().into_iter().filter(|file| !named.contains(file)).collect();
                back.into_iter().for_each(|file| env.model.loosen(file));
            }
            left
        });
        let tasks = self.tasks.take_all();
        self.mount = None;
        drop((left, tasks));
        self.boots += u64::from(origin_falls);
        if !origin_falls {
            return Ok(());
        }
        with(|env| {
            let live = env.tree().0.names().map(|(slot, id)| (slot.clone(), id)).collect();
            env.promises.check(&live, &env.world.origin)
        })
    }

    /// Does on flash what the last process left in memory that outlives it. The layer begins anew: the ledger has tests
    /// of its own (`crates/mount/src/sent_again.rs`).
    fn redo(&mut self) -> Result<(), String> {
        let errno = |errno: Errno| errno.to_string();
        let writes = with(|env| {
            let Some(outliving) = &mut env.world.outliving else { return Ok(0) };
            let left = outliving.left()?;
            let mut rng = Rng::new(0);
            let mut members = BTreeSet::new();
            let places = left.writes.iter().flat_map(|write| write.places.iter().map(|at| (*at, &write.data)));
            for (ticket, (at, data)) in (REDO_TICKETS..).zip(places) {
                env.world.flash.start_write(at, ticket, data.clone())?;
                env.world.flash.finish_write(at.member, ticket, WriteFate::Done, &mut rng)?.map_err(errno)?;
                members.insert(at.member);
            }
            for member in members {
                env.world.flash.start_sync(member, REDO_TICKETS)?;
                env.world.flash.finish_sync(member, REDO_TICKETS, false, &mut rng)?.map_err(errno)?;
            }
            Ok::<_, String>(left.writes.len())
        })?;
        self.summary.takeovers += u64::from(writes > 0);
        if let Some(outlived) = self.outlived.take() {
            with(|env| env.model.raise_floor(outlived));
        }
        Ok(())
    }

    /// Reads the pool, compares it with the origin, and starts engine and layer.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        self.redo()?;
        with(|env| {
            let (tree, origin) = env.tree();
            tree.all_synced();
            origin.sync_all();
            tree.take_given();
            let above = env.world.above.as_ref().expect("names are a layer of their own");
            env.promises.begin(above.tree.names(), &env.world.origin);
        });
        let mut recovered = with(|env| {
            let flash = &env.world.flash.all()[0].flash;
            recover(&mut Reader(flash), flash.bytes())
        })
        .map_err(|error| format!("recovery failed though no fault can explain it: {error:?}"))?;
        let mut boot = [1; 16];
        boot[..8].copy_from_slice(&self.boots.to_le_bytes());
        recovered.booted(boot);
        recovered.adopt(OriginName { key: [9; 16], path: b"/origin".to_vec() });
        let tail = with(|env| env.world.outliving.as_mut().map(OutlivingMemory::second_tail)).transpose()?;
        if let Some(tail) = tail {
            recovered.survive_in(tail);
        }
        let known = self.settle_objects(&mut recovered)?;
        let config = self.scenario.config;
        with(|env| {
            let now = env.world.now;
            env.world.core = Some(Box::new(recovered.into_engine(config, now)));
            env.world.pump()
        })?;
        self.summary.recoveries += 1;
        let faults = with(|env| std::mem::take(&mut env.faults));
        let settings = MountSettings {
            descriptors: self.descriptors,
            remembered: Some(self.remembered),
            read_only: false,
            hides_open_files: false,
        };
        let root = with(|env| {
            let root = env.tree().0.root();
            Descriptor::new(env, root, None)
        });
        let layer = self.tasks.carry_out(async move {
            let layer =
                Names::new(std::sync::Arc::new(Origin), root, std::sync::Arc::new(Engine), &known, settings).await?;
            layer.adopt(&known).await;
            Ok::<_, Errno>(layer)
        })?;
        let layer = layer.map_err(|error| format!("the layer does not begin: {error:?}"))?;
        self.mount = Some(Mount::new(layer));
        // As a mount does before it serves.
        let id = with(|env| env.submit(Request::SyncAll, None, false, Box::new(|_| {}), false));
        self.tasks.carry_out(Answer(id))?;
        self.settled_boots = self.boots;
        with(|env| env.faults = faults);
        Ok(())
    }

    /// The file of an object: where it was, or wherever it is if that matters.
    fn find(object: &RecoveredObject) -> Option<(FileId, Vec<u8>)> {
        let state = &object.state;
        let known = state.identity.file()?;
        with(|env| {
            let same = |env: &mut crate::names::env::Env, file: FileId| {
                let identity = env.world.origin.identity(file);
                identity == Ok(known) && env.tree().0.kind(file) == Some(Kind::File)
            };
            let mut at = Some(env.tree().0.root());
            for part in state.path.split(|byte| *byte == b'/') {
                at = at.and_then(|directory| env.tree().0.at(directory, part));
            }
            if let Some(file) = at.filter(|_| !state.path.is_empty())
                && same(env, file)
            {
                return Some((file, state.path.clone()));
            }
            let must = object.dirty || object.dirty_blocks > 0;
            let file = if must { env.tree().0.by_number(known.inode) } else { None };
            let file = file.filter(|file| same(env, *file))?;
            let path = env.tree().0.path_of(file)?;
            Some((file, path))
        })
    }

    fn settle_objects(&mut self, recovered: &mut Recovered) -> Result<Vec<KnownObject>, String> {
        let mut known = Vec::new();
        for object in recovered.objects() {
            let identity = object.state.identity.file().ok_or("a volume, and nobody made one")?;
            let found = Self::find(&object);
            let file = found.as_ref().map(|(file, path)| {
                let stamp = with(|env| env.world.origin.stamp(*file).unwrap_or_default());
                let (inode, birth) = (identity.inode, identity.birth);
                OpenFile { inode, birth, path: path.clone(), stamp, created: false, allocated: 0 }
            });
            let verdict = recovered.reconcile(object.object, file.map(OpenObject::from).as_ref());
            with(|env| env.world.trace(|| format!("found {found:?} {object:?}: {verdict:?}")));
            let unheld = found.as_ref().is_some_and(|(file, _)| with(|env| env.changed_unheld.remove(file)));
            match verdict {
                Verdict::Kept => {}
                Verdict::Conflict(conflict) => {
                    return Err(format!(
                        "a conflict about {found:?}, and nobody changed anything: {conflict:?} {object:?}"
                    ));
                }
                Verdict::Dropped if self.boots == self.settled_boots && self.scenario.births && !unheld => {
                    return Err(format!("{found:?} is taken for changed by others, and nobody changed it: {object:?}"));
                }
                _ => {
                    self.summary.dropped += 1;
                    continue;
                }
            }
            let (Some((file, path)), true) = (found, object.dirty || object.dirty_blocks > 0) else { continue };
            let attributes = recovered.attributes(object.object).unwrap_or_default();
            known.push(KnownObject {
                inode: identity.inode,
                birth: identity.birth,
                object: object.object,
                attributes,
                path: path.clone(),
            });
            with(|env| {
                env.world.objects.insert(object.object, file);
                let entry = env.tree().0.slot_of(file).cloned();
                let entry = entry.and_then(|(directory, name)| env.tree().0.entry(directory, &name)).map(|(_, at)| at);
                let above = env.world.above.as_mut().expect("names are a layer of their own");
                above.attach(object.object, file, entry, &mut env.world.origin);
            });
        }
        Ok(known)
    }

    /// Everything starts again, and is as promised.
    pub(crate) fn restart(&mut self, kept_origin: bool) -> Result<(), String> {
        self.begin()?;
        let faults = with(|env| std::mem::take(&mut env.faults));
        let found = self.look_at_all()?;
        let files = with(|env| env.model.files());
        for file in files.into_iter().filter(|file| !found.contains_key(file)) {
            with(|env| env.model.remove_file(file));
        }
        self.unseen_end = false;
        let moment = with(|env| env.model.check_crash(&found, kept_origin))?;
        with(|env| {
            env.world.trace(|| format!("all files are as they were after event {moment}"));
            env.faults = faults;
        });
        Ok(())
    }

    /// Reads all files that have names, through the layer.
    pub(crate) fn look_at_all(&mut self) -> Result<BTreeMap<FileId, Found>, String> {
        let files = with(|env| {
            let (tree, _) = env.tree();
            let files = tree.files();
            files.into_iter().filter_map(|file| Some((file, tree.path_of(file)?))).collect::<Vec<_>>()
        });
        let mut all = BTreeMap::new();
        for (file, path) in files {
            let mount = self.mount.clone().expect("it is mounted");
            let bytes = self.tasks.carry_out(read_whole(mount, path.clone()))?;
            let bytes = bytes.map_err(|error| {
                format!("{file:?} cannot be read by {:?}: {error:?}", String::from_utf8_lossy(&path))
            })?;
            all.insert(file, bytes);
        }
        Ok(all)
    }

    /// Reads files with failed changes: this shows what became of those.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        let failed =
            with(|env| env.model.files().into_iter().filter(|file| env.model.has_failed(*file)).collect::<Vec<_>>());
        if failed.is_empty() {
            return Ok(());
        }
        self.tasks.drain()?;
        let faults = with(|env| std::mem::take(&mut env.faults));
        let found = self.look_at_all()?;
        with(|env| env.faults = faults);
        for (file, bytes) in found {
            if failed.contains(&file) {
                let settled = with(|env| env.model.settle(file, &bytes));
                settled.map_err(|why| format!("{file:?} read as a whole: {why}"))?;
            }
        }
        Ok(())
    }

    /// A stop in order, and a new start.
    pub(crate) fn stop_and_restart(&mut self, rng: &mut Rng) -> Result<(), String> {
        let flushes = self.summary.flushes;
        if rng.chance(500) {
            self.flush()?;
        }
        self.let_go_of_all()?;
        let moment = with(|env| env.model.moment());
        let id = with(|env| env.submit(Request::Stop, None, false, Box::new(|_| {}), false));
        let stopped = self.tasks.carry_out(Answer(id))?;
        if matches!(stopped, Reply::Done) {
            with(|env| env.model.synced_all(moment, &std::collections::BTreeSet::new()));
        }
        self.summary.stops += 1;
        let cut = rng.chance(500).then_some(Cut::Random);
        let origin_falls = cut.is_some() && rng.chance(500);
        self.leave(cut, origin_falls)?;
        if self.summary.flushes > flushes && matches!(stopped, Reply::Done) && rng.chance(500) {
            Self::others_rename(rng);
        }
        self.restart(!origin_falls)
    }

    /// The same while the daemon runs and has none of the files open or dirty: another machine does it, or a program
    /// past the mount. The kernel has forgotten the names.
    pub(crate) fn others_rename_meanwhile(&mut self, rng: &mut Rng) -> Result<(), String> {
        let flushes = self.summary.flushes;
        self.check_counts()?;
        if self.summary.flushes == flushes {
            return Ok(());
        }
        Self::others_rename(rng);
        with(|env| {
            let (tree, origin) = env.tree();
            tree.all_synced();
            origin.sync_all();
            tree.take_given();
            let left = tree.files();
            for file in env.model.files().into_iter().filter(|file| !left.contains(file)) {
                env.model.remove_file(file);
            }
            let above = env.world.above.as_ref().expect("names are a layer of their own");
            env.promises.begin(above.tree.names(), &env.world.origin);
        });
        Ok(())
    }

    /// Others rename and remove files while no daemon runs and the origin has everything.
    fn others_rename(rng: &mut Rng) {
        for _ in 0..rng.between(1, 4) {
            with(|env| {
                let (tree, origin) = env.tree();
                let slots: Vec<_> = tree.names().map(|(slot, id)| (slot.clone(), id)).collect();
                let files: Vec<_> = slots.iter().filter(|(_, id)| tree.kind(*id) == Some(Kind::File)).collect();
                if files.is_empty() {
                    return;
                }
                let (from, file) = (*rng.pick(&files)).clone();
                let to = rng.pick(&slots).0.clone();
                let over = tree.at(to.0, &to.1);
                let over_file = over.is_none_or(|over| tree.kind(over) == Some(Kind::File));
                let done = match rng.below(3) {
                    0 => tree.unlink(from.0, &from.1, Kind::File, origin),
                    1 if over_file => tree.rename(&from, &to, Over::Exchange, origin),
                    _ if over_file => tree.rename(&from, &to, Over::Replace, origin),
                    _ => Ok(()),
                };
                env.world.trace(|| format!("others change names: {from:?} {to:?} {done:?}"));
                env.changed_unheld.extend(over.into_iter().chain([file]));
            });
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), String> {
        let id = with(|env| env.submit(Request::flush_all(7), None, false, Box::new(|_| {}), false));
        let answer = self.tasks.carry_out(Answer(id))?;
        self.summary.flushes += u64::from(matches!(answer, Reply::Done));
        Ok(())
    }

    /// Applications close everything, and the kernel forgets it.
    pub(crate) fn let_go_of_all(&mut self) -> Result<(), String> {
        self.tasks.drain()?;
        let mount = self.mount.clone().expect("it is mounted");
        for number in mount.handles() {
            let mount = mount.clone();
            self.tasks.carry_out(async move { mount.close(number).await })?;
        }
        mount.drop_caches(1000);
        self.tasks.drain()?;
        mount.layer.inodes.forget_all();
        self.tasks.drain()?;
        if mount.held() > 0 {
            return Err(format!("the kernel's model holds {} inodes that nothing uses", mount.held()));
        }
        Ok(())
    }

    /// Checks that nothing is open or held after all applications have closed their files and the origin has
    /// everything.
    pub(crate) fn check_counts(&mut self) -> Result<(), String> {
        let faults = with(|env| std::mem::take(&mut env.faults));
        self.let_go_of_all()?;
        for _ in 0..3 {
            self.flush()?;
            self.idle(5_000)?;
        }
        with(|env| env.faults = faults);
        let paths = self.mount.as_ref().map_or(0, |mount| mount.layer.inodes.open_paths());
        with(|env| {
            let open = env.tree().0.all_open();
            let objects = env.world.objects.len();
            if paths > 1 || open > 0 || objects > 0 {
                let left: Vec<_> = env.world.objects.iter().collect();
                return Err(format!(
                    "nobody has anything open, and there are {paths} paths open in the layer, {open} descriptors at the \
                     origin, and the engine holds {left:?}"
                ));
            }
            Ok(())
        })
    }
}

/// Reads a file through the layer, by its path.
async fn read_whole(mount: Rc<Mount>, path: Vec<u8>) -> headpond_base::Result<Found> {
    let text = String::from_utf8_lossy(&path).into_owned();
    let mut parts: Vec<&str> = text.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    let directory = mount.walk(&parts).await?;
    let busy = mount.look_up_locked(&directory, name.as_bytes()).await?;
    let node = mount.node(&busy)?;
    let handle = mount.open(&node, false, false).await?;
    let attached = with(|env| env.world.objects.get(&handle.object).copied());
    if attached != Some(busy.file) {
        with(|env| env.fail(format!("{:?} was opened, and the handle leads to {attached:?}", busy.file)));
    }
    let mut found = Found::default();
    loop {
        let (object, offset, len) = (handle.object, found.len(), 32 << 10);
        let request = Request::Read { object, offset, len, how: Treatment::default() };
        let id = with(|env| env.submit(request, None, true, Box::new(|_| {}), false));
        match Answer(id).await {
            Reply::Data(pieces, _) => {
                let got: usize = pieces.iter().map(|piece| piece.len()).sum();
                pieces.into_iter().for_each(|piece| found.push(piece));
                if got < len as usize {
                    break;
                }
            }
            Reply::Failed(error) => return Err(error),
            other => {
                with(|env| env.fail(format!("an answer of the wrong kind: {other:?}")));
                break;
            }
        }
    }
    mount.layer.release(handle).await;
    Ok(found)
}
