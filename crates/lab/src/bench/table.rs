//! Results as a table for people, and as JSON.

use headpond_measure::ratio_of_medians;
use serde_json::{Value, json};

use super::Outcome;

/// What a target asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
    /// It is only told.
    None,
}

/// More rounds are not shown one by one; programs get all.
const ROUNDS_SHOWN: usize = 12;

/// One line of the table.
pub struct Line {
    /// What was done.
    pub work: String,
    /// What the figure is: a ratio to something, bytes, seconds.
    pub figure: &'static str,
    /// One for each round.
    pub rounds: Vec<f64>,
    /// That holds the true one in 95 of 100 such runs, where it was asked for.
    pub interval: Option<(f64, f64)>,
    /// What the ratios were made of, by name: one list of rounds each.
    pub parts: Vec<(&'static str, Vec<f64>)>,
    /// What is asked for.
    pub target: Target,
}

impl Line {
    /// A ratio of two lists of rates, round by round.
    pub fn ratio(work: &str, figure: &'static str, ours: Vec<f64>, theirs: Vec<f64>, target: f64) -> Self {
        let rounds = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        let parts = vec![("headpond", ours), ("other", theirs)];
        Self { work: work.to_owned(), figure, rounds, interval: None, parts, target: Target::AtLeast(target) }
    }

    /// The same without a target.
    pub fn only_told(self) -> Self {
        Self { target: Target::None, ..self }
    }

    /// What something costs, in percent: one minus the median of the ratios of pairs with and without it, of figures of
    /// which more is better, with its interval at 95 % (percentile bootstrap over the pairs).
    pub fn cost(
        work: String,
        figure: &'static str,
        names: [&'static str; 2],
        (on, off): (Vec<f64>, Vec<f64>),
        most: f64,
    ) -> Outcome<Self> {
        // In a quarter of a second a machine with other work may answer nothing.
        let pairs = on.into_iter().zip(off).filter(|(on, off)| *on > 0.0 && *off > 0.0);
        let (on, off): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on / off).collect();
        let found = ratio_of_medians(&ratios, &vec![1.0; ratios.len()], 1).ok_or("the load had no request answered")?;
        let percent = |ratio: f64| (1.0 - ratio) * 100.0;
        Ok(Self {
            work,
            figure,
            rounds: ratios.iter().map(|ratio| percent(*ratio)).collect(),
            interval: found.interval.map(|(low, high)| (percent(high), percent(low))),
            parts: vec![(names[0], on), (names[1], off)],
            target: Target::AtMost(most),
        })
    }

    /// Processor time for a million requests: headpond's daemon beside fio, which does the same to the raw file.
    pub fn processor(work: &str, daemon: Vec<f64>, fio: Vec<f64>) -> Self {
        let (figure, parts) = ("CPU seconds a million", vec![("daemon", daemon.clone()), ("fio, raw", fio)]);
        Self { work: work.to_owned(), figure, rounds: daemon, interval: None, parts, target: Target::None }
    }

    fn verdict(&self) -> &'static str {
        let middle = median(&self.rounds);
        match self.target {
            Target::AtLeast(least) if middle >= least => "met",
            Target::AtMost(most) if middle <= most => "met",
            Target::None => "",
            _ => "missed",
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let parts: serde_json::Map<String, Value> =
            self.parts.iter().map(|(name, rounds)| ((*name).to_owned(), json!(rounds))).collect();
        let target = match self.target {
            Target::AtLeast(least) => json!({ "at_least": least }),
            Target::AtMost(most) => json!({ "at_most": most }),
            Target::None => Value::Null,
        };
        json!({
            "work": self.work, "figure": self.figure, "median": median(&self.rounds), "rounds": self.rounds,
            "interval": self.interval, "parts": parts, "target": target, "verdict": self.verdict(),
        })
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

fn number(value: f64) -> String {
    match value {
        large if large >= 1000.0 => format!("{large:.0}"),
        middle if middle >= 20.0 => format!("{middle:.1}"),
        small => format!("{small:.2}"),
    }
}

/// All of a few, the ends of many.
fn rounds(rounds: &[f64]) -> String {
    if rounds.len() <= ROUNDS_SHOWN {
        return rounds.iter().copied().map(number).collect::<Vec<_>>().join(", ");
    }
    let (least, most) =
        rounds.iter().fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(*one), most.max(*one)));
    format!("{} from {} to {}", rounds.len(), number(least), number(most))
}

/// As a table in Markdown.
pub fn markdown(lines: &[Line]) -> String {
    let mut text = String::from(
        "| work | figure | median | all rounds | headpond | the other | target | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for line in lines {
        let part = |index: usize| line.parts.get(index).map_or(String::new(), |(_, rounds)| number(median(rounds)));
        let target = match line.target {
            Target::AtLeast(least) => format!(">= {least}"),
            Target::AtMost(most) => format!("<= {most}"),
            Target::None => "told".to_owned(),
        };
        let (work, figure, middle) = (&line.work, line.figure, number(median(&line.rounds)));
        let interval =
            line.interval.map_or(String::new(), |(low, high)| format!(" ({} to {})", number(low), number(high)));
        let (ours, theirs, verdict) = (part(0), part(1), line.verdict());
        text += &format!(
            "| {work} | {figure} | **{middle}**{interval} | {} | {ours} | {theirs} | {target} | {verdict} |\n",
            rounds(&line.rounds)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_held_to_the_median_of_the_ratios() {
        let line = Line::ratio("reads", "of raw", vec![10.0, 60.0, 30.0], vec![10.0, 100.0, 100.0], 0.6);
        assert_eq!((median(&line.rounds), line.verdict()), (0.6, "met"));
        let line = Line::ratio("reads", "of raw", vec![1.0, 2.0], vec![2.0, 2.0], 0.8);
        assert_eq!((median(&line.rounds), line.verdict()), (0.75, "missed"));
        assert_eq!(median(&[]), 0.0);
    }
}
