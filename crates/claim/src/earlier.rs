//! The claims that a pool may still have while a use of it has not begun.
//!
//! A start writes its claim beside the origin first, and then to each member. Nothing is served before all have it. If it
//! dies in between, some have it and others the one before; and so after each further start that dies. Whichever a member
//! has, it lacks nothing that anybody was told of since the last use that began.

/// Sixteen random bytes: the key of an origin, or the claim of a use.
pub type Drawn = [u8; 16];

/// How many are kept. Of more starts in a row that die, those in the middle are forgotten, but for the claim that the last
/// start found: a member alone with one that is forgotten is taken for an older image.
const MOST: usize = 8;

/// Such claims: that of the last use that began comes first, then those of the starts after it that died, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EarlierClaims([Option<Drawn>; MOST]);

impl EarlierClaims {
    /// Whether a pool with this claim may be one of them.
    #[must_use]
    pub fn have(&self, claim: Drawn) -> bool {
        self.0.contains(&Some(claim))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Drawn> {
        self.0.into_iter().flatten()
    }

    /// What a start has to name that found a pool with the claim `found`. `died`: the last start, if it has not begun.
    #[must_use]
    pub fn after(died: Option<(Drawn, Self)>, found: Drawn) -> Self {
        let mut all: Vec<Drawn> = match died {
            Some((claim, earlier)) if claim == found || earlier.have(found) => earlier.iter().chain([claim]).collect(),
            _ => vec![found],
        };
        if all.len() > MOST {
            // What this start found, the next one finds again, if this one dies as early.
            let place = 1 + usize::from(all[1] == found);
            all.remove(place);
        }
        all.into_iter().collect()
    }
}

impl FromIterator<Drawn> for EarlierClaims {
    /// The first eight of them.
    fn from_iter<I: IntoIterator<Item = Drawn>>(claims: I) -> Self {
        let mut all = [None; MOST];
        all.iter_mut().zip(claims).for_each(|(place, claim)| *place = Some(claim));
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_that_die_add_their_claims_and_one_that_begins_ends_that() {
        let claim = |number: u8| [number; 16];
        let mut earlier = EarlierClaims::after(None, claim(0));
        assert_eq!(earlier.iter().collect::<Vec<_>>(), [claim(0)]);
        for number in 1..=20 {
            // The start before drew `number`, and died when some members had it, or none.
            let found = if number % 2 == 0 { claim(number) } else { claim(0) };
            earlier = EarlierClaims::after(Some((claim(number), earlier)), found);
            assert!(earlier.have(claim(0)) && earlier.have(claim(number)), "{number}: {earlier:?}");
        }
        assert_eq!(earlier.iter().count(), MOST);
        for number in 21..=60 {
            earlier = EarlierClaims::after(Some((claim(number), earlier)), claim(20));
            assert!([0, 20, number].map(claim).into_iter().all(|claim| earlier.have(claim)), "{number}: {earlier:?}");
        }
        let elsewhere = EarlierClaims::after(Some((claim(61), earlier)), claim(99));
        assert_eq!(elsewhere.iter().collect::<Vec<_>>(), [claim(99)], "a pool that is none of these");
    }
}
