//! Counts what passed and failed over all steps of a run.
//!
//! Invariant: a failed step counts as at least one failure. So the last line and the exit status never claim more
//! than the run showed.

use std::fmt;
use std::time::Duration;

/// The sums of a run, and the failures to look at.
#[derive(Default)]
pub struct Report {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
}

impl Report {
    /// Counts a step that is one check.
    pub fn step(&mut self, name: &str, ok: bool, took: Duration) {
        println!("--- {name}: {} ({:.0} s)", if ok { "ok" } else { "FAILED" }, took.as_secs_f64());
        if ok {
            self.passed += 1;
        } else {
            self.fail(name.to_owned());
        }
    }

    /// Counts a step of many tests, from cargo's output.
    pub fn tests(&mut self, name: &str, output: &str, ok: bool, took: Duration) {
        let mut summary = summarize(output);
        if !ok && summary.failures.is_empty() {
            summary.failures.push(format!("{name}: did not build or did not run to its end"));
        }
        println!(
            "--- {name}: {} passed, {} failed, {} ignored ({:.0} s)",
            summary.passed,
            summary.failures.len(),
            summary.ignored,
            took.as_secs_f64()
        );
        self.passed += summary.passed;
        summary.failures.into_iter().for_each(|failure| self.fail(failure));
    }

    fn fail(&mut self, what: String) {
        self.failed += 1;
        self.failures.push(what);
    }

    /// Whether nothing failed.
    pub fn ok(&self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[derive(Default)]
struct Summary {
    passed: u64,
    ignored: u64,
    failures: Vec<String>,
}

/// Reads the output of Rust's test harness: `test NAME ... FAILED` for each failure and `test result: ok. 3 passed; 0
/// failed; 1 ignored; ...` for each binary.
fn summarize(output: &str) -> Summary {
    let mut summary = Summary::default();
    for line in output.lines() {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let count = |word: &str| {
                counts
                    .split(['.', ';'])
                    .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
                    .unwrap_or(0)
            };
            summary.passed += count("passed");
            summary.ignored += count("ignored");
        } else if let Some(name) = line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED")) {
            summary.failures.push(name.to_owned());
        }
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 2 tests
test tests::a_is_b ... ok
test tests::b_is_c ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 7 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    #[test]
    fn tests_are_added_up_over_all_binaries_and_failures_are_named() {
        let mut report = Report::default();
        report.tests("tests", OUTPUT, false, Duration::ZERO);
        assert_eq!(report.to_string(), "failed: tests::b_is_c\n8 passed, 1 failed");
        assert!(!report.ok());
    }

    #[test]
    fn a_build_that_fails_counts_though_no_test_ran() {
        let mut report = Report::default();
        report.tests("tests", "error: could not compile\n", false, Duration::ZERO);
        assert!(report.to_string().ends_with("0 passed, 1 failed"));
    }
}
