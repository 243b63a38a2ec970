//! Cells of the page's tables, each with the place of its number.

use super::super::judge::short;
use super::Story;
use super::picture::escaped;

/// A cell with a number of `figures.json`, or a dash.
pub(super) fn cell(story: &Story<'_>, place: &str) -> String {
    let number = story.figures.pointer(place).and_then(serde_json::Value::as_f64);
    number.map_or("<td>-</td>".to_owned(), |number| {
        format!("<td data-place=\"{}\">{}</td>", escaped(place), short(number))
    })
}
