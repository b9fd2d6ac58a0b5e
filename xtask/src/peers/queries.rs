//! `cargo xtask query-peers`: the same data in this project and in other servers, the same queries to both, on this machine.

mod answers;
mod ask;
mod report;
mod texts;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::influxql::data::Random;
use super::process::{Processes, settle};
use super::server::{Peer, Server};
use super::{Case, Protocol, cache_folder, install, loader, machine, number, numbers, pairs, peer_named, program};
use report::{Figures, Report};
use texts::{HOURS_MAX, KINDS, Language, Request};

/// Connections of the loader.
const CONNECTIONS: u32 = 4;
/// Rows of a host in an hour: one in 10 s.
const STEPS_PER_HOUR: u64 = 360;
/// How long loading may take.
const LOAD_SECONDS_MAX: u32 = 3600;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// With whom this project is compared.
    pub peers: Vec<Peer>,
    /// This project's program, if it is not to be built.
    pub thalweg: Option<PathBuf>,
    /// Hosts.
    pub scale: u64,
    /// Hours of data.
    pub hours: u64,
    /// Who ask at the same time, one measurement after the other.
    pub workers: Vec<usize>,
    /// Queries of each kind.
    pub queries: usize,
    /// No more queries are begun after so long.
    pub seconds_max: u64,
    /// Hosts and ranges come from it.
    pub seed: u64,
    /// Kinds whose names contain this.
    pub only: String,
    /// Where downloaded programs are kept.
    pub cache: PathBuf,
    /// Print JSON instead of tables.
    pub json: bool,
}

impl Options {
    /// Reads the options of the command line.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let (pairs, json) = pairs(arguments)?;
        let mut options = Self {
            peers: Language::ALL.map(Language::peer).to_vec(),
            thalweg: None,
            scale: 100,
            hours: 72,
            workers: vec![1, 4],
            queries: 50,
            seconds_max: 10,
            seed: 123,
            only: String::new(),
            cache: cache_folder(),
            json,
        };
        for (name, value) in pairs {
            match name {
                "--peers" => options.peers = value.split(',').map(peer_named).collect::<Result<_, _>>()?,
                "--thalweg" => options.thalweg = Some(PathBuf::from(value)),
                "--scale" => options.scale = number(name, value)?,
                "--hours" => options.hours = number(name, value)?,
                "--workers" => options.workers = numbers(name, value)?,
                "--queries" => options.queries = number(name, value)?,
                "--seconds-max" => options.seconds_max = number(name, value)?,
                "--seed" => options.seed = number(name, value)?,
                "--only" => value.clone_into(&mut options.only),
                "--cache" => options.cache = PathBuf::from(value),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.scale == 0 || !(2..=HOURS_MAX).contains(&options.hours) {
            return Err(format!("--scale is 1 at least, --hours is from 2 to {HOURS_MAX}"));
        }
        Ok(options)
    }

    fn case(&self) -> Case {
        let series = self.scale * 10;
        Case { protocol: Protocol::Line, series, samples: 1, values: series * self.hours * STEPS_PER_HOUR }
    }
}

struct Bench<'a> {
    options: &'a Options,
    processes: Processes,
    thalweg: PathBuf,
}

/// Runs cargo's command of the same name; whether everything was measured and answered alike.
pub fn command(root: &Path, arguments: &[String], print: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let thalweg = program(root, options.thalweg.as_deref())?;
    let processes = Processes::default();
    processes.end_on_signals()?;
    let mut report = Report { setting: setting(&options), ..Report::default() };
    let bench = Bench { options: &options, processes, thalweg };
    bench.run(&mut report)?;
    print(&if options.json { report.json()? } else { report.render() });
    Ok(report.notes.is_empty())
}

fn setting(options: &Options) -> Vec<String> {
    let mut setting = machine();
    let is_asked = |name: &str| options.peers.iter().any(|peer| name.starts_with(peer.name()));
    setting.extend(install::versions(&options.cache).into_iter().filter(|name| is_asked(name)));
    let Options { scale, hours, queries, seconds_max, .. } = options;
    setting.push(format!("{scale} hosts, {hours} h; {queries} queries of a kind, or {seconds_max} s of them"));
    setting
}

impl Bench<'_> {
    fn run(&self, report: &mut Report) -> Result<(), String> {
        let ours = self.start(Peer::Thalweg)?;
        for language in Language::ALL {
            let peer = language.peer();
            if !self.options.peers.contains(&peer) {
                continue;
            }
            match self.start(peer) {
                Ok(theirs) => {
                    self.compare(language, &ours, &theirs, report);
                    self.processes.end_one(theirs.pid, &theirs.data);
                }
                Err(error) => report.note(format!("{}: {}", peer.name(), error.trim())),
            }
        }
        Ok(())
    }

    /// A server that has the data and has settled.
    fn start(&self, peer: Peer) -> Result<Server, String> {
        let program = peer.install(&self.options.cache, &self.thalweg)?;
        let server = Server::start(&self.processes, peer, &program)?;
        let case = self.options.case();
        let mut command = loader(&self.thalweg, &server.url, &case, CONNECTIONS, LOAD_SECONDS_MAX);
        if let Some(database) = peer.database() {
            command.args(["--database", database]);
        }
        let loaded = self.processes.output(&mut command)?;
        let loaded: Value = serde_json::from_str(&loaded).map_err(|error| format!("what was loaded: {error}"))?;
        if loaded["values"].as_u64() != Some(case.values) {
            return Err(format!("{} values were to be loaded, not {}", case.values, loaded["values"]));
        }
        match peer {
            Peer::Thalweg => server.post("/api/v1/admin/compact")?,
            Peer::Questdb => {
                // So the suite's client does before it asks; the table is there once the log has been applied.
                settle(server.pid, peer.settle_at_least())?;
                let text = "ALTER TABLE cpu ALTER COLUMN hostname ADD INDEX".to_owned();
                let request = Request { is_post: false, path: "/exec", parameters: vec![("query", text)] };
                ask::answer(&server, &request)?;
            }
            _ => {}
        }
        settle(server.pid, peer.settle_at_least())?;
        tell(&format!("{} has {} values in {} s", peer.name(), case.values, loaded["seconds"]));
        Ok(server)
    }

    fn compare(&self, language: Language, ours: &Server, theirs: &Server, report: &mut Report) {
        let servers = [(Peer::Thalweg, ours), (language.peer(), theirs)];
        // Others for each language, too: what is kept of one may serve another.
        let place = Language::ALL.iter().position(|known| *known == language).unwrap_or(0);
        let mut random = Random::new(self.options.seed.wrapping_add(place as u64));
        for kind in KINDS.iter().filter(|kind| kind.name.contains(&self.options.only)) {
            let name = kind.name_in(self.options.hours);
            for (place, workers) in self.options.workers.iter().enumerate() {
                // Others for each number of workers, so that nothing is kept of them; one more to begin with.
                let drawn = 0..=self.options.queries;
                let drawn: Vec<_> =
                    drawn.map(|_| kind.draw(self.options.scale, self.options.hours, &mut random)).collect();
                let requests = |server: Peer| -> Option<Vec<Request>> {
                    drawn.iter().map(|drawn| kind.request(language, server, drawn)).collect()
                };
                let (Some(ours), Some(theirs)) = (requests(Peer::Thalweg), requests(language.peer())) else {
                    if place == 0 {
                        report.unknown.push((language, name.clone()));
                    }
                    continue;
                };
                let requests = [ours, theirs];
                if place == 0 {
                    check(language, &name, servers, &requests, report);
                }
                for ((peer, server), requests) in servers.iter().zip(&requests) {
                    self.measure(language, &name, *workers, (*peer, server), requests, report);
                }
            }
        }
    }

    /// Measures a server, first with all computed if it can be told so.
    fn measure(
        &self,
        language: Language,
        query: &str,
        workers: usize,
        (server, running): (Peer, &Server),
        requests: &[Request],
        report: &mut Report,
    ) {
        let ways = if report::has_switch(server) { vec![false, true] } else { vec![true] };
        for may_keep in ways {
            let requests: Vec<Request> =
                if may_keep { requests.to_vec() } else { requests.iter().map(Request::computed).collect() };
            match ask::measure(running, &requests, workers, Duration::from_secs(self.options.seconds_max)) {
                Ok(timing) => {
                    let figures = Figures { language, query: query.to_owned(), workers, server, may_keep, timing };
                    tell(&report::progress(&figures));
                    report.figures.push(figures);
                }
                Err(error) => {
                    report.note(format!("{} {query}, {}: {error}", language.name(), server.name()));
                }
            }
        }
    }
}

/// Whether the two answer the first query alike, both computing.
fn check(
    language: Language,
    name: &str,
    servers: [(Peer, &Server); 2],
    requests: &[Vec<Request>; 2],
    report: &mut Report,
) {
    let mut answers = servers.iter().zip(requests).map(|((_, server), requests)| {
        let request = requests.first().map(Request::computed).ok_or("nothing to ask")?;
        ask::answer(server, &request)
    });
    let (Some(ours), Some(theirs)) = (answers.next(), answers.next()) else { return };
    // Who does not answer is told when measured.
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return };
    match (answers::difference(language, &ours, &theirs, language.peer()), answers::size(language, &ours)) {
        (Some(why), _) => report.note(format!("{} {name}: answers differ: {why}", language.name())),
        (None, 0) => report.note(format!("{} {name}: both answer with nothing", language.name())),
        (None, size) => report.same.push((language, name.to_owned(), size)),
    }
}

#[allow(clippy::print_stderr, reason = "progress of a command that takes minutes")]
fn tell(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_is_measured() {
        let read = |text: &str| Options::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let default = read("").unwrap();
        assert_eq!(default.peers, [Peer::Influxdb, Peer::VictoriaMetrics, Peer::Questdb]);
        assert_eq!(default.case().values, 25_920_000);
        let given = read("--peers questdb --scale 4000 --hours 6 --workers 2 --queries 7 --only last --json").unwrap();
        assert_eq!((given.peers, given.workers, given.queries, given.json), (vec![Peer::Questdb], vec![2], 7, true));
        for wrong in ["--peers oracle", "--queries", "--queries many", "--hours 1", "--scale 0", "--else 1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
