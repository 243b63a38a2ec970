//! `headpond record`: writes a trace of what is asked of a mount.
//!
//! Invariant: this process makes the file, with the rights of its user, and only new: it overwrites nothing. The daemon
//! writes it.
//! However the recording ends, what is in the file reads up to its end.

use std::fs::{File, OpenOptions};
use std::io::BufReader;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use headpond_control::{Daemon, HowMany, Refusal, Size};
use headpond_recording::{TraceEncoder, TraceEnd, TraceReader, TraceUnreadable, WhyEnded};

use crate::output::{print, print_json};
use crate::progress::Interrupt;
use crate::seconds::seconds;

/// The arguments of `headpond record`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond record /var/lib/mysql --to monday.trace                 ten minutes, or 1 GiB, or until ctrl-C
  headpond record /var/lib/mysql --to day.trace --for 24h --max-size 20G
  headpond size monday.trace                                       how much flash should you buy?
  headpond replay monday.trace --policies all                      which policy suits the load?
  headpond record /var/lib/mysql --to t.trace --for 60s --json | jq .dropped

docs/replay.md draws the bytes of a trace.")]
pub struct RecordArgs {
    /// The mount
    pub mountpoint: PathBuf,
    /// The trace. The file must not exist, and not lie in the mount
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// End after this time, such as 60s, 10m or 24h
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = seconds)]
    pub for_seconds: u64,
    /// End at this size of the trace. A request takes 32 bytes
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub max_size: Size,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing meanwhile
    #[arg(long, short)]
    pub quiet: bool,
}

/// What is in a trace.
#[derive(serde::Serialize)]
struct Recorded {
    /// The file.
    file: PathBuf,
    requests: u64,
    /// Requests that are not in it because it could not be written fast enough.
    dropped: u64,
    bytes: u64,
    seconds: f64,
    /// Why it ended: asked, time, size, mount, or cut.
    ended: &'static str,
}

/// `headpond record`.
pub fn run(args: &RecordArgs) -> Result<(), Refusal> {
    if args.max_size.0 < TraceEncoder::BYTES_MIN {
        return Err(Refusal::Usage(format!("--max-size: a trace takes at least {} bytes", TraceEncoder::BYTES_MIN)));
    }
    let daemon = Daemon::of(&args.mountpoint)?;
    refuse_inside(&args.mountpoint, &args.to)?;
    let interrupt = Interrupt::listen();
    let failed = |doing: &str| {
        let doing = format!("{doing} {}", args.to.display());
        move |error| Refusal::Failed { doing, error }
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.to).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let path = args.to.display();
            return Refusal::Usage(format!(
                "{path} exists, and a recording overwrites nothing. Give another name to --to"
            ));
        }
        failed("make")(error)
    })?;
    let begun = || {
        if !args.quiet {
            let (most, to) = (args.max_size, args.to.display());
            eprintln!("recording to {to}, for at most {} s and {most}; ctrl-C ends it", args.for_seconds);
        }
    };
    let result = daemon.record(args.for_seconds, args.max_size.0, &file, begun, || interrupt.came());
    // What came until an error is worth keeping.
    let flushed = file.sync_all();
    if let Err(refusal) = result {
        if std::fs::metadata(&args.to).is_ok_and(|made| made.len() == 0) {
            let _ = std::fs::remove_file(&args.to);
        }
        return Err(refusal);
    }
    flushed.map_err(failed("write"))?;
    let recorded = examine(&args.to)?;
    if args.json { print_json(&recorded) } else { print(&recorded.text()) }
}

/// A trace inside the mount would record itself.
fn refuse_inside(mountpoint: &Path, to: &Path) -> Result<(), Refusal> {
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    if device(directory).is_some_and(|directory| device(mountpoint) == Some(directory)) {
        let why = format!("{} lies in the mount, and would be recorded itself. Give --to another place", to.display());
        return Err(Refusal::Usage(why));
    }
    Ok(())
}

/// Reads a trace once: what it says is what its readers will find.
fn examine(path: &Path) -> Result<Recorded, Refusal> {
    let failed = |error| Refusal::Failed { doing: format!("read {}", path.display()), error };
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let mut reader = TraceReader::open(BufReader::with_capacity(256 << 10, file)).map_err(|error| match error {
        TraceUnreadable::Io(error) => failed(error),
        TraceUnreadable::Head(why) => failed(std::io::Error::other(why)),
    })?;
    while reader.next_request().map_err(failed)?.is_some() {}
    let ended = match reader.end() {
        Some(TraceEnd::Complete(why)) => why.name(),
        Some(TraceEnd::Cut(_)) | None => "cut",
        Some(TraceEnd::Damaged(at)) => {
            return Err(failed(std::io::Error::other(format!("it is damaged from byte {at} on"))));
        }
    };
    let seconds = reader.lasted().0 as f64 / 1e9;
    let (requests, dropped) = (reader.kept(), reader.dropped());
    Ok(Recorded { file: path.to_owned(), requests, dropped, bytes, seconds, ended })
}

impl Recorded {
    fn text(&self) -> String {
        let file = self.file.display();
        let dropped = match self.dropped {
            0 => "none dropped".to_owned(),
            dropped => format!("{dropped} more were dropped, because they came faster than the trace was written"),
        };
        let ended = match self.ended {
            "cut" => "the daemon went away; the trace is good up to there",
            ended if ended == WhyEnded::Size.name() => "--max-size was reached",
            ended if ended == WhyEnded::Time.name() => "the time of --for is over",
            ended if ended == WhyEnded::Mount.name() => "the mount ended, or another program took over",
            _ => "interrupted; the trace is complete up to there",
        };
        format!(
            "{file}: {} in {:.1} s, {}; {dropped}\n{ended}\n",
            HowMany(self.requests, "request"),
            self.seconds,
            Size(self.bytes)
        )
    }
}
