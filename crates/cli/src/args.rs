//! The command line: every command, option and example, as `--help` shows them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use headpond_base::{CacheMode, Redundancy};
use headpond_control::{Backend, ExitStatus, FaultPlan, Fill, Processors, Reserve, Settings, Size};

use crate::atomic::AtomicArgs;
use crate::doctor::DoctorArgs;
use crate::peer_args::{LeaseArgs, PeerArgs, PeerCommandArgs, TakeoverArgs};
use crate::pool::PoolArgs;
use crate::record::RecordArgs;
use crate::replay::ReplayArgs;
use crate::seconds::seconds;
use crate::size::SizeArgs;
#[cfg(feature = "lab")]
use headpond_lab::experiment::commands::LabArgs;
#[cfg(feature = "lab")]
use headpond_modelled::DiskModel;

/// Fast local flash in front of slow storage.
///
/// headpond serves a directory on slow storage, the origin, through a mount. A pool on local flash
/// stands in front of it. What your programs sync is safe on flash at once. It reaches the origin a
/// little later. headpond moves and converts nothing. After an unmount the origin is complete, and
/// you can use it without headpond.
#[derive(Parser, Debug)]
#[command(name = "headpond", version = env!("HEADPOND_VERSION"), max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "`headpond COMMAND --help` has examples for each command.")]
#[command(after_long_help = after_help())]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Started by `mount --background`.
    #[arg(long = BACKGROUND_CHILD, hide = true)]
    pub background_child: bool,
    /// Started by the holder of a mount, to serve it.
    #[arg(long = WORKER, hide = true)]
    pub worker: bool,
}

/// The name of the hidden mark that `mount --background` gives to the daemon it starts.
pub const BACKGROUND_CHILD: &str = "background-child";

/// The name of the hidden command by which `upgrade` asks a program whether it can take over.
pub const SHARED_LAYOUT: &str = "shared-layout";

/// The name of the hidden mark that a holder gives to its workers.
pub const WORKER: &str = "worker";

fn after_help() -> String {
    format!(
        "Example, MariaDB on a slow volume:\n  \
         systemctl stop mariadb\n  \
         headpond mount /slow/mysql /var/lib/mysql --flash /nvme/pond --size 200G --background --allow-other\n  \
         systemctl start mariadb\n  \
         headpond status\n\n\
         Exit statuses:\n{}",
        ExitStatus::table()
    )
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve a slow directory through a mount, with flash in front
    ///
    /// The command runs in the foreground until you unmount. ctrl-C ends it within seconds and keeps dirty data in
    /// the pool, as `unmount --keep-dirty` does. SIGTERM first flushes for at most the setting shutdown-flush.
    ///
    /// In write-back mode the newest data is on the flash alone until it reaches the origin. Use a
    /// device that you trust with your data, or `--mode write-through`.
    ///
    /// After a crash or a loss of power, run the same command again. Everything that was synced is
    /// there, and the cache is still warm.
    Mount(Box<MountArgs>),
    /// Show the state of your mounts: what is dirty, how full the pool is, what failed
    Status(StatusArgs),
    /// Show every number that a mount counts
    Stats(StatsArgs),
    /// Watch a mount at work, second by second
    Top(TopArgs),
    /// Write everything dirty to the origin, and wait for it
    ///
    /// The command returns when the origin has everything that was dirty at its start. Programs can write
    /// meanwhile. You can interrupt it: the rest stays dirty, and safe in the pool. Flushed data stays in
    /// the pool as a cache for reads.
    Flush(FlushArgs),
    /// Run a command while the origin is complete and stands still, such as one that takes a snapshot of it
    ///
    /// The command sees the origin as it was at one moment: with everything that programs had written before,
    /// and nothing after. Reads go on, and writes go on into the pool; writes wait only for the short flush
    /// before that moment. Creates, removes, renames and changes of attributes wait for the end. This command
    /// ends with the status of COMMAND.
    Freeze(FreezeArgs),
    /// Choose what is cached: by process, user, file and kind of request
    ///
    /// The first rule that matches a request decides. If none matches, the mode decides. A changed rule
    /// applies from the next request on, and the pool keeps it. docs/rules.md explains each word.
    Rules(RulesArgs),
    /// Change the settings of a mount while it is in use
    ///
    /// Several settings change together or not at all. They take effect at once, without a restart, and
    /// the pool keeps them. When you leave write-back mode, headpond first flushes in the background and
    /// shows how far it is; after ctrl-C the daemon goes on with it. `headpond get --reference` explains
    /// every setting.
    Set(SetArgs),
    /// Show the settings of a mount, or explain them
    Get(GetArgs),
    /// Show the devices of a pool, and change them while it is in use
    Pool(PoolArgs),
    /// Keep copies of other hosts' dirty data, so that this host can go on when one of them is lost
    Peer(PeerCommandArgs),
    /// Go on, on this host, with a pool whose host was lost: from the copy that `peer serve` has kept
    ///
    /// First the copy is judged. If it will do, the owner's number in the store goes up, and the lost host is refused there
    /// from then on. Then the pool is mounted from the copy, with all that the lost host had synced. Nothing here keeps the
    /// lost host from the origin itself: it must be dead, or cut off from the origin.
    Takeover(Box<TakeoverArgs>),
    /// Give a pool to the host that has its copy: unmount here, and mount there
    ///
    /// Nothing is flushed first, so the pause is short: the guard on the other host goes on with its copy, and what is
    /// dirty goes to the origin from there. While programs have files open in the mount, nothing happens.
    Handover(HandoverArgs),
    /// Write everything dirty to the origin, then take the mount away
    ///
    /// The command shows how much is left and how long it takes. If you press ctrl-C, the mount stays. At
    /// the end the origin is complete, and you can read it without headpond. While programs have files
    /// open in the mount, headpond refuses to unmount and names the programs.
    ///
    /// While systemd shuts the host down, the command writes for at most the setting shutdown-flush. What is left stays
    /// in the pool, as with --keep-dirty.
    Unmount(UnmountArgs),
    /// Go on with another version of headpond, while the mount is in use
    ///
    /// The program that serves the mount ends, and the new one takes over. Applications see a pause of a fraction of a
    /// second, and no error. If the new program does not come up, the old one goes on.
    Upgrade(UpgradeArgs),
    /// Show how this program divides the memory that it shares with a holder
    #[command(name = SHARED_LAYOUT, hide = true)]
    SharedLayout,
    /// Examine a pool that is not in use: what is damaged, and what is dirty
    ///
    /// The command reads and verifies what the pool holds, and writes nothing. It reports the damage, what you
    /// lose by it, and which files have dirty data. You need not run it before a mount: a mount verifies
    /// everything that it uses.
    Check(CheckArgs),
    /// Record what is asked of a mount: a trace for `size` and `replay`
    ///
    /// The trace has the time, place and length of each read, write, sync and discard, and numbers in place of
    /// files. It has no names, and nothing of what is read or written. The mount waits for nothing: what cannot be
    /// written fast enough is dropped, and counted.
    Record(RecordArgs),
    /// Say how much flash to buy: which share of the reads a pool of each size finds
    ///
    /// From a trace, the answer is what headpond's own policy does with it at each size. From a mount, it is what a
    /// larger pool would gain, as far as the policy remembers what it evicted. If too little was seen, the command
    /// says so. The size of a pool is that of all its devices together: clean data takes its room once, and mirrored
    /// dirty data twice.
    Size(SizeArgs),
    /// Try cache policies and sizes on a recorded trace
    ///
    /// For each policy and size, the command shows the miss ratio and the writes to flash and to the
    /// origin. It needs no mount.
    Replay(ReplayArgs),
    /// Measure storage with and without headpond, with real load generators
    ///
    /// The command runs fio and databases on a directory, a device, a headpond mount or a modelled disk. It
    /// compares the results and draws them. docs/lab.md explains the experiments.
    #[cfg(feature = "lab")]
    Lab(Box<LabArgs>),
    /// Show how a database protects itself from torn pages, and what it can turn off here
    ///
    /// The command examines MariaDB, MySQL, PostgreSQL and SQLite databases in a directory or on a mount.
    /// It reports what is in force, which lines of configuration to change, and what must be true first.
    /// It also says whether this machine refuses headpond io_uring, why, and what that costs. It changes
    /// nothing.
    Doctor(DoctorArgs),
    /// Let MariaDB skip its doublewrite: make or remove the file that it looks for
    ///
    /// MariaDB asks a file system for untorn writes only if the file /dev/fcta exists. That is the name
    /// of another vendor's card, so no other headpond command makes it. docs/databases.md says when it is
    /// safe.
    Atomic(AtomicArgs),
    /// For tests: make the flash of a mount fail
    #[command(hide = true)]
    Fault(FaultArgs),
    /// For packages: write the manual pages and the completions for shells
    #[command(hide = true)]
    Pages(PagesArgs),
}

/// The arguments of `headpond mount`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  A database on a slow volume, served for all users, in the background (as root):
    headpond mount /slow/mysql /var/lib/mysql --flash /nvme/pond --size 200G --background --allow-other

  The same files for one ordinary user, in the foreground:
    headpond mount ~/slow ~/fast --flash /nvme/me.pond --size 20G

  Again, after an unmount, a crash or a reboot. The pool is warm, and needs no size:
    headpond mount /slow/mysql /var/lib/mysql --flash /nvme/pond --background --allow-other

  A whole device as flash, which held something else before:
    headpond mount /slow/pg /var/lib/postgresql --flash /dev/nvme1n1 --format

  Two devices: dirty data is on both, and the loss of either loses nothing:
    headpond mount /slow/pg /var/lib/postgresql --flash /nvme1/pond --flash /nvme2/pond --size 200G

  Two files with dirty data in the pool were changed at the origin. Decide for each:
    headpond mount /slow/mysql /var/lib/mysql --flash /nvme/pond --keep-pool db/t1.ibd --keep-origin db/t2.ibd")]
pub struct MountArgs {
    /// The slow directory that owns the data
    pub origin: PathBuf,
    /// An empty directory where your programs will see the data
    pub mountpoint: PathBuf,
    /// The pool: a block device or a file. headpond makes the file if it does not exist (see --size). Repeat the
    /// option for a pool of several devices (docs/devices.md)
    #[arg(long, value_name = "FILE_OR_DEVICE", required = true)]
    pub flash: Vec<PathBuf>,
    /// The host that keeps a copy of what is dirty.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// How many of the hosts that --peer names have a copy at a time, 1 or 2. A pool keeps it (setting `copies`). Without
    /// this option: as before, and 1 in a new pool
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub copies: Option<u8>,
    /// The registry that says who owns the pool.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// The size of each new flash file, such as 200G; at least 64M. Units: K, M, G, T are powers of 1024,
    /// as are KiB and so on; KB and so on are powers of 1000
    #[arg(long)]
    pub size: Option<Size>,
    /// How much of each new device stays unwritten, in percent of --size or of the device: 0% to 90%. For cards whose
    /// writes slow down when they are full (docs/devices.md). A pool keeps it. Without this option: 0%
    #[arg(long, value_name = "PERCENT")]
    pub reserve: Option<Reserve>,
    /// What happens to writes. Without this option a pool keeps its mode, and a new pool gets write-back
    #[arg(long, value_parser = cache_mode(), value_name = "MODE", long_help = MODE_HELP)]
    pub mode: Option<CacheMode>,
    /// How many devices of the pool get each piece of data that the origin lacks: `mirror` is two, `none` is one.
    /// `parity`, for three devices or more, is two at first; full segments then get a parity instead of the second.
    /// Without this option a pool keeps its own, and a new pool of several devices gets mirror
    #[arg(long, value_name = "none|mirror|parity")]
    pub redundancy: Option<Redundancy>,
    /// A TOML file of settings. They replace those that the pool keeps (`headpond get --reference` lists them)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Return as soon as the mount is ready, and serve it in the background
    #[arg(long)]
    pub background: bool,
    /// With --background: the daemon's log file [default: beside its socket]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Let other users in, with the usual checks of permissions. You need this if the database runs as its
    /// own user. If you are not root, /etc/fuse.conf must contain user_allow_other
    #[arg(long)]
    pub allow_other: bool,
    /// Serve a page that shows the mount, JSON for scripts, and /metrics for Prometheus over HTTP at this address,
    /// such as 127.0.0.1:9187. Everyone on this machine can read them. If other machines can reach the address, add
    /// --http-token
    #[arg(long, visible_alias = "metrics", value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,
    /// A file with a token. Scripts must send it (`Authorization: Bearer TOKEN`); a browser asks for it once. The file
    /// must belong to you and have mode 600
    #[arg(long, visible_alias = "metrics-token", value_name = "FILE", requires = "http")]
    pub http_token: Option<PathBuf>,
    /// The processors that serve the mount, such as 0-7 or 0-3+8-11: on a host with several memory nodes, those of the
    /// node where the flash is (docs/devices.md). Without this option: all
    #[arg(long, value_name = "LIST")]
    pub processors: Option<Processors>,
    /// How headpond reads and writes the flash
    #[arg(long, value_enum, default_value_t = BackendArg::Auto)]
    pub backend: BackendArg,
    /// How headpond makes a new flash file. `zeros` takes time now, and makes the first write to each place
    /// cheaper
    #[arg(long, value_enum, default_value_t = FillArg::Reserved)]
    pub fill: FillArg,
    /// Overwrite flash that holds something else, or a pool without dirty data
    #[arg(long)]
    pub format: bool,
    /// Drop for good the dirty data that prevents this mount: another origin's in this pool, or this
    /// origin's in another pool. Without this option headpond refuses, and shows whose data it is
    #[arg(long)]
    pub discard_dirty: bool,
    /// For a file that is dirty in the pool and was changed at the origin: write the pool's data over the
    /// origin's. Give the path below the origin, or `all`. You can repeat this option
    #[arg(long, value_name = "FILE|all")]
    pub keep_pool: Vec<PathBuf>,
    /// As --keep-pool, but keep the origin's version of the file, and drop the pool's dirty data for good
    #[arg(long, value_name = "FILE|all")]
    pub keep_origin: Vec<PathBuf>,
    /// For tests and demonstrations: make the origin as slow as this disk
    #[cfg(feature = "lab")]
    #[arg(long, value_parser = disk_model(), value_name = "DISK")]
    pub model_disk: Option<DiskModel>,
    /// For tests, never with data that you need: make the flash fail, such as `lose-unsynced`
    /// (docs/fault-model.md lists the faults)
    #[arg(long, value_name = "FAULTS", hide = true)]
    pub test_fault: Option<FaultPlan>,
}

const MODE_HELP: &str =
    "What happens to writes. Without this option a pool keeps its mode, and a new pool gets write-back:
  write-back     writes go to flash, where fsync makes them durable; the origin gets them later
  write-through  the origin takes each write, and fsync makes it durable there; flash keeps a copy to read
  write-around   writes go to the origin only; reads are cached
  pass-through   everything goes to the origin";

/// The arguments of `headpond status`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond status                              every mount of this user
  headpond status /var/lib/mysql               one mount
  headpond status /var/lib/mysql --json        the same for programs: one object
  headpond status --json                       an array of such objects
  headpond status /var/lib/mysql --json | jq .dirty_bytes

Counters start with the daemon; a block is 4 KiB. Dirty means newer than the origin.")]
pub struct StatusArgs {
    /// A mount. Without it: all mounts of this user
    pub mountpoint: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `headpond top`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond top                        the only mount of this user
  headpond top /var/lib/mysql
  headpond top /var/lib/mysql --once --interval 10    what happened in ten seconds, for scripts

Keys: q quits.")]
pub struct TopArgs {
    /// The mount. You can leave it out if you have only one
    pub mountpoint: Option<PathBuf>,
    /// Print one interval, and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two updates, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub interval: u32,
}

/// The arguments of `headpond stats`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond stats /var/lib/mysql                      a line for each number
  headpond stats /var/lib/mysql | grep latency_read
  headpond stats /var/lib/mysql --json | jq .metrics.dirty_bytes
  headpond stats --reference                         what each number means")]
pub struct StatsArgs {
    /// The mount
    #[arg(required_unless_present = "reference")]
    pub mountpoint: Option<PathBuf>,
    /// Print JSON: one object, with latencies and settings
    #[arg(long)]
    pub json: bool,
    /// Explain every number
    #[arg(long, exclusive = true)]
    pub reference: bool,
}

/// The arguments of `headpond flush`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  Everything, so that the origin has what was written until now (for snapshots: headpond freeze):
    headpond flush /var/lib/mysql

  One file, or everything below a directory:
    headpond flush /var/lib/mysql shop/orders.ibd
    headpond flush /var/lib/mysql shop

  In the background. The handle shows its progress, and cancels it:
    handle=$(headpond flush /var/lib/mysql --background)
    headpond status /var/lib/mysql --json | jq \".flushes[] | select(.handle == $handle)\"
    headpond flush /var/lib/mysql --cancel $handle

  Flush, and let nothing become dirty from then on; the pool still caches reads:
    headpond set /var/lib/mysql mode=write-through")]
pub struct FlushArgs {
    /// The mount
    pub mountpoint: PathBuf,
    /// A file or directory below the mount. Without it: everything
    pub path: Option<PathBuf>,
    /// Return at once, and print a handle for `status` and `--cancel`
    #[arg(long)]
    pub background: bool,
    /// Cancel the flush with this handle. What the origin does not have yet stays dirty
    #[arg(long, value_name = "HANDLE", conflicts_with_all = ["path", "background"])]
    pub cancel: Option<u64>,
    /// With --background: print JSON, one object with the handle
    #[arg(long, requires = "background")]
    pub json: bool,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// The arguments of `headpond freeze`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond freeze /var/lib/mysql -- lvcreate --snapshot --name backup --size 10G vg/slow
  headpond freeze /var/lib/mysql -- zfs snapshot tank/slow@backup
  headpond freeze /var/lib/mysql --for 10m -- rsync -a /slow/mysql/ /backup/mysql/

docs/operations.md has more, and says how you use a snapshot.")]
pub struct FreezeArgs {
    /// The mount
    pub mountpoint: PathBuf,
    /// The most time, from the flush of the last changes to the end of COMMAND. Then the origin thaws, and
    /// you must not trust the snapshot
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = seconds)]
    pub for_seconds: u64,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The arguments of `headpond unmount`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond unmount /var/lib/mysql                  leaves the origin complete
  headpond unmount /var/lib/mysql --keep-dirty     leaves at once. The origin is stale until you mount it again
                                                   with the same flash, and a marker beside it says so")]
pub struct UnmountArgs {
    /// The mount
    pub mountpoint: PathBuf,
    /// Leave now: dirty data stays in the pool, and a marker beside the origin says so
    #[arg(long)]
    pub keep_dirty: bool,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// The arguments of `headpond handover`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond handover /var/lib/mysql --to db2     where `headpond peer guard --node db2` runs

docs/copies.md says what that host needs.")]
pub struct HandoverArgs {
    /// The mount
    pub mountpoint: PathBuf,
    /// The other host's name in the registry
    #[arg(long, value_name = "NODE")]
    pub to: String,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// The arguments of `headpond upgrade`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond upgrade /var/lib/mysql                        to the version of this command
  headpond upgrade /var/lib/mysql --program ./headpond   to the program in this file")]
pub struct UpgradeArgs {
    /// The mount
    pub mountpoint: PathBuf,
    /// The program to go on with. Without it: this one
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Show the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `headpond rules`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  Cache everything but the backup:
    headpond rules add /var/lib/mysql name=mariabackup action=bypass

  Cache nothing but the database:
    headpond rules add /var/lib/mysql name=mariadbd action=cache
    headpond rules add /var/lib/mysql action=bypass

  Write one schema through to the origin at once, and keep temporary tables out of the pool:
    headpond rules add /var/lib/mysql 'path=billing/**' action=write-through
    headpond rules add /var/lib/mysql 'path=#innodb_temp/**' action=bypass

  Keep one table in the pool whatever else is read, and limit an archive to a tenth of the pool:
    headpond rules add /var/lib/mysql path=shop/orders.ibd action=pin quota=4G
    headpond rules add /var/lib/mysql 'path=archive/**' action=share quota=10%

  headpond rules list /var/lib/mysql
  headpond rules test /var/lib/mysql name=mariabackup path=shop/orders.ibd direction=read
  headpond rules remove /var/lib/mysql 2

A rule matches if all of its conditions match.
Conditions of the process: pid, name, command, user, cgroup. Of the file: path, ext. Of the request: min-size,
max-size, direction=read|write. With for=2h a rule ends by itself after two hours.
Actions: cache, bypass, read-only, write-through, and with a quota (quota=2G, quota=20%): pin, share.
With an action or without one: copies=0|1|2, compression=off|lz4|zstd:LEVEL. docs/rules.md explains each word.")]
pub struct RulesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RulesCommand,
}

/// The commands for rules.
#[derive(Subcommand, Debug)]
pub enum RulesCommand {
    /// Show all rules in order, each with the requests and bytes that it decided
    List {
        /// The mount
        mountpoint: PathBuf,
        /// Print JSON: an array with an object for each rule
        #[arg(long)]
        json: bool,
    },
    /// Add a rule at the end, or before another one
    Add {
        /// The mount
        mountpoint: PathBuf,
        /// Conditions, and what holds for what they match, such as name=mariabackup action=bypass
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = word)]
        words: Vec<(String, String)>,
        /// Put the new rule before the rule with this number
        #[arg(long, value_name = "NUMBER", value_parser = rule_number)]
        before: Option<usize>,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a rule
    Remove {
        /// The mount
        mountpoint: PathBuf,
        /// Its number in the list
        #[arg(value_parser = rule_number)]
        number: usize,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Show which rule decides a request, and what headpond does with it
    Test {
        /// The mount
        mountpoint: PathBuf,
        /// The request. Its process: pid, or name, command, user and cgroup. Also: path, size, direction
        #[arg(value_name = "KEY=VALUE", value_parser = word)]
        words: Vec<(String, String)>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// A word of a rule.
fn word(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as name=mariabackup")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The number of a rule, from 1.
fn rule_number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "rules are numbered from 1".to_owned())
}

/// The arguments of `headpond fault`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond fault /mnt write-errors=0     from now on every write to flash fails")]
pub struct FaultArgs {
    /// A mount that you made with --test-fault
    pub mountpoint: PathBuf,
    /// The faults: cut, heal, read-errors=FIRST[+COUNT], write-errors=..., sync-errors=...
    pub faults: String,
    /// Only this device of the pool
    #[arg(long, value_name = "FILE_OR_DEVICE")]
    pub flash: Option<PathBuf>,
}

/// The arguments of `headpond pages`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond pages target/pages     writes target/pages/man and target/pages/completions")]
pub struct PagesArgs {
    /// Where to write them
    pub directory: PathBuf,
}

/// The arguments of `headpond check`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond check /nvme/pond                    what the pool holds, and whether it is intact
  headpond check /nvme1/pond /nvme2/pond       a pool of two devices
  headpond check /dev/nvme1n1 --json           the same for programs: one object
  headpond check /nvme/pond --json | jq '.dirty_files[] | [.path, .dirty_bytes]'

Exit status: 0 if nothing is damaged; 41 if the damage loses nothing; 38 if dirty data is damaged, or a mount would
refuse the pool as damaged; 32, 36, 37 and 39 mean what they mean for a mount.")]
pub struct CheckArgs {
    /// The pool: a file or a block device; several for a pool of several
    #[arg(required_unless_present = "more")]
    pub flash: Vec<PathBuf>,
    /// The same, as `mount` takes them
    #[arg(long = "flash", value_name = "FILE_OR_DEVICE")]
    pub more: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// The arguments of `headpond set`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond set /var/lib/mysql mode=write-through   from now on each write waits for the origin. The command
                                                   returns when nothing is dirty any more
  headpond set /var/lib/mysql flush-period=10s dirty-threshold=30%
  headpond set /var/lib/mysql mode=write-back --dry-run")]
pub struct SetArgs {
    /// The mount
    pub mountpoint: PathBuf,
    /// Settings and their new values, such as flush-period=10s
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = setting)]
    pub settings: Vec<(String, String)>,
    /// Only show what would change
    #[arg(long)]
    pub dry_run: bool,
}

/// The arguments of `headpond get`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond get /var/lib/mysql                      every setting; behind # its default
  headpond get /var/lib/mysql mode flush-period    some of them
  headpond get /var/lib/mysql --json
  headpond get --reference                         every setting explained, with range and default")]
pub struct GetArgs {
    /// The mount
    #[arg(required_unless_present = "reference")]
    pub mountpoint: Option<PathBuf>,
    /// Which settings. Without it: all
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Print JSON: one object with a string for each setting
    #[arg(long)]
    pub json: bool,
    /// Explain every setting
    #[arg(long, exclusive = true)]
    pub reference: bool,
}

/// A setting and its value. The check needs no daemon.
fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as flush-period=10s")?;
    Settings::default().set(name, value)?;
    Ok((name.to_owned(), value.to_owned()))
}

fn cache_mode() -> impl clap::builder::TypedValueParser<Value = CacheMode> {
    use clap::builder::TypedValueParser;
    clap::builder::PossibleValuesParser::new(CacheMode::ALL.map(CacheMode::name))
        .try_map(|name| name.parse::<CacheMode>())
}

#[cfg(feature = "lab")]
fn disk_model() -> impl clap::builder::TypedValueParser<Value = DiskModel> {
    use clap::builder::TypedValueParser;
    clap::builder::PossibleValuesParser::new(DiskModel::PRESETS.map(|(name, _)| name))
        .try_map(|name| name.parse::<DiskModel>())
}

/// How headpond reads and writes the flash.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendArg {
    /// io_uring, or psync if the system forbids io_uring
    Auto,
    /// io_uring; fails if the system forbids it
    Uring,
    /// threads with pread and pwrite
    Psync,
}

impl From<BackendArg> for Backend {
    fn from(argument: BackendArg) -> Self {
        match argument {
            BackendArg::Auto => Self::Auto,
            BackendArg::Uring => Self::Uring,
            BackendArg::Psync => Self::Psync,
        }
    }
}

/// How to fill a new flash file.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillArg {
    /// reserves the space
    Reserved,
    /// writes zeros to all of it once
    Zeros,
}

impl From<FillArg> for Fill {
    fn from(argument: FillArg) -> Self {
        match argument {
            FillArg::Reserved => Self::Reserved,
            FillArg::Zeros => Self::Zeros,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_mount_takes_all_its_options() {
        let line = "headpond mount /o /m --flash /f --size 1.5G --mode write-through --background --backend psync \
                    --allow-other --format --discard-dirty --keep-pool a --keep-pool b/c --keep-origin all";
        let Command::Mount(mount) = parse(line).unwrap().command else { panic!("another command") };
        assert_eq!(mount.size, Some(Size(3 << 29)));
        assert_eq!(mount.mode, Some(CacheMode::WriteThrough));
        assert_eq!(mount.keep_pool, [PathBuf::from("a"), PathBuf::from("b/c")]);
        assert_eq!(mount.keep_origin, [PathBuf::from("all")]);
        assert!(mount.background && mount.allow_other && mount.format && mount.discard_dirty);
        assert_eq!(mount.backend, BackendArg::Psync);
    }

    #[cfg(feature = "lab")]
    #[test]
    fn a_mount_may_stand_on_a_modelled_disk() {
        let line = "headpond mount /o /m --flash /f --model-disk hdd-7200";
        let Command::Mount(mount) = parse(line).unwrap().command else { panic!("another command") };
        assert_eq!(mount.model_disk, Some("hdd-7200".parse().unwrap()));
    }

    #[test]
    fn senseless_lines_are_usage_errors() {
        for line in [
            "headpond",
            "headpond dance",
            "headpond mount /o",
            "headpond mount /o /m",
            "headpond mount /o /m --flash /f --size lots",
            "headpond mount /o /m --flash /f --mode write-sideways",
            "headpond mount /o /m --flash /f --backend magic",
            "headpond set /m",
            "headpond set /m mode",
            "headpond set /m mode=fast",
            "headpond set /m colour=red",
            "headpond set /m flush-period=60",
            "headpond set /m dirty-threshold=71%",
            "headpond get",
            "headpond flush",
            "headpond flush /m --cancel soon",
            "headpond flush /m --json",
            "headpond flush /m db --cancel 3",
            "headpond freeze /m",
            "headpond freeze /m --for 60 -- true",
            "headpond rules",
            "headpond rules add /m",
            "headpond rules add /m backup",
            "headpond rules remove /m 0",
            "headpond unmount",
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), i32::from(ExitStatus::Usage.code()), "{line}: {error}");
        }
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        // One that no help shows is for another headpond, and not for people.
        for command in Cli::command().get_subcommands_mut().filter(|command| command.get_name() != SHARED_LAYOUT) {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Examples:"), "{} has none", command.get_name());
        }
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("Exit statuses:") && help.contains("  50  "), "{help}");
    }
}
