//! The options of `mount -o` and of the fourth field in `/etc/fstab`, as options of `headpond mount`.
//!
//! Invariant: an option is carried out, or has no meaning for a mount that is made, or is an error. None that limits
//! what programs may do is dropped in silence.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::mount::MountFlags;

use super::Failure;

/// What an option means.
enum Meaning {
    /// An option of `headpond mount` with a value.
    Value,
    /// An option of `headpond mount` without a value.
    Switch,
    /// A limit of the mount in the kernel.
    Limit(MountFlags),
    /// No such limit.
    NoLimit(MountFlags),
    /// For `mount` and its like, or true of every headpond mount.
    Nothing,
}

/// Those of `headpond mount` keep their names. What decides about data once (`--format`, `--discard-dirty`,
/// `--keep-pool`, `--keep-origin`) must not happen again at each boot, and is not here.
const OPTIONS: [(&str, Meaning); 50] = [
    ("flash", Meaning::Value),
    ("size", Meaning::Value),
    ("reserve", Meaning::Value),
    ("mode", Meaning::Value),
    ("redundancy", Meaning::Value),
    ("config", Meaning::Value),
    ("log", Meaning::Value),
    ("http", Meaning::Value),
    ("http-token", Meaning::Value),
    // Their names before there was a page.
    ("metrics", Meaning::Value),
    ("metrics-token", Meaning::Value),
    ("processors", Meaning::Value),
    ("peer", Meaning::Value),
    ("copies", Meaning::Value),
    ("peer-timeout", Meaning::Value),
    ("peer-certificates", Meaning::Value),
    ("registry", Meaning::Value),
    ("registry-certificates", Meaning::Value),
    ("lease-seconds", Meaning::Value),
    ("node", Meaning::Value),
    ("backend", Meaning::Value),
    ("fill", Meaning::Value),
    ("copies-durable", Meaning::Switch),
    ("allow-other", Meaning::Switch),
    ("ro", Meaning::Limit(MountFlags::RDONLY)),
    ("nosuid", Meaning::Limit(MountFlags::NOSUID)),
    ("nodev", Meaning::Limit(MountFlags::NODEV)),
    ("noexec", Meaning::Limit(MountFlags::NOEXEC)),
    ("rw", Meaning::NoLimit(MountFlags::RDONLY)),
    ("suid", Meaning::NoLimit(MountFlags::NOSUID)),
    ("dev", Meaning::NoLimit(MountFlags::NODEV)),
    ("exec", Meaning::NoLimit(MountFlags::NOEXEC)),
    ("defaults", Meaning::Nothing),
    ("async", Meaning::Nothing),
    ("auto", Meaning::Nothing),
    ("noauto", Meaning::Nothing),
    ("nofail", Meaning::Nothing),
    ("-netdev", Meaning::Nothing),
    ("user", Meaning::Nothing),
    ("users", Meaning::Nothing),
    ("nouser", Meaning::Nothing),
    ("owner", Meaning::Nothing),
    ("group", Meaning::Nothing),
    ("comment", Meaning::Nothing),
    ("uhelper", Meaning::Nothing),
    // Reads through a mount move no access times.
    ("noatime", Meaning::Nothing),
    ("nodiratime", Meaning::Nothing),
    ("relatime", Meaning::Nothing),
    ("default-permissions", Meaning::Nothing),
    ("nonempty", Meaning::Nothing),
];

/// Options, in headpond's words.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Options {
    /// For `headpond mount`.
    pub arguments: Vec<OsString>,
    /// For the kernel.
    pub limits: MountFlags,
}

/// Reads options that are separated by commas. A sloppy reader drops what it does not know.
pub(super) fn parse(given: &[OsString], sloppy: bool) -> Result<Options, Failure> {
    let mut options = Options { arguments: Vec::new(), limits: MountFlags::empty() };
    let each = given.iter().flat_map(|list| list.as_bytes().split(|&byte| byte == b','));
    for option in each.filter(|option| !option.is_empty()) {
        take(&mut options, option, sloppy)?;
    }
    if !options.arguments.iter().any(|argument| argument.as_bytes().starts_with(b"--flash=")) {
        return Err(Failure::Usage("the option flash=FILE_OR_DEVICE is missing: where the pool lies".to_owned()));
    }
    Ok(options)
}

fn take(options: &mut Options, option: &[u8], sloppy: bool) -> Result<(), Failure> {
    let (name, value) = match option.iter().position(|&byte| byte == b'=') {
        Some(at) => (&option[..at], Some(&option[at + 1..])),
        None => (option, None),
    };
    // `allow_other`, as for other FUSE file systems.
    let name = String::from_utf8_lossy(name).replace('_', "-");
    let known = OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, meaning)| meaning);
    match (known, value) {
        (Some(Meaning::Value), Some(value)) => {
            let mut argument = OsString::from(format!("--{name}="));
            argument.push(OsStr::from_bytes(value));
            options.arguments.push(argument);
        }
        (Some(Meaning::Value), None) => return Err(Failure::Usage(format!("option {name} needs a value: {name}=..."))),
        (Some(Meaning::Switch), None) => options.arguments.push(format!("--{name}").into()),
        (Some(Meaning::Limit(flags)), None) => options.limits.insert(*flags),
        (Some(Meaning::NoLimit(flags)), None) => options.limits.remove(*flags),
        (Some(Meaning::Nothing), _) => {}
        _ if sloppy || name.starts_with("x-") || name.starts_with("X-") => {}
        _ => {
            let option = String::from_utf8_lossy(option);
            return Err(Failure::Usage(format!("unknown option {option}. headpond takes: {}", own())));
        }
    }
    Ok(())
}

/// The names of headpond's own options.
fn own() -> String {
    let own = OPTIONS.iter().filter(|(_, meaning)| matches!(meaning, Meaning::Value | Meaning::Switch));
    own.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn read(text: &str) -> Result<Options, String> {
        parse(&[text.into()], false).map_err(|failure| match failure {
            Failure::Usage(what) => what,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn headponds_options_keep_their_names_and_others_mean_nothing() {
        let options = read(
            "rw,_netdev,flash=/nvme/my pond,size=3G,allow_other,x-systemd.after=a.service,nofail,\
                            comment=ours,user=me,noauto,metrics_token=/t,x-gvfs-show",
        )
        .unwrap();
        let words = ["--flash=/nvme/my pond", "--size=3G", "--allow-other", "--metrics-token=/t"];
        assert_eq!(options.arguments, words.map(OsString::from));
        assert_eq!(options.limits, MountFlags::empty());
    }

    #[test]
    fn a_pool_of_several_devices_names_each() {
        let options = read("flash=/nvme1/a,flash=/nvme2/b,size=3G,redundancy=none").unwrap();
        let words = ["--flash=/nvme1/a", "--flash=/nvme2/b", "--size=3G", "--redundancy=none"];
        assert_eq!(options.arguments, words.map(OsString::from));
    }

    #[test]
    fn an_unknown_option_is_an_error_that_names_it_unless_the_reader_is_sloppy() {
        for (text, says) in [
            ("flash=/f,colour=red", "unknown option colour=red"),
            ("flash=/f,discard-dirty", "unknown option discard-dirty"),
            ("flash=/f,remount", "unknown option remount"),
            ("flash=/f,allow_other=1", "unknown option allow_other=1"),
            ("flash=/f,size", "option size needs a value"),
            ("size=3G", "flash=FILE_OR_DEVICE is missing"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(parse(&["flash=/f,colour=red".into()], true).is_ok());
    }

    #[test]
    fn limits_are_for_the_kernel_and_the_last_word_counts() {
        let limits = |text: &str| read(&format!("flash=/f,{text}")).unwrap().limits;
        assert_eq!(limits("ro,nosuid,nodev,noexec").bits(), 15);
        assert_eq!(limits("noexec,nosuid,nodev,exec"), MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(limits("ro,rw"), MountFlags::empty());
    }

    /// The options that the tags of the manual page name, and whether with a value.
    fn on_the_page() -> Vec<(String, bool)> {
        let page = include_str!("../../../../packaging/man/mount.headpond.8").replace("\\\n", "");
        let (_, section) = page.split_once(".SH MOUNT OPTIONS\n").unwrap();
        let (section, _) = section.split_once(".SH ").unwrap();
        let tags = section.split(".TP\n").skip(1).filter_map(|entry| entry.lines().next());
        let bold = tags.flat_map(|tag| tag.split("\\fB").skip(1)).filter_map(|text| text.split("\\fR").next());
        bold.map(|name| (name.trim_end_matches('=').replace('\\', "").replace('_', "-"), name.ends_with('=')))
            .filter(|(name, _)| name != "x-")
            .collect()
    }

    #[test]
    fn the_manual_page_names_each_option_once_and_no_other() {
        let mut named = on_the_page();
        named.sort_unstable();
        let has_value = |name: &str, meaning: &Meaning| match meaning {
            Meaning::Value => true,
            Meaning::Nothing => ["comment", "uhelper"].contains(&name),
            _ => false,
        };
        let mut known: Vec<_> =
            OPTIONS.iter().map(|(name, meaning)| ((*name).to_owned(), has_value(name, meaning))).collect();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn every_option_of_a_mount_is_here_or_is_for_one_mount_only() {
        const NOT_HERE: [&str; 7] =
            ["background", "format", "discard-dirty", "keep-pool", "keep-origin", "model-disk", "test-fault"];
        let all = Cli::command();
        let mount = all.find_subcommand("mount").unwrap();
        for long in mount.get_arguments().filter_map(|argument| argument.get_long()) {
            let here = OPTIONS.iter().any(|(name, meaning)| *name == long && !matches!(meaning, Meaning::Nothing));
            assert_ne!(here, NOT_HERE.contains(&long), "--{long}");
        }
    }
}
