//! `thalweg serve`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use db::{Db, OpeningProgress, Recovery};
use server::{Front, Oidc, PrometheusMode, PrometheusSettings, ServerSettings, log, make_first_admin};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::settings::{OidcSettings, ServeFlags, Settings};

pub(crate) fn run(flags: &ServeFlags) -> Result<ExitCode, String> {
    let settings = flags.resolve()?;
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(settings.network_threads)
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(serve(settings))
}

/// Every part is an open file, and so is every connection: takes what the system allows at most.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused or not, the server runs; where files are too few, opening says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

async fn serve(mut settings: Settings) -> Result<ExitCode, String> {
    let prometheus = settings.prometheus.take().map(load_prometheus).transpose()?;
    settings.server.prometheus.clone_from(&prometheus);
    settings.server.web.oidc = settings.oidc.take().map(open_oidc).transpose()?;
    let (server_settings, data) = (settings.server.clone(), settings.db.store.directory.clone());
    if server_settings.is_insecure_open {
        log::warn("--insecure-open: everyone who reaches a port of this server may read, change and delete everything");
    }
    // HTTP answers from now on, so that an orchestrator sees that the server is recovering.
    let front = Front::bind(settings.server).await.map_err(|error| error.to_string())?;
    let options = settings.db;
    let started = std::time::Instant::now();
    let progress = tokio::spawn(log_opening(options.store.progress.clone()));
    let opened = tokio::task::spawn_blocking(|| Db::open(platform::Platform::real(), options)).await;
    progress.abort();
    let db = opened.map_err(|error| format!("cannot open the data folder: {error}"))?;
    let db = Arc::new(db.map_err(|error| error.to_string())?);
    log::info(&opening_text(db.recovery(), &data, started.elapsed()));
    report(db.recovery());
    warn_of_abandoned_receivers(&db, prometheus.as_deref());
    warn_of_unreadable_views(&db);
    if let Some(path) = make_first_admin(&db, &server_settings, &data)? {
        log::warn(&format!("clients have to sign in: the administrator's token is in {}", path.display()));
    }
    let server = front.open(db.clone()).await.map_err(|error| error.to_string())?;
    for error in server.unavailable() {
        log::warn(&format!("goes on without a listener: {error}, or turn it off"));
    }
    let scheme = if server.has_https() { "https" } else { "http" };
    log::info(&format!("listening: --http {} ({scheme}, and the page)", server.address()));
    for (flag, address) in server.addresses() {
        log::info(&format!("listening: {flag} {address}"));
    }
    tokio::spawn(tell_of_clock(db.clone()));
    let stop = stop_signal()?;
    if !server.asks_to_sign_in() {
        log::info("clients do not have to sign in: every port is open (--sign-in required changes that)");
    }
    // Before clients read that the server is ready: a signal that came earlier would end it.
    let hangup = prometheus.is_some().then(|| signal(SignalKind::hangup())).transpose();
    let hangup = hangup.map_err(|error| format!("cannot listen for signals: {error}"))?;
    let mut told = format!("Thalweg is ready: {scheme}://{}/\n", server.address());
    // For programs that had it take free ports.
    for (flag, address) in server.addresses().iter().filter(|(flag, _)| takes_free_port(&server_settings, flag)) {
        let _ = writeln!(told, "{}: {address}", flag.trim_start_matches('-'));
    }
    // The reader of the first line may have closed the pipe since: that is no reason not to serve.
    let _ = std::io::stdout().write_all(told.as_bytes());
    let _ = std::io::stdout().flush();
    if let Some((mode, hangup)) = prometheus.clone().zip(hangup) {
        tell_disabled(&mode);
        tokio::spawn(reload_at_hangup(mode, hangup));
    }
    server.run(stop).await;
    if let Some(mode) = &prometheus {
        mode.stop();
    }
    db.close().map_err(|error| format!("stopped, but the newest data stays in the log: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Says which views are not refreshed because their definitions cannot be read.
fn warn_of_unreadable_views(db: &Db) {
    for view in db.unreadable_views() {
        log::warn(&format!(
            "the materialised view {:?} of the database {:?} is not refreshed: its definition cannot be read ({}); drop it and make it again",
            view.name, view.database, view.reason
        ));
    }
}

/// Returns whether a listener was given a free port, which programs that started the server are told.
fn takes_free_port(settings: &ServerSettings, flag: &str) -> bool {
    let listener = match flag {
        "--control" => settings.control,
        "--ingest" => settings.ingest,
        "--postgres" => settings.postgres,
        "--redis" => settings.redis.listener,
        "--flight-sql" => settings.flight_sql,
        "--rrdcached" => settings.web.rrd.listener,
        _ => None,
    };
    listener.is_some_and(|listener| listener.address.port() == 0)
}

/// The identity provider. It is asked when the first account signs in.
fn open_oidc(settings: OidcSettings) -> Result<Arc<Oidc>, String> {
    let network = platform::network::NetworkPlatform::real(platform::Platform::real());
    let OidcSettings { rules, client, authorities } = settings;
    Oidc::new(&network, rules, client, authorities).map(Arc::new).map_err(|why| format!("--oidc-issuer: {why}"))
}

/// Reads a `prometheus.yml` and a stream aggregation file; what in them has no effect is told on stderr.
fn load_prometheus(settings: PrometheusSettings) -> Result<Arc<PrometheusMode>, String> {
    let network = platform::network::NetworkPlatform::real(platform::Platform::real());
    let paths = settings.file.iter().chain(settings.stream_aggregation.as_ref().map(|file| &file.path));
    let files = paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(" with ");
    let (mode, warnings) = PrometheusMode::load(settings, network).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
        format!("{files} cannot be run:{}", lines.concat())
    })?;
    warnings.iter().for_each(|warning| log::warn(&warning.to_string()));
    Ok(mode)
}

/// What the log holds for a receiver that no configuration names is held until the receiver is removed.
fn warn_of_abandoned_receivers(db: &Db, mode: Option<&PrometheusMode>) {
    for cursor in server::abandoned_receivers(db, mode) {
        log::warn(&format!(
            "the log is held for {cursor}, and no configuration names this receiver: start with --prometheus, or give up what it \
             has not got (thalweg cursors --remove '{cursor}')"
        ));
    }
}

fn tell_disabled(mode: &PrometheusMode) {
    for (part, reason) in mode.config().disabled() {
        log::error(&format!("{part} does not run: {reason}"));
    }
}

/// Reads the configuration again at each SIGHUP. One with errors changes nothing.
async fn reload_at_hangup(mode: Arc<PrometheusMode>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        let reloading = mode.clone();
        let Ok(reloaded) = tokio::task::spawn_blocking(move || reloading.reload()).await else { return };
        match &reloaded {
            Ok(_) => log::info("the configuration was reloaded"),
            Err(_) => log::error("the configuration was not reloaded: it has errors"),
        }
        let (Ok(problems) | Err(problems)) = &reloaded;
        problems.iter().for_each(|problem| log::warn(&problem.to_string()));
        if reloaded.is_ok() {
            tell_disabled(&mode);
        }
    }
}

/// Resolves at Ctrl-C or SIGTERM. A second one ends the process at once: nothing acknowledged is lost by that.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>, String> {
    let failed = |error| format!("cannot listen for signals: {error}");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut stop = Some(stop);
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            match stop.take() {
                Some(stop) => {
                    log::info("stopping; once more ends at once");
                    let _ = stop.send(());
                }
                None => std::process::exit(130),
            }
        }
    });
    Ok(async {
        let _ = stopped.await;
    })
}

/// How often the progress of opening the data folder is logged.
const OPENING_EACH: Duration = Duration::from_secs(5);

/// Logs how far the opening of the data folder is, until it is cancelled.
async fn log_opening(progress: Arc<OpeningProgress>) {
    loop {
        tokio::time::sleep(OPENING_EACH).await;
        log::info(&format!("recovering: {progress}"));
    }
}

/// How often the clock's check is looked at.
const CLOCK_EACH: Duration = Duration::from_secs(1);

/// Warns when the clock jumps, and when it is believed again.
async fn tell_of_clock(db: Arc<Db>) {
    let (mut jumps, mut was_wrong) = (0, false);
    let mut interval = tokio::time::interval(CLOCK_EACH);
    loop {
        interval.tick().await;
        let found = db.health().checks().into_iter().find(|check| check.name == "clock");
        let jumps_now = db.clock_jumps();
        match &found {
            // What it says changes as time passes: once is enough.
            Some(check) if !was_wrong || jumps_now > jumps => log::warn(&check.message),
            None if was_wrong => {
                log::info("the clock has run steadily for an hour: retention follows it again");
            }
            _ => {}
        }
        (jumps, was_wrong) = (jumps_now, found.is_some());
    }
}

/// How the data folder was found, and what was read of its log.
fn opening_text(recovery: &Recovery, data: &Path, took: Duration) -> String {
    let (data, seconds) = (data.display(), took.as_secs_f64());
    if recovery.created {
        return format!("made the data folder {data}");
    }
    let (records, rows) = (recovery.log_records, recovery.log_rows);
    format!("opened the data folder {data} in {seconds:.1} s: {records} records of the log read, {rows} rows replayed")
}

/// Warns of what opening the folder found out of the ordinary.
fn report(recovery: &Recovery) {
    for finding in &recovery.log_findings {
        log::warn(&finding.to_string());
    }
    if let Some(damage) = &recovery.manifest_repaired {
        log::warn(&format!("{}: {}; it was written anew", damage.file, damage.message));
    }
    for loss in &recovery.losses_accepted {
        log::warn(&format!(
            "lost, and accepted: {loss}; a damaged file is renamed to .damaged, everything else is served; an object store is \
             left as it is until that is acknowledged (thalweg losses --acknowledge)"
        ));
    }
    for part in &recovery.parts_fetched {
        log::warn(&format!("a part is read from the object store from now on: {part}"));
    }
    for file in &recovery.files_set_aside {
        log::warn(&format!(
            "nothing names {file}: it was moved to lost+found (thalweg repair --list shows what is there)"
        ));
    }
    for file in &recovery.files_left {
        log::warn(&format!(
            "nothing names {file}, and lost+found has no room for it: it stays there; move it elsewhere, or raise \
             --lost-found-bytes-max and start again"
        ));
    }
    for file in &recovery.lost_found_removed {
        log::warn(&format!("lost+found was full: {file} was removed"));
    }
    if recovery.objects_unfenced {
        log::warn(
            "the object store has no conditional writes: no copy of the manifest is kept there, and `thalweg rebuild` could \
             make nothing of it; take backups",
        );
    }
    if recovery.log_rows_lost > 0 {
        log::warn(&format!("{} rows of the log belong to groups whose record is damaged", recovery.log_rows_lost));
    }
}
