//! What happens to the hosts, and in which order.
//!
//! Invariant: in as many rounds as there are events, each comes once.

use crate::random::below;
use std::fmt;
use std::str::FromStr;

/// What happens in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// Each process of the owner's host is killed, and its flash is lost.
    OwnerLost,
    /// Each process of the owner's host is killed. Its flash is there, and nobody uses it.
    OwnerKilled,
    /// The owner's host stands still.
    OwnerStopped(Fenced),
    /// The owner does not reach the registry.
    CutFromRegistry(Fenced),
    /// The owner reaches neither registry nor peer.
    CutFromBoth(Fenced),
    /// The owner hears nothing of the registry, which hears the owner. Then it is turned off.
    RegistryUnheard,
    /// The owner does not reach its peer, for longer than it waits for it.
    CutFromPeer,
    /// The owner hears nothing of its peer, which hears the owner.
    PeerUnheard,
    /// The peer hears nothing of the owner, which hears the peer.
    OwnerUnheard,
    /// The peer's server is killed, and started again.
    PeerKilled,
    /// The registry is killed, and started again.
    RegistryKilled,
}

/// Whether the guard turns the old owner's host off before it takes over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fenced {
    /// A program kills each process of it.
    Off,
    /// Nobody does. Once the other host serves, the old owner is let go on.
    GoesOn,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::OwnerLost,
        Self::OwnerKilled,
        Self::OwnerStopped(Fenced::Off),
        Self::OwnerStopped(Fenced::GoesOn),
        Self::CutFromRegistry(Fenced::Off),
        Self::CutFromRegistry(Fenced::GoesOn),
        Self::CutFromBoth(Fenced::Off),
        Self::CutFromBoth(Fenced::GoesOn),
        Self::RegistryUnheard,
        Self::CutFromPeer,
        Self::PeerUnheard,
        Self::OwnerUnheard,
        Self::PeerKilled,
        Self::RegistryKilled,
    ];

    /// The word for it on a command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::OwnerLost => "owner-lost",
            Self::OwnerKilled => "owner-killed",
            Self::OwnerStopped(Fenced::Off) => "stopped-fenced",
            Self::OwnerStopped(Fenced::GoesOn) => "stopped-goes-on",
            Self::CutFromRegistry(Fenced::Off) => "no-registry-fenced",
            Self::CutFromRegistry(Fenced::GoesOn) => "no-registry-goes-on",
            Self::CutFromBoth(Fenced::Off) => "cut-off-fenced",
            Self::CutFromBoth(Fenced::GoesOn) => "cut-off-goes-on",
            Self::RegistryUnheard => "registry-unheard",
            Self::CutFromPeer => "no-peer",
            Self::PeerUnheard => "peer-unheard",
            Self::OwnerUnheard => "owner-unheard",
            Self::PeerKilled => "peer-killed",
            Self::RegistryKilled => "registry-killed",
        }
    }

    /// Whether the other host takes over.
    #[must_use]
    pub const fn deposes(self) -> bool {
        !matches!(
            self,
            Self::CutFromPeer | Self::PeerUnheard | Self::OwnerUnheard | Self::PeerKilled | Self::RegistryKilled
        )
    }

    /// Whether the guard is given a program that fences.
    #[must_use]
    pub const fn fenced(self) -> bool {
        // An owner whose host is dead is fenced by the program as well; it finds nothing to kill.
        !matches!(
            self,
            Self::OwnerStopped(Fenced::GoesOn)
                | Self::CutFromRegistry(Fenced::GoesOn)
                | Self::CutFromBoth(Fenced::GoesOn)
        )
    }

    /// Whether the old owner is let go on once it was replaced.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        self.deposes() && !self.fenced()
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let words = || Self::ALL.map(Self::word).join(", ");
        Self::ALL.into_iter().find(|event| event.word() == word).ok_or_else(|| format!("it is one of {}", words()))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OwnerLost => "owner killed, its flash lost",
            Self::OwnerKilled => "owner killed",
            Self::OwnerStopped(Fenced::Off) => "owner stopped, fenced",
            Self::OwnerStopped(Fenced::GoesOn) => "owner stopped, later let go on",
            Self::CutFromRegistry(Fenced::Off) => "owner cut off from etcd, fenced",
            Self::CutFromRegistry(Fenced::GoesOn) => "owner cut off from etcd, later not",
            Self::CutFromBoth(Fenced::Off) => "owner cut off from both, fenced",
            Self::CutFromBoth(Fenced::GoesOn) => "owner cut off from both, later not",
            Self::RegistryUnheard => "owner hears nothing of etcd, fenced",
            Self::CutFromPeer => "owner cut off from its peer",
            Self::PeerUnheard => "owner hears nothing of its peer",
            Self::OwnerUnheard => "peer hears nothing of the owner",
            Self::PeerKilled => "peer killed",
            Self::RegistryKilled => "etcd killed",
        })
    }
}

/// The events of so many rounds, drawn by a seed: all of them in some order, then all again in another.
#[must_use]
pub fn drawn(rounds: usize, mut seed: u64) -> Vec<Event> {
    let mut events = Vec::with_capacity(rounds);
    while events.len() < rounds {
        let mut deck = Event::ALL;
        for last in (1..deck.len()).rev() {
            let other = below(&mut seed, last as u64 + 1) as usize;
            deck.swap(last, other);
        }
        events.extend(deck);
    }
    events.truncate(rounds);
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_event_comes_in_as_many_rounds_as_there_are_events() {
        for seed in 0..100 {
            let events = drawn(24, seed);
            for deck in events.chunks_exact(Event::ALL.len()) {
                assert_eq!(deck.iter().collect::<BTreeSet<_>>(), Event::ALL.iter().collect());
            }
            assert_eq!(drawn(12, seed), events[..12], "a longer run begins as a shorter one");
        }
        assert_ne!(drawn(11, 1), drawn(11, 2));
    }

    #[test]
    fn an_owner_that_goes_on_was_replaced_and_not_fenced() {
        for event in Event::ALL {
            assert_eq!(event.goes_on(), event.deposes() && !event.fenced(), "{event}");
            assert_eq!(event.word().parse(), Ok(event));
        }
        assert_eq!(Event::ALL.into_iter().filter(|event| event.goes_on()).count(), 3);
    }
}
