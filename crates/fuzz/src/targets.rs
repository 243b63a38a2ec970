//! How to make and read each target. A file for each.

mod batch;
mod checkpoint;
mod image;
mod members;
mod record;
mod segment;
mod settings;
mod superblock;
mod trace;

use std::fmt;

use headpond_check::{Conclusion, Report};

use crate::input::Input;
use crate::subject::{Base, PlantedBug, Told};
use crate::target::Target;

/// Valid bytes of a target.
pub(crate) fn base(target: Target, seed: u64) -> Base {
    match target {
        Target::Superblock => superblock::base(seed),
        Target::Settings => settings::base(seed),
        Target::Segment => segment::base(seed),
        Target::Batch => batch::base(seed),
        Target::Record => record::base(seed),
        Target::Checkpoint => checkpoint::base(seed),
        Target::Trace => trace::base(seed),
        Target::Image => image::base(seed),
        Target::Members | Target::Rows => members::base(target, seed),
    }
}

/// Reads an input.
pub(crate) fn run(input: &Input, base: &Base, planted: PlantedBug) -> Result<Told, String> {
    let mut bytes = base.bytes.clone();
    for edit in &input.edits {
        edit.apply(&mut bytes);
    }
    if input.forged {
        for seal in &base.seals {
            let touched = |edit: &crate::input::Edit| {
                let (at, len) = edit.span();
                at < seal.covers.end && seal.covers.start < at.saturating_add(len)
            };
            if input.edits.iter().any(touched) {
                seal.repair(&mut bytes);
            }
        }
    }
    match input.target {
        Target::Superblock => superblock::run(&bytes),
        Target::Settings => settings::run(&bytes),
        Target::Segment => segment::run(&bytes),
        Target::Batch => batch::run(&bytes),
        Target::Record => record::run(&bytes, input.forged),
        Target::Checkpoint => checkpoint::run(&bytes),
        Target::Trace => trace::run(&bytes, base, input.forged),
        Target::Image => image::run(input, bytes, planted),
        Target::Members | Target::Rows => members::run(input, &bytes, planted),
    }
}

/// The result of decoding.
fn told<T>(decoded: Result<T, headpond_format::Damage>) -> Told {
    match decoded {
        Ok(_) => Told { verdict: "taken", words: "taken".to_owned() },
        Err(damage) => Told { verdict: "refused", words: without_numbers(&damage.to_string()) },
    }
}

/// Removes numbers: verdicts that differ only in numbers are alike.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// What became of a pool that was taken into use. `has_conflict`: the origin had changed, as it seemed.
fn used(report: &Report, has_conflict: bool) -> Told {
    let verdict = match report.verdict {
        _ if has_conflict => "conflict",
        Conclusion::Sound => "sound",
        Conclusion::Harmless => "harmless",
        Conclusion::Loss | Conclusion::Refused => "loss",
    };
    Told { verdict, words: words(verdict, report) }
}

/// What an examination found, without numbers.
fn words(verdict: &str, report: &Report) -> String {
    let mut kinds: Vec<String> = report
        .findings
        .listed
        .iter()
        .map(|finding| without_numbers(&format!("{}: {}", finding.structure, finding.what)))
        .collect();
    kinds.sort();
    kinds.dedup();
    format!("{verdict}: {}", kinds.join("; "))
}

/// What decodes must encode to bytes that decode to the same.
fn same<T: PartialEq + fmt::Debug>(what: &str, one: &T, again: &T) -> Result<(), String> {
    if one == again { Ok(()) } else { Err(format!("{what} reads back as something else: {one:?} and {again:?}")) }
}
