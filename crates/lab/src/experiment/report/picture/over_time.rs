//! What is drawn over seconds: many runs behind their median, and layers up to all of it.

use super::super::super::judge::short;
use super::{Axis, BOTTOM, COLOURS, HEIGHT, LEFT, Line, Picture, escaped, put};
use std::fmt::Write;

/// Of a longer line only so many points are dots that tell their value, evenly: each takes as much room in the page as
/// ten points of the line.
const DOTS_MAX: usize = 60;

impl Picture {
    /// The runs, thin, each in the colour of its side.
    pub(super) fn draw_runs(svg: &mut String, heights: &Axis, axis: &Axis, runs: &[Line]) {
        for run in runs {
            let colour = run.colour % COLOURS;
            put(svg, format_args!("<polyline class=\"curve run c{colour}\" points=\"{}\"/>", path(run, heights, axis)));
        }
    }

    /// The layers, each from the ground up behind those that lie below it. All have the same places.
    pub(super) fn draw_layers(&self, svg: &mut String, heights: &Axis, axis: &Axis) {
        let mut below: Vec<f64> = Vec::new();
        let mut drawn = Vec::new();
        for line in &self.lines {
            below.resize(line.points.len(), 0.0);
            below.iter_mut().zip(&line.points).for_each(|(sum, (_, value))| *sum += value);
            let places = line.points.iter().map(|(place, _)| *place);
            let top = Line { points: places.zip(below.iter().copied()).collect(), ..line.clone() };
            let (Some((_, first)), Some((last, _))) = (top.points.first(), top.points.last()) else { continue };
            let mean = line.points.iter().map(|(_, value)| value).sum::<f64>() / line.points.len() as f64;
            let ground = HEIGHT - BOTTOM;
            drawn.push(format!(
                "<polygon class=\"bar c{}\" points=\"{LEFT},{ground} {LEFT},{:.1} {} {:.1},{ground}\"><title>{}: {} {} in the mean</title></polygon>",
                line.colour % COLOURS,
                // A second begins where the one before ended: the first at the axis.
                heights.place(*first),
                path(&top, heights, axis),
                axis.place(*last),
                escaped(&line.name),
                short(mean),
                escaped(&self.unit)
            ));
        }
        drawn.iter().rev().for_each(|layer| put(svg, format_args!("{layer}")));
    }
}

/// Whether the point of a line is a dot.
pub(super) fn is_dot(index: usize, count: usize) -> bool {
    index.is_multiple_of(count.div_ceil(DOTS_MAX).max(1))
}

/// The points of a line.
pub(super) fn path(line: &Line, heights: &Axis, axis: &Axis) -> String {
    let mut path = String::new();
    for (place, value) in &line.points {
        // Writing to a string does not fail.
        let _ = write!(path, "{:.1},{:.1} ", axis.place(*place), heights.place(*value));
    }
    path.truncate(path.trim_end().len());
    path
}

#[cfg(test)]
mod tests {
    use super::super::{Drawing, Scale, TOP};
    use super::*;

    #[test]
    fn layers_lie_on_each_other_up_to_all_of_it() {
        let line = |name: &str, colour, values: [f64; 2]| Line {
            name: name.to_owned(),
            colour,
            points: vec![(1.0, values[0]), (2.0, values[1])],
            spread: Vec::new(),
        };
        let picture = Picture {
            id: "p".to_owned(),
            title: String::new(),
            along: String::new(),
            unit: "%".to_owned(),
            scale: Scale::Linear,
            drawing: Drawing::Layers { warmup: None },
            lines: vec![line("low", 1, [50.0, 0.0]), line("high", 2, [25.0, 100.0])],
        };
        let svg = picture.inline();
        let (ground, half) = (HEIGHT - BOTTOM, TOP + (HEIGHT - BOTTOM - TOP) / 2.0);
        let low = format!("c1\" points=\"74,{ground} 74,{half:.1} 477.0,{half:.1} 880.0,{ground:.1} 880.0,{ground}\"");
        let quarter = TOP + (half - TOP) / 2.0;
        let high =
            format!("c2\" points=\"74,{ground} 74,{quarter:.1} 477.0,{quarter:.1} 880.0,{TOP:.1} 880.0,{ground}\"");
        let (low, high) = (svg.find(&low).unwrap(), svg.find(&high).unwrap());
        assert!(high < low, "what lies below is drawn over it");
        assert!(svg.contains("<title>low: 25.0 % in the mean</title>"), "{svg}");
    }
}
