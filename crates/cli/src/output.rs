//! What commands print: text, or JSON for programs.

use headpond_control::Refusal;

/// Prints JSON to standard output, for programs.
pub fn print_json<T: serde::Serialize>(value: &T) -> Result<(), Refusal> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Refusal::Failed { doing: "write JSON".to_owned(), error: error.into() })?;
    print(&(text + "\n"))
}

/// Prints text to standard output. A reader that stops early is no error.
pub fn print(text: &str) -> Result<(), Refusal> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Refusal::Failed { doing: "write to standard output".to_owned(), error })
        }
        _ => Ok(()),
    }
}
