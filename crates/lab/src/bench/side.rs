//! A mount by each backend, and what the runs on it showed.

use std::path::{Path, PathBuf};

use headpond_device::Backend;

use super::Outcome;
use super::backend::{self, BACKENDS};
use super::fio::{self, Target as On};
use super::plan::{DATA, Plan};
use super::pond::Mount;
use super::table::Line;

/// One mount, with the file that is read and written on it.
pub struct Side {
    backend: Backend,
    mount: Mount,
    file: PathBuf,
    rates: Vec<f64>,
    /// Processor seconds of the daemon for a million requests.
    costs: Vec<f64>,
}

/// The rounds of one work on one mount, in the order of the rounds.
pub struct Rounds {
    work: String,
    rates: Vec<f64>,
    costs: Vec<f64>,
}

impl Side {
    /// A mount by each backend, with new pools and empty origins.
    pub fn empty(plan: &Plan, name: &str, size: &str) -> Outcome<Vec<Self>> {
        let start = |backend| {
            let mount = plan.mount_by(backend, name, size)?;
            let file = mount.file("data");
            Ok(Self { backend, mount, file, rates: Vec::new(), costs: Vec::new() })
        };
        BACKENDS.into_iter().map(start).collect()
    }

    /// The same with the file written once, and its blocks clean.
    pub fn filled(plan: &Plan, name: &str, size: &str) -> Outcome<Vec<Self>> {
        let sides = Self::empty(plan, name, size)?;
        for side in &sides {
            fio::fill(&side.file, DATA, false)?;
            side.mount.flush()?;
        }
        Ok(sides)
    }

    /// The file, seen through the mount.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Runs a job on the file, and keeps what it showed.
    pub fn run(&mut self, plan: &Plan, job: &[&[&str]]) -> Outcome<()> {
        let before = self.mount.processor_seconds();
        let run = plan.fio(&On::File(&self.file), job)?;
        self.rates.push(run.rate);
        self.costs.push(run.cost_of(self.mount.processor_seconds() - before));
        Ok(())
    }

    /// Takes the rounds that were run, as those of a work.
    pub fn take(&mut self, work: &str) -> Rounds {
        let (rates, costs) = (std::mem::take(&mut self.rates), std::mem::take(&mut self.costs));
        Rounds { work: backend::work(self.backend, work), rates, costs }
    }
}

impl Rounds {
    /// The rate against another one.
    pub fn ratio(&self, figure: &'static str, other: &[f64], target: f64) -> Line {
        Line::ratio(&self.work, figure, self.rates.clone(), other.to_vec(), target)
    }

    /// What it cost beside fio on the raw file.
    pub fn processor(&self, fio: &[f64]) -> Line {
        Line::processor(&self.work, self.costs.clone(), fio.to_vec())
    }
}
