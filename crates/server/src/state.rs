//! What all handlers share.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use access::rate::Counted;
use access::scope::Scope;
use db::Db;
use rrd::catalog::Catalog;
use tokio::sync::{Notify, oneshot};
use views::delivery::Deliveries;

use crate::error::ApiError;
use crate::http::body::{Budget, Spares};
use crate::http::scraping;
use crate::listen::tls::Tls;
use crate::metrics::{Metrics, family, render_replicas};
use crate::notice::Notices;
use crate::scheduler::Scheduler;
use crate::scheduler::running::{Bounds, Queries};
use crate::scheduler::tenants::limits::{Asker, StatementLimits};
use crate::scheduler::tenants::slots::{FairSlots, TenantName};
use crate::scheduler::tenants::{Tenant, Tenants};
use crate::scheduler::threads::QueryThreads;
use crate::settings::ServerSettings;
use crate::sign_in::SignIn;

/// What all handlers share.
pub(crate) struct State {
    pub(crate) db: Arc<Db>,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) metrics: Arc<Metrics>,
    /// What series of OpenTelemetry's delta temporality add up to.
    pub(crate) otlp_deltas: ingest::otlp::Deltas,
    /// Which replicas of a Prometheus are elected, if that is asked for.
    pub(crate) replicas: Option<ingest::replicas::Replicas>,
    /// Notified when a client asks for the end of the server.
    pub(crate) quit: Notify,
    /// When the server began, in nanoseconds since the Unix epoch.
    pub(crate) started_ns: i64,
    notices: Notices,
    slow_queries: Notices,
    pub(crate) queries: Queries,
    query_threads: Arc<QueryThreads>,
    /// Bodies that are held.
    pub(crate) bodies: Arc<Budget>,
    /// Memory of bodies as they are sent and of unpacked ones, to be used again. Kept apart: what unpacks finds a buffer that was
    /// as long before, of which nothing need be zeroed.
    pub(crate) spares: Arc<Spares>,
    pub(crate) unpacked_spares: Arc<Spares>,
    requests: Arc<FairSlots>,
    /// Shares of databases in all that is limited.
    pub(crate) tenants: Arc<Tenants>,
    /// Pushed groups are changed one after another.
    pushing: Mutex<()>,
    /// Who may sign in.
    pub(crate) sign_in: SignIn,
    /// TLS of the listeners.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Triggers, subscriptions and live streams, once they have begun.
    pub(crate) delivering: OnceLock<Deliveries>,
    /// RRDtool's files, once one was asked for.
    rrd_files: OnceLock<Catalog>,
}

impl State {
    pub(crate) fn new(
        db: Arc<Db>,
        settings: Arc<ServerSettings>,
        metrics: Arc<Metrics>,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        let requests = FairSlots::new(settings.requests_max);
        let bodies = Arc::new(Budget::new(settings.bodies_bytes_max, db.request_memory()));
        let bounds = Bounds {
            concurrency_max: settings.query_concurrency_max,
            queue_max: settings.query_queue_max,
            queue_timeout: Duration::from_millis(settings.query_queue_timeout_ms),
        };
        if let Some(mode) = &settings.prometheus {
            mode.start(&db);
        }
        let queries = Queries::new(bounds, Scheduler::new(db.query_threads(), db.clock()));
        Self {
            started_ns: db.now_ns(),
            sign_in: SignIn::new(&db, &settings),
            tenants: Arc::new(Tenants::new(&db)),
            otlp_deltas: ingest::otlp::Deltas::new(settings.otlp.delta_limits),
            replicas: settings.replicas.clone().map(ingest::replicas::Replicas::new),
            quit: Notify::new(),
            db,
            settings,
            metrics,
            notices: Notices::default(),
            slow_queries: Notices::default(),
            queries,
            query_threads: Arc::default(),
            bodies,
            spares: Arc::default(),
            unpacked_spares: Arc::default(),
            requests,
            pushing: Mutex::default(),
            tls,
            delivering: OnceLock::new(),
            rrd_files: OnceLock::new(),
        }
    }

    /// RRDtool's files. Their documents are read at the first call, which is to be on a thread that may block.
    pub(crate) fn rrd_files(&self) -> &Catalog {
        self.rrd_files.get_or_init(|| {
            let catalog = Catalog::open(self.db.clone(), self.settings.web.rrd.patterns.clone());
            for (name, why) in catalog.unreadable() {
                self.tell(|| {
                    format!("rrd: the document {name} cannot be read ({why}): its file is not there, its rows are")
                });
            }
            catalog
        })
    }

    /// Keeps others from changing pushed groups.
    pub(crate) fn pushing(&self) -> MutexGuard<'_, ()> {
        self.pushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a notice of a slow query; other notices do not hold it back.
    pub(crate) fn tell_slow_query(&self, message: impl FnOnce() -> String) {
        self.slow_queries.tell(self.db.now_ns(), message);
    }

    /// Tells the operator on stderr, not too often.
    pub(crate) fn tell(&self, message: impl FnOnce() -> String) {
        self.notices.tell(self.db.now_ns(), message);
    }

    /// The server's own numbers, as text.
    pub(crate) fn render_metrics(&self) -> String {
        let mut text = self.metrics.render(&self.db, &self.queries, &self.otlp_deltas.stats());
        if let Some(replicas) = &self.replicas {
            render_replicas(&mut text, &replicas.stats());
        }
        if let Some(mode) = &self.settings.prometheus {
            scraping::metrics::render(mode, &mut text);
        }
        self.tenants.render(&mut text);
        if let Some(deliveries) = self.delivering.get() {
            deliveries.render(&mut text);
        }
        for (name, help, value) in [
            ("thalweg_sign_ins_failed_total", "Sign-ins that were refused.", self.sign_in.failed()),
            (
                "thalweg_audit_lines_dropped_total",
                "Lines of the audit log that could not be queued.",
                self.sign_in.audit.dropped(),
            ),
        ] {
            family(&mut text, name, "counter", help);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {value}");
        }
        for (name, kind, help, value) in self.tls.iter().flat_map(|tls| tls.metrics()) {
            family(&mut text, name, kind, help);
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }

    /// As [`Tenants::tenant`].
    pub(crate) fn tenant(&self, database: &str, scope: &Scope) -> Arc<Tenant> {
        self.tenants.tenant(&self.db, database, scope)
    }

    /// The tenant of the server's own work.
    pub(crate) fn own_tenant(&self) -> Arc<Tenant> {
        self.tenants.own()
    }

    /// Takes from what an account may ask for of a database.
    pub(crate) fn take(
        &self,
        scope: &Scope,
        tenant: &Tenant,
        (counted, amount): (Counted, u64),
    ) -> Result<(), ApiError> {
        self.tenants.take(Asker { scope, tenant }, counted, amount, self.db.now_ns())
    }

    /// Counts what a sender did already.
    pub(crate) fn owe(&self, scope: &Scope, tenant: &Tenant, (counted, amount): (Counted, u64)) {
        self.tenants.owe(Asker { scope, tenant }, counted, amount, self.db.now_ns());
    }

    /// Lets new series of a sender in, or says why not.
    pub(crate) fn take_new_series(&self, scope: &Scope, tenant: &Tenant, count: u64) -> Result<(), String> {
        self.take(scope, tenant, (Counted::NewSeries, count)).map_err(|error| error.message)
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.body_timeout_ms)
    }

    /// The limits of a query of a database, with what its sender may read and change.
    pub(crate) fn budget_of(&self, database: &str, scope: &Arc<Scope>) -> Arc<query::Budget> {
        let memory = self.tenants.query_memory(&self.tenant(database, scope), scope);
        let (db, tenants, scope) = (self.db.clone(), self.tenants.clone(), scope.clone());
        let writes = Arc::new(StatementLimits::new(db, tenants, scope.clone()));
        self.db.budget_of(self.settings.query_samples_max, &scope, (memory, writes))
    }

    /// Runs work that computes or waits for the disk on a thread that may do so. No more than `requests_max` at once.
    pub(crate) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.work_named(&self.own_tenant().name, work).await
    }

    /// As [`State::work`], in one of the slots that a tenant may have.
    pub(crate) async fn work_of<T: Send + 'static>(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.work_named(&tenant.name, work).await
    }

    async fn work_named<T: Send + 'static>(
        self: &Arc<Self>,
        tenant: &TenantName,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.requests.acquire(tenant, usize::MAX).await;
        self.work_unbounded(move |state| {
            let done = work(state);
            drop(slot);
            done
        })
        .await
    }

    /// Runs a query's work on a thread of its own. Callers bound how many there are.
    pub(crate) async fn work_on_query<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (state, (sender, receiver)) = (self.clone(), oneshot::channel());
        // The receiver is gone if the client has left.
        let job = move || drop(sender.send(work(&state)));
        let begun = self.query_threads.run(Box::new(job));
        begun.map_err(|error| ApiError::internal(format!("cannot start a thread for a query: {error}")))?;
        receiver.await.map_err(|_| ApiError::internal("the query's work ended early"))
    }

    /// Like [`State::work`], for callers that enforce their own limit.
    pub(crate) async fn work_unbounded<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let state = self.clone();
        let task = tokio::task::spawn_blocking(move || work(&state));
        task.await.map_err(|error| ApiError::internal(format!("the request's work ended early: {error}")))
    }
}
