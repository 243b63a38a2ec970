//! Faults that a test puts into the flash of a running mount. Only tests use them.

use headpond_base::MemberId;
use headpond_device::{FaultHandle, FaultPlan};

use crate::refusal::Refusal;

/// What makes each member of a pool fail.
#[derive(Clone, Default)]
pub(crate) struct MemberFaults(Vec<(MemberId, FaultHandle)>);

impl MemberFaults {
    /// The handles of a pool that a test made.
    pub(crate) const fn of(handles: Vec<(MemberId, FaultHandle)>) -> Self {
        Self(handles)
    }

    /// Injects a fault into one member, or into all: `cut` (nothing works any more, as when a device is pulled out),
    /// `heal` (nothing fails or is slow any more, except after a cut), or slow and failing operations in the words of
    /// [`FaultPlan`], counted from now.
    ///
    /// # Errors
    /// [`Refusal::Usage`] for anything else.
    pub(crate) fn inject(&self, member: Option<MemberId>, what: &str) -> Result<(), Refusal> {
        if self.0.is_empty() {
            let why = "this mount accepts no faults, because it was made without --test-fault";
            return Err(Refusal::Usage(why.to_owned()));
        }
        let meant: Vec<_> = self.0.iter().filter(|(id, _)| member.is_none_or(|member| *id == member)).collect();
        if meant.is_empty() {
            return Err(Refusal::Usage("no fault can be put on that member".to_owned()));
        }
        meant.into_iter().try_for_each(|(_, handle)| inject(handle, what))
    }
}

fn inject(handle: &FaultHandle, what: &str) -> Result<(), Refusal> {
    match what {
        "cut" => handle.cut(),
        "heal" => handle.heal(),
        _ => {
            let plan: FaultPlan = what.parse().map_err(Refusal::Usage)?;
            if plan.withhold.is_some() || plan.accept_torn_batch {
                let why = "a mount can lose writes or accept torn batches only if --test-fault says so at its start";
                return Err(Refusal::Usage(why.to_owned()));
            }
            if !plan.delay.is_zero() {
                handle.delay(plan.delay);
            }
            plan.faults.into_iter().for_each(|fault| handle.fail(fault));
        }
    }
    Ok(())
}
