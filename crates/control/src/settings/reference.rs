//! The reference of every setting, as docs/settings.md has it.

use std::fmt::Write;

use super::TABLE;

const HEAD: &str = "# Settings

Every setting of a mount. Each can be changed while files are open, without flush, detach or restart, takes effect at once, and is kept with the pool, so that it is there after any restart, also on another host.

    headpond get /var/lib/mysql                                        all of them, with their defaults
    headpond set /var/lib/mysql flush-period=10s dirty-threshold=30%   several at once: all of them or none
    headpond set /var/lib/mysql mode=write-through --dry-run           what it would do
    headpond mount ... --config /etc/headpond/mysql.toml               from a file, at each start over what is kept

A file has one line for each setting, and those that it does not name stay as they are:

    mode = \"write-back\"
    flush-period = \"10s\"
    dirty-threshold = \"30%\"

Times have the units ms, s, m, h and d; sizes K, M, G and T (powers of 1024). A name or value that is not taken is refused with what would be, and then nothing is changed.

This page is made from the table in `crates/control/src/settings/table.rs`: `headpond get --reference`.
";

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
    page
}
