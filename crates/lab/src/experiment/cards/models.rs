//! The modelled cards: how much of each is known, and each published point beside the model.
//!
//! Keeps true: what is shown is what the models' tests compare.

use clap::Args;
use headpond_models::flash::{Model, Published};
use serde_json::{Value, json};

/// What `models` is given.
#[derive(Args, Debug)]
pub(super) struct ModelsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows all.
pub(super) fn show(arguments: &ModelsArgs) {
    if arguments.json {
        println!("{}", Value::from(Model::ALL.map(figures).to_vec()));
    } else {
        Model::ALL.into_iter().for_each(|model| print!("{}", text(model)));
    }
}

fn figures(model: Model) -> Value {
    let point = |(at, rate): (Published, f64)| json!({"used": at.used, "mib": at.rate, "model_mib": rate});
    let published: Vec<Value> = model.beside_published().map(point).collect();
    json!({"name": model.name, "spare": model.spare, "link_mib": model.link, "flash_mib": model.flash, "copy": model.copy, "known": model.known, "within": model.within, "published": published})
}

fn text(model: Model) -> String {
    let mut text = format!("{:<16} {:>5.1} % spare; {}", model.name, model.spare * 100.0, model.known);
    if model.published.is_empty() {
        return text + "\n";
    }
    text += &format!("; at most {:.0} % off:\n", model.within * 100.0);
    text += "    used, %   published, MiB/s   model, MiB/s    off\n";
    for (at, rate) in model.beside_published() {
        let off = (rate / at.rate - 1.0) * 100.0;
        text += &format!("    {:>7.1}   {:>16.0}   {rate:>12.0}   {off:>+3.0} %\n", at.used * 100.0, at.rate);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_published_point_is_shown_beside_the_model_and_how_far_it_is_off() {
        let shown = text(Model::DUO);
        let lines: Vec<&str> = shown.lines().skip(2).collect();
        assert_eq!(lines.len(), Model::DUO.published.len(), "{shown}");
        for (line, (at, rate)) in lines.iter().zip(Model::DUO.beside_published()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[1..3], [format!("{:.0}", at.rate), format!("{rate:.0}")], "{shown}");
            let off: f64 = words[3].parse().unwrap();
            assert!((off / 100.0 - (rate / at.rate - 1.0)).abs() < 0.01, "{shown}");
        }
        let figures = figures(Model::DUO);
        assert_eq!(figures["published"].as_array().unwrap().len(), lines.len(), "{figures}");
    }

    #[test]
    fn a_card_of_which_nothing_was_published_has_one_line_that_says_so() {
        let shown = text(Model::IODRIVE_RESERVE);
        assert!(shown.lines().count() == 1 && shown.contains("not published"), "{shown}");
    }
}
