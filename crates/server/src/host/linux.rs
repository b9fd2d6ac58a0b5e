//! Linux, by `/proc`.

use std::fmt::{Display, Write};
use std::time::Duration;

use procfs::process::Process;
use procfs::{Current, CurrentSI};

use crate::metrics::family;

const SECTOR_BYTES: u64 = 512;

/// File systems that hold no user's data.
const VIRTUAL_FILE_SYSTEMS: [&str; 20] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "securityfs",
    "squashfs",
    "sysfs",
    "tracefs",
];

/// A family of counters: name, help, and the value for an item.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);

/// Text under way, with the labels that every sample of the host has.
struct Host {
    out: String,
    labels: String,
}

impl Host {
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.out, "{name}{{{}", self.labels);
        for (label, value) in labels {
            let _ = write!(self.out, ",{label}=\"{}\"", escape(value));
        }
        let _ = writeln!(self.out, "}} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        family(&mut self.out, name, kind, help);
        self.sample(name, &[], value);
    }

    /// One family, one sample for each item.
    fn many<T>(&mut self, (name, kind, help): (&str, &str, &str), items: &[(T, u64)], label: &str)
    where
        T: AsRef<str>,
    {
        family(&mut self.out, name, kind, help);
        for (item, value) in items {
            self.sample(name, &[(label, item.as_ref())], value);
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The machine's name.
pub(super) fn host_name() -> String {
    escape(&rustix::system::uname().nodename().to_string_lossy())
}

/// The machine's numbers. What cannot be read is left out.
pub(super) fn host_text() -> String {
    let labels = format!("job=\"host\",instance=\"{}\"", host_name());
    let mut host = Host { out: String::new(), labels };
    push_cpu(&mut host);
    push_memory(&mut host);
    push_load(&mut host);
    push_disks(&mut host);
    push_network(&mut host);
    push_file_systems(&mut host);
    host.out
}

fn push_cpu(host: &mut Host) {
    let Ok(stats) = procfs::KernelStats::current() else {
        return;
    };
    let name = "node_cpu_seconds_total";
    family(&mut host.out, name, "counter", "Seconds that the CPUs spent in each mode.");
    for (cpu, time) in stats.cpu_time.iter().enumerate() {
        let modes = [
            ("user", Some(time.user_duration())),
            ("nice", Some(time.nice_duration())),
            ("system", Some(time.system_duration())),
            ("idle", Some(time.idle_duration())),
            ("iowait", time.iowait_duration()),
            ("irq", time.irq_duration()),
            ("softirq", time.softirq_duration()),
            ("steal", time.steal_duration()),
        ];
        for (mode, time) in modes.into_iter().filter_map(|(mode, time)| Some((mode, time?))) {
            host.sample(name, &[("cpu", &cpu.to_string()), ("mode", mode)], seconds(time));
        }
    }
    host.single("node_boot_time_seconds", "gauge", "When the machine started.", stats.btime);
    host.single("node_context_switches_total", "counter", "Context switches.", stats.ctxt);
    host.single("node_forks_total", "counter", "Processes started.", stats.processes);
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn push_memory(host: &mut Host) {
    let Ok(memory) = procfs::Meminfo::current() else {
        return;
    };
    let fields = [
        ("MemTotal", Some(memory.mem_total)),
        ("MemFree", Some(memory.mem_free)),
        ("MemAvailable", memory.mem_available),
        ("Buffers", Some(memory.buffers)),
        ("Cached", Some(memory.cached)),
        ("SwapTotal", Some(memory.swap_total)),
        ("SwapFree", Some(memory.swap_free)),
        ("Dirty", Some(memory.dirty)),
        ("Slab", Some(memory.slab)),
    ];
    for (field, bytes) in fields.into_iter().filter_map(|(field, bytes)| Some((field, bytes?))) {
        let name = format!("node_memory_{field}_bytes");
        host.single(&name, "gauge", &format!("{field} of /proc/meminfo, in bytes."), bytes);
    }
}

fn push_load(host: &mut Host) {
    let Ok(load) = procfs::LoadAverage::current() else {
        return;
    };
    for (name, minutes, value) in [
        ("node_load1", "1 minute", load.one),
        ("node_load5", "5 minutes", load.five),
        ("node_load15", "15 minutes", load.fifteen),
    ] {
        host.single(name, "gauge", &format!("Load average over {minutes}."), value);
    }
}

fn push_disks(host: &mut Host) {
    let Ok(disks) = procfs::diskstats() else {
        return;
    };
    let used: Vec<_> = disks
        .into_iter()
        .filter(|disk| disk.reads + disk.writes > 0 && !disk.name.starts_with("loop") && !disk.name.starts_with("ram"))
        .collect();
    let each = |value: fn(&procfs::DiskStat) -> u64| -> Vec<(String, u64)> {
        used.iter().map(|disk| (disk.name.clone(), value(disk))).collect()
    };
    let families: [Counter<procfs::DiskStat>; 4] = [
        ("node_disk_read_bytes_total", "Bytes read.", |disk| disk.sectors_read * SECTOR_BYTES),
        ("node_disk_written_bytes_total", "Bytes written.", |disk| disk.sectors_written * SECTOR_BYTES),
        ("node_disk_reads_completed_total", "Reads completed.", |disk| disk.reads),
        ("node_disk_writes_completed_total", "Writes completed.", |disk| disk.writes),
    ];
    for (name, help, value) in families {
        host.many((name, "counter", help), &each(value), "device");
    }
    let name = "node_disk_io_time_seconds_total";
    family(&mut host.out, name, "counter", "Seconds in which the device was busy.");
    for disk in &used {
        host.sample(name, &[("device", &disk.name)], seconds(Duration::from_millis(disk.time_in_progress)));
    }
}

fn push_network(host: &mut Host) {
    let Ok(devices) = procfs::net::dev_status() else {
        return;
    };
    let mut devices: Vec<_> = devices.into_values().collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    let each = |value: fn(&procfs::net::DeviceStatus) -> u64| -> Vec<(String, u64)> {
        devices.iter().map(|device| (device.name.clone(), value(device))).collect()
    };
    let families: [Counter<procfs::net::DeviceStatus>; 6] = [
        ("node_network_receive_bytes_total", "Bytes received.", |device| device.recv_bytes),
        ("node_network_transmit_bytes_total", "Bytes sent.", |device| device.sent_bytes),
        ("node_network_receive_packets_total", "Packets received.", |device| device.recv_packets),
        ("node_network_transmit_packets_total", "Packets sent.", |device| device.sent_packets),
        ("node_network_receive_errs_total", "Errors in receiving.", |device| device.recv_errs),
        ("node_network_transmit_errs_total", "Errors in sending.", |device| device.sent_errs),
    ];
    for (name, help, value) in families {
        host.many((name, "counter", help), &each(value), "device");
    }
}

fn push_file_systems(host: &mut Host) {
    let Ok(mounts) = procfs::mounts() else {
        return;
    };
    let mut sizes = Vec::new();
    for mount in mounts.iter().filter(|mount| !VIRTUAL_FILE_SYSTEMS.contains(&mount.fs_vfstype.as_str())) {
        if let Ok(found) = rustix::fs::statvfs(mount.fs_file.as_str())
            && found.f_blocks > 0
        {
            sizes.push((mount, [found.f_blocks, found.f_bfree, found.f_bavail].map(|blocks| blocks * found.f_frsize)));
        }
    }
    let families = [
        ("node_filesystem_size_bytes", "Size of the file system."),
        ("node_filesystem_free_bytes", "Free bytes."),
        ("node_filesystem_avail_bytes", "Free bytes for ordinary users."),
    ];
    for (place, (name, help)) in families.into_iter().enumerate() {
        family(&mut host.out, name, "gauge", help);
        for (mount, bytes) in &sizes {
            let labels = [("device", &mount.fs_spec), ("fstype", &mount.fs_vfstype), ("mountpoint", &mount.fs_file)];
            host.sample(name, &labels.map(|(label, value)| (label, value.as_str())), bytes[place]);
        }
    }
}

/// The process's own numbers, as Prometheus's client libraries name them.
pub(super) fn process_text() -> String {
    let mut out = String::new();
    let Ok(process) = Process::myself() else {
        return out;
    };
    let mut push = |name: &str, kind: &str, help: &str, value: &dyn Display| {
        family(&mut out, name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    };
    if let Ok(stat) = process.stat() {
        let ticks_per_second = procfs::ticks_per_second() as f64;
        let cpu_seconds = (stat.utime + stat.stime) as f64 / ticks_per_second;
        push("process_cpu_seconds_total", "counter", "CPU seconds, user and system.", &cpu_seconds);
        push("process_resident_memory_bytes", "gauge", "Resident memory.", &(stat.rss * procfs::page_size()));
        push("process_virtual_memory_bytes", "gauge", "Virtual memory.", &stat.vsize);
        push("process_threads", "gauge", "Threads.", &stat.num_threads);
        if let Ok(boot) = procfs::boot_time_secs() {
            let started = boot as f64 + stat.starttime as f64 / ticks_per_second;
            push("process_start_time_seconds", "gauge", "When the process started.", &started);
        }
    }
    if let Ok(open) = process.fd_count() {
        push("process_open_fds", "gauge", "Open file descriptors.", &open);
    }
    out
}
