//! Runs of fio, and what they say.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::Outcome;

/// What a run showed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// Requests a second.
    pub rate: f64,
    /// How many there were.
    pub requests: f64,
    /// Processor time of fio itself, in seconds.
    pub processor_seconds: f64,
    /// The median of how long one took, in microseconds.
    pub median: f64,
    /// The slowest, in microseconds.
    pub slowest: f64,
}

impl Run {
    /// Processor time of fio for a million requests, in seconds.
    pub fn processor_cost(&self) -> f64 {
        self.cost_of(self.processor_seconds)
    }

    /// The share of a million requests in what all of them cost.
    pub fn cost_of(&self, all: f64) -> f64 {
        all / self.requests * 1e6
    }
}

/// Where fio reads and writes.
pub enum Target<'a> {
    /// A file.
    File(&'a Path),
    /// What a server has at a unix socket.
    Nbd(&'a Path),
}

/// Runs one job for some seconds on the first `size` of `target`.
pub fn run(target: &Target<'_>, size: &str, seconds: u64, job: &[&str]) -> Outcome<Run> {
    let mut fio = Command::new("fio");
    fio.args(["--name=job", "--output-format=json", "--randrepeat=0", "--time_based", "--group_reporting"]);
    fio.arg(format!("--size={size}")).arg(format!("--runtime={seconds}")).args(job);
    match target {
        Target::File(path) => fio.arg(format!("--filename={}", path.display())),
        Target::Nbd(socket) => fio.arg("--ioengine=nbd").arg(format!("--uri=nbd+unix:///?socket={}", socket.display())),
    };
    let output = finished(&mut fio)?;
    // Warnings come before the figures.
    let start = output.find('{').ok_or("fio printed no figures")?;
    let report: Value = serde_json::from_str(&output[start..])?;
    let job = &report["jobs"][0];
    let way = if job["read"]["total_ios"].as_u64() > Some(0) { &job["read"] } else { &job["write"] };
    let share = |name: &str| job[name].as_f64().unwrap_or(0.0) / 100.0;
    let processor_seconds = (share("usr_cpu") + share("sys_cpu")) * job["job_runtime"].as_f64().unwrap_or(0.0) / 1000.0;
    let micros = |value: &Value| value.as_f64().unwrap_or(0.0) / 1000.0;
    Ok(Run {
        rate: way["iops"].as_f64().ok_or("fio gave no rate")?,
        requests: way["total_ios"].as_f64().filter(|count| *count > 0.0).ok_or("fio made no request")?,
        processor_seconds,
        median: micros(&way["clat_ns"]["percentile"]["50.000000"]),
        slowest: micros(&way["clat_ns"]["max"]),
    })
}

/// A job that goes on until it is ended. Ended when dropped.
pub struct RunningJob(Child);

/// A job that is never ended ends by itself then, in seconds.
const LONGEST: u64 = 3600;

impl RunningJob {
    /// Starts a job on the first `size` of a file.
    pub fn start(file: &Path, size: &str, job: &[&str]) -> Outcome<Self> {
        let mut fio = Command::new("fio");
        fio.args(["--name=job", "--randrepeat=0", "--time_based", "--thread"]);
        fio.arg(format!("--size={size}")).arg(format!("--runtime={LONGEST}")).args(job);
        fio.arg(format!("--filename={}", file.display()));
        Ok(Self(fio.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// Ends it. An error if it had ended by itself.
    pub fn end(mut self) -> Outcome<()> {
        match self.0.try_wait()? {
            Some(status) => Err(format!("fio ended before its time: {status}").into()),
            None => Ok(()),
        }
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a file once from start to end, or each of its 4 KiB blocks once in random order.
pub fn fill(file: &Path, size: &str, random: bool) -> Outcome<()> {
    let order =
        if random { ["--rw=randwrite", "--bs=4k", "--iodepth=32"] } else { ["--rw=write", "--bs=1m", "--iodepth=4"] };
    write_once(file, size, &[&order[..], &["--direct=1", "--ioengine=io_uring"]].concat())
}

/// Writes the first `size` of a file once, as a job says, and syncs it.
pub fn write_once(file: &Path, size: &str, job: &[&str]) -> Outcome<()> {
    let mut fio = Command::new("fio");
    fio.args(["--name=fill", "--output-format=json", "--end_fsync=1"]).args(job);
    fio.arg(format!("--filename={}", file.display())).arg(format!("--size={size}"));
    finished(&mut fio).map(drop)
}

/// What a command printed, once it is done.
pub fn finished(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        let program = command.get_program().display();
        format!("{program} cannot be started: {error}; if it is missing, on Debian: apt-get install fio nbdkit")
    })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed ({}): {}", output.status, text.trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
