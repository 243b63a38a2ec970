//! `headpond set` and `headpond get`.

use std::collections::BTreeMap;

use headpond_control::{Answer, ClientCommand, Daemon, MODE, Refusal, SettingChange, Size, Value, reference};

use crate::args::{GetArgs, SetArgs};
use crate::ask::{ask_settings, ask_status, confused};
use crate::output::{print, print_json};
use crate::progress::{DirtyBar, Interrupt, Waited, wait_for};

/// `headpond set`.
pub fn set(args: &SetArgs) -> Result<(), Refusal> {
    let daemon = Daemon::of(&args.mountpoint)?;
    let interrupt = Interrupt::listen();
    let origin = ask_status(&daemon)?.origin;
    let command = ClientCommand::Set { settings: args.settings.clone(), dry_run: args.dry_run };
    let Answer::Set { changes, operation, to_flush_bytes, not_kept } = daemon.ask(&command)? else {
        return Err(confused(&daemon));
    };
    if changes.is_empty() {
        println!("nothing to change");
    }
    for change in changes.iter().filter(|change| args.dry_run || change.name != MODE) {
        println!("{}", line(change, args.dry_run.then_some(to_flush_bytes)));
    }
    if let Some(id) = operation {
        let mut bar = DirtyBar::new("changing mode", false);
        let waited = wait_for(&daemon, id, &origin, &mut bar, &interrupt)?;
        bar.clear();
        if waited == Waited::Interrupted {
            let text = "interrupted: the daemon goes on changing the mode. To see its progress: headpond status";
            return Err(Refusal::Interrupted(text.to_owned()));
        }
        changes.iter().filter(|change| change.name == MODE).for_each(|change| println!("{}", line(change, None)));
    }
    match not_kept {
        None => Ok(()),
        Some(why) => Err(Refusal::Failed {
            doing: "the settings are in force now, but not after a restart: write them to the pool".to_owned(),
            error: std::io::Error::other(why),
        }),
    }
}

/// A line for one change, made or planned.
fn line(change: &SettingChange, would_flush: Option<u64>) -> String {
    let SettingChange { name, from, to } = change;
    match would_flush {
        None => format!("{name}: {from} -> {to}"),
        Some(bytes) if name == MODE && bytes > 0 => {
            format!("would change {name}: {from} -> {to}, after a flush of {} in the background", Size(bytes))
        }
        Some(_) => format!("would change {name}: {from} -> {to}, at once"),
    }
}

/// `headpond get`.
pub fn get(args: &GetArgs) -> Result<(), Refusal> {
    let Some(mountpoint) = &args.mountpoint else { return print(&reference()) };
    let values = ask_settings(&Daemon::of(mountpoint)?)?;
    let wanted = if args.names.is_empty() { values } else { named(&args.names, &values)? };
    if args.json {
        let object: BTreeMap<&str, &str> =
            wanted.iter().map(|value| (value.name.as_str(), value.value.as_str())).collect();
        return print_json(&object);
    }
    print(&wanted.iter().map(|value| format!("{value}\n")).collect::<String>())
}

fn named(names: &[String], values: &[Value]) -> Result<Vec<Value>, Refusal> {
    let find = |name: &String| {
        values.iter().find(|value| value.name == *name).cloned().ok_or_else(|| {
            let known: Vec<&str> = values.iter().map(|value| value.name.as_str()).collect();
            Refusal::Usage(format!("unknown setting '{name}'. Known: {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}
