//! Draws curves over time as SVG. It needs no network and no library.
//!
//! Invariant: every curve of a page has the same axis of time, and the warm-up is shaded.

use super::table::short;
use std::fmt::Write;

/// Measures of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 168.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;
/// What a curve's name and its mean below it take.
const NAME_HEIGHT: f64 = 40.0;

/// How values become heights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten: for values that differ by orders of magnitude.
    Log,
}

/// A curve.
pub struct ChartCurve {
    /// What it is called, next to its end.
    pub name: &'static str,
    /// Which colour it has: a class of the page.
    pub class: &'static str,
    /// Seconds and values, one a second.
    pub points: Vec<(f64, f64)>,
    /// Averages over several seconds, drawn over the points: start, end, value.
    pub averages: Vec<(f64, f64, f64)>,
}

/// A drawing.
pub struct Chart {
    /// By which the page's script finds its points.
    pub id: &'static str,
    /// What is drawn.
    pub title: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// How values become heights.
    pub scale: Scale,
    /// How high it is, in its own units; it is 1000 wide.
    pub height: f64,
    /// Its curves.
    pub curves: Vec<ChartCurve>,
    /// The seconds that do not count.
    pub warmup: f64,
    /// The seconds of all.
    pub seconds: f64,
    /// Seconds that are marked.
    pub marks: Vec<f64>,
}

/// Values become heights.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    floor: f64,
}

impl Axis {
    /// An axis whose zero, or least power of ten, lies at the height `floor`.
    fn over(scale: Scale, floor: f64, values: impl Iterator<Item = f64> + Clone) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        match scale {
            Scale::Linear => {
                let step = round_step(most / 4.0);
                let high = (most / step).ceil() * step;
                let count = (high / step).round() as u32;
                Self { scale, low: 0.0, high, ticks: (0..=count).map(|index| f64::from(index) * step).collect(), floor }
            }
            Scale::Log => {
                let least = values.filter(|value| *value > 0.0).fold(most, f64::min);
                let (from, to) = (least.log10().floor() as i32, most.log10().ceil() as i32);
                let to = to.max(from + 1);
                Self {
                    scale,
                    low: f64::from(from),
                    high: f64::from(to),
                    ticks: (from..=to).map(|power| 10f64.powi(power)).collect(),
                    floor,
                }
            }
        }
    }

    fn y(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        };
        let share = (place - self.low) / (self.high - self.low);
        TOP + (self.floor - TOP) * (1.0 - share.clamp(0.0, 1.0))
    }
}

/// A round number that is not smaller: 1, 2 or 5 times a power of ten.
fn round_step(number: f64) -> f64 {
    let power = 10f64.powf(number.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= number).unwrap_or(number)
}

impl Chart {
    /// Where the axis of time lies.
    fn floor(&self) -> f64 {
        self.height - BOTTOM
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * at / self.seconds
    }

    /// The drawing.
    pub fn svg(&self) -> String {
        let axis = Axis::over(
            self.scale,
            self.floor(),
            self.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, value)| *value)),
        );
        let mut svg = format!(
            "<svg id=\"{}\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{} over time\">\n",
            self.id, self.height, self.title
        );
        self.draw_frame(&mut svg, &axis);
        for at in &self.marks {
            let (x, floor) = (self.x(*at), self.floor());
            put(
                &mut svg,
                format_args!("<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{floor:.1}\"/>"),
            );
        }
        for curve in &self.curves {
            self.draw_curve(&mut svg, &axis, curve);
        }
        self.draw_names(&mut svg, &axis);
        svg.push_str("<line class=\"cursor\"/>\n</svg>\n");
        svg
    }

    fn draw_frame(&self, svg: &mut String, axis: &Axis) {
        let (right, floor) = (WIDTH - RIGHT, self.floor());
        let warm = self.x(self.warmup);
        put(
            svg,
            format_args!(
                "<rect class=\"warmup\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                warm - LEFT,
                floor - TOP
            ),
        );
        put(
            svg,
            format_args!(
                "<text class=\"note\" x=\"{:.1}\" y=\"{:.1}\">warm-up, thrown away</text>",
                LEFT + 8.0,
                TOP + 18.0
            ),
        );
        for tick in &axis.ticks {
            let y = axis.y(*tick);
            put(svg, format_args!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"));
            put(
                svg,
                format_args!(
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    LEFT - 8.0,
                    y + 5.0,
                    label(*tick)
                ),
            );
        }
        let step = round_step(self.seconds / 9.0).max(5.0);
        let mut at = 0.0;
        while at <= self.seconds {
            put(
                svg,
                format_args!(
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at:.0} s</text>",
                    self.x(at),
                    self.height - 10.0
                ),
            );
            at += step;
        }
    }

    fn draw_curve(&self, svg: &mut String, axis: &Axis, curve: &ChartCurve) {
        let mut path = String::new();
        let mut pen_down = false;
        for (at, value) in &curve.points {
            // A second in which nothing finished has no latency: the curve has a gap there.
            if self.scale == Scale::Log && *value <= 0.0 {
                pen_down = false;
                continue;
            }
            let command = if pen_down { 'L' } else { 'M' };
            // Writing to a string does not fail.
            let _ = write!(path, "{command}{:.1} {:.1}", self.x(*at), axis.y(*value));
            pen_down = true;
        }
        let fine = if curve.averages.is_empty() { "" } else { " fine" };
        put(svg, format_args!("<path class=\"curve {}{fine}\" d=\"{path}\"/>", curve.class));
        for (from, to, value) in &curve.averages {
            let y = axis.y(*value);
            let (from, to) = (self.x(*from) + 1.5, self.x(*to) - 1.5);
            put(
                svg,
                format_args!(
                    "<line class=\"average {}\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                    curve.class
                ),
            );
        }
    }

    /// Writes each curve's name and last level beside its end, moved apart where they would meet.
    fn draw_names(&self, svg: &mut String, axis: &Axis) {
        let level = |curve: &ChartCurve| {
            let counted: Vec<f64> =
                curve.points.iter().filter(|(at, _)| *at > self.warmup).map(|(_, value)| *value).collect();
            crate::statistics::mean(&counted)
        };
        let mut names: Vec<(f64, &ChartCurve, f64)> =
            self.curves.iter().map(|curve| (axis.y(level(curve)), curve, level(curve))).collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut above = f64::MIN;
        for (index, (y, curve, level)) in names.iter().enumerate() {
            let below = NAME_HEIGHT * (names.len() - 1 - index) as f64;
            let y = y.max(above + NAME_HEIGHT).min(self.floor() - below);
            above = y;
            let x = WIDTH - RIGHT + 12.0;
            put(
                svg,
                format_args!(
                    "<text class=\"name {}\" x=\"{x}\" y=\"{:.1}\">{}</text>",
                    curve.class,
                    y - 3.0,
                    curve.name
                ),
            );
            put(
                svg,
                format_args!(
                    "<text class=\"note\" x=\"{x}\" y=\"{:.1}\">mean {} {}</text>",
                    y + 15.0,
                    short(*level),
                    self.unit
                ),
            );
        }
    }

    /// The points for the page's script, as JSON.
    pub fn points(&self) -> serde_json::Value {
        let curves: Vec<_> = self
            .curves
            .iter()
            .map(|curve| serde_json::json!({"name": curve.name, "class": curve.class, "points": curve.points}))
            .collect();
        serde_json::json!({
            "id": self.id, "unit": self.unit, "seconds": self.seconds,
            "left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": self.floor(), "curves": curves,
        })
    }
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(svg, "{element}");
}

fn label(value: f64) -> String {
    if value >= 1.0 || value == 0.0 { format!("{value:.0}") } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_every_value_and_has_round_ticks() {
        let axis = Axis::over(Scale::Linear, 100.0, [3.0, 871.0].into_iter());
        assert_eq!(axis.ticks, [0.0, 500.0, 1000.0]);
        let axis = Axis::over(Scale::Log, 100.0, [0.0, 12.0, 2400.0].into_iter());
        assert_eq!(axis.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
        assert!(axis.y(12.0) > axis.y(2400.0));
    }

    #[test]
    fn a_second_without_a_latency_is_a_gap() {
        let curve = ChartCurve {
            name: "a",
            class: "b",
            points: vec![(1.0, 10.0), (2.0, 0.0), (3.0, 10.0)],
            averages: Vec::new(),
        };
        let chart = Chart {
            id: "c",
            title: "t",
            unit: "ms",
            scale: Scale::Log,
            curves: vec![curve],
            warmup: 1.0,
            seconds: 3.0,
            marks: vec![2.0],
            height: 200.0,
        };
        let svg = chart.svg();
        let path = svg.lines().find(|line| line.contains("class=\"curve b\"")).expect("the curve is drawn");
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(svg.matches("class=\"mark\"").count(), 1);
    }
}
