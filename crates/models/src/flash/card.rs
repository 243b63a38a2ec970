//! A flash card: a translation layer with rates, and cards of 2010 to 2014 as presets.
//!
//! Keeps true: each preset says which of its figures a study gave, and which were chosen so that it gives them.

use super::{Cost, Translation};
use headpond_measure::Random;
use std::str::FromStr;

/// A point that was published: random 16 KiB writes, once they are steady.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Published {
    /// The share of the space in use, above 0 and up to 1.
    pub used: f64,
    /// MiB a second.
    pub rate: f64,
}

const fn point(used: f64, rate: f64) -> Published {
    Published { used, rate }
}

/// The share of 320 GB that is in use when so many GiB of it are.
const fn of_320_gb(gib: f64) -> f64 {
    gib * 1.073_741_824 / 320.0
}

/// What distinguishes one card from another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Space beyond the exported space, as a share of it.
    pub spare: f64,
    /// The most that its bus or controller lets through, in MiB a second.
    pub link: f64,
    /// The most that its flash writes, copies included, in MiB a second.
    pub flash: f64,
    /// What it costs to copy a page, on top of its write: as a share of a write.
    pub copy: f64,
    /// How much of it is known.
    pub known: &'static str,
    /// What was published of it.
    pub published: &'static [Published],
    /// The model is at most this share off, at each of these points.
    pub within: f64,
}

impl Model {
    /// The tachIOn of 400 GB. Its link is its fastest published point. Its flash is what its slowest point needs.
    pub const TACHION: Self = Self {
        name: "tachion",
        spare: 0.30,
        link: 990.0,
        flash: 966.0,
        copy: 0.0,
        known: "published at nine fills",
        // The last four are an older test's.
        published: &[
            point(0.2, 990.0),
            point(0.3, 980.0),
            point(0.4, 964.0),
            point(0.5, 872.0),
            point(0.6, 783.0),
            point(0.7, 669.0),
            point(0.8, 611.0),
            point(0.9, 502.0),
            point(1.0, 417.0),
            point(1.0 / 3.0, 959.0),
            point(0.5, 850.0),
            point(2.0 / 3.0, 685.0),
            point(1.0, 417.0),
        ],
        within: 0.12,
    };
    /// The ioDrive Duo of 320 GB. The cost of a copy is what bends the curve as published, and no property that anyone
    /// has told of the card.
    pub const DUO: Self = Self {
        name: "iodrive-duo",
        spare: 0.28,
        link: 1095.0,
        flash: 1287.0,
        copy: 8.5,
        known: "published at nine fills; spare space and the cost of copies are fitted",
        // The last three are another study's, which says how many GiB were in use.
        published: &[
            point(0.2, 1095.0),
            point(0.3, 1006.0),
            point(0.4, 825.0),
            point(0.5, 613.0),
            point(0.6, 397.0),
            point(0.7, 308.0),
            point(0.8, 237.0),
            point(0.9, 117.0),
            point(1.0, 99.0),
            point(of_320_gb(100.0), 934.0),
            point(of_320_gb(150.0), 613.0),
            point(of_320_gb(200.0), 354.0),
        ],
        within: 0.20,
    };
    /// The ioDrive of 320 GB (MLC): 500 MiB a second at its best, 110 to 120 when it is full. Two points, so all between
    /// them is the formula's.
    pub const IODRIVE: Self = Self {
        name: "iodrive",
        spare: 0.137,
        link: 500.0,
        flash: 500.0,
        copy: 0.0,
        known: "published nearly empty and full; between them it is a formula",
        // "Nearly empty" is taken to be a tenth. Full: 110 to 120.
        published: &[point(0.1, 500.0), point(1.0, 115.0)],
        within: 0.04,
    };
    /// The same, formatted to three quarters of its size: a quarter more to clean in.
    pub const IODRIVE_RESERVE: Self = Self {
        name: "iodrive-reserve",
        spare: (1.0 + 0.137) / 0.75 - 1.0,
        link: 500.0,
        flash: 500.0,
        copy: 0.0,
        known: "the ioDrive's model with a quarter of its size reserved; not published",
        published: &[],
        within: 0.0,
    };
    /// The FlashMAX II: 780 MiB a second once it is steady, taken to be full. All else is the tachIOn's, of the same maker.
    pub const FLASHMAX_2: Self = Self {
        name: "flashmax-2",
        spare: 0.30,
        link: 1830.0,
        flash: 1830.0,
        copy: 0.0,
        known: "published at one point, steady; the curve is the tachIOn's",
        published: &[point(1.0, 780.0)],
        within: 0.02,
    };
    /// The FlashMAX 1400M, the one before: 550 MiB a second once it is steady, taken to be full. It holds 2 TB for 1.4
    /// TB of data: for cleaning, and in place of modules that fail. So at most 43 % are spare; 30 % is the tachIOn's.
    pub const FLASHMAX_1400: Self = Self {
        name: "flashmax-1400",
        spare: 0.30,
        link: 1290.0,
        flash: 1290.0,
        copy: 0.0,
        known: "published at one point, steady; the curve is the tachIOn's",
        published: &[point(1.0, 550.0)],
        within: 0.02,
    };
    /// One of eight eXFlash DIMMs: an eighth of 1 GB a second when half full, and a fall of 22 % from 20 to 80 % of use.
    pub const DIMM: Self = Self {
        name: "dimm",
        spare: 0.556,
        link: 125.0,
        flash: 125.0,
        copy: 0.0,
        known: "published half full, eight together, and how far it falls from 20 to 80 %; between them it is a formula",
        // An eighth of 1 GB.
        published: &[point(0.5, 1e9 / 8.0 / 1_048_576.0)],
        within: 0.05,
    };
    /// All cards.
    pub const ALL: [Self; 7] = [
        Self::TACHION,
        Self::DUO,
        Self::IODRIVE,
        Self::IODRIVE_RESERVE,
        Self::FLASHMAX_2,
        Self::FLASHMAX_1400,
        Self::DIMM,
    ];

    /// MiB a second of a user's writes. `written` pages cost the flash work `cost`.
    #[must_use]
    pub fn rate(&self, written: u64, cost: Cost) -> f64 {
        let work = cost.programs as f64 + self.copy * cost.reads as f64;
        self.link.min(self.flash * written as f64 / work.max(1.0))
    }

    /// Each published point, and the model's rate at it in MiB a second.
    pub fn beside_published(self) -> impl Iterator<Item = (Published, f64)> {
        self.published.iter().map(move |at| (*at, Card::filled(self, at.used, SEED).settled().rate))
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(|model| model.name).join(", ");
        let found = Self::ALL.into_iter().find(|model| model.name == name);
        found.ok_or_else(|| format!("no model is called '{name}': one of {}", known()))
    }
}

/// Pages of a modelled card. A small card behaves like a large one of the same proportions: only the share of spare
/// space counts.
const PAGES: u32 = 1 << 16;
const PAGES_PER_BLOCK: u32 = 128;
/// A card has settled when each page in use was overwritten this often.
const SETTLE: u32 = 6;
/// Of the comparison with published points.
const SEED: u64 = 3;

/// A card in use.
#[derive(Clone, Debug)]
pub struct Card {
    model: Model,
    translation: Translation,
    used: u32,
    random: Random,
}

/// A stretch of writes, measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// MiB a second, as the writer sees them.
    pub rate: f64,
    /// Pages that the flash wrote for each page written.
    pub amplification: f64,
}

impl Card {
    /// A fresh card. The first `used` (above 0, up to 1) of it is written once, from start to end.
    #[must_use]
    pub fn filled(model: Model, used: f64, seed: u64) -> Self {
        let mut translation = Translation::new(PAGES, model.spare, PAGES_PER_BLOCK);
        let used = ((f64::from(PAGES) * used) as u32).clamp(1, PAGES);
        (0..used).for_each(|page| _ = translation.write(page));
        Self { model, translation, used, random: Random::new(seed) }
    }

    /// Overwrites pages in use at random: `times` the used space in all.
    pub fn overwrite(&mut self, times: f64) -> Measured {
        let writes = (f64::from(self.used) * times).max(1.0) as u64;
        let cost = (0..writes).fold(Cost::default(), |cost, _| {
            let page = self.random.below(self.used as usize) as u32;
            cost.and(self.translation.write(page))
        });
        Measured { rate: self.model.rate(writes, cost), amplification: cost.programs as f64 / writes as f64 }
    }

    /// Overwrites the used space until the rate has settled.
    pub fn settle(&mut self) {
        self.overwrite(f64::from(SETTLE));
    }

    /// Settles the card, then measures it.
    pub fn settled(&mut self) -> Measured {
        self.settle();
        self.overwrite(2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_card_writes_as_published_within_the_share_that_it_states() {
        for model in Model::ALL {
            let mut widest: f64 = 0.0;
            for (at, rate) in model.beside_published() {
                let off = rate / at.rate - 1.0;
                println!(
                    "{} {:.1} % used: {rate:.0} for {:.0}, {:+.1} %",
                    model.name,
                    at.used * 100.0,
                    at.rate,
                    off * 100.0
                );
                assert!(off.abs() <= model.within, "{} {at:?}: {rate:.0}", model.name);
                widest = widest.max(off.abs());
            }
            assert!(model.within - widest < 0.05, "{} states more than its {widest:.3}", model.name);
        }
    }

    #[test]
    fn the_iodrive_is_faster_full_with_a_reserve_and_no_faster_with_as_much_data() {
        let rate = |model, used| Card::filled(model, used, 4).settled().rate;
        let full = rate(Model::IODRIVE, 1.0);
        // As much data: the reserve changes nothing. As full: it does.
        let (without, with) = (rate(Model::IODRIVE, 0.75), rate(Model::IODRIVE_RESERVE, 1.0));
        assert!((with / without - 1.0).abs() < 0.03 && with > 2.0 * full, "{without} {with} {full}");
    }

    #[test]
    fn with_all_that_it_may_have_as_spare_space_the_1400_would_be_a_fifth_slower_half_full() {
        let rate = |model, used| Card::filled(model, used, 4).settled().rate;
        let flash = 550.0 * super::super::amplification(2.0 / 1.4 - 1.0, 1.0);
        let most = Model { spare: 2.0 / 1.4 - 1.0, link: flash, flash, ..Model::FLASHMAX_1400 };
        assert!((rate(most, 1.0) / 550.0 - 1.0).abs() < 0.03);
        let half = rate(most, 0.5) / rate(Model::FLASHMAX_1400, 0.5);
        assert!((0.78..0.85).contains(&half), "{half}");
    }

    #[test]
    fn a_dimm_falls_as_far_as_published() {
        let rate = |used| Card::filled(Model::DIMM, used, 4).settled().rate;
        // Two steps of 11 to 12 %.
        let fall = 1.0 - rate(0.8) / rate(0.2);
        assert!((0.20..=0.24).contains(&fall), "{fall}");
    }

    #[test]
    fn a_fresh_card_is_fast_then_declines_and_settles() {
        let mut card = Card::filled(Model::TACHION, 0.9, 1);
        let rounds: Vec<f64> = (0..40).map(|_| card.overwrite(0.1).rate).collect();
        assert!(rounds[0] > 900.0 && rounds[39] < 560.0, "{rounds:?}");
        let late: Vec<f64> = (0..5).map(|_| card.overwrite(0.5).rate).collect();
        assert!(headpond_measure::judge(&late).is_some_and(|window| window.steady()), "{late:?}");
    }
}
