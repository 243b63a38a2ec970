//! What is drawn over seconds: many runs behind their median, and layers up to all of it.

use super::{Axis, COLOURS, Line, Picture, put};
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
}

/// Whether the point of a line is a dot.
pub(super) fn is_dot(index: usize, count: usize) -> bool {
    index % count.div_ceil(DOTS_MAX) == 0
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
