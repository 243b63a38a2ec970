//! Kills the daemon under load, on an origin: databases, and a writer that hardly ever syncs.

use super::host::{FileSystem, ROOMY_MIB};
use super::{Options, TriedOrigin};
use crate::failure::Result;
use crate::kill::{self, FlashAtKill};
use crate::order;
use crate::pond::{Headpond, Mounting, directory_in};
use std::path::Path;

/// Runs the kills, and tells what came of them.
pub fn run(headpond: &Headpond, place: &Path, origin: TriedOrigin, options: &Options) -> Result<String> {
    let fs = FileSystem::make(origin, place, ROOMY_MIB)?;
    let (mut kills, mut commits) = (0_u64, 0_u64);
    for kind in &options.databases {
        let name = format!("{kind:?}");
        let [storage, scratch] = [directory_in(fs.path(), &name)?, directory_in(place, &name)?];
        let rounds = kill::Options {
            kind: *kind,
            rounds: options.kills,
            seed: options.seed,
            flash: FlashAtKill::EveryOtherLoses,
            slow_origin: false,
            short: false,
        };
        kill::run_on(headpond, &storage, &scratch, &rounds, |round| {
            kills += 1 + round.killed_starting;
            commits += round.committed;
        })?;
    }
    let [storage, scratch] = [directory_in(fs.path(), "order")?, directory_in(place, "order")?];
    let (mut writes, mut synced) = (0, 0);
    let mounting = Mounting::on(&storage, &scratch, "96M")?;
    order::run_with(headpond, mounting, options.kills, options.seed, FlashAtKill::EveryOtherLoses, |round| {
        kills += 1;
        writes += round.acknowledged;
        synced += round.synced;
    })?;
    let databases: Vec<_> = options.databases.iter().map(|kind| kind.name()).collect();
    Ok(format!(
        "{kills} kills; {commits} commits in {}, none lost; of {writes} writes, {synced} of them synced, a prefix each time",
        databases.join(", ")
    ))
}
