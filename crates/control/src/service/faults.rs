//! Faults that a test puts into the flash of a running mount. Only tests use them.

use headpond_device::{FaultHandle, FaultPlan};

use crate::refusal::Refusal;

/// Injects a fault: `cut` (nothing works any more, as when a device is pulled out), `heal` (nothing fails any more,
/// except after a cut), or failing operations in the words of [`FaultPlan`], counted from now.
///
/// # Errors
/// [`Refusal::Usage`] for anything else.
pub(crate) fn inject(handle: &FaultHandle, what: &str) -> Result<(), Refusal> {
    match what {
        "cut" => handle.cut(),
        "heal" => handle.heal(),
        _ => {
            let plan: FaultPlan = what.parse().map_err(Refusal::Usage)?;
            if plan.withhold.is_some() || plan.accept_torn_batch {
                let why = "a mount can lose writes or accept torn batches only if --test-fault says so at its start";
                return Err(Refusal::Usage(why.to_owned()));
            }
            plan.faults.into_iter().for_each(|fault| handle.fail(fault));
        }
    }
    Ok(())
}
