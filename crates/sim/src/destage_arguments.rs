//! What the programs that run a load in virtual time take on the command line about destage.

use headpond_base::Nanos;
use headpond_engine::Config;

/// When dirty data goes to the origin.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct DestageArguments {
    /// No block stays dirty for longer than so many seconds; 0: for ever
    #[arg(long, default_value_t = 60)]
    flush_period: u64,
    /// The share of the pool near which destage keeps what is dirty, in percent; 0: off
    #[arg(long, default_value_t = 50)]
    dirty_threshold: u8,
}

impl DestageArguments {
    /// A configuration with these settings, and all others at their defaults.
    #[must_use]
    pub fn config(self) -> Config {
        let flush_period = match self.flush_period {
            0 => Config::OFF,
            seconds => Nanos(seconds * Nanos::SECOND.0),
        };
        Config { flush_period, dirty_threshold: self.dirty_threshold, ..Config::default() }
    }
}
