//! Draws the miss ratio against the size, as an SVG that needs nothing else.

use std::fmt::Write;

/// One policy's line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The policy's name.
    pub name: String,
    /// Sizes in blocks, rising, and their miss ratios.
    pub points: Vec<(usize, f64)>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// Styles of lines. Dashes tell them apart even without colours.
const STYLES: [(&str, &str); 6] = [
    ("#0a6e8a", ""),
    ("#b5471b", "6 3"),
    ("#4f7a28", "2 3"),
    ("#7b3f98", "9 3 2 3"),
    ("#8a6d00", "12 4"),
    ("#444", "1 4"),
];

/// An SVG of the curves. The axis of sizes is logarithmic.
#[must_use]
#[allow(clippy::cast_precision_loss)] // sizes for a drawing
pub fn chart(title: &str, footprint: usize, curves: &[Curve]) -> String {
    let sizes = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
    let (least, most) = (sizes.clone().min().unwrap_or(1).max(1) as f64, sizes.max().unwrap_or(1).max(1) as f64);
    let x = |size: usize| {
        let span = (most / least).ln();
        let share = if span > 0.0 { (size.max(1) as f64 / least).ln() / span } else { 0.5 };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let y = |ratio: f64| HEIGHT - BOTTOM - ratio.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    for tenth in (0..=10).step_by(2) {
        let (ratio, right) = (f64::from(tenth) / 10.0, WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{ratio:.1}</text>",
            LEFT - 8.0,
            y(ratio) + 4.0,
            at = y(ratio),
        );
    }
    let mut ticks: Vec<usize> = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
    ticks.sort_unstable();
    ticks.dedup();
    for size in ticks {
        let percent = size as f64 * 100.0 / footprint.max(1) as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{size}</text>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777\">{}%</text>",
            HEIGHT - BOTTOM + 18.0,
            HEIGHT - BOTTOM + 33.0,
            rounded(percent),
            at = x(size),
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" fill=\"#777\">size of the cache in blocks, and of the footprint</text>\
         <text x=\"16\" y=\"{TOP}\" fill=\"#777\" transform=\"rotate(-90 16 {TOP})\" text-anchor=\"end\">miss ratio</text>",
        HEIGHT - 8.0
    );
    // The names stand beside the ends of their lines, apart from each other.
    let mut names: Vec<(f64, usize)> = curves
        .iter()
        .enumerate()
        .filter_map(|(index, curve)| curve.points.last().map(|point| (y(point.1), index)))
        .collect();
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = TOP;
    for (at, index) in names {
        let curve = &curves[index];
        let (colour, dashes) = STYLES[index % STYLES.len()];
        let points: Vec<String> =
            curve.points.iter().map(|(size, ratio)| format!("{:.1},{:.1}", x(*size), y(*ratio))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        );
        for (size, ratio) in &curve.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{} at {size}: {ratio:.4}</title></circle>",
                x(*size),
                y(*ratio),
                escaped(&curve.name)
            );
        }
        let at = at.max(free);
        free = at + 15.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            WIDTH - RIGHT + 12.0,
            at + 4.0,
            escaped(&curve.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn rounded(percent: f64) -> String {
    let text = format!("{percent:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_and_point_is_drawn_and_names_do_not_lie_on_each_other() {
        let curve =
            |name: &str, last| Curve { name: name.to_owned(), points: vec![(100, 0.9), (200, 0.7), (2000, last)] };
        let svg = chart("a <trace>", 10_000, &[curve("lru", 0.5), curve("adaptive", 0.499)]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 6));
        assert!(svg.contains("a &lt;trace&gt;") && svg.contains(">20%<") && svg.contains(">1%<"));
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("x=\"722\""))
            .map(|line| line.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(heights.len(), 2);
        assert!((heights[0] - heights[1]).abs() >= 14.9, "{heights:?}");
    }

    #[test]
    fn a_single_size_and_no_curve_at_all_are_drawn_too() {
        let one = Curve { name: "fifo".to_owned(), points: vec![(1, 1.0)] };
        assert!(!chart("t", 1, &[one]).contains("NaN"));
        assert!(!chart("t", 0, &[]).contains("NaN"));
    }
}
