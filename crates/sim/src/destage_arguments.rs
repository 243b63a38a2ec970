//! Command-line options about destage, for the programs that run a load in virtual time.

use headpond_base::Nanos;
use headpond_engine::Config;

/// When dirty data goes to the origin.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct DestageArguments {
    /// No block stays dirty for longer than this many seconds. 0: no limit
    #[arg(long, default_value_t = 60)]
    flush_period: u64,
    /// Destage keeps dirty data near this share of the pool, in percent. 0: off
    #[arg(long, default_value_t = 50)]
    dirty_threshold: u8,
}

impl DestageArguments {
    /// A configuration with these settings, and the defaults of all others.
    #[must_use]
    pub fn config(self) -> Config {
        let flush_period = match self.flush_period {
            0 => Config::OFF,
            seconds => Nanos(seconds * Nanos::SECOND.0),
        };
        Config { flush_period, dirty_threshold: self.dirty_threshold, ..Config::default() }
    }
}
