//! A side at a point: its runs, its place in `figures.json`, and an axis on which all sides can be seen.

use super::super::Record;
use super::Story;
use super::picture::Scale;

/// With more times between two sides the lesser one cannot be seen on an even axis.
const FAR_APART: f64 = 20.0;

/// The runs of a side at a point.
pub fn runs<'a>(story: &'a Story<'_>, point: usize, side: usize) -> impl Iterator<Item = &'a Record> {
    story.records.iter().filter(move |record| record.point == point && record.side == side)
}

/// Where `figures.json` has a side at a point; nowhere before its first run.
pub fn place(story: &Story<'_>, point: usize, side: usize) -> Option<String> {
    let index = story.judgement.cells.get(point)?.iter().position(|cell| cell.side == side)?;
    Some(format!("/points/{point}/sides/{index}"))
}

/// How values that are the medians of sides become heights, and how a title says so. Where one would lie on the floor of
/// an even axis it is one by factors.
pub fn scale(title: &str, medians: impl Iterator<Item = f64>) -> (Scale, String) {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for median in medians.filter(|median| *median > 0.0) {
        (least, most) = (least.min(median), most.max(median));
    }
    if most > least * FAR_APART {
        (Scale::Log, format!("{title} (by factors)"))
    } else {
        (Scale::Linear, title.to_owned())
    }
}
