//! The metrics over HTTP, on request: one address, one page, read-only.
//!
//! headpond has this code of its own because it is so little: one thread, one connection at a time, each bounded in
//! time and in bytes, and no more of HTTP than a GET. No request changes anything.
//!
//! Invariant: a client on another machine must send a token.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::refusal::Refusal;

/// The longest time for a client's whole request, or for one part of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest request: more than any browser or scraper sends.
const REQUEST_MAX: u64 = 16 << 10;

/// The path of the metrics.
const PATH: &str = "/metrics";

/// The shortest token: it serves as a password, so it must not be guessed.
const TOKEN_MIN: usize = 16;

/// The longest token.
const TOKEN_MAX: u64 = 4096;

/// The token that a scraper must send: `Authorization: Bearer` and this.
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Reads the token from a file that no other user can read.
    ///
    /// # Errors
    /// If the file is missing, holds no fit token, or others can read or change it.
    pub(crate) fn read(path: &Path) -> Result<Self, Refusal> {
        let failed = |error| Refusal::from_io("read the token of the metrics,", path, error);
        let refuse = |why: &str| Err(Refusal::Usage(format!("--metrics-token: {} {why}", path.display())));
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

    /// Whether a scraper sent this token. A nearly right one takes as long as a wrong one.
    fn is(&self, said: &[u8]) -> bool {
        let differs = self.0.iter().enumerate().fold(self.0.len() ^ said.len(), |differs, (at, byte)| {
            differs | usize::from(byte ^ said.get(at).copied().unwrap_or_default())
        });
        std::hint::black_box(differs) == 0
    }
}

/// Listens for scrapers.
pub(crate) struct MetricsServer {
    listener: TcpListener,
    token: Option<Token>,
}

impl MetricsServer {
    /// Takes the address.
    ///
    /// # Errors
    /// If another process has it, it is no address of this machine, or other machines reach it and there is no token.
    pub(crate) fn listen(address: SocketAddr, token: Option<Token>) -> Result<Self, Refusal> {
        if token.is_none() && !address.ip().is_loopback() {
            return Err(Refusal::Usage(format!(
                "--metrics {address}: other machines can reach this address and read the metrics\n  Add a token that readers must send \
                 (--metrics-token FILE), or use a local address (127.0.0.1)."
            )));
        }
        let failed = |error| Refusal::Failed { doing: format!("listen on {address} for --metrics"), error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        Ok(Self { listener, token })
    }

    /// Answers for ever, each time with a new page. Give it a thread of its own.
    pub(crate) fn serve(&self, page: impl Fn() -> String) {
        loop {
            match self.listener.accept() {
                // A scraper that went away is no error.
                Ok((stream, _)) => drop(answer(stream, self.token.as_ref(), &page)),
                // Out of descriptors or memory: try again, but not at full speed.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

/// A client's request, up to the end of the patience for all of it, however little comes at a time.
struct Asking<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Asking<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

fn answer(mut stream: TcpStream, token: Option<&Token>, page: &impl Fn() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let asking = Asking { stream: &stream, until: Instant::now() + PATIENCE };
    let mut lines = BufReader::new(asking.take(REQUEST_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // It reads the head to its end: closing with bytes unread would reset the connection.
    let mut shown = None;
    for line in lines.by_ref() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        shown = shown.or_else(|| bearer(&line).map(str::to_owned));
    }
    let may = token.is_none_or(|token| shown.is_some_and(|shown| token.is(shown.as_bytes())));
    let (status, body) = match request.split(' ').collect::<Vec<_>>()[..] {
        [_, _, _] if !may => ("401 Unauthorized", "the token is missing or wrong\n".to_owned()),
        ["GET", path, _] if path == PATH || path.starts_with("/metrics?") => ("200 OK", page()),
        ["GET", "/", _] => ("200 OK", format!("headpond: the metrics are at {PATH}\n")),
        ["GET", _, _] => ("404 Not Found", format!("the metrics are at {PATH}\n")),
        [_, _, _] => ("405 Method Not Allowed", "only GET\n".to_owned()),
        _ => ("400 Bad Request", "no HTTP\n".to_owned()),
    };
    let length = body.len();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let ask = if may { "" } else { "WWW-Authenticate: Bearer\r\n" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{ask}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// The token in a line of a request's head.
fn bearer(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(':')?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let is_it = name.eq_ignore_ascii_case("authorization") && scheme.eq_ignore_ascii_case("bearer");
    is_it.then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let mut said = Vec::new();
        // A connection that is reset has still delivered its bytes.
        let _ = stream.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    }

    #[test]
    fn the_page_is_served_and_nothing_else_harms() {
        let server = MetricsServer::listen(SocketAddr::from(([127, 0, 0, 1], 0)), None).unwrap();
        let address = server.listener.local_addr().unwrap();
        assert!(MetricsServer::listen(address, None).is_err(), "one listener to an address");
        std::thread::spawn(move || server.serve(|| "headpond_reads_total 3\n".to_owned()));
        let page = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nheadpond_reads_total 3\n"),
            "{page}"
        );
        for (request, status) in [
            (&b"GET / HTTP/1.0\r\n\r\n"[..], "200"),
            (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"hello\r\n\r\n", "400"),
            (b"", "400"),
        ] {
            let said = ask(address, request);
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
        }
        ask(address, &[0xff; 100]);
        ask(address, &vec![b'x'; 1 << 20]);
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"), "it still serves");
    }

    #[test]
    fn an_address_that_others_reach_has_a_token_that_they_have_to_show() {
        use std::os::unix::fs::PermissionsExt;
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let refusal = MetricsServer::listen(everywhere, None).err().unwrap();
        assert!(refusal.to_string().contains("--metrics-token"), "{refusal}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = "0123456789abcdef0123456789abcdef";
        for (text, mode, good) in [
            (token, 0o600, true),
            (token, 0o640, false),
            (token, 0o604, false),
            ("short", 0o600, false),
            ("", 0o600, false),
        ] {
            std::fs::write(&path, format!("{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Token::read(&path).is_ok(), good, "{text} {mode:o}");
        }
        let server =
            MetricsServer::listen(SocketAddr::from(([127, 0, 0, 1], 0)), Some(Token(token.as_bytes().to_vec())))
                .unwrap();
        let address = server.listener.local_addr().unwrap();
        std::thread::spawn(move || server.serve(|| "headpond_reads_total 3\n".to_owned()));
        let with = |head: &str| ask(address, format!("GET /metrics HTTP/1.1\r\n{head}\r\n\r\n").as_bytes());
        assert!(with(&format!("authorization: bearer {token}")).contains("reads_total 3"));
        let longer = format!("Authorization: Bearer {token}0");
        let near = format!("Authorization: Bearer {}e", &token[..31]);
        for head in ["Host: x", "Authorization: Bearer", "Authorization: Basic abc", &longer, &near, token] {
            let said = with(head);
            assert!(said.starts_with("HTTP/1.1 401 ") && !said.contains("reads_total"), "{head}: {said}");
        }
    }
}
