//! Pictures as SVG. They need no network and no library.
//!
//! The colours are Okabe and Ito's, in a light and a dark set, and differ for the colour-blind, too. Lines also
//! differ by their dashes.

mod over_time;

use super::super::judge::short;
use over_time::{is_dot, path};
use std::fmt::Write;

/// Measures of a picture, in its own units.
pub const WIDTH: f64 = 900.0;
pub const HEIGHT: f64 = 320.0;
pub const LEFT: f64 = 74.0;
pub const RIGHT: f64 = 20.0;
pub const TOP: f64 = 16.0;
pub const BOTTOM: f64 = 44.0;
/// How many colours there are; sides beyond that differ by their dashes.
const COLOURS: usize = 6;
/// A title of more letters is squeezed to the width of the picture.
const TITLE_MAX: usize = 90;
/// About as wide is a letter.
const LETTER: f64 = 7.2;
/// The style of a picture that stands by itself.
const STYLE: &str = include_str!("picture.css");

/// How values become places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By factors.
    Log,
}

/// A line, or a set of bars, of one side.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is called.
    pub name: String,
    /// Which colour, from 0.
    pub colour: usize,
    /// Places and values.
    pub points: Vec<(f64, f64)>,
    /// For each point: the least and the most that were seen.
    pub spread: Vec<(f64, f64)>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Lines over an axis.
    Lines {
        /// The axis of places.
        scale: Scale,
        /// Up to here it is the warm-up.
        warmup: Option<f64>,
        /// Where something changed.
        marks: Vec<Mark>,
    },
    /// Lines over seconds, before the runs that each is the middle of.
    OverTime {
        /// Up to here it is the warm-up.
        warmup: Option<f64>,
        /// Where something changed.
        marks: Vec<Mark>,
        /// The runs, each in the colour of its line.
        runs: Vec<Line>,
    },
    /// Layers over seconds, each on the one before, up to 100.
    Layers {
        /// Up to here it is the warm-up.
        warmup: Option<f64>,
    },
    /// Lines over places that have names.
    Profile {
        /// The names.
        groups: Vec<String>,
    },
    /// Groups of bars; each line has a bar in each group.
    Bars {
        /// The groups.
        groups: Vec<String>,
    },
    /// A stack in each group: lines are its layers.
    Stacks {
        /// The groups.
        groups: Vec<String>,
    },
}

/// A place on the lower axis at which something changed.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// Of which line.
    pub line: usize,
    /// What is from there on.
    pub text: String,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Its name among the files.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What is along the lower axis.
    pub along: String,
    /// In what values are.
    pub unit: String,
    /// How values become heights.
    pub scale: Scale,
    /// How it is drawn.
    pub drawing: Drawing,
    /// What is drawn.
    pub lines: Vec<Line>,
}

/// An axis from one place to another.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = round_step((self.high - self.low) / 5.0);
                let count = ((self.high - self.low) / step + 1e-9) as u32;
                (0..=count).map(|index| self.low + f64::from(index) * step).collect()
            }
            Scale::Log => {
                let (from, to) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
                (from..=to).map(|power| 10f64.powi(power)).collect()
            }
        }
    }
}

/// A round number that is not smaller: 1, 2 or 5 times a power of ten.
fn round_step(number: f64) -> f64 {
    let power = 10f64.powf(number.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= number * 0.999)
        .unwrap_or(number)
}

/// Text inside an SVG or an HTML page.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Picture {
    /// The picture as a file of its own.
    pub fn file(&self) -> String {
        let body = self.body();
        let legend: String = self
            .lines
            .iter()
            .enumerate()
            .map(|(index, line)| {
                let x = LEFT + (index % 3) as f64 * 270.0;
                let y = HEIGHT + 8.0 + (index / 3) as f64 * 18.0;
                format!(
                    "<rect class=\"bar c{}\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"10\"/><text x=\"{}\" y=\"{y}\">{}</text>\n",
                    line.colour % COLOURS,
                    y - 9.0,
                    x + 20.0,
                    escaped(&line.name)
                )
            })
            .collect();
        let squeezed = if self.title.chars().count() > TITLE_MAX {
            format!(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", WIDTH - LEFT - RIGHT)
        } else {
            String::new()
        };
        let height = HEIGHT + 24.0 + (self.lines.len() / 3) as f64 * 18.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" viewBox=\"0 -24 {WIDTH} {}\" font-family=\"sans-serif\">\n<style>{STYLE}</style>\n\
             <rect class=\"ground\" x=\"0\" y=\"-24\" width=\"{WIDTH}\" height=\"{}\"/><text class=\"title\" x=\"{LEFT}\" y=\"-4\"{squeezed}>{}</text>\n{body}{legend}</svg>\n",
            height + 24.0,
            height + 24.0,
            height + 24.0,
            escaped(&self.title)
        )
    }

    /// The picture inside a page.
    pub fn inline(&self) -> String {
        format!(
            "<svg id=\"{}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.id,
            escaped(&self.title),
            self.body()
        )
    }

    /// All lines, thin ones included.
    fn drawn(&self) -> impl Iterator<Item = &Line> + Clone {
        let runs = if let Drawing::OverTime { runs, .. } = &self.drawing { runs.as_slice() } else { &[] };
        self.lines.iter().chain(runs)
    }

    fn values(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        let drawn = self.drawn().flat_map(|line| line.points.iter().map(|(_, value)| *value));
        drawn.chain(self.lines.iter().flat_map(|line| line.spread.iter().flat_map(|(least, most)| [*least, *most])))
    }

    fn heights(&self) -> Axis {
        let (from, to) = (HEIGHT - BOTTOM, TOP);
        let stacked = matches!(self.drawing, Drawing::Stacks { .. } | Drawing::Layers { .. });
        let most = if stacked { 100.0 } else { self.values().fold(0.0, f64::max) };
        let most = if most > 0.0 { most } else { 1.0 };
        match self.scale {
            Scale::Linear => {
                let step = round_step(most / 5.0);
                Axis { scale: Scale::Linear, low: 0.0, high: (most / step).ceil() * step, from, to }
            }
            Scale::Log => {
                let least = self.values().filter(|value| *value > 0.0).fold(most, f64::min);
                // The least bar has some height, too.
                let ground = if matches!(self.drawing, Drawing::Bars { .. }) { least / 2.0 } else { least };
                let low = 10f64.powf(ground.log10().floor());
                let high = 10f64.powf(most.log10().ceil());
                Axis { scale: Scale::Log, low, high: if high > low { high } else { low * 10.0 }, from, to }
            }
        }
    }

    fn body(&self) -> String {
        let mut svg = String::new();
        let heights = self.heights();
        for tick in heights.ticks() {
            let (y, right) = (heights.place(tick), WIDTH - RIGHT);
            put(
                &mut svg,
                format_args!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"),
            );
            put(
                &mut svg,
                format_args!(
                    "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    LEFT - 8.0,
                    y + 4.0,
                    label(tick)
                ),
            );
        }
        match &self.drawing {
            Drawing::Lines { scale, warmup, marks } => {
                let axis = self.places(*scale);
                Self::draw_warmup(&mut svg, &axis, *warmup);
                Self::draw_ticks(&mut svg, &axis, &self.ticks_of(&axis));
                self.draw_lines(&mut svg, &heights, &axis, &label);
                self.draw_marks(&mut svg, &axis, marks);
            }
            Drawing::OverTime { warmup, marks, runs } => {
                let axis = self.places(Scale::Linear);
                Self::draw_warmup(&mut svg, &axis, *warmup);
                Self::draw_ticks(&mut svg, &axis, &axis.ticks());
                Self::draw_runs(&mut svg, &heights, &axis, runs);
                self.draw_lines(&mut svg, &heights, &axis, &label);
                self.draw_marks(&mut svg, &axis, marks);
            }
            Drawing::Layers { warmup } => {
                let axis = self.places(Scale::Linear);
                Self::draw_ticks(&mut svg, &axis, &axis.ticks());
                self.draw_layers(&mut svg, &heights, &axis);
                Self::draw_warmup(&mut svg, &axis, *warmup);
            }
            Drawing::Profile { groups } => self.draw_profile(&mut svg, &heights, groups),
            Drawing::Bars { groups } => self.draw_bars(&mut svg, &heights, groups),
            Drawing::Stacks { groups } => self.draw_stacks(&mut svg, &heights, groups),
        }
        put(
            &mut svg,
            format_args!(
                "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                HEIGHT - 6.0,
                escaped(&self.along)
            ),
        );
        svg
    }

    fn places(&self, scale: Scale) -> Axis {
        let places = self.drawn().flat_map(|line| line.points.iter().map(|(place, _)| *place));
        let most = places.clone().fold(f64::MIN_POSITIVE, f64::max);
        let least = places.fold(most, f64::min);
        // A place of zero has none on an axis by factors: it is drawn at the left end.
        let low = if scale == Scale::Log { least.max(most / 1e6).min(most / 2.0) } else { 0.0 };
        Axis { scale, low, high: most, from: LEFT, to: WIDTH - RIGHT }
    }

    fn draw_warmup(svg: &mut String, axis: &Axis, warmup: Option<f64>) {
        if let Some(warmup) = warmup.filter(|warmup| *warmup > 0.0) {
            let width = axis.place(warmup) - LEFT;
            let height = HEIGHT - BOTTOM - TOP;
            put(
                svg,
                format_args!(
                    "<rect class=\"warmup\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\"/>"
                ),
            );
            put(
                svg,
                format_args!(
                    "<text class=\"tick over\" x=\"{}\" y=\"{}\">warm-up, thrown away</text>",
                    LEFT + 6.0,
                    TOP + 14.0
                ),
            );
        }
    }

    /// A dashed line at each mark, with a label for the time after it; one row of labels for each line of the picture.
    fn draw_marks(&self, svg: &mut String, axis: &Axis, marks: &[Mark]) {
        let mut taken = vec![f64::MIN; self.lines.len()];
        for mark in marks {
            let (x, colour) = (axis.place(mark.at), self.lines[mark.line].colour % COLOURS);
            // At the right end there is no room behind it.
            let width = mark.text.chars().count() as f64 * LETTER;
            let before = x + 4.0 + width > WIDTH - RIGHT;
            let (place, anchor) = if before { (x - 4.0, "end") } else { (x + 4.0, "start") };
            let left = if before { place - width } else { place };
            // One label over another can be read by nobody: there the line tells its own where the pointer is.
            let room = left >= taken[mark.line];
            let hidden = if room { String::new() } else { format!("<title>{}</title>", escaped(&mark.text)) };
            put(
                svg,
                format_args!(
                    "<line class=\"mark c{colour}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{}\">{hidden}</line>",
                    HEIGHT - BOTTOM
                ),
            );
            if !room {
                continue;
            }
            taken[mark.line] = left + width;
            put(
                svg,
                format_args!(
                    "<text class=\"tick over\" x=\"{place:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                    TOP + 30.0 + 15.0 * mark.line as f64,
                    escaped(&mark.text)
                ),
            );
        }
    }

    /// Where an axis by factors has a line's point, and evenly on an even one.
    fn ticks_of(&self, axis: &Axis) -> Vec<f64> {
        let mut ticks: Vec<f64> = match axis.scale {
            Scale::Linear => axis.ticks(),
            Scale::Log => self.lines.iter().flat_map(|line| line.points.iter().map(|(place, _)| *place)).collect(),
        };
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        ticks
    }

    fn draw_ticks(svg: &mut String, axis: &Axis, ticks: &[f64]) {
        for tick in ticks {
            put(
                svg,
                format_args!(
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    axis.place(*tick),
                    HEIGHT - BOTTOM + 18.0,
                    label(*tick)
                ),
            );
        }
    }

    fn draw_profile(&self, svg: &mut String, heights: &Axis, groups: &[String]) {
        let count = groups.len() as f64;
        // As bars have it: half a place is free at either end.
        let axis = Axis { scale: Scale::Linear, low: -0.5, high: count - 0.5, from: LEFT, to: WIDTH - RIGHT };
        for (group, name) in groups.iter().enumerate() {
            self.group_name(svg, name, axis.place(group as f64), groups.len());
        }
        self.draw_lines(svg, heights, &axis, &|place| groups.get(place as usize).cloned().unwrap_or_default());
    }

    fn draw_lines(&self, svg: &mut String, heights: &Axis, axis: &Axis, named: &dyn Fn(f64) -> String) {
        for line in &self.lines {
            let class = format!("c{} d{}", line.colour % COLOURS, line.colour % 3);
            for ((place, _), (least, most)) in line.points.iter().zip(&line.spread) {
                let x = axis.place(*place);
                put(
                    svg,
                    format_args!(
                        "<line class=\"whisker {class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                        heights.place(*least),
                        heights.place(*most)
                    ),
                );
            }
            let path = path(line, heights, axis);
            put(svg, format_args!("<polyline class=\"curve {class}\" points=\"{path}\"/>"));
            let all = !matches!(self.drawing, Drawing::OverTime { .. });
            let count = line.points.len();
            for (_, (place, value)) in line.points.iter().enumerate().filter(|(index, _)| all || is_dot(*index, count))
            {
                put(
                    svg,
                    format_args!(
                        "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{}\"><title>{} at {}: {} {}</title></circle>",
                        axis.place(*place),
                        heights.place(*value),
                        if line.points.len() > 40 { 2 } else { 4 },
                        escaped(&line.name),
                        escaped(&named(*place)),
                        short(*value),
                        escaped(&self.unit)
                    ),
                );
            }
        }
    }

    fn group_name(&self, svg: &mut String, name: &str, x: f64, groups: usize) {
        let room = ((WIDTH - LEFT - RIGHT) / groups as f64 / LETTER) as usize;
        let short: String = if name.chars().count() > room {
            name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
        } else {
            name.to_owned()
        };
        put(
            svg,
            format_args!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}<title>{}</title></text>",
                HEIGHT - BOTTOM + 18.0,
                escaped(&short),
                escaped(name)
            ),
        );
    }

    fn draw_bars(&self, svg: &mut String, heights: &Axis, groups: &[String]) {
        let wide = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
        let bar = (wide * 0.8 / self.lines.len().max(1) as f64).min(70.0);
        for (group, name) in groups.iter().enumerate() {
            let middle = LEFT + wide * (group as f64 + 0.5);
            self.group_name(svg, name, middle, groups.len());
            for (index, line) in self.lines.iter().enumerate() {
                let Some((_, value)) = line.points.iter().find(|(place, _)| *place == group as f64) else { continue };
                let x = middle + (index as f64 - self.lines.len() as f64 / 2.0) * bar;
                let y = heights.place(*value);
                put(
                    svg,
                    format_args!(
                        "<rect class=\"bar c{}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}, {}: {} {}</title></rect>",
                        line.colour % COLOURS,
                        x + 1.0,
                        bar - 2.0,
                        (HEIGHT - BOTTOM - y).max(0.0),
                        escaped(&line.name),
                        escaped(name),
                        short(*value),
                        escaped(&self.unit)
                    ),
                );
                let place = line.points.iter().position(|(place, _)| *place == group as f64);
                if let Some((least, most)) = place.and_then(|place| line.spread.get(place)) {
                    let at = x + bar / 2.0;
                    put(
                        svg,
                        format_args!(
                            "<line class=\"whisker ink\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                            heights.place(*least),
                            heights.place(*most)
                        ),
                    );
                }
            }
        }
    }

    fn draw_stacks(&self, svg: &mut String, heights: &Axis, groups: &[String]) {
        let wide = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
        let bar = (wide * 0.6).min(90.0);
        for (group, name) in groups.iter().enumerate() {
            let middle = LEFT + wide * (group as f64 + 0.5);
            self.group_name(svg, name, middle, groups.len());
            let mut below = 0.0;
            for line in &self.lines {
                let Some((_, value)) = line.points.iter().find(|(place, _)| *place == group as f64) else { continue };
                let (low, high) = (heights.place(below), heights.place(below + value));
                below += value;
                put(
                    svg,
                    format_args!(
                        "<rect class=\"bar c{}\" x=\"{:.1}\" y=\"{high:.1}\" width=\"{bar:.1}\" height=\"{:.1}\"><title>{}, {}: {} {}</title></rect>",
                        line.colour % COLOURS,
                        middle - bar / 2.0,
                        (low - high).max(0.0),
                        escaped(&line.name),
                        escaped(name),
                        short(*value),
                        escaped(&self.unit)
                    ),
                );
            }
        }
    }
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(svg, "{element}");
}

fn label(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{} M", trimmed(value / 1e6)),
        1e4.. => format!("{} k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(scale: Scale, drawing: Drawing) -> Picture {
        let line = |name: &str, colour, values: [f64; 3]| Line {
            name: name.to_owned(),
            colour,
            points: values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect(),
            spread: values.iter().map(|value| (value * 0.9, value * 1.1)).collect(),
        };
        Picture {
            id: "p".to_owned(),
            title: "a <b> & c".to_owned(),
            along: "x".to_owned(),
            unit: "u".to_owned(),
            scale,
            drawing,
            lines: vec![line("one", 0, [1.0, 50.0, 900.0]), line("two", 1, [2.0, 70.0, 30.0])],
        }
    }

    #[test]
    fn every_value_is_drawn_inside_the_frame() {
        let groups = || ["g", "h", "i"].map(str::to_owned).to_vec();
        let lines = |scale, warmup| Drawing::Lines {
            scale,
            warmup,
            marks: vec![Mark { at: 2.0, line: 1, text: "warm <".to_owned() }],
        };
        let thin =
            Line { name: String::new(), colour: 0, points: vec![(0.0, 0.0), (2.0, 5_000.0)], spread: Vec::new() };
        for drawing in [
            lines(Scale::Linear, Some(1.0)),
            lines(Scale::Log, None),
            Drawing::OverTime { warmup: Some(1.0), marks: Vec::new(), runs: vec![thin.clone(), thin] },
            Drawing::Layers { warmup: Some(1.0) },
            Drawing::Profile { groups: groups() },
            Drawing::Bars { groups: groups() },
            Drawing::Stacks { groups: groups() },
        ] {
            for scale in [Scale::Linear, Scale::Log] {
                let (marks, count) = match drawing {
                    Drawing::Bars { .. } | Drawing::Stacks { .. } => ("<rect class=\"bar", 6),
                    Drawing::Layers { .. } => ("<polygon class=\"bar", 2),
                    _ => ("<circle", 6),
                };
                let svg = picture(scale, drawing.clone()).inline();
                assert_eq!(svg.matches(marks).count(), count, "{drawing:?}");
                assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains("a &lt;b&gt; &amp; c"), "{svg}");
            }
        }
    }

    #[test]
    fn runs_are_thin_lines_without_dots_and_a_long_median_has_some() {
        let line = |count: u32| Line {
            name: "median".to_owned(),
            colour: 1,
            points: (1..=count).map(|at| (f64::from(at), 5.0)).collect(),
            spread: Vec::new(),
        };
        let drawing = Drawing::OverTime { warmup: None, marks: Vec::new(), runs: vec![line(400), line(400)] };
        let mut picture = picture(Scale::Linear, drawing);
        picture.lines = vec![line(400)];
        let svg = picture.inline();
        assert_eq!((svg.matches("class=\"curve run c1\"").count(), svg.matches("<polyline").count()), (2, 3));
        assert_eq!(svg.matches("<circle").count(), 58, "every seventh of 400");
        assert!(svg.len() < 40_000, "{} bytes", svg.len());
    }

    #[test]
    fn the_least_bar_by_factors_has_some_height_and_its_range_lies_inside() {
        let mut picture = picture(Scale::Log, Drawing::Bars { groups: vec!["g".to_owned()] });
        for (line, value) in picture.lines.iter_mut().zip([1_000.0, 90_000.0]) {
            (line.points, line.spread) = (vec![(0.0, value)], vec![(value * 0.5, value)]);
        }
        let heights = picture.heights();
        assert_eq!((heights.low, heights.high), (100.0, 100_000.0));
        picture.lines[0].spread[0].0 = 1_000.0;
        assert_eq!(picture.heights().low, 100.0, "on a round number, too");
    }

    #[test]
    fn no_label_of_a_mark_lies_on_another() {
        let mark = |at: f64, text: &str| Mark { at, line: 0, text: text.to_owned() };
        let marks = vec![mark(0.0, "one long label"), mark(0.05, "hidden"), mark(1.0, "free"), mark(1.95, "the last")];
        let svg = picture(Scale::Linear, Drawing::Lines { scale: Scale::Linear, warmup: None, marks }).inline();
        let text = |text: &str| svg.matches(&format!(">{text}</text>")).count();
        assert_eq!([text("one long label"), text("hidden"), text("free"), text("the last")], [1, 0, 1, 1]);
        assert!(svg.contains("<title>hidden</title></line>"), "{svg}");
    }

    #[test]
    fn an_axis_has_round_ticks_and_holds_the_largest() {
        let picture = picture(Scale::Linear, Drawing::Bars { groups: Vec::new() });
        let axis = picture.heights();
        assert_eq!((axis.high, axis.ticks().len()), (1000.0, 6));
        assert!(axis.place(990.0) >= TOP && axis.place(0.0) == HEIGHT - BOTTOM);
        assert_eq!([label(25_000.0), label(0.25), label(2_500_000.0)], ["25 k", "0.25", "2.5 M"]);
    }

    #[test]
    fn a_file_needs_nothing_else() {
        let file = picture(Scale::Log, Drawing::Lines { scale: Scale::Linear, warmup: None, marks: Vec::new() }).file();
        assert!(file.starts_with("<svg xmlns") && file.contains("<style>") && !file.contains("href"), "{file}");
        assert!(file.contains(">one</text>") && file.contains(">two</text>"));
    }
}
