//! A database under its clients and a load, over the deaths of many workers.

use super::killer::Killer;
use super::{Finished, Options, Pauses, failed};
use crate::database_on_mount::DatabaseOnMount;
use crate::failure::Result;
use crate::kind::Kind;
use crate::loaded_database::disturb;
use crate::pond::Headpond;
use std::path::Path;

pub(super) fn run(headpond: &Headpond, directory: &Path, kind: Kind, options: &Options) -> Result<Pauses> {
    let place = DatabaseOnMount::make(directory, directory, kind)?;
    let ((kills, during_upgrades, upgrades), served) = disturb(
        headpond,
        &place,
        |mount, look| {
            let mut killer = Killer::new(mount, options);
            killer.run(options.kills, look)?;
            Ok((killer.kills(), killer.during_upgrades(), killer.upgrades()))
        },
        |mount, (kills, _, upgrades)| {
            let all_were_killed = mount.lives()?.takeovers == kills + upgrades;
            if all_were_killed { Ok(()) } else { Err(failed("a worker ended by itself, after the last kill")) }
        },
    )?;
    let (done, longest) = (Finished::Transactions(served.transactions), Some(served.longest));
    Ok(Pauses { kills, during_upgrades, upgrades, done, longest })
}
