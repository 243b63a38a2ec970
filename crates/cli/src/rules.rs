//! `headpond rules`: what headpond caches.

use headpond_control::{Answer, ClientCommand, Daemon, Decision, Refusal, RuleShown, Size};

use crate::args::{RulesArgs, RulesCommand};
use crate::ask::confused;
use crate::output::{print, print_json};

/// `headpond rules`.
pub fn run(args: &RulesArgs) -> Result<(), Refusal> {
    match &args.command {
        RulesCommand::List { mountpoint, json } => {
            let daemon = Daemon::of(mountpoint)?;
            let Answer::Rules { rules } = daemon.ask(&ClientCommand::Rules)? else { return Err(confused(&daemon)) };
            if *json { print_json(&rules) } else { print(&table(&rules)) }
        }
        RulesCommand::Add { mountpoint, words, before, dry_run } => {
            let command = ClientCommand::AddRule { words: words.clone(), before: *before, dry_run: *dry_run };
            change(&Daemon::of(mountpoint)?, &command, *dry_run, |rule| match rule {
                Some(rule) if *dry_run => println!("would be rule {}: {}{}", rule.number, rule.rule, rule.remark()),
                Some(rule) => println!("rule {}: {}{}", rule.number, rule.rule, rule.remark()),
                None => {}
            })
        }
        RulesCommand::Remove { mountpoint, number, dry_run } => {
            let command = ClientCommand::RemoveRule { number: *number, dry_run: *dry_run };
            change(&Daemon::of(mountpoint)?, &command, *dry_run, |_| {
                println!("{} rule {number}", if *dry_run { "would remove" } else { "removed" });
            })
        }
        RulesCommand::Test { mountpoint, words, json } => {
            let daemon = Daemon::of(mountpoint)?;
            let answer = daemon.ask(&ClientCommand::TestRules { words: words.clone() })?;
            let Answer::Decision(decision) = answer else { return Err(confused(&daemon)) };
            if *json { print_json(&decision) } else { print(&told(&decision)) }
        }
    }
}

fn change(
    daemon: &Daemon,
    command: &ClientCommand,
    dry_run: bool,
    show: impl FnOnce(Option<&RuleShown>),
) -> Result<(), Refusal> {
    let Answer::Rule { rule, seen, not_kept } = daemon.ask(command)? else { return Err(confused(daemon)) };
    show(rule.as_ref());
    if dry_run && rule.is_some() && !seen.is_empty() {
        println!("of the busiest files and processes it would match:\n  {}", seen.join("\n  "));
    }
    match not_kept {
        None => Ok(()),
        Some(why) => Err(Refusal::Failed {
            doing: "the rules are in force now, but not after a restart: write them to the pool".to_owned(),
            error: std::io::Error::other(why),
        }),
    }
}

fn table(rules: &[RuleShown]) -> String {
    if rules.is_empty() {
        return "no rules: the mode decides what is cached\n".to_owned();
    }
    let mut text = format!("{:>4} {:>12} {:>12}  rule\n", "", "requests", "bytes");
    for rule in rules {
        text += &format!(
            "{:>4} {:>12} {:>12}  {}{}\n",
            rule.number,
            rule.requests,
            Size(rule.bytes).to_string(),
            rule.rule,
            rule.remark()
        );
    }
    text
}

fn told(decision: &Decision) -> String {
    match &decision.decided_by {
        Some(rule) => format!("{}: rule {} decides: {}\n", decision.action, rule.number, rule.rule),
        None => "cache: no rule matches, so the mode decides\n".to_owned(),
    }
}
