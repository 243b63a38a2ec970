//! `headpond pages`: the manual pages of all commands, and completions for three shells.
//!
//! Invariant: all come from the table of the command line that `--help` shows, so none says what the program does not
//! do. What `--help` hides, they leave out.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use headpond_control::Refusal;

use crate::args::{Cli, PagesArgs};

/// The section of the program's own page.
const PROGRAM: &str = "1";

/// The section of the pages of its commands, which administer the system.
const COMMAND: &str = "8";

/// Each completion as a shell looks for it.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// `headpond pages`.
pub fn run(args: &PagesArgs) -> Result<(), Refusal> {
    write_all(&args.directory).map_err(|error| Refusal::Failed {
        doing: format!("write manual pages and completions into {}", args.directory.display()),
        error,
    })
}

fn write_all(directory: &Path) -> io::Result<()> {
    let man = directory.join("man");
    let completions = directory.join("completions");
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    let mut program = shown(&Cli::command()).version(env!("CARGO_PKG_VERSION"));
    for shell in SHELLS {
        generate_to(shell, &mut program, "headpond", &completions)?;
    }
    program.build();
    write_page(&program, PROGRAM, &man)
}

/// A command without what it hides, and so for all commands below it.
fn shown(all: &Command) -> Command {
    let mut shown = Command::new(all.get_name().to_owned())
        .disable_help_subcommand(true)
        .subcommand_required(all.is_subcommand_required_set())
        .args(all.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()).map(shown));
    if let Some(about) = all.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = all.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    match all.get_after_long_help() {
        Some(help) => shown.after_long_help(help.clone()),
        None => shown,
    }
}

/// Writes a command's page, and those of the commands below it.
fn write_page(command: &Command, section: &str, directory: &Path) -> io::Result<()> {
    let name = page_name(command);
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    // Without a date, which would differ from one build to the next.
    writeln!(text, r#".TH {name} {section} "" "headpond {}""#, env!("CARGO_PKG_VERSION"))?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        page.render_options_section(&mut text)?;
    }
    let mut rest = Roff::new();
    list_commands(&mut rest, command);
    if let Some(help) = command.get_after_long_help() {
        explain(&mut rest, &help.to_string());
    }
    see_also(&mut rest, section);
    rest.to_writer(&mut text)?;
    fs::write(directory.join(format!("{name}.{section}")), text)?;
    command.get_subcommands().try_for_each(|below| write_page(below, COMMAND, directory))
}

fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn list_commands(roff: &mut Roff, command: &Command) {
    if command.has_subcommands() {
        roff.control("SH", ["COMMANDS"]);
    }
    for below in command.get_subcommands() {
        roff.control("TP", []);
        roff.text([bold(page_name(below)), roman(format!("({COMMAND})"))]);
        roff.text([roman(below.get_about().map(ToString::to_string).unwrap_or_default())]);
    }
}

/// What stands below the options in `--help`: what is indented there keeps its lines.
fn explain(roff: &mut Roff, help: &str) {
    roff.control("SH", ["EXAMPLES"]);
    let mut verbatim = false;
    for line in help.lines().filter(|line| *line != "Examples:") {
        let indented = line.starts_with("  ");
        if indented != verbatim && !line.is_empty() {
            roff.control(if indented { "EX" } else { "EE" }, []);
            verbatim = indented;
        }
        match line {
            "" if !verbatim => roff.control("PP", []),
            "Exit statuses:" => roff.control("SH", ["EXIT STATUS"]),
            line => roff.text([roman(line)]),
        };
    }
    if verbatim {
        roff.control("EE", []);
    }
}

fn see_also(roff: &mut Roff, section: &str) {
    roff.control("SH", ["SEE ALSO"]);
    let others = ["headpond.1", "headpond.5", "headpond.7", "mount.headpond.8"];
    let others = others.iter().filter(|other| section == COMMAND || **other != "headpond.1");
    let mut line = Vec::new();
    for (name, section) in others.filter_map(|other| other.rsplit_once('.')) {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(format!("({section})"))]);
    }
    roff.text(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The options of a command, and of so many levels of commands below it.
    fn options(command: &Command, levels: u8, hidden: bool) -> Vec<String> {
        let mut all: Vec<String> = command
            .get_arguments()
            .filter(|arg| arg.is_hide_set() == hidden)
            .filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
            .collect();
        if levels > 0 {
            all.extend(command.get_subcommands().flat_map(|below| options(below, levels - 1, hidden)));
        }
        all
    }

    /// Checks the page of a command and of those below it, and notes the names of the pages. One that is hidden, or lies
    /// below one that is, has none.
    fn check_pages(command: &Command, above: &str, is_hidden: bool, man: &Path, pages: &mut Vec<String>) {
        let name = format!("{above}-{}", command.get_name());
        if !is_hidden {
            let page = format!("{name}.8");
            let text = read(&man.join(&page)).replace('\\', "");
            let own = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long());
            for long in own {
                assert!(text.contains(&format!("--{long}")), "{page} lacks --{long}");
            }
            assert!(text.contains(&format!(".TH {name} 8 ")), "{page}");
            let nested = command.get_subcommands().filter(|below| !below.is_hide_set());
            for below in nested {
                assert!(text.contains(&format!("{name}-{}", below.get_name())), "{page} lacks {}", below.get_name());
            }
            let explains = command.get_after_long_help().is_some();
            assert_eq!(text.contains(".SH EXAMPLES"), explains, "{page}");
            assert!(explains || above != "headpond", "{page} has no examples");
            pages.push(page);
        }
        for below in command.get_subcommands() {
            check_pages(below, &name, is_hidden || below.is_hide_set(), man, pages);
        }
    }

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        let all = Cli::command();
        let mut pages = vec!["headpond.1".to_owned()];
        for command in all.get_subcommands() {
            check_pages(command, "headpond", command.is_hide_set(), &dir.path().join("man"), &mut pages);
        }
        for nested in ["headpond-pool-add.8", "headpond-peer-serve.8"] {
            assert!(pages.iter().any(|page| page == nested), "{pages:?}");
        }
        let written = fs::read_dir(dir.path().join("man")).unwrap();
        let mut written: Vec<_> = written.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
        written.sort_unstable();
        pages.sort_unstable();
        assert_eq!(written, pages);
        let own = read(&dir.path().join("man/headpond.1"));
        assert!(own.contains("EXIT STATUS") && own.contains("mount\\fR(8)"), "{own}");
    }

    #[test]
    fn completions_know_the_options_and_nothing_hidden() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        let all = Cli::command();
        let hidden = options(&all, u8::MAX, true);
        assert!(hidden.contains(&"--test-fault".to_owned()));
        // clap_complete knows two levels of commands for fish: `lab cards fill` is the third.
        for (name, dashes, levels) in
            [("headpond.bash", "--", u8::MAX), ("_headpond", "--", u8::MAX), ("headpond.fish", "-l ", 2)]
        {
            let text = read(&dir.path().join("completions").join(name));
            for long in options(&all, levels, false) {
                assert!(text.contains(&long.replace("--", dashes)), "{name} lacks {long}");
            }
            for long in &hidden {
                assert!(!text.contains(&long.replace("--", dashes)), "{name} shows {long}");
            }
        }
    }

    #[test]
    fn each_shell_that_is_here_can_read_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        for (shell, name) in [("bash", "headpond.bash"), ("zsh", "_headpond"), ("fish", "headpond.fish")] {
            let file = dir.path().join("completions").join(name);
            // It only reads them, and runs nothing of them.
            let Ok(said) = std::process::Command::new(shell).arg("-n").arg(file).output() else { continue };
            assert!(said.status.success() && said.stderr.is_empty(), "{shell}: {said:?}");
        }
    }
}
