//! The main job, shown: one database and one load, on the bare slow directory and on the same directory with headpond
//! in front.
//!
//! Invariants:
//! - Both sides have the same data, server, settings and load. With the modelled disk both go through headpond, one
//!   in pass-through mode, so that the model and the price of FUSE are the same for both.
//! - The clock alone decides what counts, before anything runs: the warm-up of each side is dropped, and shown
//!   shaded.

mod chart;
mod kills;
pub(crate) mod machine;
mod page;
mod plan;
mod progress;
mod side;
mod storage;
mod table;

use crate::failure::{Failure, Result};
use crate::mariadb::{self, Server};
use crate::pond::Headpond;
use crate::sysbench;
pub use plan::{Extras, Options, QUICK, SECONDS, WARMUP};
use plan::{Plan, Step};
use progress::DemoProgress;
use side::{After, Side};
use std::path::Path;
use storage::{Front, Storage};

/// Everything that the table and the page tell.
struct Outcome {
    plan: Plan,
    storage: String,
    without: Side,
    with: Side,
    after: After,
    versions: Vec<(&'static str, String)>,
}

/// How it is called on the command line.
pub const NAME: &str = "demo";
/// What it is, in a line.
pub const TITLE: &str = "MariaDB on a slow directory, without headpond and with it, and the data back on the origin";
/// What it answers.
pub const QUESTION: &str =
    "How much faster is the database, and is the origin complete by itself once headpond is taken away?";

/// What would be done.
pub fn introduction(options: &Options) -> Result<String> {
    Ok(Plan::of(options)?.introduction(&Storage::planned(options)))
}

/// How long it takes, in seconds.
#[must_use]
pub fn seconds(seconds: u32, warmup: u32) -> u64 {
    Plan::lasting(seconds, warmup).expected_in_all().as_secs()
}

/// Runs the demo.
pub fn run(options: &Options) -> Result<()> {
    let plan = Plan::of(options)?;
    let headpond = Headpond::beside_this_program()?;
    let versions = vec![
        ("headpond", headpond.version()?),
        ("MariaDB", mariadb::version()?),
        ("sysbench", sysbench::version()?),
        ("machine", machine::describe()),
    ];
    let storage = Storage::set_up(options)?;
    let mut progress = DemoProgress::new(&plan, options.elapsed);

    println!("{}", plan.introduction(&storage.describe()));
    prepare(&plan, &storage, &mut progress)?;
    if options.kill {
        let kills = kills::run(&plan, &storage, &headpond, &mut progress)?;
        progress.end();
        println!("\n{}", kills.text());
        write_page(&options.page, &kills.html(&plan, &storage.describe(), &versions))?;
        return storage.clean_up(options.keep);
    }

    progress.begin(Step::CopyWithout);
    storage.restore()?;
    progress.begin(Step::RunWithout);
    let front = storage.front(&headpond, Front::Without)?;
    let (without, _) = side::run(&plan, &storage, front, side::Ending::Discard, &mut progress)?;

    progress.begin(Step::CopyWith);
    storage.restore()?;
    progress.begin(Step::RunWith);
    let front = storage.front(&headpond, Front::With)?;
    let (with, after) = side::run(&plan, &storage, front, side::Ending::Keep, &mut progress)?;
    progress.end();

    let outcome = Outcome { storage: storage.describe(), plan, without, with, after, versions };
    println!("\n{}", table::text(&outcome));
    write_page(&options.page, &page::html(&outcome))?;
    storage.clean_up(options.keep)
}

fn write_page(page: &Path, html: &str) -> Result<()> {
    let directory = page.parent().filter(|directory| !directory.as_os_str().is_empty());
    if let Some(directory) = directory {
        std::fs::create_dir_all(directory).map_err(Failure::io(format!("making {}", directory.display())))?;
    }
    std::fs::write(page, html).map_err(Failure::io(format!("writing {}", page.display())))?;
    println!("\nThe same over time: {}", page.canonicalize().unwrap_or(page.to_path_buf()).display());
    Ok(())
}

/// Loads the tables once, on the machine's own disk.
fn prepare(plan: &Plan, storage: &Storage, progress: &mut DemoProgress) -> Result<()> {
    progress.begin(Step::Load);
    let data = storage.prepared();
    mariadb::install(&data)?;
    let server = Server::start(&data, &storage.run_directory(), &plan.loading)?;
    server.create_database()?;
    plan.load.prepare(server.socket())?;
    server.stop()
}
