//! The daemon over HTTP: a page for people, JSON for scripts, and the metrics for Prometheus. Read-only.
//!
//! headpond has this code of its own because it is so little: a few threads, one request for each connection, each
//! bounded in time and in bytes, and no more of HTTP than GET and one POST (a token). No request changes anything.
//!
//! Keeps true: a client on another machine must show a token, and a web page from elsewhere gets nothing from a
//! browser on this one (`access.rs`). Uses `service`, `history`, `numbers`, `refusal` and `wording`.

mod access;
mod report;
mod request;
mod response;
mod server;
mod site;

pub(crate) use access::{Session, Token};
pub(crate) use server::HttpServer;
pub(crate) use site::{show_mount, show_mount_later};
