//! A few threads for rare work that may block: files that do not go through the engine, and work at the origin before
//! the engine can take a request for data.
//!
//! The queue has no limit of its own: the kernel limits the requests of each caller.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Work for a thread.
type Job = Box<dyn FnOnce() + Send>;

/// The threads. After the last clone's drop they finish their jobs, then end.
#[derive(Clone)]
pub struct Workers {
    jobs: Sender<Job>,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(threads: usize) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads.max(1) {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("door-{number}")).spawn(move || work(&queue))?;
        }
        Ok(Self { jobs })
    }

    /// Gives the threads a job.
    pub fn push(&self, job: impl FnOnce() + Send + 'static) {
        // Fails only if all threads have panicked. What the job owns then answers for itself when it is dropped.
        let _ = self.jobs.send(Box::new(job));
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        job();
    }
}
