//! Times on the command line.

/// A time in whole seconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).filter(|all| *all > 0);
    seconds.ok_or_else(|| "expected a time such as 60s, 10m or 1h".to_owned())
}
