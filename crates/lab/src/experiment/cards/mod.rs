//! `headpond lab cards`: the tables of the flash card studies, on modelled devices, bare and through headpond.
//!
//! The engine is the real one; devices, origin and time are models. So a table takes no device and no root, and its
//! figures are the same on every machine.
//!
//! Keeps true: a table says which side is which, and both sides have the same devices.

mod fileio;
mod fill;
mod models;
mod side_by_side;
mod steady;
mod table;

use super::report::picture::Picture;
use crate::failure::{Failure, Result};
use clap::{Args, Parser, Subcommand};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// What `headpond lab cards` is given.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  Random writes over how full four cards are, and a card pulled at 60 %:
    headpond lab cards fill --model tachion --out tables

  Reads and writes over the number of threads, on one to eight DIMMs:
    headpond lab cards fileio --out tables

  Each model beside what was published: headpond lab cards models, and docs/models.md")]
pub struct CardsArgs {
    #[command(subcommand)]
    table: Tables,
}

#[derive(Subcommand, Debug)]
enum Tables {
    /// Random 16 KiB writes over how much of the space is in use, and with a device pulled meanwhile
    Fill(fill::FillArgs),
    /// Random 16 KiB reads and writes over the number of threads: throughput and percentiles
    Fileio(fileio::FileioArgs),
    /// Random 16 KiB writes until they settle, on a card formatted with a reserve and without
    Steady(steady::SteadyArgs),
    /// Show the modelled cards, how much of each is known, and each published point beside the model
    Models(models::ModelsArgs),
}

/// Where a table goes.
#[derive(Args, Debug)]
struct Output {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write the table, its figures and its pictures to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// A table with its pictures.
struct Drawn {
    /// Its name among the files.
    name: &'static str,
    /// For people, as Markdown.
    text: String,
    /// For programs.
    figures: Value,
    pictures: Vec<Picture>,
}

/// A line of words, as it would be typed behind `headpond lab cards`.
#[derive(Parser, Debug)]
struct Words {
    #[command(flatten)]
    cards: CardsArgs,
}

/// Reads such a line, and what stands behind it.
pub(super) fn parse(words: &str, more: &[&OsStr]) -> Result<CardsArgs> {
    let words = ["cards"].into_iter().chain(words.split_whitespace()).map(OsStr::new);
    let line = Words::try_parse_from(words.chain(more.iter().copied()));
    line.map(|line| line.cards).map_err(|error| Failure::Other(error.to_string()))
}

/// Draws the table of such a line into a directory.
pub(super) fn draw(words: &str, directory: &Path) -> Result<()> {
    run(&parse(words, &["--out".as_ref(), directory.as_os_str()])?)
}

/// Does what the command line says.
pub(super) fn run(arguments: &CardsArgs) -> Result<()> {
    match &arguments.table {
        Tables::Fill(fill) => give(&fill::drawn(fill)?, fill.output()),
        Tables::Fileio(fileio) => give(&fileio::drawn(fileio)?, fileio.output()),
        Tables::Steady(steady) => give(&steady::drawn(steady)?, steady.output()),
        Tables::Models(arguments) => {
            models::show(arguments);
            Ok(())
        }
    }
}

fn give(drawn: &Drawn, output: &Output) -> Result<()> {
    if let Some(directory) = &output.out {
        fs::create_dir_all(directory).map_err(Failure::io(format!("making {}", directory.display())))?;
        write(directory, &format!("{}.md", drawn.name), &drawn.text)?;
        write(directory, &format!("{}.json", drawn.name), &format!("{:#}\n", drawn.figures))?;
        for picture in &drawn.pictures {
            write(directory, &format!("{}.svg", picture.id), &picture.file())?;
        }
    }
    if output.json {
        println!("{}", drawn.figures);
    } else {
        println!("{}", drawn.text);
    }
    Ok(())
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).map_err(Failure::io(format!("writing {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Does what the words say, with a directory for what is written.
    fn cards(words: &[&str]) -> (Result<()>, tempfile::TempDir) {
        let directory = tempfile::Builder::new().prefix("with a space ").tempdir().unwrap();
        (draw(&words.join(" "), directory.path()), directory)
    }

    fn figures(directory: &tempfile::TempDir, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(directory.path().join(name)).unwrap()).unwrap()
    }

    #[test]
    fn fill_has_a_line_for_each_side_and_protection_and_one_with_a_card_pulled() {
        let words =
            ["fill", "--model", "tachion", "--devices", "3", "--mib", "64", "--used", "33,60,100", "--times", "1"];
        let (done, directory) = cards(&words);
        done.unwrap();
        let figures = figures(&directory, "fill.json");
        let lines = figures["lines"].as_array().unwrap();
        assert_eq!(lines.len(), 5, "{figures}");
        let rates = |line: usize| {
            let points = lines[line]["points"].as_array().unwrap();
            points.iter().map(|point| point["mib"].as_f64().unwrap()).collect::<Vec<_>>()
        };
        // Mirrored and with a card pulled: the same up to where it is pulled.
        assert_eq!((lines[4]["pulled_at"].as_u64(), rates(3)[0]), (Some(60), rates(4)[0]));
        assert!(rates(4)[1] < rates(3)[1], "{figures}");
        let picture = fs::read_to_string(directory.path().join("fill-tachion.svg")).unwrap();
        assert_eq!((picture.matches("<polyline").count(), picture.matches("is pulled").count()), (5, 1));
        let text = fs::read_to_string(directory.path().join("fill.md")).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 7, "{text}");
    }

    #[test]
    fn fileio_tells_of_every_load_side_and_number_of_devices() {
        let (done, directory) = cards(&["fileio", "--devices", "1,2", "--threads", "1,16", "--mib", "1024"]);
        done.unwrap();
        let figures = figures(&directory, "fileio.json");
        let lines = figures["lines"].as_array().unwrap();
        assert_eq!(lines.len(), 4 * 2 * 2, "{figures}");
        for point in lines.iter().flat_map(|line| line["points"].as_array().unwrap()) {
            let of = |key: &str| point[key].as_f64().unwrap();
            assert!(of("mb") > 0.0 && of("p50_us") <= of("p95_us") && of("p95_us") <= of("p999_us"), "{point}");
        }
        assert!(directory.path().join("fileio-synced-writes-p95.svg").exists());
    }

    #[test]
    fn steady_tells_when_a_card_settles() {
        let (done, directory) = cards(&["steady", "--model", "iodrive", "--mib", "64", "--times", "3"]);
        done.unwrap();
        let figures = figures(&directory, "steady.json");
        let of = |line: usize, key: &str| figures["lines"][line][key].as_f64().unwrap();
        assert!(of(0, "steady_mib") < 160.0 && of(1, "steady_mib") > 2.0 * of(0, "steady_mib"), "{figures}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_runs() {
        for (words, why) in [
            (vec!["fill", "--used", "50,20"], "go up"),
            (vec!["fill", "--pulled-at", "55"], "none of --used"),
            (vec!["fileio", "--redundancy", "mirror"], "cannot be mirrored"),
        ] {
            assert!(cards(&words).0.unwrap_err().to_string().contains(why), "{words:?}");
        }
    }
}
