//! One side, set up for its runs: a fresh place, its data, and a mount or a server in front.
//!
//! Invariants:
//! - Each visit begins with the same data, out of the page cache, and with an empty pool.
//! - The origin is written through the mount, or while nothing is mounted: never past a mount.
//! - The mount goes before the directories that it uses, even after a failure.

use super::open_loop::Waits;
use super::plan::{Plan, Point, Visit};
use super::processors::Confined;
use super::server::Server;
use super::target::{PondTarget, SlowDisk};
use super::{Definition, Kind, Load, Software, Vary, fio_load, oltp_load, pgbench_load, tpcc_load};
use crate::command;
use crate::failure::{Failure, Result};
use crate::kernel_caches;
use crate::limited::{Limit, Limited};
use crate::memory_bound::MemoryBound;
use crate::peer::{LongWire, Peer};
use crate::place;
use crate::pond::{Headpond, Mount, Mounting};
use crate::sysbench;
use crate::throttled::{Throttle, ThrottledDisk};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What a database needs beside its tables, in MiB: its logs and temporary files.
const DATABASE_MIB: u64 = 600;
/// What anything needs beside its data, in MiB.
const SPARE_MIB: u64 = 64;
/// A table's file of fewer bytes is not read beforehand: it is smaller than the requests that read it.
const WARM_MIN: u64 = 512 << 10;
/// The file that is made dirty, beside the data.
const DIRTY: &str = "dirty";
/// How long changing settings may take.
const SET_MAX: Duration = Duration::from_secs(60);

/// What all visits of a session use.
pub struct Session {
    /// The lab's flash, where it is slowed down. Mounted in the scratch directory, so it goes before that.
    pub limited: Option<Limited>,
    /// headpond's program.
    pub headpond: Headpond,
    /// The session's own directory: sockets, mount points, tables to copy.
    pub scratch: TempDir,
    /// Devices that may be overwritten.
    pub destroy: Vec<PathBuf>,
    /// Where tables are kept from one session to the next; none if they are made for this one.
    pub keep_tables: Option<PathBuf>,
    /// The tables that each visit copies.
    pub tables: PathBuf,
    /// What sysbench is given to carry out, where that is the lab's own.
    pub script: PathBuf,
    /// What guests find at their origin, where there are guests.
    pub origin: Option<kernel_caches::GuestOrigin>,
}

/// A side that is ready.
pub struct Stage {
    server: Option<Server>,
    script: PathBuf,
    mount: Option<Mount>,
    /// The host with its copy. It goes after the mount.
    peer: Option<Peer>,
    /// The bound on the mount's memory. It goes after the mount.
    memory: Option<MemoryBound>,
    /// What fio works on.
    file: PathBuf,
    /// How much of it is there, in MiB.
    there: u64,
    /// How the files begin in which fio keeps its requests, where they are due at a rate.
    requests: PathBuf,
    /// The processors that all of it runs on, where those are not all.
    confined: Option<Confined>,
    /// The commands that set it up.
    commands: Vec<(String, String)>,
    /// What it works in: a directory, or an origin and the flash in front of it.
    places: Vec<TempDir>,
    /// The disk of the origin, if it has one of its own. It goes after the origin.
    disk: Option<ThrottledDisk>,
}

impl Session {
    /// Makes what every visit copies: a database with its tables, unless it was kept from a session before.
    pub fn prepare(&mut self, plan: &Plan) -> Result<()> {
        let definition = &plan.definition;
        if plan.targets.iter().any(|target| matches!(target.kind, Kind::Guest(_))) {
            let mib = u64::from(definition.size);
            let lay_out = |file: &Path| fio_load::lay_out_command(file, 0, mib);
            self.origin = Some(kernel_caches::GuestOrigin::make(self.scratch.path(), mib, lay_out)?);
        }
        if let Some(limit) = definition.write_limit {
            // For the pool, or for what a bare side works on. A file system takes some of it for itself.
            let mib = u64::from(definition.flash.max(definition.size)) + DATABASE_MIB + SPARE_MIB;
            self.limited = Some(Limited::make(self.scratch.path(), mib + mib / 8, limit)?);
        }
        if !definition.load.on_database() {
            return Ok(());
        }
        if definition.load == Load::Tpcc {
            self.script = tpcc_load::write_script(self.scratch.path())?;
        }
        self.tables = self.scratch.path().join("tables");
        let Some(kept) = &self.keep_tables else { return self.make_tables(plan) };
        let known = kept.join(name_of_tables(definition)?);
        if !known.exists() {
            self.make_tables(plan)?;
            // By this name only once they are complete.
            let doing = || format!("keeping tables in {}", kept.display());
            std::fs::create_dir_all(kept).map_err(Failure::io(doing()))?;
            let part = tempfile::Builder::new().prefix("part-").tempdir_in(kept).map_err(Failure::io(doing()))?;
            let copy = part.path().join("tables");
            command::run(&doing(), Command::new("cp").arg("--archive").arg(&self.tables).arg(&copy))?;
            std::fs::rename(&copy, &known).map_err(Failure::io(doing()))?;
        }
        self.tables = known;
        Ok(())
    }

    /// Where the lab's flash is.
    fn flash(&self) -> PathBuf {
        self.limited.as_ref().map_or_else(|| self.scratch.path().to_path_buf(), Limited::path)
    }

    /// Slows the lab's flash down, if the experiment says so, until the result is dropped.
    pub fn limit(&self) -> Result<Option<Limit<'_>>> {
        self.limited.as_ref().map(Limited::limit).transpose()
    }

    fn make_tables(&self, plan: &Plan) -> Result<()> {
        let definition = &plan.definition;
        let needs = oltp_load::loading(definition);
        let server = definition.database.make(&self.tables, &self.scratch.path().join("run"), &needs)?;
        if definition.load == Load::Tpcc {
            for step in ["tables", "prepare"] {
                command::run("loading the tables", &mut tpcc_load::step(definition, &server, &self.script, step))?;
            }
        } else {
            let mut prepare = match definition.load {
                Load::Pgbench => pgbench_load::prepare(definition, &server),
                _ => oltp_load::prepare(definition, &server),
            };
            command::run("loading the tables", &mut prepare)?;
        }
        server.stop()
    }

    /// Sets a side up.
    pub fn set_up(&self, plan: &Plan, visit: &Visit) -> Result<Stage> {
        let side = &plan.sides[visit.side];
        let definition = &plan.definition;
        let database = if definition.load.on_database() { DATABASE_MIB } else { 0 };
        let dirty = definition.dirty.map_or(0, |dirty| u64::from(dirty.over));
        let room = u64::from(definition.size) + dirty + database + SPARE_MIB;
        let cores = side.variant.and_then(|variant| definition.variants[variant].cores);
        let confined = cores.map(|cores| Confined::to(cores as usize)).transpose()?;
        let mut stage = Stage {
            server: None,
            script: self.script.clone(),
            mount: None,
            peer: None,
            memory: None,
            file: PathBuf::new(),
            there: 0,
            requests: self.scratch.path().join("requests"),
            commands: confined.iter().map(|confined| ("processors".to_owned(), confined.typed())).collect(),
            confined,
            places: Vec::new(),
            disk: None,
        };
        let directory = match &plan.targets[side.target].kind {
            Kind::Device(path) => {
                place::may_destroy(path, &self.destroy)?;
                stage.file.clone_from(path);
                stage.lay_out_all(plan)?;
                return Ok(stage);
            }
            Kind::Card(model) => {
                return Err(Failure::Other(format!("{} is not set up: it is only modelled", model.name)));
            }
            Kind::Guest(guest) => {
                return Err(Failure::Other(format!("{} is set up by its guest alone", guest.cache.name())));
            }
            Kind::Directory(parent) => self.set_up_directory(plan, &mut stage, parent, room)?,
            Kind::Flash => self.set_up_directory(plan, &mut stage, &self.flash(), room)?,
            Kind::Throttled(throttle) => {
                let parent = self.make_disk(&mut stage, throttle, room)?;
                self.set_up_directory(plan, &mut stage, &parent, room)?
            }
            Kind::Headpond(pond) => self.set_up_pond(plan, visit, &mut stage, pond, room)?,
        };
        if definition.load.on_database() {
            let software = definition.database;
            let variant = side.variant.map(|variant| &definition.variants[variant]);
            let needs = oltp_load::needs(definition, variant.map_or(&[], |variant| variant.of_database(software)));
            let data = directory.join(software.directory());
            if definition.warm && stage.mount.is_some() {
                warm(&data, software)?;
            }
            let server = software.start(&data, &self.scratch.path().join("run"), &needs)?;
            stage.commands.push((software.title().to_owned(), server.typed()));
            stage.server = Some(server);
        }
        stage.file = directory.join("data");
        // What was written and read until here is not to be waited for.
        stage.disk.iter().for_each(ThrottledDisk::begin);
        Ok(stage)
    }

    fn set_up_directory(&self, plan: &Plan, stage: &mut Stage, parent: &Path, room: u64) -> Result<PathBuf> {
        let made = place::directory_in(parent, room)?;
        let directory = made.path().to_path_buf();
        stage.places.push(made);
        self.fill_directory(plan, stage, &directory)?;
        Ok(directory)
    }

    /// Gives a side a throttled disk with so many MiB of room, and says where it is mounted.
    fn make_disk(&self, stage: &mut Stage, throttle: &Throttle, room: u64) -> Result<PathBuf> {
        // Its file system takes some of it for itself.
        let disk = ThrottledDisk::make(self.scratch.path(), room + room / 8 + SPARE_MIB, throttle)?;
        Ok(stage.disk.insert(disk).path())
    }

    /// Puts the data into a directory that nothing is mounted over.
    fn fill_directory(&self, plan: &Plan, stage: &mut Stage, directory: &Path) -> Result<()> {
        if plan.definition.load.on_database() {
            let mut copy = Command::new("cp");
            copy.args(["--archive", "--sparse=never", "--reflink=never"]);
            copy.arg(&self.tables).arg(directory.join(plan.definition.database.directory()));
            command::run("copying the tables", &mut copy)?;
        } else {
            stage.file = directory.join("data");
            stage.lay_out_all(plan)?;
            if let Some(dirty) = plan.definition.dirty {
                let mut lay_out = fio_load::lay_out_command(&directory.join(DIRTY), 0, u64::from(dirty.over));
                command::run("writing the data", &mut lay_out)?;
            }
        }
        place::cool(directory)
    }

    fn set_up_pond(
        &self,
        plan: &Plan,
        visit: &Visit,
        stage: &mut Stage,
        pond: &PondTarget,
        room: u64,
    ) -> Result<PathBuf> {
        let scratch = self.scratch.path();
        let throttle = pond.disk.as_ref().and_then(SlowDisk::throttle);
        let disk = throttle.map(|throttle| self.make_disk(stage, throttle, room)).transpose()?;
        let parent = disk.or_else(|| pond.origin.clone());
        let origin = place::directory_in(parent.as_deref().unwrap_or(scratch), room)?;
        let size = u64::from(pond.size.unwrap_or(plan.definition.flash));
        let copies = if pond.copy.is_some() { 2 } else { 1 };
        let flash = place::directory_in(pond.flash.as_deref().unwrap_or(&self.flash()), copies * size + SPARE_MIB)?;
        self.fill_directory(plan, stage, origin.path())?;
        let mounting = Mounting {
            origin: origin.path().to_path_buf(),
            mountpoint: scratch.join("mnt"),
            flash: flash.path().join("lab.pond"),
            others: Vec::new(),
            size: Some(format!("{size}M")),
            mode: mode(&pond.mode),
            redundancy: None,
            model_disk: pond.disk.as_ref().and_then(SlowDisk::model).map(str::to_owned),
            fault: None,
            log: scratch.join("headpond.log"),
        };
        // Of slow flash, what its file system notes at the first writing of each part would be a part of what is
        // measured: it is a pool that was used before.
        let mut more = if self.limited.is_some() { vec!["--fill", "zeros"] } else { Vec::new() };
        let address = pond.copy.map(|added| self.set_up_peer(stage, flash.path(), added)).transpose()?;
        more.extend(address.iter().flat_map(|address| ["--peer", address]));
        let mount = self.headpond.mount_with(&mounting, &more)?;
        if let Some(mib) = pond.memory {
            let memory = MemoryBound::make(mib)?;
            memory.take(mount.pid())?;
            stage.memory = Some(memory);
        }
        stage.places = vec![origin, flash];
        stage.commands.push(("headpond".to_owned(), mount.typed()));
        let variant = plan.sides[visit.side].variant.map(|variant| &plan.definition.variants[variant]);
        let settings: Vec<&str> = variant.iter().flat_map(|variant| &variant.headpond).map(String::as_str).collect();
        if !settings.is_empty() {
            let mut set = mount.start("set", &settings, &scratch.join("set.log"))?;
            stage.commands.push(("settings".to_owned(), set.typed()));
            set.wait_for_end(SET_MAX)?;
        }
        stage.mount = Some(mount);
        Ok(mounting.mountpoint)
    }

    /// Starts a peer whose store lies beside the flash. Gives its address, as the mount is to reach it.
    fn set_up_peer(&self, stage: &mut Stage, beside: &Path, added: u32) -> Result<String> {
        let peer = Peer::start(&self.headpond, beside)?;
        stage.commands.push(("peer".to_owned(), peer.typed()));
        let address = match added {
            0 => peer.address().to_owned(),
            added => {
                let wire = LongWire::to(peer.address())?;
                wire.set_delay(Duration::from_micros(added.into()));
                wire.address().to_owned()
            }
        };
        stage.peer = Some(peer);
        Ok(address)
    }
}

/// What tells one session's tables from another's.
fn name_of_tables(definition: &Definition) -> Result<String> {
    let number = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
    let shape = match definition.load {
        Load::Tpcc => {
            let [warehouses, items, customers] =
                [definition.warehouses, definition.items, definition.customers].map(number);
            format!("tpcc-{warehouses}w{items}i{customers}c")
        }
        Load::Pgbench => format!("pgbench-{}", number(definition.scale)),
        _ => format!("{}x{}", number(definition.tables), number(definition.rows)),
    };
    let (software, log) = (definition.database, oltp_load::loading(definition).log_mib);
    let version = software.version()?.replace('/', "_");
    Ok(format!("{}-{version}-{shape}-log{log}", software.directory()))
}

/// Reads every table of a database once.
fn warm(data: &Path, software: Software) -> Result<()> {
    let directories = match software {
        Software::Mariadb => vec![data.join(sysbench::DATABASE)],
        Software::Postgres => entries(&data.join("base"))?,
    };
    for directory in directories {
        for path in entries(&directory)? {
            let table = software == Software::Postgres || path.extension().is_some_and(|extension| extension == "ibd");
            if table && path.metadata().is_ok_and(|metadata| metadata.len() >= WARM_MIN) {
                command::run("reading the tables once", &mut fio_load::once_command(&path))?;
            }
        }
    }
    Ok(())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let doing = || format!("looking for tables in {}", directory.display());
    let entries = std::fs::read_dir(directory).map_err(Failure::io(doing()))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(Failure::io(doing()))).collect()
}

/// A mode's name that lives as long as the program.
fn mode(name: &str) -> &'static str {
    ["write-through", "write-around", "pass-through"].into_iter().find(|known| *known == name).unwrap_or("write-back")
}

impl Stage {
    /// All of the data, unless the points say how much.
    fn lay_out_all(&mut self, plan: &Plan) -> Result<()> {
        let by_point = plan.definition.cases.iter().any(|case| case.vary == Some(Vary::Used));
        if by_point { Ok(()) } else { self.lay_out(u64::from(plan.definition.size)) }
    }

    /// Writes up to so many MiB of data, if they are missing.
    fn lay_out(&mut self, mib: u64) -> Result<()> {
        if mib > self.there {
            let mut lay_out = fio_load::lay_out_command(&self.file, self.there, mib);
            command::run("writing the data", &mut lay_out)?;
            self.there = mib;
        }
        Ok(())
    }

    /// Makes the pool dirty as the experiment wants it for each run, and has the data on flash.
    pub fn make_dirty(&self, plan: &Plan) -> Result<()> {
        let Some(dirty) = plan.definition.dirty else { return Ok(()) };
        command::run("making the pool dirty", &mut fio_load::dirty_command(&self.file.with_file_name(DIRTY), dirty))?;
        command::run("reading the data once", &mut fio_load::warm_command(&self.file, plan.definition.size))?;
        Ok(())
    }

    /// Begins the flush that runs beside the measured load, if the experiment says so.
    pub fn begin_flush(&self, plan: &Plan, visit: &Visit) -> Result<Option<u64>> {
        let variant = plan.sides[visit.side].variant.map(|variant| &plan.definition.variants[variant]);
        if !variant.is_some_and(|variant| variant.flush) {
            return Ok(None);
        }
        self.mount.as_ref().map(Mount::begin_flush).transpose()
    }

    /// What a run needs, and its command.
    pub fn command(&mut self, plan: &Plan, point: &Point, seed: u64) -> Result<Command> {
        let case = &plan.definition.cases[point.case];
        if let Some(server) = &self.server {
            let definition = &plan.definition;
            return Ok(match definition.load {
                Load::Tpcc => tpcc_load::command(definition, point, server, &self.script, seed),
                Load::Pgbench => pgbench_load::command(definition, case, point, server, seed),
                _ => oltp_load::command(definition, case, point, server, seed),
            });
        }
        self.lay_out(u64::from(plan.definition.size) * u64::from(point.used) / 100)?;
        let mut command = fio_load::command(&plan.definition.of_case(point.case), case, point, &self.file, seed);
        if case.rate.is_some() {
            fio_load::keep_requests(&mut command, &self.requests);
        }
        Ok(command)
    }

    /// What the requests of fio's last run waited that were due at a rate; none where there was no rate.
    pub fn waits(&self, plan: &Plan, point: &Point) -> Result<Option<Waits>> {
        let rate = plan.definition.cases[point.case].rate.filter(|_| plan.definition.load == Load::Fio);
        rate.map(|rate| Waits::read(&self.requests, point.threads, rate)).transpose()
    }

    /// The processors that it runs on, where those are not all.
    #[must_use]
    pub fn cores(&self) -> Option<&[usize]> {
        self.confined.as_ref().map(|confined| confined.numbers.as_slice())
    }

    /// Which of the load's consistency conditions the database breaks.
    pub fn inconsistencies(&self, plan: &Plan) -> Result<Vec<String>> {
        let Some(server) = &self.server else { return Ok(Vec::new()) };
        let mut check = tpcc_load::step(&plan.definition, server, &self.script, "check");
        let output = command::run("looking at the consistency conditions", &mut check)?;
        tpcc_load::broken(&output).map_err(Failure::Other)
    }

    /// The commands that set it up.
    #[must_use]
    pub fn commands(&self) -> &[(String, String)] {
        &self.commands
    }

    /// The mount, if there is one.
    #[must_use]
    pub fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// A path on the flash of a mount.
    #[must_use]
    pub fn flash(&self) -> Option<&Path> {
        self.places.get(1).map(TempDir::path)
    }

    /// A path on the device under it: of a mount, that of its origin.
    #[must_use]
    pub fn below(&self) -> PathBuf {
        self.places.first().map_or_else(|| self.file.clone(), |place| place.path().to_path_buf())
    }

    /// Takes it down. Nobody needs the data any more: nothing is written back.
    pub fn take_down(self) -> Result<()> {
        if let Some(server) = self.server {
            server.kill();
        }
        self.mount.map_or(Ok(()), Mount::unmount_keep_dirty)
    }
}
