//! What runs on what, in which order, how long it takes and how much it writes: known before anything starts.
//!
//! Invariant: sides take turns. The first repetition has them in order, the next in reverse (A B B A ...). So a
//! machine that becomes slower or faster favours no side.

use super::{Case, Definition, Kind, Load, Target, Vary};
use crate::failure::{Failure, Result};

/// A load with all its numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Which case it is of.
    pub case: usize,
    /// Its place on the axis, if there is one.
    pub x: Option<u32>,
    /// Threads of fio, clients of sysbench.
    pub threads: u32,
    /// Requests at once, of each thread.
    pub depth: u32,
    /// The size of a request in KiB.
    pub block: u32,
    /// The share of the data in use, in percent.
    pub used: u32,
}

/// A target with one of its variants.
#[derive(Clone, PartialEq, Debug)]
pub struct SideName {
    /// What it is called.
    pub name: String,
    /// Which target.
    pub target: usize,
    /// Which variant, if there are any.
    pub variant: Option<usize>,
    /// The side that it is compared with; itself if with none.
    pub against: usize,
}

/// One side in one repetition: it is set up, all its points are run, it is taken down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// Which side.
    pub side: usize,
    /// Which repetition, from 1.
    pub repetition: u32,
}

/// A plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What is run.
    pub definition: Definition,
    /// On what.
    pub targets: Vec<Target>,
    /// The sides that are compared. The first is what the others are compared with.
    pub sides: Vec<SideName>,
    /// All loads.
    pub points: Vec<Point>,
    /// The order.
    pub visits: Vec<Visit>,
}

/// Setting up a side and taking it down, without the data.
const SET_UP_SECONDS: u64 = 4;
/// What a run takes beside its time.
const RUN_SECONDS: u64 = 2;
/// A database besides: to start it and to make its tables' copy durable.
const DATABASE_SECONDS: u64 = 12;
/// How fast data is laid out: what a slow network volume takes.
const LAY_OUT_MIB: u64 = 100;
/// A guest besides: to start it, to verify what it wrote, and to bring that to the origin.
const GUEST_SECONDS: u64 = 14;
/// A modelled run computes.
const MODEL_SECONDS: u64 = 1;

impl Plan {
    /// Puts an experiment and targets together.
    pub fn of(definition: Definition, targets: Vec<Target>) -> Result<Self> {
        let sides = sides(&definition, &targets);
        let points = definition.cases.iter().enumerate().flat_map(|(index, case)| points(index, case)).collect();
        let visits = (1..=definition.repeats)
            .flat_map(|repetition| {
                let order: Vec<usize> =
                    if repetition % 2 == 1 { (0..sides.len()).collect() } else { (0..sides.len()).rev().collect() };
                order.into_iter().map(move |side| Visit { side, repetition })
            })
            .collect();
        let plan = Self { definition, targets, sides, points, visits };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<()> {
        for (index, side) in self.sides.iter().enumerate() {
            if self.sides[..index].iter().any(|other| other.name == side.name) {
                return Err(Failure::Other(format!(
                    "two targets are called '{}': give them names, as in --target a=... --target b=...",
                    side.name
                )));
            }
        }
        for target in &self.targets {
            let fits = match &target.kind {
                Kind::Card(_) => {
                    self.definition.load == Load::Fio
                        && self.definition.variants.is_empty()
                        && self.definition.cases.iter().all(|case| case.rw.as_deref() == Some("randwrite"))
                }
                Kind::Device(_) => self.definition.load == Load::Fio,
                Kind::Guest(_) => {
                    self.definition.load == Load::Fio
                        && self.definition.variants.is_empty()
                        && self.definition.write_limit.is_none()
                        && self.definition.cases.iter().all(|case| case.rate.is_none())
                }
                Kind::Directory(_) | Kind::Flash | Kind::Throttled(_) => {
                    self.definition.variants.iter().all(|variant| variant.headpond.is_empty() || variant.mount_only)
                }
                Kind::Headpond(_) => true,
            };
            if !fits || self.definition.dirty.is_some() && !matches!(target.kind, Kind::Headpond(_)) {
                return Err(Failure::Other(format!(
                    "the experiment '{}' cannot be run on {}",
                    self.definition.name,
                    target.describe()
                )));
            }
        }
        Ok(())
    }

    /// Which point of a visit has which number, from 1.
    #[must_use]
    pub fn number(&self, visit: usize, point: usize) -> u32 {
        (visit * self.points.len() + point + 1) as u32
    }

    /// Runs in all.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.visits.len() * self.points.len()
    }

    /// What a point is called.
    #[must_use]
    pub fn title(&self, point: usize) -> String {
        let point = &self.points[point];
        let case = &self.definition.cases[point.case];
        match (case.vary, point.x) {
            (Some(Vary::Used), Some(x)) => format!("{}, {x} % used", case.name),
            (Some(Vary::Block), Some(x)) => format!("{}, {x} KiB", case.name),
            (Some(vary), Some(x)) => format!("{}, {x} {}", case.name, vary.title()),
            _ => case.name.clone(),
        }
    }

    /// The experiment as it is for a point, whose case may have times of its own.
    #[must_use]
    pub fn at(&self, point: usize) -> Definition {
        self.definition.of_case(self.points[point].case)
    }

    fn modelled(&self, visit: &Visit) -> bool {
        matches!(self.targets[self.sides[visit.side].target].kind, Kind::Card(_))
    }

    fn in_guest(&self, visit: &Visit) -> bool {
        matches!(self.targets[self.sides[visit.side].target].kind, Kind::Guest(_))
    }

    fn load_seconds(&self, point: usize) -> u32 {
        let definition = self.at(point);
        definition.warmup + definition.seconds
    }

    /// How many seconds a visit takes beside its runs.
    #[must_use]
    pub fn set_up_seconds(&self, visit: &Visit) -> u64 {
        if self.modelled(visit) || self.in_guest(visit) {
            return 0;
        }
        let database = if self.definition.load.on_database() { DATABASE_SECONDS } else { 0 };
        SET_UP_SECONDS + database + self.laid_out_mib() / LAY_OUT_MIB
    }

    /// MiB of data laid out in each visit.
    fn laid_out_mib(&self) -> u64 {
        u64::from(self.definition.size) + self.definition.dirty.map_or(0, |dirty| u64::from(dirty.over))
    }

    /// How many seconds the run of a point takes in a visit.
    #[must_use]
    pub fn run_seconds(&self, visit: &Visit, point: usize) -> u64 {
        if self.modelled(visit) {
            return MODEL_SECONDS;
        }
        let dirty = self.definition.dirty.map_or(0, |dirty| u64::from(dirty.written) / LAY_OUT_MIB);
        let guest = if self.in_guest(visit) { GUEST_SECONDS } else { 0 };
        u64::from(self.load_seconds(point)) + dirty + RUN_SECONDS + guest
    }

    /// How many seconds all of it takes.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let runs = |visit: &Visit| (0..self.points.len()).map(|point| self.run_seconds(visit, point)).sum::<u64>();
        let visit = |visit: &Visit| self.set_up_seconds(visit) + runs(visit);
        self.visits.iter().map(visit).sum()
    }

    /// What is written: MiB of data laid out, and seconds in which loads write.
    #[must_use]
    pub fn written(&self) -> (u64, u64) {
        let visits = self.visits.iter().filter(|visit| !self.modelled(visit)).count() as u64;
        let case = |point: &Point| &self.definition.cases[point.case];
        let writes = |point: &Point| {
            case(point).rw.as_deref().is_none_or(|rw| !rw.ends_with("read"))
                && case(point).script.as_deref() != Some("oltp_read_only")
        };
        let writing = (0..self.points.len()).filter(|point| writes(&self.points[*point]));
        let seconds: u64 = writing.map(|point| u64::from(self.load_seconds(point))).sum();
        let dirty = self.definition.dirty.map_or(0, |dirty| u64::from(dirty.written)) * self.points.len() as u64;
        (visits * (self.laid_out_mib() + dirty), visits * seconds)
    }

    /// How long a run counts, and what comes before, of each case that has times of its own.
    #[must_use]
    pub fn times(&self) -> String {
        let of = |definition: &Definition| {
            format!("{} s that count and {} s of warm-up", definition.seconds, definition.warmup)
        };
        let own = |case: &(usize, &Case)| case.1.seconds.is_some() || case.1.warmup.is_some();
        let cases = self.definition.cases.iter().enumerate();
        let own: Vec<String> = cases
            .filter(own)
            .map(|(index, case)| format!("{}: {}", case.name, of(&self.definition.of_case(index))))
            .collect();
        let own = if own.is_empty() { String::new() } else { format!(" ({})", own.join("; ")) };
        format!("{} in each{own}", of(&self.definition))
    }

    /// The plan in words, before anything starts.
    #[must_use]
    pub fn introduction(&self) -> String {
        let definition = &self.definition;
        let mut text = format!("{}: {}\n{}\n\n", definition.name, definition.title, definition.question);
        for side in &self.sides {
            let target = &self.targets[side.target];
            let variant = side.variant.map(|variant| &definition.variants[variant]);
            let settings: Vec<&str> = variant
                .iter()
                .flat_map(|variant| variant.headpond.iter().chain(variant.of_database(definition.database)))
                .map(String::as_str)
                .collect();
            let settings =
                settings.into_iter().chain(variant.filter(|variant| variant.flush).map(|_| "headpond flush"));
            let cores = variant.and_then(|variant| variant.cores).map(|cores| format!("on {cores} processors"));
            let settings: Vec<&str> = settings.chain(cores.as_deref()).collect();
            let settings = if settings.is_empty() { String::new() } else { format!(" ({})", settings.join(" ")) };
            text += &format!("  {:<24} {}{settings}\n", side.name, target.describe());
        }
        let (data, writing) = self.written();
        if let Some(limit) = definition.write_limit {
            text += &format!("\nThe lab's flash takes at most {limit} MB of writes a second.\n");
        }
        text += &format!(
            "\n{} runs ({} loads, {} sides, {} times each, taking turns), {}.\n\
             About {}. Written: {data} MiB of data, and what the loads write in {writing} s: {} MiB for each 100 MiB/s that the storage takes.",
            self.runs(),
            self.points.len(),
            self.sides.len(),
            definition.repeats,
            definition.round.map_or_else(
                || self.times(),
                |round| format!(
                    "{} s in each, of which those count after it settled, by rounds of {round} s",
                    definition.seconds
                )
            ),
            duration(self.seconds()),
            writing * 100,
        );
        text
    }
}

/// A time for people.
#[must_use]
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Each target with each of the variants that are for it.
fn sides(definition: &Definition, targets: &[Target]) -> Vec<SideName> {
    let variants = &definition.variants;
    let mut sides: Vec<SideName> = Vec::new();
    for (target, of) in targets.iter().enumerate() {
        if variants.is_empty() {
            sides.push(SideName { name: of.name.clone(), target, variant: None, against: 0 });
        }
        let mounted = matches!(of.kind, Kind::Headpond(_));
        for (index, variant) in variants.iter().enumerate().filter(|(_, variant)| mounted || !variant.mount_only) {
            let one = targets.len() == 1;
            let name = if one { variant.name.clone() } else { format!("{}, {}", of.name, variant.name) };
            sides.push(SideName { name, target, variant: Some(index), against: 0 });
        }
    }
    for side in 0..sides.len() {
        let named = sides[side].variant.and_then(|variant| variants[variant].against.as_ref());
        let other = named.and_then(|name| variants.iter().position(|other| other.name == *name));
        let of_target = |found: &SideName| found.target == sides[side].target && found.variant == other;
        sides[side].against = other.and_then(|_| sides.iter().position(of_target)).unwrap_or(0);
    }
    sides
}

fn points(index: usize, case: &Case) -> Vec<Point> {
    let point = Point {
        case: index,
        x: None,
        threads: case.threads.unwrap_or(1),
        depth: case.depth.unwrap_or(1),
        block: case.block.unwrap_or(0),
        used: 100,
    };
    let Some(vary) = case.vary else { return vec![point] };
    let at = |value: &u32| {
        let mut point = Point { x: Some(*value), ..point.clone() };
        match vary {
            Vary::Threads => point.threads = *value,
            Vary::Depth => point.depth = *value,
            Vary::Block => point.block = *value,
            Vary::Used => point.used = *value,
        }
        point
    };
    case.values.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, targets: &[&str]) -> Result<Plan> {
        let targets = targets.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>>>()?;
        Plan::of(Definition::find(name)?, targets)
    }

    #[test]
    fn sides_take_turns() {
        let plan = plan("profiles", &["a=/a", "b=/b", "c=/c"]).unwrap();
        let order: Vec<usize> = plan.visits.iter().map(|visit| visit.side).collect();
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]);
        assert_eq!((plan.runs(), plan.number(2, 1)), (48, 10));
    }

    #[test]
    fn variants_are_sides_of_every_target() {
        let names = |plan: Plan| plan.sides.into_iter().map(|side| side.name).collect::<Vec<_>>();
        assert_eq!(names(plan("untorn", &["headpond"]).unwrap()), ["doublewrite on", "doublewrite off"]);
        assert_eq!(
            names(plan("untorn", &["a=headpond", "b=/b"]).unwrap()),
            ["a, doublewrite on", "a, doublewrite off", "b, doublewrite on"],
            "off is for mounts"
        );
        let off = plan("untorn", &["b=/b", "a=headpond"]).unwrap();
        assert_eq!(off.sides.iter().map(|side| side.against).collect::<Vec<_>>(), [0, 0, 1]);
    }

    #[test]
    fn a_side_is_compared_with_the_variant_that_it_names_on_its_own_target() {
        let of = |targets: &[&str]| {
            let plan = plan("thresholds", targets).unwrap();
            plan.sides.iter().map(|side| side.against).collect::<Vec<_>>()
        };
        assert_eq!(of(&["a=headpond"]), [0, 0, 0, 2], "by age against threshold only, each at its threshold");
        assert_eq!(of(&["a=headpond", "b=headpond"]), [0, 0, 0, 2, 0, 4, 0, 6]);
        assert_eq!(plan("fill", &["a=/a", "b=/b"]).unwrap().sides[1].against, 0);
    }

    #[test]
    fn what_cannot_be_run_is_refused_before_it_starts() {
        for (name, targets) in [
            ("oltp", vec!["model:tachion"]),
            ("sweep", vec!["model:tachion"]),
            ("oltp", vec!["/dev/sdz"]),
            ("thresholds", vec!["/plain"]),
            ("flush", vec!["/plain"]),
            ("fill", vec!["a=/a", "a=/b"]),
            ("oltp", vec!["guest:none"]),
            ("pace", vec!["guest:headpond"]),
        ] {
            assert!(plan(name, &targets).is_err(), "{name} on {targets:?}");
        }
        assert!(plan("fill", &["model:tachion", "model:iodrive-duo"]).is_ok());
    }

    #[test]
    fn cases_with_times_of_their_own_count_with_those() {
        let plan = plan("kernel-caches", &["guest:none", "guest:headpond"]).unwrap();
        let loads = [240 + 120, 180, 60 + 120, 10 + 60];
        let visit: u64 = loads.iter().map(|load| load + 2 + 14).sum();
        assert_eq!(plan.seconds(), 2 * 4 * visit);
        let text = plan.introduction();
        assert!(text.contains("reads, cold: 180 s that count and 0 s of warm-up"), "{text}");
    }

    #[test]
    fn time_and_bytes_are_told_before_the_start() {
        let flush = plan("flush", &["headpond"]).unwrap();
        let seconds = u64::from(flush.definition.warmup + flush.definition.seconds) + 3 + 2;
        assert_eq!(flush.seconds(), 8 * (flush.points.len() as u64 * seconds + 4 + (128 + 3072) / 100));
        assert!(flush.introduction().contains("headpond flush)"), "{}", flush.introduction());
        let plan = plan("profiles", &["a=/a", "b=/b"]).unwrap();
        // 8 visits of 4 runs of 122 s, and 44 s to set each up.
        assert_eq!(plan.seconds(), 8 * (4 * 122 + 44));
        // 8 times 4 GiB; two of the four loads write.
        assert_eq!(plan.written(), (8 * 4096, 8 * 2 * 120));
        let text = plan.introduction();
        assert!(text.contains("32 runs") && text.contains("71 min") && text.contains("32768 MiB"), "{text}");
        assert_eq!([duration(119), duration(3600), duration(7300)], ["119 s", "60 min", "2 h 1 min"]);
    }
}
