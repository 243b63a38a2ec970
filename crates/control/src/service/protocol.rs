//! The protocol of the control socket: one line of JSON each way, then the connection ends.
//!
//! One command starts long work, and others ask about it. So the daemon's one control thread never waits, and a
//! client may go away at any moment without harm.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::pool_shown::PoolChange;
use super::{Decision, PoolShown, RuleShown, Status};
use crate::numbers::Numbers;
use crate::refusal::Refusal;
use crate::settings::{SettingChange, Value};

/// The longest command that a daemon reads.
pub const COMMAND_MAX: u64 = 256 << 10;

/// The longest answer that a client reads: far more than any has. The longest answer has 112 files, each with a path
/// of `PATH_SHOWN_MAX` bytes, and JSON may make a path six times as long.
pub const ANSWER_MAX: u64 = 8 << 20;

/// A command of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ClientCommand {
    /// The status. Answer: [`Answer::Status`].
    Status,
    /// All numbers. Answer: [`Answer::Numbers`].
    Numbers,
    /// Destage what is dirty now. Answer: [`Answer::Started`].
    Flush {
        /// Only at or below this path in the mount. Without it: everything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// End a flush early: what the origin lacks then stays dirty. Answer: [`Answer::Done`].
    CancelFlush {
        /// Its number.
        id: u64,
    },
    /// Bring the origin to a standstill, complete, for at most so many seconds from now. Answers: [`Answer::Frozen`]
    /// once it stands still. Then the client sends an empty line when it needs that no longer, and gets
    /// [`Answer::Done`]; or it gets [`Answer::Thawed`] before that. The end of the connection ends the standstill.
    Freeze {
        /// The most seconds.
        seconds: u64,
    },
    /// Record what is asked of the mount. Answer: [`Answer::GiveFile`]. The client then sends an empty line, and with it
    /// the file for the trace. Answers: [`Answer::Recording`], and [`Answer::Recorded`] at the end. Between them the
    /// client sends an empty line when it wants the end. The end of the connection ends the recording.
    Record {
        /// The most seconds.
        seconds: u64,
        /// The most bytes.
        bytes_max: u64,
    },
    /// All settings. Answer: [`Answer::Settings`].
    Get,
    /// Change settings: all of these, or none. Answer: [`Answer::Set`].
    Set {
        /// Names and values.
        settings: Vec<(String, String)>,
        /// Change nothing: only say what would change.
        dry_run: bool,
    },
    /// All rules. Answer: [`Answer::Rules`].
    Rules,
    /// Add a rule. Answer: [`Answer::Rule`].
    AddRule {
        /// Its words.
        words: Vec<(String, String)>,
        /// Before the rule with this number. Without it: at the end.
        before: Option<usize>,
        /// Change nothing: only say what would change.
        dry_run: bool,
    },
    /// Remove the rule with this number. Answer: [`Answer::Rule`], without a rule.
    RemoveRule {
        /// From 1.
        number: usize,
        /// Change nothing: only say whether it is possible.
        dry_run: bool,
    },
    /// What headpond would do with a request. Answer: [`Answer::Decision`].
    TestRules {
        /// The properties of the request.
        words: Vec<(String, String)>,
    },
    /// For tests: puts a fault into the flash of a mount that was started for that. Answer: [`Answer::Done`].
    Fault {
        /// The faults.
        faults: String,
        /// Only into this device of the pool. Without it: into all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flash: Option<PathBuf>,
    },
    /// The pool's devices. Answer: [`Answer::Pool`].
    Pool,
    /// Change the pool's devices. Answer: [`Answer::Started`], or [`Answer::PoolPlanned`] for a dry run.
    ChangePool {
        /// The change.
        #[serde(flatten)]
        change: PoolChange,
        /// Change nothing: only say what would change.
        dry_run: bool,
    },
    /// Take back the change of the pool's devices that is under way: what was moved stays where it is. Answer:
    /// [`Answer::Done`], or [`Answer::PoolPlanned`] for a dry run.
    CancelPoolChange {
        /// Change nothing: only say what would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// Read all that is of use on the pool's devices, and compare it with what was written. Answer:
    /// [`Answer::Started`].
    Scrub,
    /// End a scrub early. Answer: [`Answer::Done`].
    CancelScrub,
    /// The progress of a started operation. Answer: [`Answer::Operation`].
    Operation {
        /// Its number.
        id: u64,
    },
    /// Go on with another program. The answer comes before that: [`Answer::Done`].
    Upgrade {
        /// The program's file.
        program: PathBuf,
        /// How it divides the memory that it shares with the holder.
        layout: String,
    },
    /// Unmount and end the daemon. The answer comes at the end, or is a refusal: [`Answer::Unmounted`].
    Unmount {
        /// Leave dirty data in the pool. Otherwise destage first what is still dirty.
        keep_dirty: bool,
        /// Destage for no longer than the setting shutdown-flush, as the host goes down. What is left stays in the pool.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        bounded: bool,
    },
    /// Unmount, and give the pool to the host that has its copy. The answer is that to an unmount.
    HandOver {
        /// That host's name in the registry.
        to: String,
    },
}

impl ClientCommand {
    /// Whether it changes nothing.
    pub(crate) const fn is_question(&self) -> bool {
        matches!(self, Self::Status | Self::Numbers | Self::Get | Self::Rules | Self::TestRules { .. } | Self::Pool)
    }
}

/// An answer of the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    /// The status.
    Status(Box<Status>),
    /// The numbers.
    Numbers(Box<Numbers>),
    /// The settings.
    Settings {
        /// Each setting with its value.
        values: Vec<Value>,
    },
    /// The settings are in force, except the mode.
    Set {
        /// The settings that changed.
        changes: Vec<SettingChange>,
        /// The change of mode that is under way, for [`ClientCommand::Operation`].
        operation: Option<u64>,
        /// Bytes that must go to the origin before the mode changes.
        to_flush_bytes: u64,
        /// Why they will be lost at a restart, if they will.
        not_kept: Option<String>,
    },
    /// The rules, in order.
    Rules {
        /// Each rule with what it has decided.
        rules: Vec<RuleShown>,
    },
    /// A rule was added or removed, or would be.
    Rule {
        /// The added rule.
        rule: Option<RuleShown>,
        /// For a dry run: files and processes seen lately that it would match.
        seen: Vec<String>,
        /// Why the change will be lost at a restart, if it will.
        not_kept: Option<String>,
    },
    /// What headpond would do with a request.
    Decision(Decision),
    /// The command needs a file.
    GiveFile,
    /// From now on every request is noted.
    Recording,
    /// The trace is complete, and in the file.
    Recorded,
    /// The origin is complete and stands still.
    Frozen,
    /// The origin has not stood still until now.
    Thawed {
        /// What ended that.
        why: String,
    },
    /// The pool's devices.
    Pool(Box<PoolShown>),
    /// For a dry run: a change of the pool's devices that is possible.
    PoolPlanned {
        /// The change.
        what: String,
        /// What it would do.
        effect: String,
    },
    /// Done, without data.
    Done,
    /// Under way.
    Started {
        /// Its number, for [`ClientCommand::Operation`].
        id: u64,
    },
    /// The progress of an operation.
    Operation {
        /// Its state.
        progress: OperationProgress,
        /// All dirty bytes at this moment.
        dirty_bytes: u64,
        /// Bytes that this operation must still write to the origin.
        #[serde(default)]
        left_bytes: u64,
        /// Bytes written to the origin since the mount. It grows while written data waits for the origin's sync and
        /// still counts as dirty.
        origin_write_bytes: u64,
        /// For how many seconds the origin has left a request without an answer. 0: it answers.
        #[serde(default)]
        silent_seconds: u64,
    },
    /// The mount is gone and the daemon ends.
    Unmounted {
        /// Bytes that only the pool has.
        dirty_bytes: u64,
        /// What else the operator should know about the origin's state.
        #[serde(default)]
        note: Option<String>,
    },
    /// The command was refused.
    Refused {
        /// The exit status.
        status: u8,
        /// Why.
        text: String,
    },
}

impl From<&Refusal> for Answer {
    fn from(refusal: &Refusal) -> Self {
        Self::Refused { status: refusal.status().code(), text: refusal.to_string() }
    }
}

/// The state of a started operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationProgress {
    /// Under way.
    Running,
    /// Done.
    Done,
    /// Ended early, on request.
    Cancelled,
    /// Failed, and why.
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
                ClientCommand::Record { seconds: 60, bytes_max: 4096 },
                r#"{"do":"record","seconds":60,"bytes_max":4096}"#,
            ),
            (
                ClientCommand::Set { settings: vec![("mode".into(), "write-back".into())], dry_run: true },
                r#"{"do":"set","settings":[["mode","write-back"]],"dry_run":true}"#,
            ),
            (ClientCommand::Pool, r#"{"do":"pool"}"#),
            (
                ClientCommand::ChangePool { change: PoolChange::Remove { flash: "/b".into() }, dry_run: true },
                r#"{"do":"change-pool","change":"remove","flash":"/b","dry_run":true}"#,
            ),
            (ClientCommand::Operation { id: 7 }, r#"{"do":"operation","id":7}"#),
            (ClientCommand::HandOver { to: "db2".to_owned() }, r#"{"do":"hand-over","to":"db2"}"#),
            (ClientCommand::Unmount { keep_dirty: true, bounded: false }, r#"{"do":"unmount","keep_dirty":true}"#),
            (
                ClientCommand::Unmount { keep_dirty: false, bounded: true },
                r#"{"do":"unmount","keep_dirty":false,"bounded":true}"#,
            ),
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
