//! A rule as a line: words `key=value`, separated by blanks. A value with blanks or quotes stands in quotes. Inside,
//! `\` takes the next letter as it is.

/// Splits a line into its pairs. `Err` says what is wrong.
pub(crate) fn split(line: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut letters = line.chars().peekable();
    while letters.peek().is_some() {
        if letters.next_if(|letter| letter.is_whitespace()).is_some() {
            continue;
        }
        let (mut word, mut quoted) = (String::new(), false);
        while let Some(letter) = letters.next_if(|letter| quoted || !letter.is_whitespace()) {
            match letter {
                '"' => quoted = !quoted,
                '\\' if quoted => word.extend(letters.next()),
                _ => word.push(letter),
            }
        }
        if quoted {
            return Err(format!("a quote is not closed in: {line}"));
        }
        let (key, value) =
            word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=VALUE, such as name=mysqldump"))?;
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

/// Quotes a value if needed, so that it is parsed as one.
pub(crate) fn quote(value: &str) -> String {
    if !value.is_empty() && !value.chars().any(|letter| letter.is_whitespace() || letter == '"') {
        return value.to_owned();
    }
    let escaped: String = value
        .chars()
        .flat_map(|letter| ['\\', letter].into_iter().skip(usize::from(!matches!(letter, '"' | '\\'))))
        .collect();
    format!("\"{escaped}\"")
}

/// A size with a unit: K, M, G and T are powers of 1024.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Writes a size with its largest whole unit.
pub(crate) fn show_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}
