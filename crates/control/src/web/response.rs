//! An answer over HTTP, with the headers that keep a browser from doing more with it than it should.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Bytes that are sent at a time. Between two of them the time is looked at.
const PIECE: usize = 64 << 10;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HttpResponse {
    status: &'static str,
    kind: &'static str,
    pub(super) body: String,
    headers: Vec<(&'static str, String)>,
}

impl HttpResponse {
    /// An answer of some kind of content.
    pub(super) const fn new(status: &'static str, kind: &'static str, body: String) -> Self {
        Self { status, kind, body, headers: Vec::new() }
    }

    /// A few words.
    pub(super) fn text(status: &'static str, words: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{words}\n"))
    }

    /// JSON.
    pub(super) fn json(value: &serde_json::Value) -> Self {
        Self::new("200 OK", "application/json", format!("{value}\n"))
    }

    /// A page. `NONCE` in it becomes a word that only its own styles and scripts know, so no other can run in it.
    pub(super) fn page(status: &'static str, page: &str, nonce: &str) -> Self {
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; form-action \
             'self'; base-uri 'none'; frame-ancestors 'none'"
        );
        let body = page.replace("NONCE", nonce);
        Self::new(status, "text/html; charset=utf-8", body).with("Content-Security-Policy", policy)
    }

    /// The same with one more header.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn head(&self) -> String {
        let mut head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             X-Frame-Options: DENY\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head + "\r\n"
    }

    /// Sends it, until the time is up.
    pub(super) fn send(&self, stream: &mut TcpStream, until: Instant, with_body: bool) -> io::Result<()> {
        let head = self.head();
        let body = if with_body { self.body.as_bytes() } else { &[] };
        for piece in [head.as_bytes()].into_iter().chain(body.chunks(PIECE)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_write_timeout(Some(left))?;
            stream.write_all(piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl HttpResponse {
    /// Its status and headers, for tests.
    pub(super) fn shown(&self) -> String {
        self.head()
    }
}
