//! How far a load is from the limit of its storage, if its processors ran out first. You need this calculation when
//! you measure a fast device with too few processors.
//!
//! It rests on an assumption, and shows it: an operation costs the same processor time and device time however many
//! run at once. If sides with different numbers of processors were measured, the report also says how wrong that was
//! between them.

use super::judge::{PROCESSORS_FULL, SessionJudgement};
use super::{Plan, Record};
use headpond_measure::Summary;

/// Below so much a device's share of the time is too rough to divide by.
const DEVICE_LEAST: f64 = 0.02;

/// What ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The processors that the side had.
    Processors,
    /// The device under it.
    Device,
    /// Neither: answers were waited for, or locks.
    Neither,
}

/// A side at its best.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Extrapolation {
    /// Which side.
    pub side: usize,
    /// The point at which it did most.
    pub point: usize,
    /// Operations a second there.
    pub throughput: f64,
    /// Processors that it had.
    pub cores: f64,
    /// Processors that were at work, on average.
    pub busy: f64,
    /// The share of the time in which the device had something to do; none where there is no such counter.
    pub device: Option<f64>,
    /// What ran out.
    pub limit: Limit,
    /// A processor's time for each operation, in milliseconds.
    pub cost_ms: f64,
    /// By how much that differs from the side of the same target with the fewest processors, as a share.
    pub cost_change: Option<f64>,
    /// Processors at work with which the device would be full, and operations a second then. None where it is not the
    /// processors that ran out, or the device had too little to do to tell.
    pub full: Option<(f64, f64)>,
}

/// Whether an experiment asks for it: where processors are varied.
#[must_use]
pub fn wanted(plan: &Plan) -> bool {
    plan.definition.variants.iter().any(|variant| variant.cores.is_some())
}

/// One for each case and side with runs, in the order of cases.
#[must_use]
pub fn extrapolate(plan: &Plan, records: &[Record], judgement: &SessionJudgement) -> Vec<Extrapolation> {
    if !wanted(plan) {
        return Vec::new();
    }
    let mut found: Vec<Extrapolation> = Vec::new();
    for case in 0..plan.definition.cases.len() {
        let of_case: Vec<Extrapolation> =
            (0..plan.sides.len()).filter_map(|side| best(plan, records, judgement, case, side)).collect();
        let changed = |one: &Extrapolation| {
            let target = plan.sides[one.side].target;
            let fewest = of_case
                .iter()
                .filter(|other| plan.sides[other.side].target == target && other.cores < one.cores)
                .min_by(|a, b| a.cores.total_cmp(&b.cores))?;
            Some(one.cost_ms / fewest.cost_ms - 1.0)
        };
        found.extend(of_case.iter().map(|one| Extrapolation { cost_change: changed(one), ..*one }));
    }
    found
}

fn best(
    plan: &Plan,
    records: &[Record],
    judgement: &SessionJudgement,
    case: usize,
    side: usize,
) -> Option<Extrapolation> {
    let points = (0..plan.points.len()).filter(|point| plan.points[*point].case == case);
    let (point, throughput) = points
        .filter_map(|point| {
            let cell = judgement.cells[point].iter().find(|cell| cell.side == side)?;
            Some((point, cell.summary.median))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, throughput)| *throughput > 0.0)?;
    let runs: Vec<&Record> = records.iter().filter(|record| record.point == point && record.side == side).collect();
    let mean = |value: &dyn Fn(&Record) -> Option<f64>| {
        let values: Vec<f64> = runs.iter().filter_map(|record| value(record)).collect();
        Summary::of(&values).map(|summary| summary.mean)
    };
    let cores = mean(&|record| (record.cores > 0).then(|| f64::from(record.cores)))?;
    let share = mean(&|record| record.machine(|system| Some(system.user + system.system)))?;
    let device = mean(&|record| record.machine(|system| system.device_busy));
    let busy = share * cores;
    let limit = if share >= PROCESSORS_FULL {
        Limit::Processors
    } else if device.is_some_and(|device| device >= super::judge::DEVICE_FULL) {
        Limit::Device
    } else {
        Limit::Neither
    };
    let full = device
        .filter(|device| limit == Limit::Processors && *device >= DEVICE_LEAST)
        .map(|device| (busy / device, throughput / device));
    let cost_ms = busy / throughput * 1000.0;
    Some(Extrapolation { side, point, throughput, cores, busy, device, limit, cost_ms, cost_change: None, full })
}

#[cfg(test)]
mod tests {
    use super::super::judge::judge;
    use super::super::{Definition, Figures, System, Target};
    use super::*;

    fn run(side: usize, point: usize, cores: u32, throughput: f64, share: f64, device: f64) -> Record {
        let system = System { at: 1.0, user: share, device_busy: Some(device), ..System::default() };
        let figures = Figures { throughput, ..Figures::default() };
        Record { side, point, cores, figures, system: vec![system], ..Record::blank() }
    }

    fn found(records: &[Record]) -> Vec<Extrapolation> {
        let plan = Plan::of(Definition::find("limit").unwrap(), vec![Target::parse("a=/a").unwrap()]).unwrap();
        extrapolate(&plan, records, &judge(&plan, records, 1))
    }

    /// The published calculation: 31.4 threads of processors drove the device to 60 %, so about 53 would fill it.
    #[test]
    fn processors_that_drive_the_device_to_60_percent_are_extrapolated_to_all_of_it() {
        let found = found(&[run(0, 0, 8, 100.0, 0.5, 0.2), run(0, 1, 32, 600.0, 31.4 / 32.0, 0.6)]);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.point, one.limit), (1, Limit::Processors));
        let (cores, throughput) = one.full.unwrap();
        assert!((cores - 52.3).abs() < 0.1 && (throughput - 1000.0).abs() < 1e-6, "{cores} {throughput}");
        assert!((one.cost_ms - 31.4 / 600.0 * 1000.0).abs() < 1e-9);
    }

    #[test]
    fn where_the_processors_did_not_run_out_nothing_is_extrapolated() {
        let waiting = found(&[run(0, 0, 2, 100.0, 0.3, 0.4)]);
        assert_eq!((waiting[0].limit, waiting[0].full), (Limit::Neither, None));
        let full = found(&[run(0, 0, 2, 100.0, 0.3, 0.95)]);
        assert_eq!((full[0].limit, full[0].full), (Limit::Device, None));
        // And a device that has next to nothing to do is nothing to divide by.
        assert_eq!(found(&[run(0, 0, 2, 100.0, 0.99, 0.01)])[0].full, None);
    }

    #[test]
    fn how_far_the_assumption_was_off_is_what_an_operation_cost_with_more_processors() {
        let found = found(&[run(0, 0, 1, 100.0, 1.0, 0.1), run(1, 0, 4, 320.0, 1.0, 0.3)]);
        let changes: Vec<_> = found.iter().map(|one| one.cost_change.map(|change| (change * 100.0).round())).collect();
        assert_eq!(changes, [None, Some(25.0)]);
    }
}
