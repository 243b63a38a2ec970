//! A published study: which experiments ask its questions again, and its figures beside ours on one page.
//!
//! Keeps true: a figure of ours is worked out from the runs of the session that the page names, by the same rules as the
//! session's own page. Where there are no runs there is no figure.

use super::judge::short;
use super::report::{self, picture::escaped};
use super::{Definition, Results, cards};
use crate::failure::{Failure, Result};
use headpond_measure::{RUNS_MIN, mann_whitney, ratio_of_medians};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Its name on the command line.
    pub name: String,
    /// What was compared, and when.
    pub title: String,
    /// With what it was measured.
    pub setup: String,
    /// The experiments that ask the same.
    pub experiments: Vec<String>,
    /// Tables of modelled cards, as words for `headpond lab cards`.
    #[serde(default)]
    pub cards: Vec<String>,
    /// What it found.
    #[serde(rename = "figure", default)]
    pub figures: Vec<StudyFigure>,
}

/// A figure of a study, and where ours is: the throughput of a side at a point, times that of another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyFigure {
    /// What is compared, in words.
    pub what: String,
    /// What the study found, in words.
    pub study: String,
    /// The experiment.
    pub experiment: String,
    /// The title of the point.
    pub point: String,
    /// The side.
    pub side: String,
    /// The side that it is compared with.
    pub against: String,
}

const SHIPPED: [&str; 6] = [
    include_str!("../../studies/vcache.toml"),
    include_str!("../../studies/flash-cards.toml"),
    include_str!("../../studies/nvmfs.toml"),
    include_str!("../../studies/exflash.toml"),
    include_str!("../../studies/fvp.toml"),
    include_str!("../../studies/order-entry.toml"),
];

/// The studies that come with headpond.
///
/// # Errors
/// None with the files as they are: a test reads them all.
pub fn shipped() -> Result<Vec<Study>> {
    let read = |text: &&str| toml::from_str(text).map_err(|error| Failure::Other(format!("a study: {error}")));
    SHIPPED.iter().map(read).collect()
}

impl Study {
    /// By its name.
    ///
    /// # Errors
    /// With the names that there are.
    pub fn find(name: &str) -> Result<Self> {
        let all = shipped()?;
        let names: Vec<String> = all.iter().map(|study| study.name.clone()).collect();
        let found = all.into_iter().find(|study| study.name == name);
        found.ok_or_else(|| Failure::Other(format!("no study is called '{name}': there are {}", names.join(", "))))
    }

    /// The definitions of its experiments.
    ///
    /// # Errors
    /// None with the files as they are.
    pub fn definitions(&self) -> Result<Vec<Definition>> {
        self.experiments.iter().map(|name| Definition::find(name)).collect()
    }
}

/// Our figure.
#[derive(Clone, PartialEq, Debug)]
struct Ours {
    /// The ratio, with its interval.
    text: String,
    /// What that is worth.
    verdict: String,
}

/// Works a figure out from a session's `figures.json`; none if the runs for it are missing.
fn ours(asked: &StudyFigure, figures: &Value) -> Option<Ours> {
    let point = figures["points"].as_array()?.iter().find(|point| point["title"] == asked.point.as_str())?;
    let values = |side: &str| {
        let cell = point["sides"].as_array()?.iter().find(|cell| cell["side"] == side)?;
        let values = cell["throughput"]["values"].as_array()?.iter().filter_map(Value::as_f64);
        Some(values.collect::<Vec<_>>())
    };
    let (of, base) = (values(&asked.side)?, values(&asked.against)?);
    let ratio = ratio_of_medians(&of, &base, figures["seed"].as_u64()?)?;
    let range = ratio.interval.map_or(String::new(), |(low, high)| format!(" ({} to {})", short(low), short(high)));
    let enough = of.len().min(base.len()) >= RUNS_MIN;
    let told = mann_whitney(&of, &base).is_some_and(|test| test.significant());
    let verdict = match (enough, told) {
        (false, _) => format!("too few runs to tell from chance: {} and {}", of.len(), base.len()),
        (true, true) => "not by chance".to_owned(),
        (true, false) => "may be chance".to_owned(),
    };
    Some(Ours { text: format!("{}{range}", short(ratio.ratio)), verdict })
}

/// Where the session of an experiment lies within a study's directory.
#[must_use]
pub fn session_directory(out: &Path, experiment: &str) -> PathBuf {
    out.join(experiment)
}

/// Draws the tables of modelled cards into a study's directory.
///
/// # Errors
/// When they cannot be written.
pub fn draw_cards(study: &Study, out: &Path) -> Result<()> {
    study.cards.iter().try_for_each(|words| cards::draw(words, &out.join("cards")))
}

/// Writes a study's page over the sessions that there are, and returns it as text, and where the page is.
///
/// # Errors
/// When a session cannot be read, or the page not be written.
pub fn write(study: &Study, out: &Path) -> Result<(String, PathBuf)> {
    let mut rows = Vec::new();
    let mut sections = String::new();
    let mut known: Vec<(&str, Value)> = Vec::new();
    for experiment in &study.experiments {
        let directory = session_directory(out, experiment);
        let Ok(results) = Results::open(&directory) else { continue };
        let told = report::told(&results)?;
        let sentences: String = told.sentences.iter().map(|text| format!("<li>{}</li>\n", escaped(text))).collect();
        let figures: String = told.pictures.iter().map(|picture| figure(&picture.title, &picture.file())).collect();
        let definition = &results.session().definition;
        // Writing to a string does not fail.
        let _ = write!(
            sections,
            "<section>\n<h2>{}</h2>\n<p>{} <a href=\"{experiment}/report.html\">All of it</a></p>\n\
             <ul>\n{sentences}</ul>\n{figures}</section>\n",
            escaped(&definition.title),
            escaped(&definition.question),
        );
        known.push((experiment, told.figures));
    }
    for asked in &study.figures {
        let figures = known.iter().find(|(name, _)| *name == asked.experiment).map(|(_, figures)| figures);
        rows.push((asked, figures.and_then(|figures| ours(asked, figures))));
    }
    sections += &cards_section(&out.join("cards"))?;
    let page = out.join("study.html");
    let text = page_text(study, &rows, &sections);
    fs::write(&page, text).map_err(Failure::io(format!("writing {}", page.display())))?;
    Ok((table_text(study, &rows), page))
}

fn figure(title: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>\n{svg}</figure>\n", escaped(title))
}

/// The tables and pictures of modelled cards that lie in a directory, if any do.
fn cards_section(directory: &Path) -> Result<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(String::new()) };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    let mut text = String::from("<section>\n<h2>On modelled cards, in modelled time</h2>\n");
    for path in paths {
        let read = || fs::read_to_string(&path).map_err(Failure::io(format!("reading {}", path.display())));
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("md") => text += &format!("<pre>{}</pre>\n", escaped(&read()?)),
            Some("svg") => text += &format!("<figure>\n{}</figure>\n", read()?),
            _ => {}
        }
    }
    Ok(text + "</section>\n")
}

fn page_text(study: &Study, rows: &[(&StudyFigure, Option<Ours>)], sections: &str) -> String {
    let row = |(asked, ours): &(&StudyFigure, Option<Ours>)| {
        let (text, verdict) = ours.as_ref().map_or(("not run", ""), |ours| (&ours.text, &ours.verdict));
        format!(
            "<tr><th>{}</th><td class=\"words\">{}</td><td>{}</td><td class=\"words\">{}</td><td class=\"words\">{}: {}, times {}; {}</td></tr>\n",
            escaped(&asked.what),
            escaped(&asked.study),
            escaped(text),
            escaped(verdict),
            escaped(&asked.experiment),
            escaped(&asked.side),
            escaped(&asked.against),
            escaped(&asked.point),
        )
    };
    let table: String = rows.iter().map(row).collect();
    let table = if table.is_empty() {
        String::new()
    } else {
        format!(
            "<div class=\"scroll\"><table>\n<tr><th>what</th><th>the study</th><th>here</th><th>worth</th><th>measured</th></tr>\n{table}</table></div>\n"
        )
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{}\n</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n<p>{}</p>\n</header>\n\
         <section>\n{table}</section>\n{sections}</main>\n</body>\n</html>\n",
        report::STYLE,
        escaped(&study.setup),
        title = escaped(&study.title),
    )
}

/// The table, for a terminal.
fn table_text(study: &Study, rows: &[(&StudyFigure, Option<Ours>)]) -> String {
    let mut text = format!("{}\n{}\n", study.title, study.setup);
    for (asked, ours) in rows {
        let ours = ours.as_ref().map_or("not run".to_owned(), |ours| format!("{}, {}", ours.text, ours.verdict));
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}\n  the study: {}\n  here:      {ours}\n", asked.what, asked.study);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, Target};
    use super::*;
    use serde_json::json;

    #[test]
    fn every_figure_of_a_study_is_one_that_its_experiment_measures() {
        for study in shipped().unwrap() {
            assert!(Study::find(&study.name).is_ok());
            for words in &study.cards {
                assert!(cards::parse(words, &[]).is_ok(), "{}: {words}", study.name);
            }
            let plans: Vec<Plan> = study
                .definitions()
                .unwrap()
                .into_iter()
                .map(|definition| {
                    let targets =
                        definition.targets.iter().map(|text| Target::parse(text)).collect::<Result<_>>().unwrap();
                    Plan::of(definition, targets).unwrap()
                })
                .collect();
            for asked in &study.figures {
                let plan = plans.iter().find(|plan| plan.definition.name == asked.experiment);
                let plan = plan.unwrap_or_else(|| panic!("{}: {} is not run", study.name, asked.experiment));
                let titles: Vec<String> = (0..plan.points.len()).map(|point| plan.title(point)).collect();
                assert!(titles.contains(&asked.point), "{}: {titles:?}", asked.what);
                let sides: Vec<&String> = plan.sides.iter().map(|side| &side.name).collect();
                for side in [&asked.side, &asked.against] {
                    assert!(sides.contains(&side), "{}: {side} of {sides:?}", asked.what);
                }
            }
        }
        assert!(Study::find("none").unwrap_err().to_string().contains("vcache"));
    }

    fn asked() -> StudyFigure {
        let text = "what = \"a\"\nstudy = \"3\"\nexperiment = \"e\"\npoint = \"p\"\nside = \"b\"\nagainst = \"a\"\n";
        toml::from_str(text).unwrap()
    }

    fn figures(of: &[f64], base: &[f64]) -> Value {
        let side = |name: &str, values: &[f64]| json!({"side": name, "throughput": {"values": values}});
        json!({"seed": 1, "points": [{"title": "p", "sides": [side("a", base), side("b", of)]}]})
    }

    #[test]
    fn a_figure_says_what_it_is_worth() {
        let of = |of: &[f64], base: &[f64]| ours(&asked(), &figures(of, base)).unwrap();
        let told = of(&[30.0, 31.0, 29.0, 30.0], &[10.0, 10.5, 9.5, 10.0]);
        assert!(told.text.starts_with("3.00 ("), "{told:?}");
        assert_eq!(told.verdict, "not by chance");
        assert_eq!(of(&[10.0, 11.0, 9.0, 10.0], &[10.0, 10.5, 9.5, 10.0]).verdict, "may be chance");
        assert!(of(&[30.0], &[10.0]).verdict.contains("1 and 1"));
        assert_eq!(ours(&asked(), &figures(&[], &[])), None);
        assert_eq!(ours(&asked(), &json!({"seed": 1, "points": []})), None);
    }

    #[test]
    fn a_page_without_runs_says_so() {
        let place = tempfile::tempdir().unwrap();
        let study = Study::find("vcache").unwrap();
        let (text, page) = write(&study, place.path()).unwrap();
        let page = fs::read_to_string(page).unwrap();
        assert!(text.contains("not run") && page.contains("not run") && page.contains("FlashCache"), "{text}");
    }
}
