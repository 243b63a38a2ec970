//! What is fuzzed. A file for each.

mod batch;
mod checkpoint;
mod image;
mod record;
mod segment;
mod settings;
mod superblock;

use std::fmt;
use std::str::FromStr;

use crate::campaign::{Base, PlantedBug, Told};
use crate::input::Input;

/// Something that is read from flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A superblock.
    Superblock,
    /// A block of settings.
    Settings,
    /// A segment's head and footer.
    Segment,
    /// A batch's head and its entries.
    Batch,
    /// A packed record.
    Record,
    /// A checkpoint area.
    Checkpoint,
    /// A whole pool: recovery, reads after it, and the examination.
    Image,
}

impl Target {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Superblock, Self::Settings, Self::Segment, Self::Batch, Self::Record, Self::Checkpoint, Self::Image];

    const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Settings => "settings",
            Self::Segment => "segment",
            Self::Batch => "batch",
            Self::Record => "record",
            Self::Checkpoint => "checkpoint",
            Self::Image => "image",
        }
    }

    /// Something valid.
    pub(crate) fn base(self, seed: u64) -> Base {
        match self {
            Self::Superblock => superblock::base(seed),
            Self::Settings => settings::base(seed),
            Self::Segment => segment::base(seed),
            Self::Batch => batch::base(seed),
            Self::Record => record::base(seed),
            Self::Checkpoint => checkpoint::base(seed),
            Self::Image => image::base(seed),
        }
    }

    /// Has an input read.
    pub(crate) fn run(self, input: &Input, base: &Base, planted: PlantedBug) -> Result<Told, String> {
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
        match self {
            Self::Superblock => superblock::run(&bytes),
            Self::Settings => settings::run(&bytes),
            Self::Segment => segment::run(&bytes),
            Self::Batch => batch::run(&bytes),
            Self::Record => record::run(&bytes, input.forged),
            Self::Checkpoint => checkpoint::run(&bytes),
            Self::Image => image::run(input, bytes, planted),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|target| target.name() == text).ok_or_else(|| format!("'{text}' is none of {names}"))
    }
}

/// What decoding came to.
fn told<T>(decoded: Result<T, headpond_format::Damage>) -> Told {
    match decoded {
        Ok(_) => Told { verdict: "taken", words: "taken".to_owned() },
        Err(damage) => Told { verdict: "refused", words: without_numbers(&damage.to_string()) },
    }
}

/// Verdicts that differ in numbers only are alike.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// What decodes must encode to something that decodes to the same.
fn same<T: PartialEq + fmt::Debug>(what: &str, one: &T, again: &T) -> Result<(), String> {
    if one == again { Ok(()) } else { Err(format!("{what} reads back as something else: {one:?} and {again:?}")) }
}
