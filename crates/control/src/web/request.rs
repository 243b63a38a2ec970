//! A client's request, read within bounds.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;
use std::time::Instant;

/// The longest head: more than any browser or scraper sends.
const HEAD_MAX: u64 = 16 << 10;

/// The most lines of a head.
const LINES_MAX: usize = 100;

/// The longest body: a token in a form.
const BODY_MAX: usize = 8 << 10;

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct HttpRequest {
    pub(super) method: String,
    /// Without what follows a question mark.
    pub(super) path: String,
    query: Vec<(String, String)>,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// The fields of a form.
    form: Vec<(String, String)>,
}

/// Why a request is none.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The connection failed, or the time was up: there is nobody to answer.
    Gone,
    /// This is not what a browser or a scraper sends.
    Senseless,
    /// More than anybody needs.
    TooLong,
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData { Self::Senseless } else { Self::Gone }
    }
}

/// A client's bytes, up to the end of the patience for all of them, however little comes at a time.
struct Patient<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

impl HttpRequest {
    /// Reads a request.
    pub(super) fn read(stream: &TcpStream, until: Instant) -> Result<Self, Unreadable> {
        Self::read_from(BufReader::new(Patient { stream, until }))
    }

    fn read_from(mut from: impl BufRead) -> Result<Self, Unreadable> {
        let mut request = Self::read_head(&mut from.by_ref().take(HEAD_MAX))?;
        if request.method == "POST" {
            let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
            if length > BODY_MAX {
                return Err(Unreadable::TooLong);
            }
            let mut body = vec![0; length];
            from.read_exact(&mut body)?;
            request.form = pairs(&String::from_utf8_lossy(&body));
        }
        Ok(request)
    }

    /// Reads the head to its end: closing with bytes unread would reset the connection.
    fn read_head(from: &mut io::Take<impl BufRead>) -> Result<Self, Unreadable> {
        let mut line = String::new();
        let mut next = |from: &mut io::Take<_>| -> Result<String, Unreadable> {
            line.clear();
            BufRead::read_line(from, &mut line)?;
            match line.strip_suffix('\n') {
                Some(whole) => Ok(whole.strip_suffix('\r').unwrap_or(whole).to_owned()),
                None if from.limit() == 0 => Err(Unreadable::TooLong),
                None if line.is_empty() => Err(Unreadable::Gone),
                None => Err(Unreadable::Senseless),
            }
        };
        let first = next(from)?;
        let [method, target, version] = first.split(' ').collect::<Vec<_>>()[..] else {
            return Err(Unreadable::Senseless);
        };
        if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return Err(Unreadable::Senseless);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request =
            Self { method: method.to_owned(), path: path.to_owned(), query: pairs(query), ..Self::default() };
        loop {
            let line = next(from)?;
            if line.is_empty() {
                return Ok(request);
            }
            if request.headers.len() == LINES_MAX {
                return Err(Unreadable::TooLong);
            }
            let (name, value) = line.split_once(':').ok_or(Unreadable::Senseless)?;
            request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// A header's value; none if it is there twice, for then two readers could take it for two things.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(there, _)| there == name).map(|(_, value)| value.as_str());
        let only = found.next()?;
        found.next().is_none().then_some(only)
    }

    /// Whether a header is there.
    pub(super) fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(there, _)| there == name)
    }

    /// A value of the query.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        value_of(&self.query, name)
    }

    /// A field of the form.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        value_of(&self.form, name)
    }

    /// A cookie.
    pub(super) fn cookie(&self, name: &str) -> Option<&str> {
        let cookies = self.headers.iter().filter(|(there, _)| there == "cookie");
        let each = cookies.flat_map(|(_, all)| all.split(';')).filter_map(|one| one.trim().split_once('='));
        each.filter(|(there, _)| *there == name).map(|(_, value)| value).next()
    }
}

fn value_of<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_str())
}

/// The pairs of a query or a form.
fn pairs(text: &str) -> Vec<(String, String)> {
    let each = text.split('&').filter(|pair| !pair.is_empty());
    each.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (plain(name), plain(value)))
        .collect()
}

/// A text without its percent signs. What is no text then is none.
fn plain(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or(b'?'),
                _ => return String::new(),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
impl HttpRequest {
    /// A request as text, for tests.
    pub(super) fn of(text: &str) -> Self {
        Self::read_from(text.as_bytes()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_with_its_headers_cookies_and_form() {
        let request = HttpRequest::of(
            "POST /login?next=%2F&x HTTP/1.1\r\nHOST: a:1\r\nCookie: a=1; headpond_9=abc\r\nContent-Length: 15\r\n\r\ntoken=a%2Bb+c&d",
        );
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/login"));
        assert_eq!((request.query("next"), request.query("x"), request.query("y")), (Some("/"), Some(""), None));
        assert_eq!((request.header("host"), request.cookie("headpond_9")), (Some("a:1"), Some("abc")));
        assert_eq!(request.field("token"), Some("a+b c"));
        let twice = HttpRequest::of("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
        assert!(twice.header("host").is_none() && twice.has_header("host"));
    }

    #[test]
    fn what_is_no_request_or_too_long_is_told_apart() {
        let read = |text: &[u8]| HttpRequest::read_from(text).unwrap_err();
        for text in ["hello\r\n\r\n", "GET /\r\n\r\n", "GET x HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"] {
            assert!(matches!(read(text.as_bytes()), Unreadable::Senseless), "{text}");
        }
        assert!(matches!(read(&[0xff, b'\n']), Unreadable::Senseless));
        assert!(matches!(read(b""), Unreadable::Gone));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
        let body = "POST / HTTP/1.1\r\nContent-Length: 9000\r\n\r\n";
        for text in [many.as_str(), &long, body] {
            assert!(matches!(read(text.as_bytes()), Unreadable::TooLong), "{:.40}", text);
        }
    }
}
