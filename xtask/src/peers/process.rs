//! Processes that were started here, and only those: what they use, and that they end.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use nix::unistd::Pid;

/// CPU seconds are looked at over stretches of this length.
const WINDOW: Duration = Duration::from_secs(3);

/// A server that uses less than this in a stretch has settled.
const IDLE_CPU_SECONDS: f64 = 0.15;

/// One that uses the same in two stretches, and not more than this, has settled too: it turns in circles.
const STEADY_CPU_SECONDS_MAX: f64 = 0.6;

/// Longer than this nobody is waited for.
const SETTLE_MAX: Duration = Duration::from_mins(3);

/// The processes and folders of this run; shared with the handler of Ctrl-C.
#[derive(Clone, Default)]
pub(super) struct Processes {
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    children: Vec<Child>,
    folders: Vec<PathBuf>,
}

impl Running {
    fn end(&mut self) {
        for mut child in self.children.drain(..) {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        for folder in self.folders.drain(..) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Processes {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything and the program when somebody asks it to stop.
    pub(super) fn end_on_signals(&self) -> Result<(), String> {
        let processes = self.clone();
        let handler = move || {
            // Held until the program has ended, so that nothing is started any more.
            let mut running = processes.lock();
            running.end();
            std::process::exit(130);
        };
        ctrlc::set_handler(handler).map_err(|error| format!("cannot take signals: {error}"))
    }

    /// Ends the processes and removes the folders.
    pub(super) fn end(&self) {
        self.lock().end();
    }

    /// Ends one of the processes and removes one of the folders.
    pub(super) fn end_one(&self, pid: u32, folder: &Path) {
        let mut running = self.lock();
        let (ended, children) = running.children.drain(..).partition(|child| child.id() == pid);
        let (removed, folders) = running.folders.drain(..).partition(|known| known == folder);
        (running.children, running.folders) = (children, folders);
        Running { children: ended, folders: removed }.end();
    }

    /// Starts a program in a process group of its own, so that Ctrl-C reaches it by way of the handler only.
    pub(super) fn start(&self, command: &mut Command) -> Result<u32, String> {
        let mut running = self.lock();
        let child = command.process_group(0).stdin(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let pid = child.id();
        running.children.push(child);
        Ok(pid)
    }

    /// Runs a program to its end and returns what it printed.
    pub(super) fn output(&self, command: &mut Command) -> Result<String, String> {
        let pid = self.start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let (stdout, stderr) = {
            let mut running = self.lock();
            let child = running.children.iter_mut().find(|child| child.id() == pid);
            child.map(|child| (child.stdout.take(), child.stderr.take())).unwrap_or_default()
        };
        let (mut text, mut errors) = (String::new(), String::new());
        std::thread::scope(|scope| {
            // What is no text is not shown.
            scope.spawn(|| stderr.map(|mut stderr| stderr.read_to_string(&mut errors)));
            stdout.map(|mut stdout| stdout.read_to_string(&mut text))
        });
        let mut running = self.lock();
        let place = running.children.iter().position(|child| child.id() == pid);
        let mut child = running.children.swap_remove(place.ok_or("the program was ended")?);
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            Ok(text)
        } else {
            Err(format!("{}: {status}\n{errors}", command.get_program().display()))
        }
    }

    /// A new folder that goes with the processes.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = std::env::temp_dir().join(format!("thalweg-peers-{}-{name}", std::process::id()));
        let mut running = self.lock();
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        running.folders.push(folder.clone());
        Ok(folder)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The handler keeps a clone; whoever else drops one is done with all.
        self.end();
    }
}

/// CPU seconds of a process and of those of its children that have ended.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let stat = procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.stat());
    let stat = stat.map_err(|error| format!("process {pid} has ended: {error}"))?;
    let children = (stat.cutime + stat.cstime).cast_unsigned();
    Ok((stat.utime + stat.stime + children) as f64 / procfs::ticks_per_second() as f64)
}

/// CPU seconds of a process alone, finer than what [`cpu_seconds`] reads in ticks: short queries take less than one.
pub(super) fn cpu_clock_seconds(pid: u32) -> Result<f64, String> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.cast_signed()));
    let time = clock.and_then(ClockId::now).map_err(|error| format!("process {pid} has ended: {error}"))?;
    Ok(Duration::from(time).as_secs_f64())
}

/// The most memory that a process had at once.
pub(super) fn resident_peak_bytes(pid: u32) -> u64 {
    let status = procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.status());
    status.ok().and_then(|status| status.vmhwm).unwrap_or(0) * 1024
}

/// Waits until a process does nothing any more, at least for some time; returns its CPU seconds when it had settled.
pub(super) fn settle(pid: u32, at_least: Duration) -> Result<f64, String> {
    let start = Instant::now();
    let (mut before, mut used_before) = (cpu_seconds(pid)?, f64::INFINITY);
    loop {
        sleep(WINDOW);
        let now = cpu_seconds(pid)?;
        let used = now - before;
        if (start.elapsed() >= at_least && is_settled(used_before, used)) || start.elapsed() > SETTLE_MAX {
            return Ok(before);
        }
        (before, used_before) = (now, used);
    }
}

/// Whether two stretches after each other look like rest.
fn is_settled(used_before: f64, used: f64) -> bool {
    let steady = (used_before - used).abs() <= 0.2 * used && used <= STEADY_CPU_SECONDS_MAX;
    used <= IDLE_CPU_SECONDS || steady
}

/// Room of a folder's files on disk (holes do not count), and of that in folders of logs.
pub(super) fn disk_bytes(folder: &Path) -> (u64, u64) {
    let (mut all, mut logs) = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if !metadata.is_dir() {
            all += metadata.blocks() * 512;
            continue;
        }
        let (inside, inside_logs) = disk_bytes(&entry.path());
        let name = entry.file_name();
        let is_log = name == "log" || name.to_string_lossy().starts_with("wal");
        all += inside;
        logs += if is_log { inside } else { inside_logs };
    }
    (all, logs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_told_from_work() {
        for (before, now, expected) in
            [(3.0, 0.05, true), (0.4, 0.4, true), (0.9, 0.4, false), (3.0, 3.0, false), (f64::INFINITY, 0.3, false)]
        {
            assert_eq!(is_settled(before, now), expected, "{before} {now}");
        }
    }

    #[test]
    fn what_was_started_ends() {
        let processes = Processes::default();
        let folder = processes.folder("ends").unwrap();
        let pid = processes.start(Command::new("sleep").arg("600")).unwrap();
        assert!(cpu_seconds(pid).unwrap() < 1.0 && cpu_clock_seconds(pid).unwrap() < 1.0);
        assert!(resident_peak_bytes(pid) > 0);
        assert_eq!(processes.output(Command::new("echo").arg("seen")), Ok("seen\n".to_owned()));
        assert!(processes.output(&mut Command::new("false")).is_err());
        fs::create_dir(folder.join("wal")).unwrap();
        fs::write(folder.join("wal/1"), [1; 10_000]).unwrap();
        let (all, logs) = disk_bytes(&folder);
        assert!(all == logs && all >= 10_000, "{all} {logs}");
        let (other, other_folder) =
            (processes.start(Command::new("sleep").arg("600")).unwrap(), processes.folder("one").unwrap());
        processes.end_one(other, &other_folder);
        assert!(cpu_seconds(other).is_err() && !other_folder.exists());
        assert!(cpu_seconds(pid).is_ok() && folder.exists());
        processes.end();
        assert!(cpu_seconds(pid).is_err() && cpu_clock_seconds(pid).is_err() && !folder.exists());
    }
}
