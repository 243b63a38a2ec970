//! What is said over the control socket: one line of JSON each way, then the connection ends.
//!
//! Long work is started by one command and asked after by others, so that the daemon's one
//! control thread never waits and a client may go away at any moment without harm.

use serde::{Deserialize, Serialize};

use super::{Decision, RuleShown, Status};
use crate::numbers::Numbers;
use crate::settings::{SettingChange, Value};

/// The longest command that a daemon reads.
pub const COMMAND_MAX: u64 = 256 << 10;

/// The longest answer that a client reads: far more than any has. The longest tells of 112 files, each with a path of
/// `PATH_SHOWN_MAX` bytes which JSON may write as six times as many.
pub const ANSWER_MAX: u64 = 8 << 20;

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ClientCommand {
    /// How things are. Answer: [`Answer::Status`].
    Status,
    /// All numbers. Answer: [`Answer::Numbers`].
    Numbers,
    /// Destage what is dirty now. Answer: [`Answer::Started`].
    Flush {
        /// Of what lies at or below this path in the mount; everything without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// End a flush early: what is not at the origin yet stays dirty. Answer: [`Answer::Done`].
    CancelFlush {
        /// Its number.
        id: u64,
    },
    /// All settings. Answer: [`Answer::Settings`].
    Get,
    /// Change settings: all that are named, or none. Answer: [`Answer::Set`].
    Set {
        /// Names and values.
        settings: Vec<(String, String)>,
        /// Change nothing: only tell what would be.
        dry_run: bool,
    },
    /// All rules. Answer: [`Answer::Rules`].
    Rules,
    /// Add a rule. Answer: [`Answer::Rule`].
    AddRule {
        /// Its words.
        words: Vec<(String, String)>,
        /// Before the rule with this number; at the end without.
        before: Option<usize>,
        /// Change nothing: only tell what would be.
        dry_run: bool,
    },
    /// Remove the rule with this number. Answer: [`Answer::Rule`], without one.
    RemoveRule {
        /// From 1.
        number: usize,
        /// Change nothing: only tell whether it could be.
        dry_run: bool,
    },
    /// What would become of a request. Answer: [`Answer::Decision`].
    TestRules {
        /// What is known of the request.
        words: Vec<(String, String)>,
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
        /// A change of the mode that is under way, for [`ClientCommand::Operation`].
        operation: Option<u64>,
        /// What has to go to the origin before the mode is another one.
        to_flush_bytes: u64,
        /// Why they will not be there after a restart, if so.
        not_kept: Option<String>,
    },
    /// The rules, in order.
    Rules {
        /// Each with what it has decided.
        rules: Vec<RuleShown>,
    },
    /// A rule was added or removed, or would be.
    Rule {
        /// The one that was added.
        rule: Option<RuleShown>,
        /// For a dry run: files and processes seen lately that it would match.
        seen: Vec<String>,
        /// Why the change will not be there after a restart, if so.
        not_kept: Option<String>,
    },
    /// What would become of a request.
    Decision(Decision),
    /// Done, and nothing to tell of it.
    Done,
    /// Under way.
    Started {
        /// Its number, for [`ClientCommand::Operation`].
        id: u64,
    },
    /// How far it is.
    Operation {
        /// How it stands.
        progress: OperationProgress,
        /// What is dirty at this moment, over all.
        dirty_bytes: u64,
        /// What this operation has still to bring to the origin.
        #[serde(default)]
        left_bytes: u64,
        /// What was written to the origin since the mount: moves on while data that is already
        /// there waits for the origin's sync, before which it still counts as dirty.
        origin_write_bytes: u64,
        /// For how long the origin has left something without an answer. 0: it answers.
        #[serde(default)]
        silent_seconds: u64,
    },
    /// The mount is gone and the daemon ends.
    Unmounted {
        /// What stays in the pool only.
        dirty_bytes: u64,
        /// What else the operator should know of how it is left.
        #[serde(default)]
        note: Option<String>,
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
pub enum OperationProgress {
    /// Under way.
    Running,
    /// Done.
    Done,
    /// Ended early, as was asked.
    Cancelled,
    /// Not done.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_stable_and_read_back() {
        for (command, line) in [
            (ClientCommand::Status, r#"{"do":"status"}"#),
            (ClientCommand::Flush { path: None }, r#"{"do":"flush"}"#),
            (ClientCommand::Flush { path: Some("db".into()) }, r#"{"do":"flush","path":"db"}"#),
            (ClientCommand::CancelFlush { id: 3 }, r#"{"do":"cancel-flush","id":3}"#),
            (
                ClientCommand::RemoveRule { number: 1, dry_run: false },
                r#"{"do":"remove-rule","number":1,"dry_run":false}"#,
            ),
            (ClientCommand::Get, r#"{"do":"get"}"#),
            (
                ClientCommand::Set { settings: vec![("mode".into(), "write-back".into())], dry_run: true },
                r#"{"do":"set","settings":[["mode","write-back"]],"dry_run":true}"#,
            ),
            (ClientCommand::Operation { id: 7 }, r#"{"do":"operation","id":7}"#),
            (ClientCommand::Unmount { keep_dirty: true }, r#"{"do":"unmount","keep_dirty":true}"#),
        ] {
            assert_eq!(serde_json::to_string(&command).unwrap(), line);
            assert_eq!(serde_json::from_str::<ClientCommand>(line).unwrap(), command);
        }
        let answer = Answer::Operation {
            progress: OperationProgress::Failed("no space".into()),
            dirty_bytes: 4096,
            left_bytes: 0,
            origin_write_bytes: 1,
            silent_seconds: 9,
        };
        let line = r#"{"is":"operation","progress":{"failed":"no space"},"dirty_bytes":4096,"left_bytes":0,"origin_write_bytes":1,"silent_seconds":9}"#;
        assert_eq!(serde_json::to_string(&answer).unwrap(), line);
        assert_eq!(serde_json::from_str::<Answer>(line).unwrap(), answer);
    }
}
