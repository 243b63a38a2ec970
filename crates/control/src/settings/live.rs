//! The settings and rules of a running mount: their sources at the start, their present values, and the copy that the
//! pool keeps.
//!
//! Invariant: when changes come together, the pool keeps the settings in force, whichever change it keeps first.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use headpond_base::CacheMode;
use headpond_door::LiveRules;

use super::{MissedDevices, PoolPlan, REDUNDANCY, Settings, read_toml};
use crate::process::log::log_line;
use crate::refusal::Refusal;
use crate::settings::{Keeper, kept_text, over_defaults};

/// Shared by all parts that change or read them.
#[derive(Clone)]
pub(crate) struct LiveSettings {
    now: Arc<Mutex<Settings>>,
    rules: Arc<LiveRules>,
    missed: MissedDevices,
    keeper: Arc<Keeper>,
}

/// The settings in a plan's file.
///
/// # Errors
/// If the file cannot be read, or names an unknown setting.
pub(crate) fn from_file(plan: &PoolPlan) -> Result<Vec<(String, String)>, Refusal> {
    let Some(path) = &plan.config else { return Ok(Vec::new()) };
    let text = fs::read_to_string(path).map_err(|error| Refusal::from_io("read the settings in", path, error))?;
    let refuse = |why| Refusal::Usage(format!("settings in {}: {why}", path.display()));
    let pairs = read_toml(&text).map_err(refuse)?;
    Settings::default().set_all(&pairs).map_err(refuse)?;
    Ok(pairs)
}

impl LiveSettings {
    /// The pool's settings, and over them those of the file and the command line. A pool that keeps none has the mode
    /// of its last use.
    ///
    /// # Errors
    /// If the file's values do not fit together.
    pub(crate) fn at_start(
        (keeper, kept): (Keeper, Option<String>),
        last_mode: CacheMode,
        from_file: &[(String, String)],
        plan: &PoolPlan,
        notes: &mut Vec<String>,
    ) -> Result<Self, Refusal> {
        let kept_text = kept.as_deref();
        let (mut settings, rules, missed) = kept_text.map_or_else(Default::default, |text| over_defaults(text, notes));
        let live = Arc::new(LiveRules::default());
        live.replace(rules);
        if kept.is_none() {
            settings.set_mode(last_mode);
        }
        let before = settings.clone();
        settings.set_all(from_file).map_err(Refusal::Usage)?;
        if let Some(mode) = plan.mode {
            settings.set_mode(mode);
        }
        if let Some(redundancy) = plan.redundancy {
            settings.set(REDUNDANCY, redundancy.name()).map_err(Refusal::Usage)?;
        }
        if let Some(copies) = plan.copies {
            settings.set(super::table::COPIES, &copies.to_string()).map_err(Refusal::Usage)?;
        }
        settings.fit_devices(&before, plan.flashes.len()).map_err(Refusal::Usage)?;
        for change in before.changes(&settings) {
            notes.push(format!("{} is now {}; it was {}", change.name, change.to, change.from));
        }
        Ok(Self { now: Arc::new(Mutex::new(settings)), rules: live, missed, keeper: Arc::new(keeper) })
    }

    pub(crate) fn now(&self) -> Settings {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rules, which the mount reads.
    pub(crate) fn rules(&self) -> &Arc<LiveRules> {
        &self.rules
    }

    /// What is known of the devices that the pool misses.
    pub(crate) const fn missed(&self) -> &MissedDevices {
        &self.missed
    }

    pub(crate) fn replace(&self, settings: Settings) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Writes what is in force to the pool. Waits for the flash.
    pub(crate) fn keep(&self) -> std::io::Result<()> {
        self.keeper.keep(|| kept_text(&self.now(), &self.rules.now(), &self.missed))
    }

    /// The mode could not change: sets the old one again. Does not wait.
    pub(crate) fn back_to(&self, mode: CacheMode) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).set_mode(mode);
        self.keep_aside(|kept| {
            if let Err(error) = kept {
                log_line(format_args!("cannot write the settings to the pool: {error}"));
            }
        });
    }

    /// Writes what is in force to the pool, on a thread of its own: the flash may be slow or stuck. If no thread can
    /// start, it writes nothing and drops `then`.
    pub(crate) fn keep_aside(&self, then: impl FnOnce(std::io::Result<()>) + Send + 'static) {
        let live = self.clone();
        let keep = std::thread::Builder::new().name("settings".to_owned()).spawn(move || then(live.keep()));
        if let Err(error) = keep {
            log_line(format_args!("cannot start the thread that writes the settings to the pool: {error}"));
        }
    }
}
