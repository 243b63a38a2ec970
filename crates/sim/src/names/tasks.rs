//! The scheduler: futures of applications, of the kernel, and of changes that the engine asked for. The seed decides
//! their order.
//!
//! Keeps true: each step lets one of them run to its next wait, or makes one event happen in the world. A woken task
//! is polled some time later.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::names::door::outcome;
use crate::names::env::{Task, dispatch, with};

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Running {
    task: Task,
    woken: Arc<Woken>,
    waker: Waker,
}

/// All tasks of a life.
#[derive(Default)]
pub(crate) struct Tasks {
    running: BTreeMap<u64, Running>,
    next: u64,
    /// Steps of the world and of tasks.
    pub(crate) steps: u64,
}

/// This many steps without an end are an endless loop.
const STEPS_MAX: u64 = 400_000;

impl Tasks {
    pub(crate) fn spawn(&mut self, task: Task) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        self.running.insert(self.next, Running { task, woken, waker });
        self.next += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// The daemon is gone, with everything that it was doing. Drop the result while nothing is borrowed.
    pub(crate) fn take_all(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.running)
    }

    /// Makes something happen. `false` if nothing is left to happen.
    pub(crate) fn step(&mut self) -> Result<bool, String> {
        self.steps += 1;
        self.take_in();
        let ready: Vec<u64> =
            self.running.iter().filter(|(_, task)| task.woken.0.load(Ordering::Relaxed)).map(|(id, _)| *id).collect();
        let (sleepers, draw, pick) = with(|env| {
            let pick = env.rng.below(ready.len() as u64) as usize;
            (env.sleepers(), env.rng.below(10), pick)
        });
        let happened = if !ready.is_empty() && (draw < 5 || sleepers == 0 && draw < 8) {
            self.poll(ready[pick]);
            true
        } else if sleepers > 0 && draw < 8 {
            if let Some(waker) = with(|env| env.wake_one()) {
                waker.wake();
            }
            true
        } else {
            with(|env| {
                let stepped = env.world.step();
                env.note_names();
                stepped
            })?
        };
        dispatch();
        if let Some(failure) = with(|env| env.failure.clone()) {
            return Err(failure);
        }
        Ok(happened || !ready.is_empty() || sleepers > 0)
    }

    /// Takes in spawned tasks, and those that the engine has asked for.
    fn take_in(&mut self) {
        let (spawned, operations) = with(|env| (std::mem::take(&mut env.spawned), env.operations_asked()));
        spawned.into_iter().for_each(|task| self.spawn(task));
        for (ticket, operation) in operations {
            self.spawn(Box::pin(async move {
                let outcome = outcome(operation.await);
                with(|env| {
                    let done = env.world.names_done(ticket, outcome);
                    if let Err(what) = done {
                        env.fail(what);
                    }
                    env.note_names();
                });
            }));
        }
    }

    fn poll(&mut self, id: u64) {
        let Some(mut running) = self.running.remove(&id) else { return };
        running.woken.0.store(false, Ordering::Relaxed);
        let mut context = Context::from_waker(&running.waker);
        if running.task.as_mut().poll(&mut context) == Poll::Pending {
            self.running.insert(id, running);
        }
    }

    /// Lets all begun tasks end.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        let mut steps = 0;
        loop {
            self.take_in();
            if self.running.is_empty() && with(|env| env.unanswered().is_empty()) {
                return Ok(());
            }
            steps += 1;
            let more = self.step()?;
            if !more || steps > STEPS_MAX {
                let waiting = with(|env| env.unanswered());
                return Err(format!(
                    "{} operations are never answered (after {steps} steps); at the engine: {waiting:?}",
                    self.running.len()
                ));
            }
        }
    }

    /// Runs one task, and all others that have begun.
    pub(crate) fn carry_out<R: 'static>(&mut self, task: impl Future<Output = R> + 'static) -> Result<R, String> {
        let result = Rc::new(RefCell::new(None));
        let place = result.clone();
        self.spawn(Box::pin(async move {
            let done = task.await;
            *place.borrow_mut() = Some(done);
        }));
        self.drain()?;
        result.take().ok_or_else(|| "it did not end".to_owned())
    }
}
