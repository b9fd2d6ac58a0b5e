//! What a process used, by `/proc`.

/// CPU seconds and memory of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) resident_peak_bytes: u64,
}

#[cfg(target_os = "linux")]
pub(crate) fn usage(pid: u32) -> Usage {
    let read = || -> procfs::ProcResult<Usage> {
        let process = procfs::process::Process::new(pid as i32)?;
        let (stat, status) = (process.stat()?, process.status()?);
        Ok(Usage {
            cpu_seconds: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
            resident_bytes: status.vmrss.unwrap_or(0) * 1024,
            resident_peak_bytes: status.vmhwm.unwrap_or(0) * 1024,
        })
    };
    read().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn usage(_pid: u32) -> Usage {
    Usage::default()
}

/// Begins a new peak of a process's memory, at what it holds now. Where that is not possible the peak stays that of its whole life.
pub(crate) fn begin_peak(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// CPU seconds of the calling thread.
pub(crate) fn thread_cpu_seconds() -> f64 {
    clock_seconds(rustix::time::ClockId::ThreadCPUTime)
}

/// CPU seconds of this process, finer than [`usage`] has them.
pub(crate) fn process_cpu_seconds() -> f64 {
    clock_seconds(rustix::time::ClockId::ProcessCPUTime)
}

fn clock_seconds(clock: rustix::time::ClockId) -> f64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes of the files in a folder, folders inside included.
pub(crate) fn folder_bytes(folder: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// What of a process is in memory now.
#[allow(clippy::struct_field_names, reason = "units come last")]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Resident {
    pub(crate) resident_bytes: u64,
    /// The most that was at once.
    pub(crate) peak_bytes: u64,
    /// Of the resident bytes, those that no file can give back.
    pub(crate) anonymous_bytes: u64,
    /// Of the resident bytes, those of mapped files.
    pub(crate) file_bytes: u64,
}

/// What of this process is in memory now.
#[cfg(target_os = "linux")]
pub(crate) fn resident() -> Resident {
    let read = || -> procfs::ProcResult<Resident> {
        let status = procfs::process::Process::myself()?.status()?;
        let bytes = |kib: Option<u64>| kib.unwrap_or(0) * 1024;
        Ok(Resident {
            resident_bytes: bytes(status.vmrss),
            peak_bytes: bytes(status.vmhwm),
            anonymous_bytes: bytes(status.rssanon),
            file_bytes: bytes(status.rssfile),
        })
    };
    read().unwrap_or_default()
}

/// What of this process is in memory now.
#[cfg(not(target_os = "linux"))]
pub(crate) fn resident() -> Resident {
    Resident::default()
}
