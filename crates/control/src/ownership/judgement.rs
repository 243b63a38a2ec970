//! Whether a pool and an origin belong together: what the judgement ([`headpond_claim::ownership`]) needs from the
//! marker and the pool's superblock, and its refusals in words. The tests below have the whole table.

use std::path::Path;

use headpond_base::{Epoch, PoolId, hex, unhex};
pub(crate) use headpond_claim::ownership::{Allowed, Image, Ownership};
use headpond_claim::ownership::{Awaited, Drawn, Durable, Held, Refused, Use, Whose};
use headpond_format::OriginName;

use super::durable::DurableLog;
use super::marker::{Claim, Marker};
use crate::refusal::Refusal;

/// What a pool holds after its recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolHeld {
    /// The pool's id.
    pub(crate) pool: PoolId,
    /// The origin whose data it has.
    pub(crate) origin: Option<OriginName>,
    /// Its last use.
    pub(crate) epoch: Epoch,
    /// The claim of that use. Zeros if it has none.
    pub(crate) claim: [u8; 16],
    /// The count of its superblock.
    pub(crate) counter: u64,
    /// The last batch of the host stream that counts.
    pub(crate) host_batch: u64,
    /// Files with something that the origin lacks.
    pub(crate) dirty_files: usize,
    /// Bytes that the origin lacks.
    pub(crate) dirty_bytes: u64,
}

/// What lies beside the origin about the pool with its newest data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AwaitedNote<'a> {
    /// The marker, which names the pool.
    pub(crate) marker: Option<&'a Marker>,
    /// How far that pool's log was durable.
    pub(crate) durable: Option<&'a DurableLog>,
}

impl AwaitedNote<'_> {
    fn waits(self) -> Option<Awaited> {
        let marker = self.marker?;
        let noted = |note: &DurableLog| Durable { claim: unhex(&note.claim), host_batch: note.host_batch };
        Some(Awaited {
            pool: unhex(&marker.pool.replace('-', "")).map(PoolId),
            key: unhex(&marker.origin_key),
            claim: marker.claim.as_ref().map(last_use),
            durable: self.durable.map(noted),
        })
    }
}

fn last_use(claim: &Claim) -> Use {
    let Claim { epoch, id, before, earlier, begun, stopped_at } = claim;
    let earlier = earlier.iter().filter_map(|claim| unhex(claim)).collect();
    Use { epoch: *epoch, id: unhex(id), before: unhex(before), earlier, begun: *begun, stopped_at: *stopped_at }
}

/// The claims that the next start has to name, which found the pool with the claim `found` and this beside the origin.
pub(crate) fn earlier_claims(awaited: AwaitedNote<'_>, found: Drawn) -> Vec<String> {
    let waits = awaited.waits();
    let last = waits.as_ref().and_then(|waits| waits.claim.as_ref());
    let durable = waits.as_ref().and_then(|waits| waits.durable);
    Use::earlier_of_next(last, durable, found).iter().map(|claim| hex(&claim)).collect()
}

impl PoolHeld {
    /// As an origin at this path sees it.
    fn seen_from(&self, origin: &Path) -> Held {
        let whose = |name: &OriginName| Whose { key: name.key, same_path: Path::new(&shown(name)) == origin };
        Held {
            pool: self.pool,
            origin: self.origin.as_ref().map(whose),
            epoch: self.epoch.0,
            claim: self.claim,
            counter: self.counter,
            host_batch: self.host_batch,
            dirty: self.dirty_files > 0,
        }
    }
}

/// Judges a pool and an origin. No pool: the flash is new, or will be formatted whatever it holds.
pub(crate) fn judge(
    origin: &Path,
    flash: &Path,
    awaited: AwaitedNote<'_>,
    held: Option<&PoolHeld>,
    allowed: Allowed,
) -> Result<Ownership, Refusal> {
    let holds = held.map(|held| held.seen_from(origin));
    headpond_claim::ownership::judge(awaited.waits().as_ref(), holds.as_ref(), allowed).map_err(|refused| {
        let why = match refused {
            Refused::AwaitsAnother => return awaits_another(origin, flash, awaited.marker, held),
            Refused::WouldDrop => "--format would drop it.",
            Refused::NotAwaited => {
                "This origin has no marker for that pool. It may be a copy, or restored from an older backup."
            }
            Refused::DirtyElsewhere => "You named another origin.",
        };
        has_dirty(flash, held, why)
    })
}

fn awaits_another(origin: &Path, flash: &Path, marker: Option<&Marker>, held: Option<&PoolHeld>) -> Refusal {
    let Some(marker) = marker else { unreachable!("without a marker the origin waits for none") };
    let is_gone = held.is_some() && marker.flash == flash;
    let given_away = held.is_some_and(|held| held.pool.to_string() == marker.pool);
    let state = if given_away || is_gone {
        "that pool now serves another origin, so the newest data is gone".to_owned()
    } else {
        format!("pool {}, host {}, {}, since {}", marker.pool, marker.host, marker.state.describe(), marker.since)
    };
    Refusal::OriginDirtyElsewhere { path: origin.to_owned(), flash: marker.flash.clone(), state }
}

fn has_dirty(flash: &Path, held: Option<&PoolHeld>, why: &str) -> Refusal {
    let whose = held.and_then(|held| held.origin.as_ref()).map_or_else(
        || "an unknown origin".to_owned(),
        |name| format!("origin {} (key {})", shown(name), hex(&name.key)),
    );
    let (files, dirty_bytes) = held.map_or((0, 0), |held| (held.dirty_files, held.dirty_bytes));
    let whose = format!("{files} {} of {whose}", if files == 1 { "file" } else { "files" });
    Refusal::FlashDirtyElsewhere { path: flash.to_owned(), whose, dirty_bytes, why: why.to_owned() }
}

fn shown(name: &OriginName) -> String {
    String::from_utf8_lossy(&name.path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::marker::{MARKER_VERSION, MarkerState};
    use crate::refusal::ExitStatus;

    const HERE: &str = "/slow/here";
    const KEY: [u8; 16] = [1; 16];
    const OTHER_KEY: [u8; 16] = [2; 16];
    const POOL: PoolId = PoolId([3; 16]);
    const OTHER_POOL: PoolId = PoolId([4; 16]);

    fn marker(pool: PoolId, key: [u8; 16]) -> Marker {
        Marker {
            about: Marker::about(),
            version: MARKER_VERSION,
            state: MarkerState::DirtyLeft,
            origin_key: hex(&key),
            pool: pool.to_string(),
            host: "db1".into(),
            flash: "/nvme/first".into(),
            members: Vec::new(),
            members_generation: 0,
            mountpoint: "/mnt".into(),
            pid: 1,
            since: "then".into(),
            dirty_bytes: 0,
            claim: None,
            owner: 1,
        }
    }

    fn held(origin: Option<(&str, [u8; 16])>, dirty_files: usize) -> PoolHeld {
        let origin = origin.map(|(path, key)| OriginName { key, path: path.into() });
        let dirty_bytes = dirty_files as u64 * 8192;
        PoolHeld {
            pool: POOL,
            origin,
            epoch: Epoch(0),
            claim: [0; 16],
            counter: 1,
            host_batch: 1,
            dirty_files,
            dirty_bytes,
        }
    }

    #[test]
    fn every_meeting_of_pool_and_origin_is_decided() {
        use ExitStatus::{FlashDirtyElsewhere, OriginDirtyElsewhere};
        let ours = |dirty| Some(held(Some((HERE, KEY)), dirty));
        let moved = |dirty| Some(held(Some(("/slow/there", KEY)), dirty));
        let theirs = |dirty| Some(held(Some(("/slow/there", OTHER_KEY)), dirty));
        let nobodys = |dirty| Some(held(None, dirty));
        let same = Ok(Ownership::Same(KEY));
        let (take_over, format) = (Ok(Ownership::TakeOver), Ok(Ownership::Format));
        // The marker, the pool, then the judgement without a flag and with --discard-dirty.
        let table = [
            ("all new", None, None, format, format),
            ("after an orderly unmount", None, ours(0), same, same),
            ("the same, and the origin has moved", None, moved(0), take_over, take_over),
            ("a clean pool of another origin", None, theirs(0), take_over, take_over),
            ("a pool that nobody used yet", None, nobodys(0), take_over, take_over),
            ("dirty, and the marker is gone", None, ours(2), Err(FlashDirtyElsewhere), format),
            ("dirty data of another origin", None, theirs(2), Err(FlashDirtyElsewhere), format),
            ("after a crash", Some(marker(POOL, KEY)), ours(2), same, same),
            ("after a crash with nothing dirty", Some(marker(POOL, KEY)), ours(0), same, same),
            ("after a crash, and the origin has moved", Some(marker(POOL, KEY)), moved(2), same, same),
            ("a crash at the very start", Some(marker(POOL, KEY)), nobodys(0), same, same),
            ("the wrong, new flash", Some(marker(OTHER_POOL, KEY)), None, Err(OriginDirtyElsewhere), format),
            ("the wrong, clean flash", Some(marker(OTHER_POOL, KEY)), theirs(0), Err(OriginDirtyElsewhere), take_over),
            ("the wrong, dirty flash", Some(marker(OTHER_POOL, KEY)), theirs(1), Err(OriginDirtyElsewhere), format),
            ("the right flash, given away", Some(marker(POOL, KEY)), theirs(0), Err(OriginDirtyElsewhere), take_over),
        ];
        for (case, marker, held, plain, discarding) in table {
            for (discard_dirty, expected) in [(false, plain), (true, discarding)] {
                let allowed = Allowed { format: false, discard_dirty };
                let awaited = AwaitedNote { marker: marker.as_ref(), durable: None };
                let judged = judge(Path::new(HERE), Path::new("/f"), awaited, held.as_ref(), allowed);
                assert_eq!(judged.map_err(|refusal| refusal.status()), expected, "{case}, discard {discard_dirty}");
            }
        }
    }

    #[test]
    fn a_pool_that_is_not_as_the_origin_left_it_is_not_believed() {
        const BEFORE: [u8; 16] = [5; 16];
        const NOW: [u8; 16] = [6; 16];
        const OTHER: [u8; 16] = [7; 16];
        let claim = |begun, stopped_at| {
            Some(Claim {
                epoch: 4,
                id: hex(&NOW),
                before: hex(&BEFORE),
                earlier: vec![hex(&BEFORE)],
                begun,
                stopped_at,
            })
        };
        let (running, starting, stopped) = (claim(true, None), claim(false, None), claim(true, Some(20)));
        let first =
            Some(Claim { before: hex(&[0; 16]), earlier: vec![hex(&[0; 16])], epoch: 1, ..starting.clone().unwrap() });
        // The start before died as well: some members have its claim, and others the one of the last use that began.
        const DIED: [u8; 16] = [8; 16];
        let twice = |begun| {
            let earlier = vec![hex(&BEFORE), hex(&DIED)];
            Some(Claim { epoch: 5, before: hex(&DIED), earlier, begun, ..starting.clone().unwrap() })
        };
        let (again, at_last) = (twice(false), twice(true));
        let (same, older, elsewhere) =
            (Ownership::Same(KEY), Ownership::Image(KEY, Image::Older), Ownership::Image(KEY, Image::Elsewhere));
        let table = [
            ("two starts died, and this member has the claim of none", again.clone(), 3, BEFORE, 9, same),
            ("two starts died, and this member has the first one's", again.clone(), 4, DIED, 10, same),
            ("two starts died, and this is older", again, 2, OTHER, 5, older),
            ("the third start began", at_last.clone(), 3, BEFORE, 9, older),
            ("the third start began, and this has an epoch like its own", at_last, 5, BEFORE, 9, elsewhere),
            ("a marker that knows no claims", None, 3, OTHER, 9, same),
            ("after a crash", running.clone(), 4, NOW, 15, same),
            ("an image from the use before", running.clone(), 3, BEFORE, 9, older),
            ("an image from long ago", running.clone(), 1, OTHER, 2, older),
            ("an image from before claims were drawn", running.clone(), 3, [0; 16], 9, older),
            ("its superblock is lost, and the checkpoint told", running.clone(), 4, BEFORE, 12, same),
            ("a copy that was used elsewhere", running.clone(), 4, OTHER, 15, elsewhere),
            ("a copy that was used elsewhere, and often", running, 9, OTHER, 99, elsewhere),
            ("a crash before the pool had the claim", starting.clone(), 3, BEFORE, 9, same),
            ("a crash just after it had it", starting.clone(), 4, NOW, 10, same),
            ("an older image at that moment", starting.clone(), 2, OTHER, 5, older),
            ("a copy that was used elsewhere, at that moment", starting, 5, OTHER, 11, elsewhere),
            ("a crash at the very first start", first, 0, [0; 16], 1, same),
            ("after a stop in order", stopped.clone(), 4, NOW, 20, same),
            ("a snapshot of the use that ended in order", stopped.clone(), 4, NOW, 19, older),
            ("an older one of the use before", stopped, 3, BEFORE, 9, older),
        ];
        for (case, claim, epoch, held_claim, counter, expected) in table {
            for dirty in [0, 2] {
                let marker = Marker { claim: claim.clone(), ..marker(POOL, KEY) };
                let held =
                    PoolHeld { epoch: Epoch(epoch), claim: held_claim, counter, ..held(Some((HERE, KEY)), dirty) };
                let judge_it = |format, discard_dirty| {
                    let allowed = Allowed { format, discard_dirty };
                    let awaited = AwaitedNote { marker: Some(&marker), durable: None };
                    judge(Path::new(HERE), Path::new("/f"), awaited, Some(&held), allowed)
                };
                assert_eq!(judge_it(false, false).unwrap(), expected, "{case}");
                if expected != same {
                    assert_eq!(judge_it(true, false).unwrap(), expected, "{case}: --format alone does not drop it");
                    assert_eq!(judge_it(false, true).unwrap(), Ownership::Format, "{case}");
                }
            }
        }
    }

    #[test]
    fn a_pool_that_was_about_to_be_taken_over_may_be_taken_over_again() {
        const BEFORE: [u8; 16] = [5; 16];
        let judged = |begun, held_claim, dirty| {
            let claim = Claim {
                epoch: 4,
                id: hex(&[6; 16]),
                before: hex(&BEFORE),
                earlier: vec![hex(&BEFORE)],
                begun,
                stopped_at: None,
            };
            let marker = Marker { claim: Some(claim), ..marker(POOL, KEY) };
            // The key is that of the origin that had the pool before.
            let held = PoolHeld { claim: held_claim, ..held(Some(("/slow/there", OTHER_KEY)), dirty) };
            let allowed = Allowed { format: false, discard_dirty: false };
            let awaited = AwaitedNote { marker: Some(&marker), durable: None };
            judge(Path::new(HERE), Path::new("/f"), awaited, Some(&held), allowed).map_err(|refusal| refusal.status())
        };
        let refused = Err(ExitStatus::OriginDirtyElsewhere);
        assert_eq!(judged(false, BEFORE, 0), Ok(Ownership::TakeOver));
        assert_eq!(judged(false, BEFORE, 2), refused, "an image with dirty data of the other origin");
        assert_eq!(judged(false, [7; 16], 0), refused, "the other origin used it since");
        assert_eq!(judged(true, BEFORE, 0), refused, "an image from before the pool was taken over");
    }

    #[test]
    fn a_pool_whose_log_ends_before_what_was_durable_in_its_use_is_not_believed() {
        const BEFORE: [u8; 16] = [5; 16];
        const NOW: [u8; 16] = [6; 16];
        let note = |claim: [u8; 16], host_batch| Some(DurableLog { claim: hex(&claim), host_batch });
        let shorter = Ownership::Image(KEY, Image::Shorter { ends: 30, durable: 31 });
        let same = Ownership::Same(KEY);
        // The pool has batch 30.
        let table = [
            ("the note is missing, or torn", None, true, 4, NOW, same),
            ("as the crash left it", note(NOW, 30), true, 4, NOW, same),
            ("batches came after the note", note(NOW, 2), true, 4, NOW, same),
            ("a snapshot of the use that crashed", note(NOW, 31), true, 4, NOW, shorter),
            ("the note is of the use before", note(BEFORE, 31), true, 4, NOW, same),
            ("killed before the pool had the claim", note(BEFORE, 30), false, 3, BEFORE, same),
            ("a snapshot of the use before, put back then", note(BEFORE, 31), false, 3, BEFORE, shorter),
            ("its superblock is lost, and the checkpoint told", note(NOW, 30), true, 4, BEFORE, same),
            ("a snapshot of which that is so", note(NOW, 31), true, 4, BEFORE, shorter),
        ];
        for (case, durable, begun, epoch, held_claim, expected) in table {
            let claim = Claim {
                epoch: 4,
                id: hex(&NOW),
                before: hex(&BEFORE),
                earlier: vec![hex(&BEFORE)],
                begun,
                stopped_at: None,
            };
            let marker = Marker { claim: Some(claim), ..marker(POOL, KEY) };
            let held =
                PoolHeld { epoch: Epoch(epoch), claim: held_claim, host_batch: 30, ..held(Some((HERE, KEY)), 2) };
            let awaited = AwaitedNote { marker: Some(&marker), durable: durable.as_ref() };
            for (discard_dirty, expected) in
                [(false, expected), (true, if expected == same { same } else { Ownership::Format })]
            {
                let allowed = Allowed { format: false, discard_dirty };
                let judged = judge(Path::new(HERE), Path::new("/f"), awaited, Some(&held), allowed);
                assert_eq!(judged.unwrap(), expected, "{case}, discard {discard_dirty}");
            }
        }
    }

    #[test]
    fn formatting_drops_dirty_data_only_when_told_twice() {
        let judge_it = |held: PoolHeld, discard_dirty| {
            let allowed = Allowed { format: true, discard_dirty };
            let marker = marker(POOL, KEY);
            let awaited = AwaitedNote { marker: Some(&marker), durable: None };
            judge(Path::new(HERE), Path::new("/f"), awaited, Some(&held), allowed)
        };
        let refusal = judge_it(held(Some((HERE, KEY)), 2), false).unwrap_err();
        assert_eq!(refusal.status(), ExitStatus::FlashDirtyElsewhere);
        let text = refusal.to_string();
        assert!(text.contains("16 KiB") && text.contains("2 files") && text.contains(HERE), "{text}");
        assert_eq!(judge_it(held(Some((HERE, KEY)), 2), true).unwrap(), Ownership::Format);
        assert_eq!(judge_it(held(Some((HERE, KEY)), 0), false).unwrap(), Ownership::Format);
    }

    #[test]
    fn keys_read_back() {
        assert_eq!(unhex(&hex(&[0xab; 16])), Some([0xab; 16]));
        assert_eq!(unhex("ab"), None);
        assert_eq!(unhex(&"xy".repeat(16)), None);
    }
}
