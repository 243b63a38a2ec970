//! What can happen to a mount.

/// The kind of an event. The numbers are in the pool, and stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    /// The mount began, in order.
    Started = 1,
    /// The mount began after a crash or a loss of power.
    StartedAfterCrash = 2,
    /// Another worker took over from one that died.
    TakenOver = 3,
    /// Another program goes on.
    Upgraded = 4,
    /// The mount ended in order.
    Stopped = 5,
    /// A setting changed.
    Setting = 6,
    /// A rule came or went.
    Rule = 7,
    /// A write or sync of the flash failed.
    FlashFailed = 8,
    /// A read of the flash failed, and the origin had the data.
    FlashMasked = 9,
    /// Dirty data is unreadable.
    Lost = 10,
    /// An operation of the origin failed.
    OriginFailed = 11,
    /// The origin gives no answer.
    OriginSilent = 12,
    /// Another headpond took the origin over.
    ClaimLost = 13,
    /// The pool is without a device, and not on request.
    DeviceLost = 14,
    /// All dirty data has the copies that it should have, after a device was lost or added.
    CopiesComplete = 15,
    /// A device was taken in.
    DeviceAdded = 16,
    /// A device was emptied, and let go.
    DeviceRemoved = 17,
    /// A device was taken in, and another one let go.
    DeviceReplaced = 18,
    /// The pool uses more of a device.
    DeviceGrown = 19,
    /// The pool uses less of a device.
    DeviceShrunk = 20,
    /// A device was taken out at once, on request.
    DeviceOffline = 21,
    /// A scrub found damage.
    DamageFound = 22,
}

/// Each kind with its name in JSON, and how grave it is.
const NAMES: [(EventKind, &str, &str); 22] = [
    (EventKind::Started, "started", "note"),
    (EventKind::StartedAfterCrash, "started-after-crash", "warning"),
    (EventKind::TakenOver, "taken-over", "warning"),
    (EventKind::Upgraded, "upgraded", "note"),
    (EventKind::Stopped, "stopped", "note"),
    (EventKind::Setting, "setting", "note"),
    (EventKind::Rule, "rule", "note"),
    (EventKind::FlashFailed, "flash-failed", "error"),
    (EventKind::FlashMasked, "flash-error-masked", "warning"),
    (EventKind::Lost, "data-lost", "error"),
    (EventKind::OriginFailed, "origin-failed", "error"),
    (EventKind::OriginSilent, "origin-silent", "warning"),
    (EventKind::ClaimLost, "claim-lost", "error"),
    (EventKind::DeviceLost, "device-lost", "error"),
    (EventKind::CopiesComplete, "copies-complete", "note"),
    (EventKind::DeviceAdded, "device-added", "note"),
    (EventKind::DeviceRemoved, "device-removed", "note"),
    (EventKind::DeviceReplaced, "device-replaced", "note"),
    (EventKind::DeviceGrown, "device-grown", "note"),
    (EventKind::DeviceShrunk, "device-shrunk", "note"),
    (EventKind::DeviceOffline, "device-offline", "warning"),
    (EventKind::DamageFound, "damage-found", "warning"),
];

impl EventKind {
    /// The name in JSON, and `note`, `warning` or `error`. A number that a later version wrote is `other`.
    pub(crate) fn named(number: u8) -> (&'static str, &'static str) {
        let found = NAMES.iter().find(|(kind, _, _)| *kind as u8 == number);
        found.map_or(("other", "note"), |(_, name, grave)| (*name, *grave))
    }

    /// Whether many of this kind within an hour are one event: otherwise a failing disk would leave no room for others.
    pub(super) const fn repeats(self) -> bool {
        matches!(self, Self::FlashFailed | Self::FlashMasked | Self::Lost | Self::OriginFailed | Self::OriginSilent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_and_a_number_of_a_later_version_is_other() {
        for (at, (kind, name, _)) in NAMES.iter().enumerate() {
            assert_eq!((*kind as usize, EventKind::named(*kind as u8).0), (at + 1, *name));
        }
        assert_eq!(EventKind::named(200), ("other", "note"));
    }
}
