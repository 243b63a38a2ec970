//! The processes that ask: what they have read and written, and what rules need to know of them.
//!
//! The kernel names a *thread* with each request. The mount looks up its process in `/proc`, never on the shard's
//! thread. What it finds counts for [`BELIEVED`]: another thread may get the number, and a process may become another
//! program.
//!
//! A process's command line lies in its own memory. To read it may mean to wait for the process, which may itself
//! wait for this mount. So a thread of its own reads it, and a request waits at most [`COMMAND_WITHIN`] for that.
//! After that the command line counts as unknown.
//!
//! Bounded: the mount knows at most [`THREADS_MAX`] threads. For one more it forgets the half that did least lately.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_door::{Amount, InForce, Masked, Totals};
use headpond_rules::{Mask, Pid, Process};

use crate::caller::Caller;

/// How long the findings about a process count.
const BELIEVED: Duration = Duration::from_secs(1);

/// How long a request waits for a command line.
const COMMAND_WITHIN: Duration = Duration::from_millis(100);

/// Command lines that are read at once. More than one only if a process does not let go of its memory.
const READERS_MAX: usize = 4;

/// The longest part of a command line that rules see.
const COMMAND_MAX: usize = 4096;

/// The most threads that the mount knows.
const THREADS_MAX: usize = 1024;

#[derive(Default)]
struct Slot {
    done: Totals,
    recent: u64,
    before: u64,
    process: Option<Arc<Process>>,
    looked: Option<Instant>,
    masked: Option<Masked>,
}

/// What one process has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessUse {
    /// Its number; 0 for what the kernel does on behalf of no process.
    pub pid: u32,
    /// Its name, if it was found while the process ran.
    pub name: String,
    /// What it has done.
    pub done: Totals,
    /// Bytes in the last second.
    pub recent_bytes: u64,
}

/// See the module.
pub(crate) struct Processes {
    threads: Mutex<HashMap<u32, Slot>>,
    reading: Arc<AtomicUsize>,
    believed: Duration,
    command_within: Duration,
}

impl Default for Processes {
    fn default() -> Self {
        Self::with(BELIEVED, COMMAND_WITHIN)
    }
}

impl Processes {
    fn with(believed: Duration, command_within: Duration) -> Self {
        Self { threads: Mutex::default(), reading: Arc::default(), believed, command_within }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<u32, Slot>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request of a thread.
    pub(crate) fn count(&self, thread: u32, done: Amount) {
        let mut threads = self.locked();
        slot(&mut threads, thread).done.add(done);
    }

    /// The rules that a caller's process satisfies. `None` if it must be looked at first. Does not block.
    pub(crate) fn mask(&self, caller: Caller, rules: &InForce) -> Option<Mask> {
        if caller.pid == 0 {
            return Some(rules.set.for_process(None));
        }
        let mut threads = self.locked();
        let slot = threads.get_mut(&caller.pid)?;
        let process = slot.process.as_ref().filter(|process| process.user == caller.uid)?;
        if slot.looked.is_none_or(|looked| looked.elapsed() >= self.believed) {
            return None;
        }
        match slot.masked {
            Some(masked) if masked.generation == rules.generation => return Some(masked.mask),
            // The last look may have left out the command line.
            _ if rules.set.needs_command() => return None,
            _ => {}
        }
        let mask = rules.set.for_process(Some(process));
        slot.masked = Some(Masked { generation: rules.generation, mask });
        Some(mask)
    }

    /// The same after a look at the process. May wait.
    pub(crate) fn look(&self, caller: Caller, rules: &InForce) -> Mask {
        let process = read(caller.pid, caller.uid).map(|mut process| {
            if rules.set.needs_command() {
                process.command = self.command(process.pid.number);
            }
            Arc::new(process)
        });
        let mask = rules.set.for_process(process.as_deref());
        let mut threads = self.locked();
        let slot = slot(&mut threads, caller.pid);
        slot.masked = Some(Masked { generation: rules.generation, mask });
        slot.looked = Some(Instant::now());
        slot.process = process;
        mask
    }

    /// A process by its number, as it is now. `user` is the user of its requests. May wait, but not for ever.
    pub(crate) fn find(&self, process: u32, user: u32) -> Option<Process> {
        read(process, user).map(|found| Process { command: self.command(process), ..found })
    }

    fn command(&self, process: u32) -> Option<String> {
        if self.reading.fetch_add(1, Ordering::AcqRel) >= READERS_MAX {
            self.reading.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let (send, found) = sync_channel(1);
        let reading = self.reading.clone();
        let read = move || {
            let command = command(process);
            reading.fetch_sub(1, Ordering::AcqRel);
            // The reader waits no more.
            let _ = send.send(command);
        };
        if std::thread::Builder::new().name("mount-command".into()).spawn(read).is_err() {
            self.reading.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        found.recv_timeout(self.command_within).ok().flatten()
    }

    /// Finds the names of processes that have none yet. Call it now and then. May wait.
    pub(crate) fn name(&self) {
        let nameless: Vec<u32> = self
            .locked()
            .iter()
            .filter(|(_, slot)| slot.process.is_none() && slot.looked.is_none())
            .map(|(id, _)| *id)
            .collect();
        for thread in nameless.into_iter().filter(|thread| *thread != 0) {
            let process = read(thread, u32::MAX).map(Arc::new);
            if let Some(slot) = self.locked().get_mut(&thread)
                && slot.process.is_none()
            {
                slot.process = process;
                // No rule believes it: the user of its requests is not known here.
                slot.looked = Some(Instant::now());
            }
        }
    }

    /// Ends a second.
    pub(crate) fn tick(&self) {
        for slot in self.locked().values_mut() {
            let bytes = slot.done.bytes();
            slot.recent = bytes - slot.before;
            slot.before = bytes;
        }
    }

    /// What each process has done, all its threads together.
    pub(crate) fn all(&self) -> Vec<ProcessUse> {
        let mut found: HashMap<(u32, u64), ProcessUse> = HashMap::new();
        for (thread, slot) in self.locked().iter() {
            let (pid, name) = match &slot.process {
                Some(process) => (process.pid, process.name.clone()),
                None if *thread == 0 => (Pid { number: 0, born: 0 }, "(kernel)".to_owned()),
                None => (Pid { number: *thread, born: 0 }, "(ended)".to_owned()),
            };
            let entry = found.entry((pid.number, pid.born)).or_insert_with(|| ProcessUse {
                pid: pid.number,
                name,
                done: Totals::default(),
                recent_bytes: 0,
            });
            entry.done.merge(slot.done);
            entry.recent_bytes += slot.recent;
        }
        found.into_values().collect()
    }
}

fn slot(threads: &mut HashMap<u32, Slot>, thread: u32) -> &mut Slot {
    if threads.len() >= THREADS_MAX && !threads.contains_key(&thread) {
        let mut ranks: Vec<(u64, u64)> = threads.values().map(|slot| (slot.recent, slot.done.bytes())).collect();
        let middle = ranks.len() / 2;
        let (_, &mut median, _) = ranks.select_nth_unstable(middle);
        let mut left = THREADS_MAX / 2;
        threads.retain(|_, slot| {
            let stays = (slot.recent, slot.done.bytes()) > median && left > 0;
            left -= usize::from(stays);
            stays
        });
    }
    threads.entry(thread).or_default()
}

/// The process of a thread, without its command line: nothing here waits for the process.
pub(crate) fn read(thread: u32, user: u32) -> Option<Process> {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
    let status = file("status")?;
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let of_process = |name: &str| std::fs::read_to_string(format!("/proc/{number}/{name}")).ok();
    let Stat { name, born, .. } = stat(number)?;
    let cgroup = of_process("cgroup").unwrap_or_default();
    let cgroup =
        cgroup.lines().find_map(|line| line.strip_prefix("0::")).or_else(|| cgroup.lines().find_map(first_path));
    Some(Process {
        pid: Pid { number, born },
        name: whole_name(number, &name),
        command: None,
        user,
        cgroup: cgroup.unwrap_or("/").to_owned(),
    })
}

/// The kernel's line on a process (`stat`).
struct Stat {
    name: String,
    /// A letter: `Z` and `X` mean that it has ended.
    state: String,
    /// When it started, in the kernel's ticks.
    born: u64,
}

fn stat(process: u32) -> Option<Stat> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name stands in brackets and may itself have brackets.
    let (head, rest) = line.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let mut words = rest.split_whitespace();
    Some(Stat { name, state: words.next()?.to_owned(), born: words.nth(18)?.parse().ok()? })
}

/// Whether a process is still the same one and runs. A dead one that no parent has waited for yet has ended.
pub(crate) fn lives(process: Pid) -> bool {
    stat(process.number).is_some_and(|now| now.born == process.born && !matches!(now.state.as_str(), "Z" | "X"))
}

/// The path in a line of the older control groups.
fn first_path(line: &str) -> Option<&str> {
    line.splitn(3, ':').nth(2)
}

/// The kernel keeps 15 letters of a name. The program's file has the rest.
fn whole_name(process: u32, name: &str) -> String {
    let program = std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let program = program.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    program.filter(|program| name.len() >= 15 && program.starts_with(name)).unwrap_or(name).to_owned()
}

fn command(process: u32) -> Option<String> {
    let mut bytes = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    bytes.truncate(COMMAND_MAX);
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_rules::RuleSet;

    fn rules(text: &str) -> InForce {
        InForce { set: Arc::new(RuleSet::parse(text).unwrap()), generation: 1 }
    }

    fn me() -> Caller {
        Caller { uid: 12, gid: 0, pid: std::process::id() }
    }

    #[test]
    fn a_process_is_looked_at_once_and_again_when_it_asks_as_another_user() {
        // However slow the machine is.
        let processes = Processes::with(Duration::MAX, Duration::from_secs(60));
        let rules = rules("user=12 action=bypass\ncommand=* action=cache");
        assert_eq!(processes.mask(me(), &rules), None, "nobody has looked yet");
        assert_eq!(processes.look(me(), &rules), Mask(3));
        assert_eq!(processes.mask(me(), &rules), Some(Mask(3)));
        let other = Caller { uid: 13, ..me() };
        assert_eq!(processes.mask(other, &rules), None);
        assert_eq!(processes.look(other, &rules), Mask(2));
        let nobody = Caller { pid: 0, ..me() };
        assert_eq!(processes.mask(nobody, &rules), Some(Mask(0)), "the kernel's own threads are nobody");
    }

    #[test]
    fn what_is_found_of_a_process_is_its_own() {
        let process = read(std::process::id(), 12).unwrap();
        assert_eq!((process.pid.number, process.user), (std::process::id(), 12));
        assert!(process.pid.born > 0 && process.cgroup.starts_with('/'), "{process:?}");
        assert!(command(std::process::id()).unwrap().contains(&process.name[..15.min(process.name.len())]));
        assert!(read(u32::MAX - 1, 0).is_none());
    }

    #[test]
    fn threads_of_a_process_count_together_and_thousands_take_bounded_room() {
        let processes = Processes::default();
        let some = Amount::read(headpond_engine::Served { hit_blocks: 1, ..Default::default() });
        for _ in 0..10 {
            processes.count(std::process::id(), some);
        }
        processes.count(0, some);
        processes.name();
        for thread in 1 << 30..(1 << 30) + 5000 {
            processes.count(thread, some);
        }
        let all = processes.all();
        assert!(all.len() <= THREADS_MAX, "{}", all.len());
        let own = all.iter().find(|process| process.pid == std::process::id()).expect("the busiest stays");
        assert_eq!(own.done.hit_bytes, 40960);
    }
}
