//! What is said over the control socket: one line of JSON each way, then the connection ends.
//!
//! Long work is started by one command and asked after by others, so that the daemon's one
//! control thread never waits and a client may go away at any moment without harm.

use serde::{Deserialize, Serialize};

use crate::{Numbers, SettingChange, Status, Value};

/// The longest line that either side reads.
pub const LINE_MAX: u64 = 256 << 10;

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Command {
    /// How things are. Answer: [`Answer::Status`].
    Status,
    /// All numbers. Answer: [`Answer::Numbers`].
    Numbers,
    /// Destage all that is dirty now. Answer: [`Answer::Started`].
    Flush,
    /// All settings. Answer: [`Answer::Settings`].
    Get,
    /// Change settings: all that are named, or none. Answer: [`Answer::Set`].
    Set {
        /// Names and values.
        settings: Vec<(String, String)>,
        /// Change nothing: only tell what would be.
        dry_run: bool,
    },
    /// For tests: lets something go wrong with the flash of a mount that was started for that.
    /// Answer: [`Answer::Done`].
    Fault {
        /// What.
        faults: String,
    },
    /// How far a started operation is. Answer: [`Answer::Operation`].
    Operation {
        /// Its number.
        id: u64,
    },
    /// Take the mount away and end the daemon. Answered when it is over, or refused:
    /// [`Answer::Unmounted`].
    Unmount {
        /// Leave dirty data in the pool; otherwise what is still dirty is destaged first.
        keep_dirty: bool,
    },
}

/// What the daemon says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    /// How things are.
    Status(Box<Status>),
    /// The numbers.
    Numbers(Box<Numbers>),
    /// The settings.
    Settings {
        /// Each with its value.
        values: Vec<Value>,
    },
    /// In force, but for the mode.
    Set {
        /// What is not as it was before.
        changes: Vec<SettingChange>,
        /// A change of the mode that is under way, for [`Command::Operation`].
        operation: Option<u64>,
        /// What has to go to the origin before the mode is another one.
        to_flush_bytes: u64,
        /// Why they will not be there after a restart, if so.
        not_kept: Option<String>,
    },
    /// Done, and nothing to tell of it.
    Done,
    /// Under way.
    Started {
        /// Its number, for [`Command::Operation`].
        id: u64,
    },
    /// How far it is.
    Operation {
        /// How it stands.
        progress: Progress,
        /// What is dirty at this moment, over all.
        dirty_bytes: u64,
        /// What was written to the origin since the mount: moves on while data that is already
        /// there waits for the origin's sync, before which it still counts as dirty.
        origin_write_bytes: u64,
    },
    /// The mount is gone and the daemon ends.
    Unmounted {
        /// What stays in the pool only.
        dirty_bytes: u64,
    },
    /// No.
    Refused {
        /// The exit status for it.
        status: u8,
        /// Why.
        text: String,
    },
}

/// How a started operation stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Under way.
    Running,
    /// Done.
    Done,
    /// Not done.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_stable_and_read_back() {
        for (command, line) in [
            (Command::Status, r#"{"do":"status"}"#),
            (Command::Flush, r#"{"do":"flush"}"#),
            (Command::Get, r#"{"do":"get"}"#),
            (
                Command::Set { settings: vec![("mode".into(), "write-back".into())], dry_run: true },
                r#"{"do":"set","settings":[["mode","write-back"]],"dry_run":true}"#,
            ),
            (Command::Operation { id: 7 }, r#"{"do":"operation","id":7}"#),
            (Command::Unmount { keep_dirty: true }, r#"{"do":"unmount","keep_dirty":true}"#),
        ] {
            assert_eq!(serde_json::to_string(&command).unwrap(), line);
            assert_eq!(serde_json::from_str::<Command>(line).unwrap(), command);
        }
        let answer = Answer::Operation {
            progress: Progress::Failed("no space".into()),
            dirty_bytes: 4096,
            origin_write_bytes: 1,
        };
        let line = r#"{"is":"operation","progress":{"failed":"no space"},"dirty_bytes":4096,"origin_write_bytes":1}"#;
        assert_eq!(serde_json::to_string(&answer).unwrap(), line);
        assert_eq!(serde_json::from_str::<Answer>(line).unwrap(), answer);
    }
}
