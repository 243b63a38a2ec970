//! One answer to the kernel for one or more requests to the engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headpond_base::Buf;
use rustix::io::Errno;

use crate::answer::Answer;

/// A share in an answer, which goes out when the last share is done: with an error, if one had one.
pub(crate) enum Join {
    /// There is only this one; it costs nothing.
    One(Answer),
    /// There are several.
    Several(Arc<Mutex<Parts>>),
    /// An only share that was given away.
    Gone,
}

/// What the shares have brought together.
pub(crate) struct Parts {
    answer: Option<Answer>,
    left: usize,
    error: Option<Errno>,
    data: Vec<Vec<Buf>>,
}

impl Join {
    /// For `parts` requests.
    pub(crate) fn new(answer: Answer, parts: usize) -> Self {
        let data = vec![Vec::new(); parts];
        Self::Several(Arc::new(Mutex::new(Parts { answer: Some(answer), left: parts, error: None, data })))
    }

    /// One more share; of an only one, that one.
    pub(crate) fn share(&mut self) -> Self {
        match self {
            Self::Several(parts) => Self::Several(parts.clone()),
            only => std::mem::replace(only, Self::Gone),
        }
    }

    /// Part `number` of a read is here.
    pub(crate) fn data(self, number: usize, pieces: Vec<Buf>) {
        match self {
            Self::One(answer) => answer.data(&pieces),
            Self::Several(parts) => {
                let mut parts = locked(&parts);
                parts.data[number] = pieces;
                parts.one(|answer, data| answer.data(&data.concat()));
            }
            Self::Gone => {}
        }
    }

    /// A part of a write of so many bytes in all is done.
    pub(crate) fn written(self, whole: u32) {
        match self {
            Self::One(answer) => answer.written(whole),
            Self::Several(parts) => locked(&parts).one(|answer, _| answer.written(whole)),
            Self::Gone => {}
        }
    }

    /// A part has failed.
    pub(crate) fn error(self, error: Errno) {
        match self {
            Self::One(answer) => answer.error(error),
            Self::Several(parts) => {
                let mut parts = locked(&parts);
                parts.error = Some(error);
                parts.one(|answer, _| answer.error(error));
            }
            Self::Gone => {}
        }
    }
}

fn locked(parts: &Mutex<Parts>) -> MutexGuard<'_, Parts> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Parts {
    /// One is done; the last one answers.
    fn one(&mut self, good: impl FnOnce(Answer, &[Vec<Buf>])) {
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        if let Some(answer) = self.answer.take() {
            match self.error {
                None => good(answer, &self.data),
                Some(error) => answer.error(error),
            }
        }
    }
}
