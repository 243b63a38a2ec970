//! The reference of every setting: the page docs/settings.md.

use std::fmt::Write;

use super::TABLE;
use super::protect::{PARTS, PROTECT, WORDS, places};
use crate::wording::in_columns;

const HEAD: &str = "# Settings

You can change every setting while files are open, without a flush or a restart. A change takes effect at once. The pool keeps it, over any restart and on another host.

    headpond get /var/lib/mysql                                        all settings, with their defaults
    headpond set /var/lib/mysql flush-period=10s dirty-threshold=30%   changes both or none
    headpond set /var/lib/mysql mode=write-through --dry-run           only shows what would change
    headpond mount ... --config /etc/headpond/mysql.toml               from a file, which replaces what the pool keeps

The file has one line for each setting. A setting that it does not name stays as it is:

    mode = \"write-back\"
    flush-period = \"10s\"
    dirty-threshold = \"30%\"

Times have the units ms, s, m, h and d. Sizes have K, M, G and T (powers of 1024). If a name or value is wrong, headpond changes nothing and shows what it takes.

`headpond get --reference` prints this page, from the table in `crates/control/src/settings/table.rs`.
";

/// What `protect` sets.
fn protection() -> String {
    let mut text = format!(
        "\n## {PROTECT}\n\nOne word for the trade of destage. It sets {}; `get` shows `custom` if no word fits. What is \
         named beside it holds.\n\n",
        PARTS.map(|part| format!("`{part}`")).join(", ")
    );
    for known in WORDS {
        let values = places().into_iter().zip(known.values).map(|(place, value)| TABLE[place].kind.show(value));
        let _ = writeln!(text, "- `{}` ({}): {}", known.word, values.collect::<Vec<_>>().join(", "), known.purpose);
    }
    text
}

/// The page.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for setting in TABLE {
        // Writing to a string does not fail.
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n- Takes {}. Default: `{}`.\n- {}\n",
            setting.name,
            setting.meaning,
            setting.kind.range(),
            setting.kind.show(setting.default),
            setting.effect,
        );
    }
    page.push_str(&protection());
    in_columns(&page)
}
