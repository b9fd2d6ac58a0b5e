//! A server's deliveries with a receiver, and the accounts of that server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use access::grant::Right;
use access::rate::Quota;
use access::scope::Scope;
use db::{Db, DbOptions};
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::network::{HttpError, HttpRequest};
use platform::objects::ObjectOptions;
use platform::sim::Simulation;
use query::{Budget, QueryError};
use thalweg_views::delivery::{Deliveries, DeliveryOptions, DeliveryReport, Maker, OwnerScope, Owners, UrlRules};

pub(crate) const START_NS: i64 = 1_700_000_000_000_000_000;

/// How a receiver answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Takes,
    IsDown,
    /// Takes a request, and the answer is lost.
    LosesAnswers,
    Status(u16),
    /// Takes a request, and answers after so many milliseconds.
    TakesLate(u64),
    Hangs,
}

/// Receivers by their hosts.
#[derive(Default)]
pub(crate) struct Receivers {
    pub(crate) modes: BTreeMap<String, Mode>,
    /// Requests that were taken, in order.
    pub(crate) taken: Vec<HttpRequest>,
    pub(crate) attempts: u64,
}

pub(crate) fn host_of(url: &str) -> String {
    url.split("://").nth(1).unwrap_or_default().split(['/', '?']).next().unwrap_or_default().to_owned()
}

fn answer(receivers: &Mutex<Receivers>, request: &HttpRequest) -> SimAnswer {
    let mut receivers = receivers.lock().unwrap();
    receivers.attempts += 1;
    let mode = receivers.modes.get(&host_of(&request.url)).copied().unwrap_or(Mode::Takes);
    let failed = |reason: &str| Err(HttpError::Failed(reason.to_owned()));
    let status = |status| Ok(SimResponse { status, ..SimResponse::default() });
    if matches!(mode, Mode::Takes | Mode::LosesAnswers | Mode::TakesLate(_)) {
        receivers.taken.push(request.clone());
    }
    match mode {
        Mode::Takes => SimAnswer { delay_ms: 20, result: status(204) },
        Mode::IsDown => SimAnswer { delay_ms: 20, result: failed("connection refused") },
        Mode::LosesAnswers => SimAnswer { delay_ms: 20, result: failed("connection reset") },
        Mode::Status(code) => SimAnswer { delay_ms: 20, result: status(code) },
        Mode::TakesLate(delay_ms) => SimAnswer { delay_ms, result: status(204) },
        Mode::Hangs => SimAnswer { delay_ms: u64::MAX, result: status(204) },
    }
}

/// Accounts by name; the empty name may do everything.
pub(crate) struct Accounts {
    db: Arc<Db>,
    scopes: Arc<Mutex<BTreeMap<String, Arc<Scope>>>>,
    made_ns: Arc<Mutex<BTreeMap<String, i64>>>,
    samples_max: Arc<AtomicU64>,
}

impl Owners for Accounts {
    fn scope(&self, owner: &str) -> Result<OwnerScope, String> {
        if owner.is_empty() {
            return Ok(OwnerScope { scope: Scope::open(), created_ns: None });
        }
        let scope = self.scopes.lock().unwrap().get(owner).cloned();
        let scope = scope.ok_or_else(|| format!("there is no account {owner}"))?;
        Ok(OwnerScope { scope, created_ns: self.made_ns.lock().unwrap().get(owner).copied() })
    }

    fn budget(&self, _: &str, scope: &Arc<Scope>) -> Arc<Budget> {
        let samples_max = self.samples_max.load(Ordering::Relaxed);
        Arc::new(Budget::sharing(samples_max, &self.db.query_memory()).for_scope(scope.clone()))
    }
}

pub(crate) struct World {
    pub(crate) simulation: Simulation,
    pub(crate) network: SimNetwork,
    pub(crate) receivers: Arc<Mutex<Receivers>>,
    pub(crate) scopes: Arc<Mutex<BTreeMap<String, Arc<Scope>>>>,
    /// When accounts were made, of those of which that is known.
    pub(crate) made_ns: Arc<Mutex<BTreeMap<String, i64>>>,
    /// What a query may hold.
    pub(crate) samples_max: Arc<AtomicU64>,
    options: fn() -> DbOptions,
    urls: Vec<String>,
    running: Option<(Arc<Db>, Deliveries)>,
    /// Rows that were written.
    pub(crate) step: i64,
}

/// Where backups go.
const BACKUPS: &str = "sim://backups";

pub(crate) fn options() -> DbOptions {
    options_of("/data")
}

/// Options of the folder that a backup is restored into.
pub(crate) fn options_of_restored() -> DbOptions {
    options_of("/restored")
}

fn options_of(directory: &str) -> DbOptions {
    let mut options = DbOptions::new(directory);
    options.store.shards = 2;
    options.store.log_segment_bytes = 1 << 14;
    options
}

/// So little of the log stays that an outage is longer.
pub(crate) fn options_of_a_short_log() -> DbOptions {
    let mut options = options();
    options.store.log_retained_bytes_max = 1 << 15;
    options
}

impl World {
    pub(crate) fn new(options: fn() -> DbOptions) -> Self {
        Self::allowing(options, &[])
    }

    pub(crate) fn allowing(options: fn() -> DbOptions, urls: &[&str]) -> Self {
        let simulation = Simulation::new(11);
        let receivers: Arc<Mutex<Receivers>> = Arc::default();
        let for_network = receivers.clone();
        let network = SimNetwork::new(&simulation, move |request| answer(&for_network, request));
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        let samples_max = Arc::new(AtomicU64::new(1 << 40));
        let mut world = Self {
            simulation,
            network,
            receivers,
            scopes: Arc::default(),
            made_ns: Arc::default(),
            samples_max,
            options,
            urls,
            running: None,
            step: 0,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), (self.options)()).unwrap());
        let deliveries = Deliveries::start(DeliveryOptions {
            db: db.clone(),
            network: self.network.platform(),
            owners: Arc::new(Accounts {
                db: db.clone(),
                scopes: self.scopes.clone(),
                made_ns: self.made_ns.clone(),
                samples_max: self.samples_max.clone(),
            }),
            urls: UrlRules::parse(&self.urls).unwrap(),
            streams_max: 3,
            log: |_| {},
        });
        self.running = Some((db, deliveries));
    }

    /// Ends the server: as it should, or by a loss of power.
    pub(crate) fn restart(&mut self, is_crash: bool) {
        let (db, deliveries) = self.running.take().unwrap();
        if is_crash {
            // Tasks end with the machine; what they would save is lost.
            self.simulation.crash();
            deliveries.stop();
        } else {
            deliveries.stop();
            db.close().unwrap();
        }
        drop(deliveries);
        self.network.run_ms(1);
        drop(db);
        self.start();
    }

    /// Takes a backup, ends the server, and goes on with what the backup has in a folder that these options name.
    pub(crate) fn restore(&mut self, options: fn() -> DbOptions) {
        let (platform, objects) = (self.simulation.platform(), ObjectOptions::default());
        self.db().backup(BACKUPS, &objects, None, &mut |_| {}).unwrap();
        let (db, deliveries) = self.running.take().unwrap();
        deliveries.stop();
        db.close().unwrap();
        drop(deliveries);
        self.network.run_ms(1);
        drop(db);
        let source = platform.objects.open(BACKUPS, &objects).unwrap();
        db::restore(&*source, None, &platform, &options().store.directory, &mut |_| {}).unwrap();
        self.options = options;
        self.start();
    }

    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.running.as_ref().unwrap().0
    }

    pub(crate) fn deliveries(&self) -> &Deliveries {
        &self.running.as_ref().unwrap().1
    }

    /// Adds an account with grants such as `read:default`.
    pub(crate) fn add_account(&self, name: &str, grants: &[&str]) -> Arc<Scope> {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let scope = Scope { name: name.into(), is_server_admin: false, grants, quota: Quota::default() };
        let scope = Arc::new(scope);
        assert!(!scope.may(Right::Admin, "other"));
        self.scopes.lock().unwrap().insert(name.to_owned(), scope.clone());
        scope
    }

    pub(crate) fn run(&self, statement: &str) -> Result<Vec<DeliveryReport>, QueryError> {
        self.run_as(statement, &Scope::open())
    }

    pub(crate) fn run_as(&self, statement: &str, scope: &Arc<Scope>) -> Result<Vec<DeliveryReport>, QueryError> {
        let parsed = sql::parse(statement).unwrap();
        let statement = parsed.trigger_statement(0).unwrap();
        self.deliveries().trigger_statement(statement, Maker { database: "default", scope })
    }

    pub(crate) fn mode(&self, host: &str, mode: Mode) {
        self.receivers.lock().unwrap().modes.insert(host.to_owned(), mode);
    }

    pub(crate) fn lines(&self, lines: &str) {
        self.db().write_lines("default", lines.as_bytes()).unwrap();
    }

    /// Writes so many requests of two rows of `cpu`, half a second apart: usage is the number of the step.
    pub(crate) fn write(&mut self, requests: usize) {
        for _ in 0..requests {
            let (step, time_ns) = (self.step, START_NS + self.step * 1_000_000_000);
            self.lines(&format!(
                "cpu,host=a usage={step},n={step}i {time_ns}\ncpu,host=b usage=-1,n=0i {time_ns}\nother v=1 {time_ns}"
            ));
            self.step += 1;
            self.network.run_ms(500);
        }
    }

    pub(crate) fn report(&self, name: &str) -> DeliveryReport {
        self.deliveries().reports().into_iter().find(|report| report.name == name).unwrap()
    }
}
