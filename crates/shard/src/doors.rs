//! The front doors that the shard serves itself, and whose turn it is.
//!
//! Invariants:
//! - Each door has a watch of its own, from its opening to its end.
//! - Doors with requests take turns: the shard serves none twice while another waits. So a busy door delays another
//!   by at most one portion of each.
//! - Bounded by the reactor's watches: a door that finds no room is dropped, and serves itself.

use headpond_device::{Reactor, Watch};

use crate::{Door, Taken};

/// All doors of one shard.
#[derive(Default)]
pub(crate) struct Doors {
    open: Vec<Open>,
    /// Where the look for the next one to be served begins.
    next: usize,
}

/// One door.
struct Open {
    door: Box<dyn Door>,
    watch: Watch,
    /// It may have something, though its descriptor does not say so again.
    has_more: bool,
}

impl Doors {
    /// Serves one more from now on, if it can be watched.
    pub(crate) fn admit(&mut self, door: Box<dyn Door>, reactor: &mut dyn Reactor) {
        if let Some(watch) = door.descriptor().ok().and_then(|descriptor| reactor.watch(descriptor)) {
            self.open.push(Open { door, watch, has_more: false });
        }
    }

    /// Asks the reactor which have something.
    pub(crate) fn listen(&mut self, reactor: &mut dyn Reactor) {
        while let Some(watch) = reactor.take_readable() {
            if let Some(open) = self.open.iter_mut().find(|open| open.watch == watch) {
                open.has_more = true;
            }
        }
    }

    /// How many may have something.
    pub(crate) fn ready(&self) -> usize {
        self.open.iter().filter(|open| open.has_more).count()
    }

    /// Lets the next one whose turn it is do `take`, and does with it what it then says. False: none has anything.
    pub(crate) fn serve(&mut self, reactor: &mut dyn Reactor, take: impl FnOnce(&mut dyn Door) -> Taken) -> bool {
        let count = self.open.len();
        let Some(place) = (0..count).map(|step| (self.next + step) % count).find(|at| self.open[*at].has_more) else {
            return false;
        };
        self.next = place + 1;
        let open = &mut self.open[place];
        match take(&mut *open.door) {
            Taken::All => open.has_more = false,
            Taken::Some => {}
            Taken::Closed => {
                // In order, so that whose turn is next stays so.
                reactor.unwatch(self.open.remove(place).watch);
                self.next = place;
            }
        }
        true
    }
}
