//! The command line of `headpond pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headpond_control::{Reserve, Size};

use crate::peer_args::PeerArgs;

/// The arguments of `headpond pool`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond pool status /var/lib/mysql                       each device, and what is to be done
  headpond pool add /var/lib/mysql /nvme2/pond --size 200G  a second device: dirty data is mirrored from then on
  headpond pool add /var/lib/mysql --peer db2:7433 --peer-certificates /etc/headpond
  headpond pool replace /var/lib/mysql /nvme1/pond /nvme3/pond --size 400G
  headpond pool remove /var/lib/mysql /nvme2/pond           the device is emptied, and free then
  headpond pool move /var/lib/mysql /dev/nvme1n1            from the one device to another one
  headpond pool grow /var/lib/mysql 400G
  headpond pool remove /var/lib/mysql /nvme2/pond -n        what would happen?
  headpond pool wait /var/lib/mysql                         until nothing is under way
  headpond pool scrub /var/lib/mysql                        find damage before the other copy is needed

All of it goes on while programs use the mount. docs/devices.md says what to choose.")]
pub struct PoolArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// The commands for pools.
#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Show each device of a pool, what is under way, and what is to be done
    Status {
        /// The mount
        mountpoint: PathBuf,
        /// Print JSON: one object
        #[arg(long)]
        json: bool,
    },
    /// Show the pools of your mounts, a line each
    List {
        /// Print JSON: an array with an object for each pool
        #[arg(long)]
        json: bool,
    },
    /// Take another device into a pool
    ///
    /// New data goes to it, too. Nothing is moved. With two devices or more, dirty data is mirrored, unless the setting
    /// redundancy says none.
    Add {
        /// The mount
        mountpoint: PathBuf,
        /// The file or block device
        #[arg(required_unless_present = "peer", conflicts_with = "peer")]
        flash: Option<PathBuf>,
        /// A host that keeps a copy of what is dirty.
        #[command(flatten)]
        peer: PeerArgs,
        /// How it is made.
        #[command(flatten)]
        making: NewDevice,
        /// How the command waits.
        #[command(flatten)]
        changing: Changing,
    },
    /// Empty a device, and let it go
    ///
    /// Dirty data moves to the other devices, or to the origin. Clean data is dropped: the origin has it. Then the device
    /// is free, and says of itself that it is no pool.
    Remove {
        /// The mount
        mountpoint: PathBuf,
        /// The file or block device, or the peer as `pool status` names it
        #[arg(required_unless_present = "cancel")]
        flash: Option<PathBuf>,
        /// Take back the removal that is under way. What was moved stays where it is
        #[arg(long, conflicts_with_all = ["flash", "background"])]
        cancel: bool,
        /// How the command waits.
        #[command(flatten)]
        changing: Changing,
    },
    /// Take a device out at once, without emptying it: to pull it, or to work on it
    ///
    /// Only from a pool that mirrors, while all dirty data has two copies. Then the pool is DEGRADED, and makes second
    /// copies on the devices that are left, or writes dirty data to the origin.
    Offline {
        /// The mount
        mountpoint: PathBuf,
        /// The file or block device
        flash: PathBuf,
        /// How the command waits.
        #[command(flatten)]
        changing: Changing,
    },
    /// Take a device in again that was taken offline, or was lost. Nothing that is on it counts
    Online {
        /// The mount
        mountpoint: PathBuf,
        /// The file or block device
        flash: PathBuf,
        /// Leave this share of the device unwritten, such as 20%. Without it: as much as before
        #[arg(long)]
        reserve: Option<Reserve>,
        /// How the command waits.
        #[command(flatten)]
        changing: Changing,
    },
    /// Take a device in, and let another one go: one that works, or one that failed
    Replace {
        /// The mount
        mountpoint: PathBuf,
        /// The device that is to go
        old: PathBuf,
        /// The file or block device in its place
        new: PathBuf,
        /// How it is made.
        #[command(flatten)]
        making: NewDevice,
        /// How the command waits.
        #[command(flatten)]
        changing: Changing,
    },
    /// Go over from the one device of a pool to another one
    Move {
        /// The mount
        mountpoint: PathBuf,
        /// The file or block device in its place
        new: PathBuf,
        /// How it is made.
        #[command(flatten)]
        making: NewDevice,
        /// How the command waits.
        #[command(flatten)]
        changing: Changing,
    },
    /// Use more of a device: its file is made longer, or the device has grown
    Grow(Resize),
    /// Use less of a device: its end is emptied and given back
    ///
    /// Dirty data there moves to other places, or to the origin. Clean data there is dropped. A file is cut off then.
    Shrink(Resize),
    /// Read all that is of use on the devices, and compare it with what was written
    ///
    /// Each copy is read by itself. What is damaged is made good: clean data is dropped, as the origin has it; dirty data
    /// is written anew from its other copy. Dirty data without a good copy is named, and the command ends with 76. While
    /// programs use the mount, a scrub takes at most half of the time of one reader.
    Scrub {
        /// The mount
        mountpoint: PathBuf,
        /// End the scrub that goes on
        #[arg(long, conflicts_with_all = ["dry_run", "background"])]
        cancel: bool,
        /// How the command waits.
        #[command(flatten)]
        changing: Changing,
    },
    /// Wait until nothing is under way, and dirty data has the copies that it should have
    Wait {
        /// The mount
        mountpoint: PathBuf,
        /// Show no progress
        #[arg(long, short)]
        quiet: bool,
        /// Print JSON: how the pool is then
        #[arg(long)]
        json: bool,
    },
}

/// The arguments of `headpond pool grow` and `shrink`.
#[derive(Args, Debug)]
pub struct Resize {
    /// The mount
    pub mountpoint: PathBuf,
    /// The new size, such as 400G
    pub size: Size,
    /// Which device, if the pool has several
    #[arg(long, value_name = "FILE_OR_DEVICE")]
    pub flash: Option<PathBuf>,
    /// How the command waits.
    #[command(flatten)]
    pub changing: Changing,
}

/// How a device is made that joins.
#[derive(Args, Clone, Copy, Debug)]
pub struct NewDevice {
    /// The size of a new flash file, such as 200G
    #[arg(long)]
    pub size: Option<Size>,
    /// How much of it stays unwritten, in percent of --size or of the device: 0% to 90%
    #[arg(long, value_name = "PERCENT", default_value_t)]
    pub reserve: Reserve,
    /// Overwrite a device that holds something else
    #[arg(long)]
    pub format: bool,
}

/// How a command waits for its change.
#[derive(Args, Debug)]
pub struct Changing {
    /// Only show what would happen
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Return as soon as the change has begun
    #[arg(long)]
    pub background: bool,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}
