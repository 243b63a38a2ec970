//! The gate that each change of the origin passes: `shard/src/claim.rs` and `control/src/ownership/standing.rs`, step by
//! step, around the real [`Watch`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_base::Nanos;
use headpond_claim::{Standing, Watch, Way};

use crate::hosts::kept::{Deposed, TermState};
use crate::hosts::network::Place;
use crate::hosts::world::Here;
use crate::planted_hosts::PlantedHosts;

const INTERVAL: Nanos = Nanos(5 * Nanos::SECOND.0);
const TERM_PATIENCE: Nanos = Nanos(10 * Nanos::SECOND.0);
const TERM_LOOK: Nanos = Nanos(100 * Nanos::MILLISECOND.0);
const LOOKS: u32 = 3;

/// The gate of a mount.
pub(crate) struct Gate {
    here: Here,
    owner: u64,
    deposed: Rc<Deposed>,
    watch: RefCell<Watch>,
    one_looks: Cell<bool>,
}

impl Gate {
    pub(crate) fn new(here: &Here, owner: u64, deposed: &Rc<Deposed>) -> Self {
        let watch = RefCell::new(Watch::new(INTERVAL));
        Self { here: here.clone(), owner, deposed: deposed.clone(), watch, one_looks: Cell::new(false) }
    }

    /// Whether a change may begin now. Whether it is late already, if one may.
    pub(crate) async fn pass(&self) -> Option<bool> {
        if self.here.with(|world| world.is_planted(PlantedHosts::DestagesAfterLease)) {
            return Some(self.here.with(|world| world.passes_gate(self.here.who, self.owner)));
        }
        let until = self.here.clock().plus(TERM_PATIENCE);
        while self.term() == TermState::Waits {
            if self.here.clock() >= until {
                return None;
            }
            self.here.sleep(TERM_LOOK).await;
        }
        if self.term() == TermState::Ended || self.deposed.doubted.take() {
            self.watch.borrow_mut().doubt();
        }
        if self.way() == Way::Pass {
            return Some(self.passed());
        }
        while self.one_looks.get() {
            self.here.sleep(TERM_LOOK).await;
        }
        self.one_looks.set(true);
        let passes = self.look_often().await;
        self.one_looks.set(false);
        // What is done next belongs to this look: nothing is waited for in between.
        (passes && self.way() == Way::Pass).then(|| self.passed())
    }

    async fn look_often(&self) -> bool {
        for _ in 0..LOOKS {
            match self.way() {
                Way::Pass => return true,
                Way::Barred => return false,
                Way::Look => {
                    if !self.look().await {
                        return false;
                    }
                }
            }
        }
        self.way() == Way::Pass
    }

    fn passed(&self) -> bool {
        self.here.with(|world| world.passes_gate(self.here.who, self.owner))
    }

    fn term(&self) -> TermState {
        self.deposed.state(self.here.clock())
    }

    /// The claim is lost for good: `Gate::is_lost`.
    pub(crate) fn is_lost(&self) -> bool {
        self.watch.borrow().may_change(self.here.clock()) == Way::Barred
    }

    fn way(&self) -> Way {
        match self.watch.borrow().may_change(self.here.clock()) {
            Way::Pass if self.term() != TermState::Stands => Way::Look,
            way => way,
        }
    }

    async fn look(&self) -> bool {
        let now = self.here.clock();
        self.watch.borrow_mut().look_begun(now);
        let standing = if self.deposed.is_said() { Standing::Lost } else { self.look_beside().await };
        self.watch.borrow_mut().looked(standing);
        standing == Standing::Ours
    }

    /// Looks at the marker. Over a network it takes until the origin answers.
    async fn look_beside(&self) -> Standing {
        let (host, owner) = (self.here.who.host, self.owner);
        self.here.origin_answers().await;
        let marker = self.here.with(|world| world.origin.marker);
        match marker {
            Some(marker) if marker.owner == owner && marker.host == host => Standing::Ours,
            _ => Standing::Lost,
        }
    }
}

impl Here {
    /// Waits until the origin has answered something.
    pub(crate) async fn origin_answers(&self) {
        let host = self.who.host;
        self.sleep_below(4).await;
        for (from, to) in [(Place::Host(host), Place::Origin), (Place::Origin, Place::Host(host))] {
            while self.with(|world| {
                let now = world.now;
                !world.network.passes(from, to, now)
            }) {
                self.sleep_below(400).await;
            }
        }
    }
}
