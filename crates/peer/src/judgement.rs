//! Whom a peer serves.
//!
//! Invariant: the owner's number and the epoch that a peer keeps of a pool never go down.

use crate::hello::{Hello, MemberNamed, Reason, Versions};

/// What a peer keeps of a pool, as its record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The largest owner's number that was accepted, or that a take-over raised.
    pub owner: u64,
    /// The largest epoch of that.
    pub epoch: u64,
    /// The member that it has.
    pub member: MemberNamed,
    /// Bytes of the member.
    pub bytes: u64,
    /// Whether the bytes count: not after a loss of power while an owner wrote.
    pub counts: bool,
}

/// What becomes of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HelloVerdict {
    /// The member that is kept is served, once this is recorded.
    Open(Kept),
    /// An empty one is made, and served once this is recorded.
    Make(Kept),
    /// Nothing changes.
    Refuse(Reason),
}

/// Judges a hello by what is kept of its pool, by a peer that speaks these versions.
#[must_use]
pub fn judge(speaks: Versions, hello: &Hello, kept: Option<&Kept>) -> HelloVerdict {
    if speaks.common(hello.versions).is_none() {
        return HelloVerdict::Refuse(Reason::Version);
    }
    let Hello { owner, epoch, member, bytes, .. } = *hello;
    match kept {
        Some(kept) if kept.owner > owner => HelloVerdict::Refuse(Reason::Owner),
        Some(kept) if kept.owner == owner && kept.epoch > epoch => HelloVerdict::Refuse(Reason::Epoch),
        Some(kept) if bytes > 0 && kept.member == hello.beside => HelloVerdict::Refuse(Reason::Same),
        _ if bytes > 0 => HelloVerdict::Make(Kept { owner, epoch, member, bytes, counts: true }),
        Some(kept) if kept.counts => HelloVerdict::Open(Kept { owner, epoch, ..*kept }),
        _ => HelloVerdict::Refuse(Reason::NotKept),
    }
}

#[cfg(test)]
mod tests {
    use headpond_base::PoolId;
    use proptest::prelude::*;

    use super::*;

    fn judge(hello: &Hello, kept: Option<&Kept>) -> HelloVerdict {
        super::judge(Versions::SPOKEN, hello, kept)
    }

    fn hello(owner: u64, epoch: u64, bytes: u64) -> Hello {
        let (pool, member) = (PoolId([1; 16]), [2; 16]);
        Hello { versions: Versions::SPOKEN, durable: false, pool, member, owner, epoch, bytes, beside: [0; 16] }
    }

    fn kept(owner: u64, epoch: u64) -> Kept {
        Kept { owner, epoch, member: [3; 16], bytes: 1 << 26, counts: true }
    }

    #[test]
    fn an_owner_is_served_unless_the_peer_knows_a_later_one() {
        use HelloVerdict::{Make, Open, Refuse};
        assert_eq!(judge(&hello(1, 5, 0), None), Refuse(Reason::NotKept));
        assert_eq!(judge(&hello(1, 5, 0), Some(&kept(1, 5))), Open(kept(1, 5)));
        assert_eq!(judge(&hello(1, 6, 0), Some(&kept(1, 5))), Open(kept(1, 6)));
        assert_eq!(judge(&hello(1, 4, 0), Some(&kept(1, 5))), Refuse(Reason::Epoch));
        assert_eq!(judge(&hello(1, 9, 0), Some(&kept(2, 5))), Refuse(Reason::Owner));
        assert_eq!(judge(&hello(1, 9, 1 << 26), Some(&kept(2, 5))), Refuse(Reason::Owner), "nor is anything made");
        assert_eq!(judge(&hello(2, 1, 0), Some(&kept(1, 5))), Open(kept(2, 1)));
        assert_eq!(judge(&hello(1, 5, 0), Some(&Kept { counts: false, ..kept(1, 5) })), Refuse(Reason::NotKept));
        let made = Kept { member: [2; 16], ..kept(1, 5) };
        assert_eq!(judge(&hello(1, 5, 1 << 26), Some(&kept(1, 5))), Make(made));
        let beside = Hello { beside: [3; 16], ..hello(1, 5, 1 << 26) };
        assert_eq!(judge(&beside, Some(&kept(1, 5))), Refuse(Reason::Same), "the owner would lose what it has");
        assert_eq!(judge(&Hello { bytes: 0, ..beside }, Some(&kept(1, 5))), Open(kept(1, 5)));
    }

    #[test]
    fn ends_whose_versions_differ_by_one_speak_the_older_one() {
        let speak = |oldest, newest| Versions::between(oldest, newest).unwrap();
        let judged = |peer, owner| super::judge(peer, &Hello { versions: owner, ..hello(1, 5, 0) }, Some(&kept(1, 5)));
        for (peer, owner, common) in [
            (speak(1, 1), speak(1, 1), Some(1)),
            (speak(1, 1), speak(1, 2), Some(1)),
            (speak(1, 2), speak(1, 1), Some(1)),
            (speak(1, 2), speak(2, 3), Some(2)),
            (speak(2, 3), speak(1, 2), Some(2)),
            (speak(1, 1), speak(2, 3), None),
            (speak(2, 3), speak(1, 1), None),
        ] {
            assert_eq!(peer.common(owner), common, "{peer:?}, {owner:?}");
            let expected =
                if common.is_some() { HelloVerdict::Open(kept(1, 5)) } else { HelloVerdict::Refuse(Reason::Version) };
            assert_eq!(judged(peer, owner), expected, "{peer:?}, {owner:?}");
        }
        assert_eq!((Versions::between(0, 1), Versions::between(3, 2)), (None, None));
    }

    proptest! {
        #[test]
        fn what_is_kept_never_goes_down(hellos in prop::collection::vec((0_u64..4, 0_u64..4, 0_u64..2), 1..40)) {
            let mut record: Option<Kept> = None;
            for (owner, epoch, bytes) in hellos {
                let before = record.map(|kept| (kept.owner, kept.epoch));
                if let HelloVerdict::Open(kept) | HelloVerdict::Make(kept) = judge(&hello(owner, epoch, bytes << 26), record.as_ref()) {
                    record = Some(kept);
                }
                prop_assert!(record.map(|kept| (kept.owner, kept.epoch)) >= before);
            }
        }
    }
}
