//! What is at which path.

use std::sync::LazyLock;
use std::time::Duration;

use super::access::{Access, Denied, word};
use super::report;
use super::request::HttpRequest;
use super::response::HttpResponse;
use super::server::HttpServer;
use crate::numbers::exposition;
use crate::process::log::log_line;
use crate::refusal::Refusal;
use crate::service::Service;

/// How often an address that is taken is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The page in one file, which asks for nothing but the JSON below.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let page = include_str!("page.html").replace("/*STYLE*/", include_str!("page.css"));
    page.replace("/*SCRIPT*/", include_str!("page.js"))
});

const LOGIN: &str = include_str!("login.html");

/// The kind of content of the metrics.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Shows a mount at the server's address, on threads that end with the process.
pub(crate) fn show_mount(server: HttpServer, service: Service) -> std::io::Result<()> {
    server.start(move |access, request| match word() {
        Ok(nonce) => answer(access, request, &nonce, &service),
        Err(error) => HttpResponse::text("500 Internal Server Error", &format!("no random numbers: {error}")),
    })
}

/// The same once the server can listen. Until then nobody is answered there.
///
/// A worker that follows a dead one does so. A thread of that one which the kernel does not let go may keep its sockets, and
/// the token's file may be gone.
pub(crate) fn show_mount_later(
    listen: impl Fn() -> Result<HttpServer, Refusal> + Send + 'static,
    service: Service,
) -> std::io::Result<()> {
    let once_free = move || {
        loop {
            std::thread::sleep(AGAIN);
            let Ok(server) = listen() else { continue };
            match show_mount(server, service) {
                Ok(()) => log_line("--http: the page is there again"),
                Err(error) => log_line(format_args!("--http: no threads for the page: {error}")),
            }
            return;
        }
    };
    std::thread::Builder::new().name("http-later".to_owned()).spawn(once_free).map(drop)
}

/// What is shown, apart from a mount for tests.
trait Shown {
    fn metrics(&self) -> String;
    fn json(&self, path: &str, request: &HttpRequest) -> Option<Result<serde_json::Value, String>>;
}

impl Shown for Service {
    fn metrics(&self) -> String {
        exposition(&self.numbers_of_mount())
    }

    fn json(&self, path: &str, request: &HttpRequest) -> Option<Result<serde_json::Value, String>> {
        match path {
            "/api/now" => Some(Ok(report::now(self))),
            "/api/history" => Some(report::history(self, request.query("step"), request.query("since"))),
            "/api/events" => Some(Ok(report::events(self))),
            _ => None,
        }
    }
}

fn answer(access: &Access, request: &HttpRequest, nonce: &str, shown: &impl Shown) -> HttpResponse {
    let is_page = request.path == "/";
    if request.method == "POST" && request.path == "/login" {
        return match request.field("token").and_then(|token| access.cookie_for(token)) {
            Some(cookie) => HttpResponse::text("303 See Other", "/").with("Location", "/").with("Set-Cookie", cookie),
            None => HttpResponse::page("401 Unauthorized", &LOGIN.replace("<!--wrong-->", WRONG), nonce),
        };
    }
    let reads = matches!(request.method.as_str(), "GET" | "HEAD");
    // The page itself takes the token out of the address.
    if reads
        && is_page
        && let Some(cookie) = request.query("token").and_then(|token| access.cookie_for(token))
    {
        return HttpResponse::page("200 OK", &PAGE, nonce).with("Set-Cookie", cookie);
    }
    match access.check(request) {
        Ok(()) => {}
        Err(Denied::NoToken) if is_page => return HttpResponse::page("401 Unauthorized", LOGIN, nonce),
        Err(Denied::NoToken) => {
            let words = "the token is missing or wrong";
            return HttpResponse::text("401 Unauthorized", words).with("WWW-Authenticate", "Bearer");
        }
        Err(Denied::Host) => {
            let words = "this address answers only as localhost, 127.0.0.1 or [::1]. For another name: --http-token";
            return HttpResponse::text("403 Forbidden", words);
        }
    }
    if !reads {
        return HttpResponse::text("405 Method Not Allowed", "only GET").with("Allow", "GET, HEAD");
    }
    match request.path.as_str() {
        "/" => HttpResponse::page("200 OK", &PAGE, nonce),
        "/metrics" => HttpResponse::new("200 OK", EXPOSITION, shown.metrics()),
        path => match shown.json(path, request) {
            Some(Ok(value)) => HttpResponse::json(&value),
            Some(Err(why)) => HttpResponse::text("400 Bad Request", &why),
            None => HttpResponse::text(
                "404 Not Found",
                "there are /, /metrics, /api/now, /api/history and /api/events (docs/page.md)",
            ),
        },
    }
}

const WRONG: &str = "<p role=\"alert\">That is not the token.</p>";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::{Session, Token};

    struct Empty;

    impl Shown for Empty {
        fn metrics(&self) -> String {
            "headpond_reads_total 3\n".to_owned()
        }

        fn json(&self, path: &str, _: &HttpRequest) -> Option<Result<serde_json::Value, String>> {
            (path == "/api/now").then(|| Ok(serde_json::json!({ "reads": 3 })))
        }
    }

    const TOKEN: &str = "0123456789abcdef";

    fn ask(token: Option<&str>, request: &str) -> String {
        let access = Access::new(token.map(Token::of), Session::new().unwrap(), 1);
        let answer = answer(&access, &HttpRequest::of(&format!("{request}\r\n\r\n")), "n0nce", &Empty);
        answer.shown() + &answer.body
    }

    #[test]
    fn each_path_has_its_answer_and_nothing_can_be_changed() {
        let local = |request: &str| ask(None, &format!("{request} HTTP/1.1\r\nHost: localhost:1"));
        assert!(local("GET /metrics?x=1").ends_with("\r\n\r\nheadpond_reads_total 3\n"));
        assert!(local("GET /api/now").ends_with("{\"reads\":3}\n"));
        let page = local("GET /");
        assert!(page.contains("<!doctype html>") && page.contains("script-src 'nonce-n0nce';"), "{page}");
        assert!(
            !page.contains("NONCE") && !page.contains("http://") && !page.contains("https://"),
            "it needs no network"
        );
        for (request, status) in
            [("GET /etc/passwd", "404"), ("POST /metrics", "405"), ("DELETE /", "405"), ("POST /login", "401")]
        {
            let said = local(request);
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
        }
        let rebound = ask(None, "GET /metrics HTTP/1.1\r\nHost: evil.example");
        assert!(rebound.starts_with("HTTP/1.1 403 ") && !rebound.contains("reads_total"), "{rebound}");
    }

    #[test]
    fn a_browser_shows_the_token_once_and_others_each_time() {
        for (request, status, cookie) in [
            ("GET / HTTP/1.1".to_owned(), "401", false),
            ("GET /metrics HTTP/1.1".to_owned(), "401", false),
            (format!("GET /metrics?token={TOKEN} HTTP/1.1"), "401", false),
            (format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}"), "200", false),
            (format!("GET /?token={TOKEN} HTTP/1.1"), "200", true),
            (format!("GET /?token={TOKEN}x HTTP/1.1"), "401", false),
            (format!("POST /login HTTP/1.1\r\nContent-Length: 22\r\n\r\ntoken={TOKEN}"), "303", true),
            ("POST /login HTTP/1.1\r\nContent-Length: 7\r\n\r\ntoken=x".to_owned(), "401", false),
        ] {
            let said = ask(Some(TOKEN), &request);
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {said}");
            assert_eq!(said.contains("Set-Cookie: headpond_1="), cookie, "{request}");
            assert!(!said.contains(TOKEN), "{request}");
        }
    }
}
