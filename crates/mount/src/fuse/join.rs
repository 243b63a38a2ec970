//! One answer to the kernel for one or more requests to the engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headpond_base::Buf;
use rustix::io::Errno;

use crate::fuse::answer::Answer;

/// A share in an answer. The answer goes out when the last share is done, with an error if any share failed.
pub(crate) enum Join {
    /// The only share. It costs nothing.
    One(Answer),
    /// There are several.
    Several(Arc<Mutex<Parts>>),
    /// The only share, given away.
    Gone,
}

/// The results of the shares so far.
pub(crate) struct Parts {
    answer: Option<Answer>,
    left: usize,
    error: Option<Errno>,
    data: Vec<Vec<Buf>>,
}

impl Join {
    /// An answer to `parts` requests.
    pub(crate) fn new(answer: Answer, parts: usize) -> Self {
        let data = vec![Vec::new(); parts];
        Self::Several(Arc::new(Mutex::new(Parts { answer: Some(answer), left: parts, error: None, data })))
    }

    /// One more share; if there is only one, that one.
    pub(crate) fn share(&mut self) -> Self {
        match self {
            Self::Several(parts) => Self::Several(parts.clone()),
            only => std::mem::replace(only, Self::Gone),
        }
    }

    /// Part `number` of a read has come.
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

    /// A part of a write of `whole` bytes is done.
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
    /// A share is done. The last one answers.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::wire::{ANSWER_HEAD, answer_head, written_body};
    use headpond_base::BufMut;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    fn pieces(bytes: &[u8]) -> Vec<Buf> {
        vec![BufMut::copy_of(bytes).freeze()]
    }

    /// The answer to the kernel if two shares end as they do in `end`.
    fn told(end: impl FnOnce(Join, Join)) -> Vec<u8> {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut join = Join::new(Answer::new(Arc::new(OwnedFd::from(writer)), 5), 2);
        let other = join.share();
        end(join, other);
        let mut told = Vec::new();
        reader.read_to_end(&mut told).unwrap();
        told
    }

    #[test]
    fn parts_of_a_read_are_answered_once_and_in_order_whichever_comes_first() {
        let told = told(|first, second| {
            second.data(1, pieces(b"the end"));
            first.data(0, pieces(b"from the start to "));
        });
        assert_eq!(told[..ANSWER_HEAD], answer_head(5, 25, 0));
        assert_eq!(&told[ANSWER_HEAD..], b"from the start to the end");
    }

    #[test]
    fn a_write_in_parts_is_done_when_all_are_and_fails_when_one_does() {
        let good = told(|first, second| {
            first.written(9000);
            second.written(9000);
        });
        assert_eq!(good, [&answer_head(5, 8, 0)[..], &written_body(9000)].concat());
        let bad = told(|first, second| {
            second.error(Errno::NOSPC);
            first.written(9000);
        });
        assert_eq!(bad, answer_head(5, 0, Errno::NOSPC.raw_os_error()));
        let lost = told(|first, second| {
            first.written(9000);
            drop(second);
        });
        assert_eq!(lost, answer_head(5, 0, Errno::IO.raw_os_error()));
    }
}
