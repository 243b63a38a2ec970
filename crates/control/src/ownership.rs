//! Whether a pool and an origin belong together, from what the pool's superblock and the marker
//! beside the origin say. Pure: the whole table is tested below.
//!
//! What it rests on:
//! - A pool with dirty data always has a marker beside its origin that names it, with the
//!   origin's key, which the superblock has too.
//! - A pool without dirty data is safe with any origin: each file is compared before its clean data
//!   counts. So after an orderly unmount no trace is needed at the origin.
//! - Each use of a pool has a claim, drawn at random, in the superblock and in the marker. A pool with another claim
//!   than the marker's is an image from before that use, or a copy that was used elsewhere. One whose log ends before what
//!   was durable in its use, as the note beside the marker says, is an image from that use.

use std::path::Path;

use headpond_base::{Epoch, PoolId};
use headpond_format::OriginName;

use crate::Refusal;
use crate::durable::Durable;
use crate::marker::{Claim, Marker, hex};

/// What a pool holds, after its recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// The pool's own name.
    pub(crate) pool: PoolId,
    /// Whose data it has.
    pub(crate) origin: Option<OriginName>,
    /// Its last use.
    pub(crate) epoch: Epoch,
    /// The claim of that use: zeros if none was ever drawn.
    pub(crate) claim: [u8; 16],
    /// The count of its superblock.
    pub(crate) counter: u64,
    /// The last batch of the host stream that counts.
    pub(crate) host_batch: u64,
    /// Files with something that the origin has not.
    pub(crate) dirty_files: usize,
    /// How much of it.
    pub(crate) dirty_bytes: u64,
}

/// What the operator allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    /// To overwrite a pool without dirty data.
    pub(crate) format: bool,
    /// To drop dirty data that is in the way.
    pub(crate) discard_dirty: bool,
}

/// How to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ownership {
    /// The pool is this origin's, whose key this is.
    Same([u8; 16]),
    /// The pool has nothing dirty: it becomes this origin's under a new key, and keeps what
    /// turns out to be its files'.
    TakeOver,
    /// The pool is made anew, under a new key.
    Format,
    /// The pool was this origin's, whose key this is, but is not as the origin left it: nothing in it is believed
    /// unless the operator says so.
    Image([u8; 16], Image),
}

/// How a pool came to be another than the one that the marker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Image {
    /// It is as it was once: a copy, a snapshot or a clone was put back.
    Older,
    /// It is a copy that was used by itself since.
    Elsewhere,
    /// It is from the very use that ended by a crash, and its log ends too early.
    Shorter {
        /// The last host batch that it has.
        ends: u64,
        /// One that was durable later.
        durable: u64,
    },
}

/// What the origin says of the pool that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Awaited<'a> {
    /// Which it is.
    pub(crate) marker: Option<&'a Marker>,
    /// How far its log was durable.
    pub(crate) durable: Option<&'a Durable>,
}

/// Compares a pool with the use that the marker tells of; `None` if it is as that use left it.
fn image(claim: &Claim, durable: Option<&Durable>, held: &Held) -> Option<Image> {
    let held_claim = hex(&held.claim);
    let is_of = if held_claim == claim.id {
        if claim.stopped_at.is_some_and(|count| held.counter < count) {
            return Some(Image::Older);
        }
        &claim.id
    } else if held_claim == claim.before && !claim.begun {
        // A crash before the pool had the claim.
        &claim.before
    } else if held_claim == claim.before && held.epoch.0 >= claim.epoch {
        // The superblock that had it is lost, and recovery went by the checkpoint, which has the epoch alone.
        &claim.id
    } else {
        return Some(if held.epoch.0 < claim.epoch { Image::Older } else { Image::Elsewhere });
    };
    let durable = durable.filter(|durable| durable.claim == *is_of)?.host_batch;
    let ends = held.host_batch;
    (ends < durable).then_some(Image::Shorter { ends, durable })
}

/// Judges a pool (none: the flash is new, or to be formatted whatever it holds) and an origin.
pub(crate) fn judge(
    origin: &Path,
    flash: &Path,
    awaited: Awaited<'_>,
    held: Option<&Held>,
    allowed: Allowed,
) -> Result<Ownership, Refusal> {
    let Awaited { marker, durable } = awaited;
    let dirty = held.is_some_and(|held| held.dirty_files > 0);
    let proven = match (marker, held) {
        (Some(marker), Some(held)) if marker.pool == held.pool.to_string() => match &held.origin {
            Some(name) if hex(&name.key) == marker.origin_key => Some(name.key),
            // A crash after the marker was written and before the pool was: nothing is in it yet.
            None => unhex(&marker.origin_key),
            Some(_) => None,
        },
        // No marker, so nothing dirty belongs here. The path tells whether to keep the key.
        (None, Some(held)) if !dirty => {
            let name = held.origin.as_ref().filter(|name| Path::new(&shown(name)) == origin);
            name.map(|name| name.key)
        }
        _ => None,
    };
    if let Some(key) = proven {
        let claim = marker.and_then(|marker| marker.claim.as_ref());
        if let Some(image) = claim.zip(held).and_then(|(claim, held)| image(claim, durable, held)) {
            // Not even to make it anew: what it does not know of may be dirty in the one that is awaited.
            return Ok(if allowed.discard_dirty { Ownership::Format } else { Ownership::Image(key, image) });
        }
        if !allowed.format {
            return Ok(Ownership::Same(key));
        }
        if dirty && !allowed.discard_dirty {
            return Err(has_dirty(flash, held, "--format would drop it."));
        }
        return Ok(Ownership::Format);
    }
    if let Some(marker) = marker.filter(|_| !allowed.discard_dirty) {
        let is_gone = held.is_some() && marker.flash == flash;
        let given_away = held.is_some_and(|held| held.pool.to_string() == marker.pool);
        let state = if given_away || is_gone {
            "which has been given to another origin since, so that what only it had is gone".to_owned()
        } else {
            format!("pool {}, host {}, {}, since {}", marker.pool, marker.host, marker.state.describe(), marker.since)
        };
        let (path, flash) = (origin.to_owned(), marker.flash.clone());
        return Err(Refusal::OriginDirtyElsewhere { path, flash, state });
    }
    if dirty && !allowed.discard_dirty {
        let same_path =
            held.and_then(|held| held.origin.as_ref()).is_some_and(|name| Path::new(&shown(name)) == origin);
        let why = if same_path {
            "This origin has no marker for it: it is a copy, or was restored from a backup, since that data was written."
        } else {
            "It belongs to another origin than the one given."
        };
        return Err(has_dirty(flash, held, why));
    }
    Ok(if dirty || held.is_none() || allowed.format { Ownership::Format } else { Ownership::TakeOver })
}

fn has_dirty(flash: &Path, held: Option<&Held>, why: &str) -> Refusal {
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

fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitStatus;
    use crate::marker::{MARKER_VERSION, MarkerState};

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
            mountpoint: "/mnt".into(),
            pid: 1,
            since: "then".into(),
            dirty_bytes: 0,
            claim: None,
        }
    }

    fn held(origin: Option<(&str, [u8; 16])>, dirty_files: usize) -> Held {
        let origin = origin.map(|(path, key)| OriginName { key, path: path.into() });
        let dirty_bytes = dirty_files as u64 * 8192;
        Held {
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
        // marker, pool, then the judgement with no flag and with --discard-dirty.
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
                let awaited = Awaited { marker: marker.as_ref(), durable: None };
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
        let claim =
            |begun, stopped_at| Some(Claim { epoch: 4, id: hex(&NOW), before: hex(&BEFORE), begun, stopped_at });
        let (running, starting, stopped) = (claim(true, None), claim(false, None), claim(true, Some(20)));
        let first = Some(Claim { before: hex(&[0; 16]), epoch: 1, ..starting.clone().unwrap() });
        let (same, older, elsewhere) =
            (Ownership::Same(KEY), Ownership::Image(KEY, Image::Older), Ownership::Image(KEY, Image::Elsewhere));
        let table = [
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
                let held = Held { epoch: Epoch(epoch), claim: held_claim, counter, ..held(Some((HERE, KEY)), dirty) };
                let judge_it = |format, discard_dirty| {
                    let allowed = Allowed { format, discard_dirty };
                    let awaited = Awaited { marker: Some(&marker), durable: None };
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
    fn a_pool_whose_log_ends_before_what_was_durable_in_its_use_is_not_believed() {
        const BEFORE: [u8; 16] = [5; 16];
        const NOW: [u8; 16] = [6; 16];
        let note = |claim: [u8; 16], host_batch| Some(Durable { claim: hex(&claim), host_batch });
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
            let claim = Claim { epoch: 4, id: hex(&NOW), before: hex(&BEFORE), begun, stopped_at: None };
            let marker = Marker { claim: Some(claim), ..marker(POOL, KEY) };
            let held = Held { epoch: Epoch(epoch), claim: held_claim, host_batch: 30, ..held(Some((HERE, KEY)), 2) };
            let awaited = Awaited { marker: Some(&marker), durable: durable.as_ref() };
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
        let judge_it = |held: Held, discard_dirty| {
            let allowed = Allowed { format: true, discard_dirty };
            let marker = marker(POOL, KEY);
            let awaited = Awaited { marker: Some(&marker), durable: None };
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
