//! Listens, and gives each connection to one of a few threads.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::access::{Access, Session, Token};
use super::request::{HttpRequest, Unreadable};
use super::response::HttpResponse;
use crate::refusal::Refusal;

/// The longest time for a client's whole request.
const ASKING: Duration = Duration::from_secs(2);

/// The longest time for a client to take the whole answer.
const TAKING: Duration = Duration::from_secs(10);

/// Connections that are served at once. Others wait in the kernel, which bounds their number.
const THREADS: usize = 4;

/// Listens for browsers, scripts and scrapers.
pub(crate) struct HttpServer {
    listener: TcpListener,
    access: Access,
}

impl HttpServer {
    /// Takes the address.
    ///
    /// # Errors
    /// If another process has it, it is no address of this machine, or other machines reach it and there is no token.
    pub(crate) fn listen(address: SocketAddr, token: Option<Token>, session: Session) -> Result<Self, Refusal> {
        if token.is_none() && !address.ip().is_loopback() {
            return Err(Refusal::Usage(format!(
                "--http {address}: other machines can reach this address and read the page and the metrics\n  Add a token that readers must \
                 send (--http-token FILE), or use a local address (127.0.0.1). To make a token: (umask 077; openssl rand -hex 32 > FILE)"
            )));
        }
        let failed = |error| Refusal::Failed { doing: format!("listen on {address} for --http"), error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { listener, access: Access::new(token, session, port) })
    }

    /// Answers for ever, on threads of its own.
    pub(super) fn start(
        self,
        answer: impl Fn(&Access, &HttpRequest) -> HttpResponse + Send + Sync + 'static,
    ) -> io::Result<()> {
        let shared = Arc::new((self, answer));
        for number in 1..=THREADS {
            let shared = shared.clone();
            let serve = move || {
                let (server, answer) = &*shared;
                server.serve(answer);
            };
            std::thread::Builder::new().name(format!("http-{number}")).spawn(serve)?;
        }
        Ok(())
    }

    fn serve(&self, answer: &impl Fn(&Access, &HttpRequest) -> HttpResponse) {
        loop {
            match self.listener.accept() {
                // A client that went away is no error.
                Ok((stream, _)) => drop(self.converse(stream, answer)),
                // Out of descriptors or memory: try again, but not at full speed.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn converse(
        &self,
        mut stream: TcpStream,
        answer: &impl Fn(&Access, &HttpRequest) -> HttpResponse,
    ) -> io::Result<()> {
        let asked = HttpRequest::read(&stream, Instant::now() + ASKING);
        let (answer, with_body) = match asked {
            Ok(request) => (answer(&self.access, &request), request.method != "HEAD"),
            Err(Unreadable::Senseless) => (HttpResponse::text("400 Bad Request", "no HTTP"), true),
            Err(Unreadable::TooLong) => (HttpResponse::text("431 Request Header Fields Too Large", "too long"), true),
            Err(Unreadable::Gone) => return Ok(()),
        };
        answer.send(&mut stream, Instant::now() + TAKING, with_body)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

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

    fn local() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn session() -> Session {
        Session::new().unwrap()
    }

    #[test]
    fn it_answers_and_nothing_that_a_client_sends_or_leaves_out_harms_it() {
        let server = HttpServer::listen(local(), None, session()).unwrap();
        let address = server.listener.local_addr().unwrap();
        assert!(HttpServer::listen(address, None, session()).is_err(), "one listener to an address");
        server.start(|_, request| HttpResponse::text("200 OK", &request.path)).unwrap();
        let page = ask(address, b"GET /here?x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n/here\n"), "{page}");
        assert!(ask(address, b"HEAD / HTTP/1.1\r\n\r\n").ends_with("DENY\r\n\r\n"));
        for (request, says) in [(&b"hello\r\n\r\n"[..], "HTTP/1.1 400 "), (b"", "")] {
            let said = ask(address, request);
            assert!(said.starts_with(says), "{said}");
        }
        // More connections that say nothing than there are threads.
        let idle: Vec<_> = (0..THREADS + 2).map(|_| TcpStream::connect(address).unwrap()).collect();
        ask(address, &[0xff; 100]);
        ask(address, &vec![b'x'; 1 << 20]);
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").contains("200 OK"), "it still serves");
        drop(idle);
    }

    #[test]
    fn an_address_that_others_reach_needs_a_token() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let refusal = HttpServer::listen(everywhere, None, session()).err().unwrap();
        assert!(refusal.to_string().contains("--http-token FILE"), "{refusal}");
        assert!(HttpServer::listen(everywhere, Some(Token::of("0123456789abcdef")), session()).is_ok());
    }
}
