//! Shows what the demo does, and how long it still takes.
//!
//! On a terminal it rewrites one line. Elsewhere, as in the log of a CI run, it writes a line for each step and one
//! every ten seconds.

use super::plan::{Plan, Step};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a line is written where lines can not be written over.
const QUIET: Duration = Duration::from_secs(10);

/// The state of the display.
pub struct DemoProgress {
    expected: Vec<(Step, Duration)>,
    current: usize,
    began: Instant,
    step_began: Instant,
    last_line: Instant,
    terminal: bool,
}

impl DemoProgress {
    /// A display for a plan; `elapsed` seconds went by before it.
    pub fn new(plan: &Plan, elapsed: u64) -> Self {
        let now = Instant::now();
        Self {
            expected: plan.steps.iter().map(|step| (*step, plan.expected(*step))).collect(),
            current: 0,
            began: now.checked_sub(Duration::from_secs(elapsed)).unwrap_or(now),
            step_began: now,
            last_line: now,
            terminal: std::io::stdout().is_terminal(),
        }
    }

    /// A step begins.
    pub fn begin(&mut self, step: Step) {
        self.finish_line();
        self.current = self.expected.iter().position(|(known, _)| *known == step).unwrap_or(self.current);
        self.step_began = Instant::now();
        self.show("");
    }

    /// Something worth telling happened in this step.
    pub fn note(&mut self, text: &str) {
        if self.terminal || self.last_line.elapsed() >= QUIET {
            self.show(text);
        }
    }

    /// The last step is done.
    pub fn end(&mut self) {
        self.finish_line();
        println!("       done after {}", minutes(self.began.elapsed()));
    }

    fn show(&mut self, text: &str) {
        self.last_line = Instant::now();
        let (step, expected) = self.expected[self.current];
        let rest: Duration = self.expected[self.current + 1..].iter().map(|(_, expected)| *expected).sum();
        let left = rest + expected.saturating_sub(self.step_began.elapsed());
        let line = format!(
            "[{}/{}] {}{}{text} | {} gone, about {} left",
            self.current + 1,
            self.expected.len(),
            step.title(),
            if text.is_empty() { "" } else { ": " },
            minutes(self.began.elapsed()),
            minutes(left)
        );
        if self.terminal {
            // Return to the line's start, and clear what an earlier, longer text left.
            print!("\r{line}\x1b[K");
            // A display that can not be written to is no reason to stop.
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
        }
    }

    fn finish_line(&mut self) {
        if self.terminal && self.step_began > self.began {
            println!();
        }
    }
}

fn minutes(duration: Duration) -> String {
    format!("{}:{:02}", duration.as_secs() / 60, duration.as_secs() % 60)
}
