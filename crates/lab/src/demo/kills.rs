//! The load on headpond while the process that serves is killed every five seconds. Nothing else is started again.
//!
//! Invariant: there is no page after an error. A client's error ends the load, and the server's log is read at the
//! end.

use super::chart::{Chart, ChartCurve, Scale};
use super::page::{self, SCRIPT, STYLE, escape};
use super::plan::{Plan, Step, TABLES_MIB};
use super::progress::DemoProgress;
use super::side::{self, After, Ending};
use super::storage::{Front, Storage};
use super::table::short;
use crate::command;
use crate::failure::{Failure, Result};
use crate::mariadb::Server;
use crate::pond::Headpond;
use crate::server_errors::ServerErrors;
use crate::sysbench::{Second, SysbenchTotals};

const TEMPLATE: &str = include_str!("kills.html");
/// Seconds from one kill to the next. The first comes so long after the warm-up.
const EVERY: u32 = 5;

/// What was seen.
pub(super) struct Kills {
    seconds: Vec<Second>,
    /// When the process was killed, in seconds of the load.
    kills: Vec<f64>,
    totals: SysbenchTotals,
    commands: String,
    after: After,
}

/// Runs the load.
pub(super) fn run(plan: &Plan, storage: &Storage, headpond: &Headpond, progress: &mut DemoProgress) -> Result<Kills> {
    progress.begin(Step::CopyWith);
    storage.restore()?;
    progress.begin(Step::RunWith);
    let stage = storage.front(headpond, Front::With)?;
    let mount = stage.mount.as_ref().ok_or_else(|| Failure::Other("there is no mount to kill".to_owned()))?;
    let server = Server::start(&stage.data, &storage.run_directory(), &plan.settings)?;
    let errors = ServerErrors::from_now_on(&storage.run_directory())?;
    let sysbench = plan.load.run_command(server.socket(), plan.warmup, plan.seconds);
    let commands = format!(
        "# MariaDB\n{}\n# sysbench\n{}\n# headpond\n{}\n",
        server.typed(),
        command::typed(&sysbench),
        mount.typed()
    );
    let (mut seconds, mut kills, mut last) = (Vec::new(), Vec::new(), None);
    let totals = plan.load.start(sysbench)?.follow(|second| {
        let at = second.at.round() as u32;
        // A process that the holder has not missed yet cannot be killed again.
        if plan.kills_at(at)
            && let Some(killed) = mount.kill_worker().filter(|killed| last != Some(*killed))
        {
            last = Some(killed);
            kills.push(second.at);
        }
        seconds.push(second);
        let all = plan.warmup + plan.seconds;
        progress.note(&format!("{at} of {all} s, {:.0} transactions/s, {} kills", second.tps, kills.len()));
        Ok(())
    })?;
    errors.none()?;
    let takeovers = mount.lives()?.takeovers;
    if takeovers != kills.len() as u64 {
        return Err(Failure::Other(format!("{takeovers} processes took over after {} kills", kills.len())));
    }
    let after = side::end(plan, storage, stage, server, Ending::Keep, progress)?;
    Ok(Kills { seconds, kills, totals, commands, after })
}

impl Plan {
    /// Whether a kill is due. The last one is early enough for another process to take over.
    const fn kills_at(&self, second: u32) -> bool {
        second > self.warmup
            && second + EVERY <= self.warmup + self.seconds
            && (second - self.warmup).is_multiple_of(EVERY)
    }
}

impl Kills {
    /// What came of it, in a line.
    pub(super) fn text(&self) -> String {
        format!(
            "No error, {} kills, longest pause {:.2} s, {} transactions per second. On the origin alone, {} tables are whole.",
            self.kills.len(),
            self.totals.max_ms / 1e3,
            short(self.totals.tps),
            self.after.tables_checked
        )
    }

    /// The page.
    pub(super) fn html(&self, plan: &Plan, storage: &str, versions: &[(&'static str, String)]) -> String {
        let charts = self.charts(plan);
        let tile = |label: &str, value: String, unit: &str| {
            format!(
                "<div class=\"tile\"><div class=\"label\">{label}</div><span class=\"with big\">{value}</span> \
                 <span class=\"unit\">{unit}</span></div>\n"
            )
        };
        let settings: Vec<String> =
            versions.iter().map(|(name, version)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(version))).collect();
        let parts = [
            ("{{STYLE}}", STYLE.to_owned()),
            ("{{SCRIPT}}", SCRIPT.to_owned()),
            (
                "{{SUMMARY}}",
                format!(
                    "sysbench <code>oltp_read_write</code>, {} clients, {TABLES_MIB} MiB of tables, {} MiB buffer pool. {} After \
                     {} s of warm-up the process that serves is killed every {EVERY} s. The database and its clients run \
                     on. The longest pause is sysbench's longest transaction.",
                    plan.load.threads,
                    plan.settings.buffer_pool_mib,
                    escape(storage),
                    plan.warmup
                ),
            ),
            (
                "{{TILES}}",
                tile("errors", "0".to_owned(), "")
                    + &tile("kills", self.kills.len().to_string(), "")
                    + &tile("longest pause", format!("{:.2}", self.totals.max_ms / 1e3), "s")
                    + &tile("transactions per second", short(self.totals.tps), ""),
            ),
            ("{{CHARTS}}", charts.iter().map(page::figure).collect()),
            ("{{RETURN}}", escape(&self.text())),
            ("{{SETTINGS}}", settings.concat()),
            ("{{COMMANDS}}", escape(&self.commands)),
            ("{{POINTS}}", page::points(&charts)),
        ];
        page::filled(TEMPLATE, &parts)
    }

    fn charts(&self, plan: &Plan) -> [Chart; 2] {
        let chart = |id, title, unit, scale, height, points| Chart {
            id,
            title,
            unit,
            scale,
            height,
            curves: vec![ChartCurve { name: "with headpond", class: "with", points, averages: Vec::new() }],
            warmup: f64::from(plan.warmup),
            seconds: f64::from(plan.warmup + plan.seconds),
            marks: self.kills.clone(),
        };
        let told = |second: &&Second| second.p95_ms > 0.0;
        [
            chart("tps", "Transactions per second; dashed: a kill", "", Scale::Linear, 300.0, {
                self.seconds.iter().map(|second| (second.at, second.tps)).collect()
            }),
            chart("latency", "Latency, 95th percentile of each second (logarithmic)", "ms", Scale::Log, 240.0, {
                self.seconds.iter().filter(told).map(|second| (second.at, second.p95_ms)).collect()
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_begin_after_the_warm_up_and_leave_time_for_the_last_take_over() {
        let plan = Plan::lasting(20, 7);
        let kills: Vec<u32> = (0..40).filter(|second| plan.kills_at(*second)).collect();
        assert_eq!(kills, [12, 17, 22]);
    }

    #[test]
    fn the_page_marks_each_kill_and_tells_the_longest_pause() {
        let seconds = (1..=20).map(|at| Second { at: f64::from(at), tps: 100.0, p95_ms: 20.0 }).collect();
        let totals = SysbenchTotals { transactions: 1.0, tps: 97.0, mean_ms: 1.0, p95_ms: 2.0, max_ms: 1234.0 };
        let (kills, after) = (vec![9.0, 14.0], After { tables_checked: 4, ..After::default() });
        let kills = Kills { seconds, kills, totals, commands: "a < b".to_owned(), after };
        let page = kills.html(&Plan::lasting(20, 0), "Origin: a disk.", &[("headpond", "1".to_owned())]);
        assert!(kills.text().starts_with("No error, 2 kills, longest pause 1.23 s"), "{}", kills.text());
        assert_eq!(page.matches("class=\"mark\"").count(), 4, "two charts with two marks each");
        assert!(page.contains("a &lt; b") && !page.contains("{{"));
    }
}
