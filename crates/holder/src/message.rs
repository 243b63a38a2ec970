//! What holder and worker say to each other: one packet a message, each with at most one descriptor.
//!
//! A packet is a word, a name and a text, with a space between them. Names are the worker's business. A worker of
//! another version may say a word that this holder does not know; the holder ignores it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// The longest packet, in bytes.
const PACKET_MAX: usize = 64 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Keep the descriptor that comes with this, in place of an earlier one of that name.
    Keep(String),
    /// Close the descriptor of that name.
    Release(String),
    /// Keep a text.
    Note(String, String),
    /// The worker serves.
    Ready,
    /// The mount ends: this worker is the last.
    Ending,
    /// The next worker is this program.
    Next(String),
    /// The holder's answer: it has that program open, or could not open it.
    Opened(Result<(), Errno>),
    /// The holder has told everything: so many workers were there before.
    Begin(u64),
}

impl Message {
    fn text(&self) -> String {
        match self {
            Self::Keep(name) => format!("keep {name}"),
            Self::Release(name) => format!("release {name}"),
            Self::Note(name, text) => format!("note {name} {text}"),
            Self::Ready => "ready".to_owned(),
            Self::Ending => "ending".to_owned(),
            Self::Next(path) => format!("next {path}"),
            Self::Opened(result) => format!("opened {}", result.map_or_else(Errno::raw_os_error, |()| 0)),
            Self::Begin(count) => format!("begin {count}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let name = rest.to_owned();
        Some(match word {
            "keep" => Self::Keep(name),
            "release" => Self::Release(name),
            "note" => {
                let (name, text) = rest.split_once(' ')?;
                Self::Note(name.to_owned(), text.to_owned())
            }
            "ready" => Self::Ready,
            "ending" => Self::Ending,
            "next" => Self::Next(name),
            "opened" => Self::Opened(match rest.parse().ok()? {
                0 => Ok(()),
                number => Err(Errno::from_raw_os_error(number)),
            }),
            "begin" => Self::Begin(rest.parse().ok()?),
            _ => return None,
        })
    }
}

/// Sends a message. It waits for room, unless the flags say otherwise.
pub(crate) fn send(
    socket: impl AsFd,
    message: &Message,
    descriptor: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> io::Result<()> {
    let text = message.text();
    if text.len() > PACKET_MAX {
        return Err(Errno::MSGSIZE.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|one| [one]);
    if let Some(descriptors) = &descriptors {
        with.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(text.as_bytes())], &mut with, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(io::Error::from),
        }
    }
}

/// What came over a socket.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message, Option<OwnedFd>),
    /// A word of another version.
    Unknown,
    /// Nothing is there now, and the caller did not want to wait.
    Nothing,
    /// The other side is gone, and everything that it sent was read.
    End,
}

/// Receives a message.
pub(crate) fn receive(socket: impl AsFd, waits: bool) -> io::Result<Received> {
    let mut text = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let len = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut text)], &mut with, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            Err(error) => return Err(error.into()),
            Ok(received) => break received.bytes,
        }
    };
    if len == 0 {
        return Ok(Received::End);
    }
    let descriptor = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let message = std::str::from_utf8(&text[..len]).ok().and_then(Message::parse);
    Ok(message.map_or(Received::Unknown, |message| Received::Message(message, descriptor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::{Read, Write};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn every_message_reads_back_and_a_strange_one_is_ignored() {
        let (one, other) = pair();
        let all = [
            Message::Keep("fuse".to_owned()),
            Message::Release("file-7".to_owned()),
            Message::Note("places".to_owned(), "{\"a b\": 1}".to_owned()),
            Message::Ready,
            Message::Ending,
            Message::Next("/usr/bin/head pond".to_owned()),
            Message::Opened(Ok(())),
            Message::Opened(Err(Errno::NOENT)),
            Message::Begin(12),
        ];
        for message in &all {
            send(&one, message, None, SendFlags::empty()).unwrap();
            assert!(matches!(receive(&other, true).unwrap(), Received::Message(got, None) if got == *message));
        }
        rustix::net::send(&one, b"dance", SendFlags::empty()).unwrap();
        assert!(matches!(receive(&other, false).unwrap(), Received::Unknown));
        assert!(matches!(receive(&other, false).unwrap(), Received::Nothing));
    }

    #[test]
    fn what_a_dead_sender_sent_is_still_read_with_its_descriptor() {
        let (one, other) = pair();
        let (mut reader, writer) = io::pipe().unwrap();
        send(&one, &Message::Keep("pipe".to_owned()), Some(writer.as_fd()), SendFlags::empty()).unwrap();
        drop((one, writer));
        let Received::Message(Message::Keep(_), Some(kept)) = receive(&other, true).unwrap() else { panic!("lost") };
        assert!(matches!(receive(&other, true).unwrap(), Received::End));
        std::fs::File::from(kept).write_all(b"on").unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "on");
    }
}
