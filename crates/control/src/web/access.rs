//! Who may read: the token of other machines, the cookie of a browser, and which names this machine has.
//!
//! Invariants:
//! - With a token, every request shows it, or the cookie that a browser got for it.
//! - Without one, the address is a loopback one, and a request names it so. A page of a foreign site whose name was
//!   made to lead here (DNS rebinding) still sends that name, and gets nothing.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use super::request::HttpRequest;
use crate::refusal::Refusal;

/// The shortest token: it serves as a password, so it must not be guessed.
const TOKEN_MIN: usize = 16;

/// The longest token.
const TOKEN_MAX: u64 = 4096;

/// Seconds for which a browser keeps its cookie.
const COOKIE_AGE: u32 = 7 * 86_400;

/// The token that a reader must show.
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Reads the token from a file that no other user can read.
    ///
    /// # Errors
    /// If the file is missing, holds no fit token, or others can read or change it.
    pub(crate) fn read(path: &Path) -> Result<Self, Refusal> {
        let failed = |error| Refusal::from_io("read the token of --http,", path, error);
        let refuse = |why: &str| Err(Refusal::Usage(format!("--http-token: {} {why}", path.display())));
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return refuse("is not a file");
        }
        let owner = found.uid();
        if found.mode() & 0o077 != 0 || (owner != 0 && owner != geteuid().as_raw()) {
            return refuse("others can read or change it. It must belong to you and have mode 600 (chmod 600)");
        }
        let mut text = String::new();
        file.take(TOKEN_MAX).read_to_string(&mut text).map_err(failed)?;
        let token = text.trim();
        if token.len() < TOKEN_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refuse("must hold one line of at least 16 letters and digits. To make one: openssl rand -hex 32");
        }
        Ok(Self(token.as_bytes().to_vec()))
    }

    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// Whether a request has a secret. A nearly right answer takes as long as a wrong one.
fn is_secret(secret: &[u8], said: &[u8]) -> bool {
    let differs = secret.iter().enumerate().fold(secret.len() ^ said.len(), |differs, (at, byte)| {
        differs | usize::from(byte ^ said.get(at).copied().unwrap_or_default())
    });
    std::hint::black_box(differs) == 0
}

/// What a browser gets for the token: a secret of this mount, which the next worker of the mount knows as well. So the
/// token itself is in no browser.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Session(String);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// A new one.
    pub(crate) fn new() -> io::Result<Self> {
        word().map(Self)
    }

    /// The one that the last worker left.
    pub(crate) fn left(text: &str) -> Option<Self> {
        let whole = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        whole.then(|| Self(text.to_owned()))
    }

    /// As text, to leave it to the next worker.
    pub(crate) fn as_text(&self) -> &str {
        &self.0
    }
}

/// 128 random bits, as hexadecimal digits.
pub(super) fn word() -> io::Result<String> {
    let mut bytes = [0; 16];
    // So few bytes come whole.
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Why a request gets no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Denied {
    /// It shows no token, or a wrong one.
    NoToken,
    /// It was meant for another name.
    Host,
}

/// Decides who may read.
pub(super) struct Access {
    token: Option<Token>,
    session: Session,
    cookie: String,
}

impl Access {
    pub(super) fn new(token: Option<Token>, session: Session, port: u16) -> Self {
        // A browser sends cookies to every port of a host: several mounts each have their own.
        Self { token, session, cookie: format!("headpond_{port}") }
    }

    /// Whether a request may be answered.
    pub(super) fn check(&self, request: &HttpRequest) -> Result<(), Denied> {
        let Some(token) = &self.token else {
            let is_here = match request.header("host") {
                Some(host) => is_loopback(host),
                // Programs may leave it out. A browser never does.
                None => !request.has_header("host"),
            };
            return if is_here { Ok(()) } else { Err(Denied::Host) };
        };
        let by_token = bearer(request).is_some_and(|said| is_secret(&token.0, said.as_bytes()));
        let cookie = request.cookie(&self.cookie);
        let by_cookie = cookie.is_some_and(|said| is_secret(self.session.0.as_bytes(), said.as_bytes()));
        if by_token || by_cookie { Ok(()) } else { Err(Denied::NoToken) }
    }

    /// The cookie for a browser that says the token; none if it is wrong, or there is none.
    pub(super) fn cookie_for(&self, said: &str) -> Option<String> {
        let token = self.token.as_ref().filter(|token| is_secret(&token.0, said.trim().as_bytes()));
        token.map(|_| {
            format!("{}={}; Path=/; Max-Age={COOKIE_AGE}; HttpOnly; SameSite=Strict", self.cookie, self.session.0)
        })
    }
}

/// The token in a request's head.
fn bearer(request: &HttpRequest) -> Option<&str> {
    let (scheme, token) = request.header("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a host is this machine by a name that no other machine can have. Any port: a tunnel has its own.
fn is_loopback(host: &str) -> bool {
    let has_port =
        |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return has_port(rest) && address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    }
    let (name, rest) = host.find(':').map_or((host, ""), |at| host.split_at(at));
    let is_here = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4() && address.is_loopback());
    is_here && has_port(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn access(token: Option<&str>) -> Access {
        Access::new(token.map(Token::of), Session("s".repeat(32)), 9187)
    }

    fn get(head: &str) -> HttpRequest {
        HttpRequest::of(&format!("GET / HTTP/1.1\r\n{head}\r\n\r\n"))
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_token_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for (text, mode, good) in [
            (TOKEN, 0o600, true),
            (TOKEN, 0o640, false),
            (TOKEN, 0o604, false),
            ("short", 0o600, false),
            ("", 0o600, false),
        ] {
            std::fs::write(&path, format!("{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Token::read(&path).is_ok(), good, "{text} {mode:o}");
        }
    }

    #[test]
    fn a_reader_shows_the_token_or_the_cookie_that_it_got_for_it() {
        let access = access(Some(TOKEN));
        assert_eq!(access.check(&get(&format!("Host: anything\r\nauthorization: bearer {TOKEN}"))), Ok(()));
        let longer = format!("Authorization: Bearer {TOKEN}0");
        let near = format!("Authorization: Bearer {}e", &TOKEN[..31]);
        let foreign = format!("Cookie: headpond_9187={TOKEN}");
        let port = format!("Cookie: headpond_9188={}", "s".repeat(32));
        for head in
            ["Host: 127.0.0.1", "Authorization: Bearer", "Authorization: Basic abc", &longer, &near, &foreign, &port]
        {
            assert_eq!(access.check(&get(head)), Err(Denied::NoToken), "{head}");
        }
        assert_eq!(access.cookie_for(&TOKEN[1..]), None);
        let cookie = access.cookie_for(TOKEN).unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict") && !cookie.contains(TOKEN), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(access.check(&get(&format!("Cookie: other=1; {pair}"))), Ok(()));
    }

    #[test]
    fn without_a_token_a_request_must_name_this_machine() {
        let access = access(None);
        for host in ["127.0.0.1:9187", "localhost", "LOCALHOST:1", "[::1]:9187", "127.1.2.3"] {
            assert_eq!(access.check(&get(&format!("Host: {host}"))), Ok(()), "{host}");
        }
        assert_eq!(access.check(&get("Accept: */*")), Ok(()), "a program that sends none");
        for host in [
            "evil.example:9187",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "",
            "::1",
            "localhost:x",
        ] {
            assert_eq!(access.check(&get(&format!("Host: {host}"))), Err(Denied::Host), "{host}");
        }
        assert_eq!(access.check(&get("Host: localhost\r\nHost: evil.example")), Err(Denied::Host));
        assert_eq!(access.cookie_for(""), None);
    }

    #[test]
    fn a_session_is_a_word_that_nobody_guesses_and_the_next_worker_takes_over() {
        let (one, other) = (Session::new().unwrap(), Session::new().unwrap());
        assert!(one != other && Session::left(one.as_text()) == Some(one.clone()));
        assert!(Session::left("").is_none() && Session::left(&"x".repeat(32)).is_none());
    }
}
