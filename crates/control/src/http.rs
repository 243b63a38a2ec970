//! The metrics over HTTP, on request: one address, one page, read-only.
//!
//! Written out here because it is this little: one thread, one connection at a time, each bounded in
//! time and in bytes, and no more of HTTP than a GET. Nothing that comes in changes anything.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::Refusal;

/// How long a client may take to ask, or to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest request that is read: more than any browser or scraper sends.
const REQUEST_MAX: u64 = 16 << 10;

/// Where the metrics are.
const PATH: &str = "/metrics";

/// Listens for scrapers.
pub(crate) struct MetricsServer(TcpListener);

impl MetricsServer {
    /// Takes the address.
    ///
    /// # Errors
    /// When somebody else has it, or it is none of this machine's.
    pub(crate) fn listen(address: SocketAddr) -> Result<Self, Refusal> {
        let failed = |error| Refusal::Failed { doing: format!("listen on {address} for --metrics"), error };
        TcpListener::bind(address).map(Self).map_err(failed)
    }

    /// Answers for ever, with what `page` gives each time: on a thread of its own.
    pub(crate) fn serve(&self, page: impl Fn() -> String) {
        loop {
            match self.0.accept() {
                // A scraper that went away is no concern.
                Ok((stream, _)) => drop(answer(stream, &page)),
                // Out of descriptors or memory: try again, but not at full speed.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

fn answer(mut stream: TcpStream, page: &impl Fn() -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new((&stream).take(REQUEST_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The head is read to its end: closing with bytes unread would reset the connection.
    for line in lines.by_ref() {
        if line?.is_empty() {
            break;
        }
    }
    let (status, body) = match request.split(' ').collect::<Vec<_>>()[..] {
        ["GET", path, _] if path == PATH || path.starts_with("/metrics?") => ("200 OK", page()),
        ["GET", "/", _] => ("200 OK", format!("headpond: the metrics are at {PATH}\n")),
        ["GET", _, _] => ("404 Not Found", format!("the metrics are at {PATH}\n")),
        [_, _, _] => ("405 Method Not Allowed", "only GET\n".to_owned()),
        _ => ("400 Bad Request", "no HTTP\n".to_owned()),
    };
    let length = body.len();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may have heard enough, and be gone, before all is said.
        let _ = stream.write_all(request).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let mut said = Vec::new();
        // A connection that is reset has still said what it said.
        let _ = stream.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    }

    #[test]
    fn the_page_is_served_and_nothing_else_harms() {
        let server = MetricsServer::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = server.0.local_addr().unwrap();
        assert!(MetricsServer::listen(address).is_err(), "one listener to an address");
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
}
