//! `headpond flush`: starts a flush and waits, or prints its handle; and cancels a flush.

use std::path::{Component, Path, PathBuf};

use headpond_control::{Answer, ClientCommand, Daemon, Refusal};

use crate::args::FlushArgs;
use crate::ask::confused;
use crate::output::print_json;
use crate::progress::{DirtyBar, Interrupt, Waited, start_and_wait};

/// `headpond flush`.
pub fn run(args: &FlushArgs) -> Result<(), Refusal> {
    let daemon = Daemon::of(&args.mountpoint)?;
    if let Some(id) = args.cancel {
        daemon.ask(&ClientCommand::CancelFlush { id })?;
        if !args.quiet {
            println!("flush {id} cancelled: the rest stays dirty, and safe in the pool");
        }
        return Ok(());
    }
    let path = args.path.as_deref().map(|path| below(daemon.mountpoint(), path)).transpose()?;
    let command = ClientCommand::Flush { path };
    if args.background {
        return in_background(&daemon, &command, args);
    }
    let interrupt = Interrupt::listen();
    let mut bar = DirtyBar::new("flushing", args.quiet);
    let waited = start_and_wait(&daemon, &command, &mut bar, &interrupt)?;
    bar.clear();
    match waited {
        Waited::Done => {
            if !args.quiet {
                let what = args.path.as_ref().map_or_else(String::new, |path| format!(" in {}", path.display()));
                println!("flushed: the origin has everything that was dirty{what}");
            }
            Ok(())
        }
        Waited::Cancelled => {
            Err(Refusal::Interrupted("flush cancelled: the rest stays dirty, and safe in the pool".to_owned()))
        }
        Waited::Interrupted => Err(Refusal::Interrupted(
            "interrupted: the mount goes on, and the rest stays dirty, safe in the pool".to_owned(),
        )),
    }
}

/// Prints only the handle to standard output, for scripts.
fn in_background(daemon: &Daemon, command: &ClientCommand, args: &FlushArgs) -> Result<(), Refusal> {
    let Answer::Started { id } = daemon.ask(command)? else { return Err(confused(daemon)) };
    if args.json {
        return print_json(&serde_json::json!({ "handle": id }));
    }
    println!("{id}");
    if !args.quiet {
        let mount = args.mountpoint.display();
        eprintln!("To see its progress: headpond status {mount}\nTo cancel it: headpond flush {mount} --cancel {id}");
    }
    Ok(())
}

/// A path relative to the mount. The given one may be absolute, and need not exist.
fn below(mountpoint: &Path, path: &Path) -> Result<String, Refusal> {
    let outside = || Refusal::Usage(format!("{} is not below {}", path.display(), mountpoint.display()));
    let relative = if path.is_absolute() {
        match path.strip_prefix(mountpoint) {
            Ok(relative) => relative.to_owned(),
            // An absolute path by another name of the mount point.
            Err(_) => path
                .canonicalize()
                .ok()
                .and_then(|path| Some(path.strip_prefix(mountpoint).ok()?.to_owned()))
                .ok_or_else(outside)?,
        }
    } else {
        path.to_owned()
    };
    let parts = relative.components().map(|part| match part {
        Component::Normal(part) => Some(Some(part)),
        Component::CurDir => Some(None),
        _ => None,
    });
    let parts: Option<Vec<_>> = parts.collect();
    let clean: PathBuf = parts.ok_or_else(outside)?.into_iter().flatten().collect();
    clean
        .into_os_string()
        .into_string()
        .map_err(|_| Refusal::Usage(format!("{} is not UTF-8. Flush a directory above it", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_below_the_mount_and_never_as_above_it() {
        let below = |path: &str| below(Path::new("/mnt"), Path::new(path)).ok();
        for (path, expected) in [
            ("db/t1.ibd", Some("db/t1.ibd")),
            ("./db/", Some("db")),
            ("/mnt/db", Some("db")),
            ("/mnt", Some("")),
            ("../x", None),
            ("db/../../x", None),
            ("/no-such-place/x", None),
        ] {
            assert_eq!(below(path).as_deref(), expected, "{path}");
        }
    }
}
