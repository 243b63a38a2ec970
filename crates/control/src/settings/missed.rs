//! The devices that a pool misses: where each lay, since when it is missed, and how it went.
//!
//! Keeps true: the list of members on flash alone says who is missed. This is what it has no room for, and for people.
//! It lies in the kept text beside the settings, so it outlives the worker, the marker and the host.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headpond_base::MemberId;

/// How a device went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// It refused a write or a sync.
    Faulted,
    /// A start did not find it.
    Absent,
    /// It was taken out on request.
    Offline,
}

const LOSSES: [(Loss, &str); 3] = [(Loss::Faulted, "faulted"), (Loss::Absent, "absent"), (Loss::Offline, "offline")];

/// A device that the pool misses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Missed {
    pub(crate) member: MemberId,
    /// Where it lay. Empty if nobody knows.
    pub(crate) path: PathBuf,
    /// Since when, in seconds since 1970. 0 if nobody knows.
    pub(crate) since: u64,
    pub(crate) loss: Loss,
}

/// Those of one pool. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct MissedDevices(Arc<Mutex<Vec<Missed>>>);

impl MissedDevices {
    /// Those in a kept text. A line that cannot be understood counts as none.
    pub(super) fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next();
            Some(Missed {
                member: MemberId(word()?.parse().ok()?),
                since: word()?.parse().ok()?,
                loss: word().and_then(|found| LOSSES.iter().find(|(_, name)| *name == found))?.0,
                path: word().unwrap_or_default().into(),
            })
        };
        Self(Arc::new(Mutex::new(text.lines().filter_map(line).collect())))
    }

    /// Them as text of at most so many bytes: without the paths, or the last ones, that have no room.
    pub(super) fn to_text(&self, room: usize) -> String {
        let mut text = String::new();
        let all = self.list();
        for Missed { member, path, since, loss } in all.iter() {
            let loss = LOSSES.iter().find(|(known, _)| known == loss).map_or("", |(_, name)| name);
            let start = format!("{} {since} {loss}", member.0);
            let is_plain = |path: &&str| !path.contains(char::is_control);
            let path = path.to_str().filter(is_plain).unwrap_or_default();
            let whole = format!("{start} {path}\n");
            // Each backslash and quote takes two bytes in the kept text, and each end of a line.
            let taken = |line: &str| 2 * (text.len() + line.len());
            match (taken(&whole), taken(&start)) {
                (bytes, _) if bytes <= room => text.push_str(&whole),
                (_, bytes) if bytes + 2 <= room => text.push_str(&format!("{start}\n")),
                _ => {}
            }
        }
        text
    }

    /// A device is missed from now on. What is known of it already stays.
    pub(crate) fn note(&self, missed: Missed) {
        let mut all = self.list();
        if !all.iter().any(|known| known.member == missed.member) {
            all.push(missed);
        }
    }

    /// Nobody misses any others any more.
    pub(crate) fn keep_only(&self, is_missed: impl Fn(MemberId) -> bool) {
        self.list().retain(|known| is_missed(known.member));
    }

    pub(crate) fn of(&self, member: MemberId) -> Option<Missed> {
        self.list().iter().find(|known| known.member == member).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Missed> {
        self.list().clone()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Missed>> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(member: u16, path: &str) -> Missed {
        let since = 1_795_227_736;
        Missed { member: MemberId(member), path: path.into(), since, loss: Loss::Absent }
    }

    #[test]
    fn what_is_known_of_a_device_reads_back_and_names_give_way_where_there_is_no_room() {
        let devices = MissedDevices::default();
        devices.note(missed(1, "/nvme b/pond"));
        devices.note(Missed { loss: Loss::Offline, ..missed(1, "/later") });
        devices.note(Missed { loss: Loss::Faulted, ..missed(7, "/with\nline") });
        let text = devices.to_text(1 << 10);
        let read = MissedDevices::parse(&format!("{text}nonsense\n9 x faulted /y\n")).all();
        let nameless = Missed { loss: Loss::Faulted, ..missed(7, "") };
        assert_eq!(read, [missed(1, "/nvme b/pond"), nameless.clone()]);
        let short = devices.to_text(60);
        assert!(2 * short.len() <= 60, "{short}");
        assert_eq!(MissedDevices::parse(&short).all(), [missed(1, "")]);
        assert_eq!(devices.to_text(10), "");
        devices.keep_only(|member| member == MemberId(7));
        assert!(devices.of(MemberId(1)).is_none() && devices.of(MemberId(7)).is_some());
    }
}
