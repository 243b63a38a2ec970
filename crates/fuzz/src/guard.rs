//! Reports code that panics or does not end, with its input.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failures::{command, save};
use crate::input::Input;

thread_local! {
    /// The message and place of the last panic, while code runs whose panics are its errors.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Hides the panics that an input caused. All others print as usual.
pub fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = LAST.with(|last| last.borrow_mut().as_mut().map(|last| *last = info.to_string()).is_some());
            if !ours {
                others(info);
            }
        }));
    });
}

/// Runs code. A panic becomes its error.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    LAST.with(|last| *last.borrow_mut() = Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(run));
    let told = LAST.with(|last| last.borrow_mut().take()).unwrap_or_default();
    result.unwrap_or_else(|_| Err(format!("it panicked: {told}")))
}

/// No input takes this long on any machine, unless it never ends.
const PATIENCE: Duration = Duration::from_secs(120);

type Watched = Arc<Mutex<Option<(Instant, Input)>>>;

/// Watches the input that runs. One that never ends cannot be stopped from within: it is saved, and the whole process
/// ends.
pub(crate) struct Watchdog(Watched);

impl Watchdog {
    pub(crate) fn new(failures: PathBuf) -> Self {
        let watched = Watched::default();
        let of_thread = Arc::downgrade(&watched);
        std::thread::spawn(move || {
            while let Some(watched) = of_thread.upgrade() {
                let running = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
                drop(watched);
                if let Some((_, input)) = running.filter(|(since, _)| since.elapsed() > PATIENCE) {
                    let path = save(&failures, &input);
                    eprintln!("{}: an input runs without end\n{}", input.target, command(&path));
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Self(watched)
    }

    pub(crate) fn begin(&self, input: &Input) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.clone()));
    }

    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
