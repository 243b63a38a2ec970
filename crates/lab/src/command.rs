//! Runs a command to its end, and shows it as you would type it.
//!
//! Invariant: the report of a failed command has its words and its output.

use crate::failure::{Failure, Result};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// How much of a failed command's output is shown.
const FIRST_LINES: usize = 12;
const LAST_LINES: usize = 30;

/// The command as it would be typed into a shell.
#[must_use]
pub fn typed(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(quoted).collect::<Vec<_>>().join(" ");
    match command.get_current_dir() {
        Some(directory) => format!("cd {} && {words}", quoted(directory.as_os_str())),
        None => words,
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The start and the end of an output, short enough to read.
#[must_use]
pub fn shortened(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    if lines.len() <= FIRST_LINES + LAST_LINES {
        return lines.join("\n");
    }
    let (first, last) = (&lines[..FIRST_LINES], &lines[lines.len() - LAST_LINES..]);
    format!("{}\n...\n{}", first.join("\n"), last.join("\n"))
}

/// The failure of `command`.
#[must_use]
pub fn failed(doing: &str, command: &Command, status: impl ToString, output: &str) -> Failure {
    Failure::Command {
        doing: doing.to_owned(),
        command: typed(command),
        status: status.to_string(),
        output: shortened(output),
    }
}

/// Takes a command out of the terminal's process group, so that Ctrl-C reaches the experiment
/// alone, which then ends what it started in the right order.
pub fn detach(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Runs `command` to its end and returns what it printed.
pub fn run(doing: &str, command: &mut Command) -> Result<String> {
    let output = detach(command)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(doing, command, format!("could not be started: {error}"), ""))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(failed(doing, command, output.status, &(printed + &String::from_utf8_lossy(&output.stderr))))
}

/// Those of the programs that this machine lacks.
#[must_use]
pub fn lacking(programs: &[&str]) -> Vec<String> {
    let lacks = |program: &&&str| run("looking", Command::new(program).arg("--version")).is_err();
    programs.iter().filter(lacks).map(|program| (*program).to_owned()).collect()
}

/// The same in a sentence; none if all are there.
#[must_use]
pub fn missing(programs: &[&str]) -> Option<String> {
    let lacking = lacking(programs);
    (!lacking.is_empty()).then(|| format!("there is no {}", lacking.join(", ")))
}

/// Those of the programs that are nowhere: for programs that have no `--version`. What only root runs may lie off an
/// ordinary user's `PATH`.
#[must_use]
pub fn absent(programs: &[&str]) -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    let absent = |name: &&&str| !places.iter().any(|place| place.join(name).exists());
    programs.iter().filter(absent).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("mariadb");
        command.args(["--execute=SELECT 1", "it's", "a/b", ""]);
        assert_eq!(typed(&command), r"mariadb '--execute=SELECT 1' 'it'\''s' a/b ''");
        assert_eq!(typed(Command::new("ls").current_dir("/a b")), "cd '/a b' && ls");
    }

    #[test]
    fn a_command_that_fails_is_told_with_its_output() {
        let failure = run("trying", Command::new("sh").args(["-c", "echo said this; exit 3"]));
        let text = failure.expect_err("exit status 3 is a failure").to_string();
        assert!(text.contains("trying") && text.contains("exit 3") && text.contains("said this"), "{text}");
    }
}
