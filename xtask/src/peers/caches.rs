//! `cargo xtask cache-peers`: the same requests to InfluxDB alone, through `thalweg cache` in front of it, and through units of a fixed
//! length in memcached, on this machine, one after the other.

mod delay;
mod report;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::process::{Processes, cpu_seconds, resident_peak_bytes, settle};
use super::server::{Peer, Server, free_address};
use super::{cache_folder, install, number, numbers, pairs, program};
use delay::Delay;
use report::Figures;

/// How long a cache may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// Slabs of `thalweg cache`: small ones, since the cache is small.
const SLAB_BYTES: u64 = 64 << 10;

/// What of `thalweg cache` counts as its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The file, memory in front of it, and what waits to be written.
    All,
    /// The file alone, as the paper counts: memory is beside it, as much as otherwise.
    File,
}

impl Counted {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "file" => Ok(Self::File),
            _ => Err(format!("all or file is counted, not {text}")),
        }
    }

    const fn told(self) -> &'static str {
        match self {
            Self::All => "memory and file together",
            Self::File => "as the paper counts: the file alone, memory beside it",
        }
    }

    /// Bytes of the file, of memory in front of it, and of what waits to be written, of a cache of a size.
    const fn shares(self, bytes: u64) -> [u64; 3] {
        let (memory, unwritten) = (bytes * 20 / 100, bytes * 5 / 100);
        let file = match self {
            Self::All => bytes - memory - unwritten,
            Self::File => bytes,
        };
        [file, memory, unwritten]
    }
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Spans of the requests, as `thalweg bench cache requests` names them.
    pub workloads: Vec<String>,
    /// Lengths of units in memcached, in minutes.
    pub units: Vec<u32>,
    /// Margins with which clients of `thalweg cache` fetch, in hundredths of what they ask for.
    pub margins: Vec<u32>,
    /// The caches' size in hundredths of the data.
    pub cache_percent: u64,
    /// What of `thalweg cache` counts as its size.
    pub counted: Counted,
    /// Requests of each measurement.
    pub requests: u64,
    /// Requests that each way answers before counting begins.
    pub warm_requests: u64,
    /// How long each answer of the database is held back, as if it were remote.
    pub database_delay_ms: u64,
    /// Clients at the same time.
    pub clients: u32,
    /// Days of data.
    pub days: u32,
    /// Where downloaded programs are kept.
    pub cache: PathBuf,
    /// This project's program; none to build it.
    pub thalweg: Option<PathBuf>,
    /// Print JSON instead of tables.
    pub json: bool,
}

impl Options {
    /// Reads the options of the command line.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            workloads: vec!["full".to_owned(), "small".to_owned()],
            units: vec![30, 240],
            margins: vec![50],
            cache_percent: 10,
            counted: Counted::All,
            requests: 20_000,
            warm_requests: 0,
            database_delay_ms: 0,
            clients: 8,
            days: 180,
            cache: cache_folder(),
            thalweg: None,
            json: false,
        };
        let (pairs, json) = pairs(arguments)?;
        options.json = json;
        for (name, value) in pairs {
            match name {
                "--workloads" => options.workloads = value.split(',').map(str::to_owned).collect(),
                "--units" => options.units = numbers(name, value)?,
                "--margins" => options.margins = numbers(name, value)?,
                "--counted" => options.counted = Counted::read(value)?,
                "--cache-percent" => options.cache_percent = number(name, value)?,
                "--requests" => options.requests = number(name, value)?,
                "--warm-requests" => options.warm_requests = number(name, value)?,
                "--database-delay-ms" => options.database_delay_ms = number(name, value)?,
                "--clients" => options.clients = number(name, value)?,
                "--days" => options.days = number(name, value)?,
                "--thalweg" => options.thalweg = Some(PathBuf::from(value)),
                "--cache" => options.cache = PathBuf::from(value),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

impl Options {
    /// What a report says of them.
    fn setting(&self, raw_bytes: u64) -> String {
        let counted = self.counted.told();
        let data = format!("{} MiB of data, {} % of it cached ({counted})", raw_bytes >> 20, self.cache_percent);
        let asked =
            format!("{} requests after {} that warm, {} clients", self.requests, self.warm_requests, self.clients);
        let place = match self.database_delay_ms {
            0 => "database asked directly".to_owned(),
            delay_ms => format!("each answer of the database held back for {delay_ms} ms"),
        };
        format!("{data}, {asked}, {place}")
    }
}

/// How answers are got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Database,
    Thalweg,
    /// Where something is missing, whole steps are fetched.
    Steps {
        minutes: u32,
    },
    /// Where something is missing, so many hundredths of what is asked for are fetched beyond each end.
    Margin {
        percent: u32,
    },
    Units {
        minutes: u32,
        whole: bool,
    },
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Database => "InfluxDB alone".to_owned(),
            Self::Thalweg => "thalweg cache".to_owned(),
            Self::Steps { minutes } => format!("thalweg cache, steps of {minutes} min"),
            Self::Margin { percent } => format!("thalweg cache, a margin of {percent} %"),
            Self::Units { minutes, whole: false } => format!("memcached, units of {minutes} min"),
            Self::Units { minutes, whole: true } => format!("memcached, units of {minutes} min, fetched whole"),
        }
    }
}

/// The database, and where clients ask it: itself, or what holds its answers back.
struct Database {
    pid: u32,
    url: String,
    _delay: Option<Delay>,
}

struct Bench<'a> {
    options: &'a Options,
    processes: Processes,
    thalweg: PathBuf,
    memcached: PathBuf,
}

/// Runs cargo's command of the same name; whether all ways gave the same answers.
pub fn command(root: &Path, arguments: &[String], print: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let thalweg = program(root, options.thalweg.as_deref())?;
    let processes = Processes::default();
    processes.end_on_signals()?;
    let bench = Bench {
        processes,
        thalweg,
        memcached: install::debian(&options.cache, "memcached", "memcached")?,
        options: &options,
    };
    let influxdb = Peer::Influxdb.install(&options.cache, &bench.thalweg)?;
    let (raw_bytes, all) = bench.run(&influxdb)?;
    let mut setting = super::machine();
    setting.extend(
        install::versions(&options.cache)
            .into_iter()
            .filter(|name| ["influxdb", "memcached"].iter().any(|wanted| name.starts_with(wanted))),
    );
    setting.push(options.setting(raw_bytes));
    print(&if options.json { report::json(&setting, &all)? } else { report::render(&setting, &all) });
    Ok(report::agree(&all))
}

impl Bench<'_> {
    /// The bytes of the data, uncompressed, and what was measured.
    fn run(&self, influxdb: &Path) -> Result<(u64, Vec<Figures>), String> {
        let database = Server::start(&self.processes, Peer::Influxdb, influxdb)?;
        let loaded = self.processes.output(self.requests(&database.url).arg("--load"))?;
        let loaded: Value = serde_json::from_str(&loaded).map_err(|error| format!("what was loaded: {error}"))?;
        let raw_bytes = loaded["raw_bytes"].as_u64().ok_or("the loader does not say how much it wrote")?;
        settle(database.pid, Peer::Influxdb.settle_at_least())?;
        let database = self.at_a_distance(&database)?;
        let units = self.options.units.iter();
        let units = units.flat_map(|minutes| [false, true].map(|whole| Way::Units { minutes: *minutes, whole }));
        let steps = self.options.units.iter().map(|minutes| Way::Steps { minutes: *minutes });
        let margins = self.options.margins.iter().map(|percent| Way::Margin { percent: *percent });
        let own = [Way::Database, Way::Thalweg].into_iter().chain(margins).chain(steps);
        let ways: Vec<Way> = own.chain(units).collect();
        let mut all = Vec::new();
        for workload in &self.options.workloads {
            for way in &ways {
                let figures = self.measure(&database, workload, *way, raw_bytes)?;
                tell(&figures);
                all.push(figures);
            }
        }
        Ok((raw_bytes, all))
    }

    /// The database as clients reach it.
    fn at_a_distance(&self, server: &Server) -> Result<Database, String> {
        let delay_ms = self.options.database_delay_ms;
        if delay_ms == 0 {
            return Ok(Database { pid: server.pid, url: server.url.clone(), _delay: None });
        }
        let address = server.url.trim_start_matches("http://");
        let delay = Delay::start(address, Duration::from_millis(delay_ms))?;
        Ok(Database { pid: server.pid, url: format!("http://{}", delay.address()), _delay: Some(delay) })
    }

    fn requests(&self, database_url: &str) -> Command {
        let mut command = Command::new(&self.thalweg);
        command.args(["bench", "cache", "requests", "--json", "--influxdb", database_url]);
        command.args(["--days", &self.options.days.to_string(), "--clients", &self.options.clients.to_string()]);
        command
    }

    /// The requests of a workload by a way: so many, after those before.
    fn ask(&self, database: &Database, workload: &str, way: Way, cache: Option<&Cache>) -> Command {
        let mut command = self.requests(&database.url);
        command.args(["--workload", workload]);
        match (way, cache) {
            (Way::Thalweg, Some(cache)) => {
                command.args(["--cache", &cache.address]);
            }
            (Way::Steps { minutes }, Some(cache)) => {
                command.args(["--cache", &cache.address, "--unit-minutes", &minutes.to_string(), "--whole-units"]);
            }
            (Way::Margin { percent }, Some(cache)) => {
                command.args(["--cache", &cache.address, "--margin-percent", &percent.to_string()]);
            }
            (Way::Units { minutes, whole }, Some(cache)) => {
                command.args(["--memcached", &cache.address, "--unit-minutes", &minutes.to_string()]);
                command.args(whole.then_some("--whole-units"));
            }
            _ => {}
        }
        command
    }

    fn measure(&self, database: &Database, workload: &str, way: Way, raw_bytes: u64) -> Result<Figures, String> {
        let told = |error| format!("{workload}, {}: {error}", way.name());
        let cache_bytes = raw_bytes * self.options.cache_percent / 100;
        let cache = self.start(way, cache_bytes).map_err(told)?;
        let ask = || self.ask(database, workload, way, cache.as_ref());
        let (warm, counted) = (self.options.warm_requests.to_string(), self.options.requests.to_string());
        if self.options.warm_requests > 0 {
            self.processes.output(ask().args(["--requests", &warm])).map_err(told)?;
        }
        let of_cache = || cache.as_ref().map_or(Ok(0.0), |cache| cpu_seconds(cache.pid));
        let cache_before = of_cache()?;
        let before = cpu_seconds(database.pid)?;
        let report =
            self.processes.output(ask().args(["--requests", &counted, "--skip-requests", &warm])).map_err(told)?;
        let report: Value = serde_json::from_str(&report).map_err(|error| told(error.to_string()))?;
        let database_cpu_seconds = cpu_seconds(database.pid)? - before;
        let cache_cpu_seconds = of_cache()? - cache_before;
        let mut resident_bytes = 0;
        if let Some(cache) = cache {
            resident_bytes = resident_peak_bytes(cache.pid);
            self.processes.end_one(cache.pid, &cache.folder);
        }
        Ok(Figures {
            workload: workload.to_owned(),
            way: way.name(),
            report,
            database_cpu_seconds,
            cache_cpu_seconds,
            cache_resident_peak_bytes: resident_bytes,
        })
    }

    /// Starts the cache of a way, empty, of so many bytes in all.
    fn start(&self, way: Way, bytes: u64) -> Result<Option<Cache>, String> {
        if way == Way::Database {
            return Ok(None);
        }
        let folder = self.processes.folder("cache")?;
        let address = free_address()?;
        let (host, port) = address.split_once(':').ok_or("an address without a port")?;
        let mut command;
        if matches!(way, Way::Thalweg | Way::Steps { .. } | Way::Margin { .. }) {
            command = Command::new(&self.thalweg);
            let [file, memory, unwritten] = self.options.counted.shares(bytes);
            let shares = [("--size", file), ("--memory", memory), ("--unwritten", unwritten), ("--slab", SLAB_BYTES)];
            command.args(["cache", "--listen", &address, "--file"]).arg(folder.join("answers.flash"));
            command.args(shares.iter().flat_map(|(name, bytes)| [(*name).to_owned(), bytes.to_string()]));
        } else {
            command = Command::new(&self.memcached);
            command.args(["-l", host, "-p", port, "-U", "0", "-u", "nobody"]);
            command.args(["-m", &bytes.div_ceil(1 << 20).to_string()]);
        }
        let pid = self.processes.start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let start = Instant::now();
        while TcpStream::connect(&address).is_err() {
            cpu_seconds(pid)?;
            if start.elapsed() > START_MAX {
                return Err(format!("was not ready after {START_MAX:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(Cache { pid, address, folder }))
    }
}

/// A running cache.
struct Cache {
    pid: u32,
    address: String,
    folder: PathBuf,
}

#[allow(clippy::print_stderr, reason = "progress of a command that takes minutes")]
fn tell(figures: &Figures) {
    eprintln!("{}", figures.progress());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_is_measured() {
        let read = |text: &str| Options::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let given = "--workloads small,large --units 60 --margins none --counted file --cache-percent 4 --requests 7 --warm-requests 5 --json";
        let given = read(given).unwrap();
        assert!(given.setting(3 << 20).contains("3 MiB of data, 4 % of it cached (as the paper counts"));
        assert!(given.setting(3 << 20).contains("7 requests after 5 that warm") && given.margins.is_empty());
        assert_eq!((Counted::All.shares(100), given.counted.shares(100)), ([75, 20, 5], [100, 20, 5]));
        let remote = read("--database-delay-ms 40").unwrap();
        assert!(remote.setting(0).contains("held back for 40 ms") && given.setting(0).contains("directly"));
        assert_eq!(given.workloads, ["small", "large"]);
        assert_eq!((given.units, given.cache_percent, given.requests, given.json), (vec![60], 4, 7, true));
        for wrong in ["--units", "--units many", "--else 1", "--counted some"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
