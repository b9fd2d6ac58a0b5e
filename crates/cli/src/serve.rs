//! `thalweg serve`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use db::{Db, OpeningProgress, Recovery};
use server::{Front, Oidc, PrometheusMode, PrometheusSettings, make_first_admin};
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
        eprintln!(
            "thalweg: --insecure-open: everybody who reaches a port of this server may read, change and delete everything"
        );
    }
    // HTTP answers from now on, so that an orchestrator sees that the server is recovering.
    let front = Front::bind(settings.server).await.map_err(|error| error.to_string())?;
    let options = settings.db;
    let progress = tokio::spawn(log_opening(options.store.progress.clone()));
    let opened = tokio::task::spawn_blocking(|| Db::open(platform::Platform::real(), options)).await;
    progress.abort();
    let db = opened.map_err(|error| format!("cannot open the data folder: {error}"))?;
    let db = Arc::new(db.map_err(|error| error.to_string())?);
    report(db.recovery());
    if let Some(path) = make_first_admin(&db, &server_settings, &data)? {
        eprintln!("thalweg: clients have to sign in: the administrator's token is in {}", path.display());
    }
    let server = front.open(db.clone()).await.map_err(|error| error.to_string())?;
    for error in server.unavailable() {
        eprintln!("thalweg: goes on without a listener: {error}, or turn it off");
    }
    for (flag, address) in server.addresses() {
        eprintln!("thalweg: {flag} {address}");
    }
    tokio::spawn(tell_of_clock(db.clone()));
    let stop = stop_signal()?;
    if !server.asks_to_sign_in() {
        eprintln!("thalweg: clients do not have to sign in: every port is open (--sign-in required changes that)");
    }
    let scheme = if server.has_https() { "https" } else { "http" };
    // Before clients read that the server is ready: a signal that came earlier would end it.
    let hangup = prometheus.is_some().then(|| signal(SignalKind::hangup())).transpose();
    let hangup = hangup.map_err(|error| format!("cannot listen for signals: {error}"))?;
    let mut told = format!("Thalweg is ready: {scheme}://{}/\n", server.address());
    // For programs that had it take free ports.
    for (flag, address) in server
        .addresses()
        .iter()
        .filter(|(flag, _)| matches!(*flag, "--control" | "--ingest" | "--postgres" | "--flight-sql"))
    {
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

/// The identity provider. It is asked when the first account signs in.
fn open_oidc(settings: OidcSettings) -> Result<Arc<Oidc>, String> {
    let network = platform::network::NetworkPlatform::real(platform::Platform::real());
    let OidcSettings { rules, client, authorities } = settings;
    Oidc::new(&network, rules, client, authorities).map(Arc::new).map_err(|why| format!("--oidc-issuer: {why}"))
}

/// Reads a `prometheus.yml`; what in it has no effect is told on stderr.
fn load_prometheus(settings: PrometheusSettings) -> Result<Arc<PrometheusMode>, String> {
    let network = platform::network::NetworkPlatform::real(platform::Platform::real());
    let file = settings.file.display().to_string();
    let (mode, warnings) = PrometheusMode::load(settings, network).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
        format!("{file} cannot be run:{}", lines.concat())
    })?;
    warnings.iter().for_each(|warning| eprintln!("thalweg: {warning}"));
    Ok(mode)
}

fn tell_disabled(mode: &PrometheusMode) {
    for (job, reason) in mode.disabled_jobs() {
        eprintln!("thalweg: the job {job:?} does not run: {reason}");
    }
}

/// Reads the `prometheus.yml` again at each SIGHUP. One with errors changes nothing.
async fn reload_at_hangup(mode: Arc<PrometheusMode>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        let reloading = mode.clone();
        let Ok(reloaded) = tokio::task::spawn_blocking(move || reloading.reload()).await else { return };
        match &reloaded {
            Ok(_) => eprintln!("thalweg: the configuration was reloaded"),
            Err(_) => eprintln!("thalweg: the configuration was not reloaded: it has errors"),
        }
        let (Ok(problems) | Err(problems)) = &reloaded;
        problems.iter().for_each(|problem| eprintln!("thalweg: {problem}"));
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
                    eprintln!("thalweg: stopping; once more ends at once");
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
const OPENING_EACH: std::time::Duration = std::time::Duration::from_secs(5);

/// Logs how far the opening of the data folder is, until it is cancelled.
async fn log_opening(progress: Arc<OpeningProgress>) {
    loop {
        tokio::time::sleep(OPENING_EACH).await;
        eprintln!("thalweg: recovering: {progress}");
    }
}

/// How often the clock's check is looked at.
const CLOCK_EACH: std::time::Duration = std::time::Duration::from_secs(1);

/// Says on stderr when the clock jumps, and when it is believed again.
async fn tell_of_clock(db: Arc<Db>) {
    let (mut jumps, mut was_wrong) = (0, false);
    let mut interval = tokio::time::interval(CLOCK_EACH);
    loop {
        interval.tick().await;
        let found = db.health().checks().into_iter().find(|check| check.name == "clock");
        let jumps_now = db.clock_jumps();
        match &found {
            // What it says changes as time passes: once is enough.
            Some(check) if !was_wrong || jumps_now > jumps => eprintln!("thalweg: {}", check.message),
            None if was_wrong => {
                eprintln!("thalweg: the clock has run steadily for an hour: retention follows it again");
            }
            _ => {}
        }
        (jumps, was_wrong) = (jumps_now, found.is_some());
    }
}

/// Says on stderr what opening the folder found out of the ordinary.
fn report(recovery: &Recovery) {
    for finding in &recovery.log_findings {
        eprintln!("thalweg: {finding}");
    }
    if let Some(damage) = &recovery.manifest_repaired {
        eprintln!("thalweg: {}: {}; it was written anew", damage.file, damage.message);
    }
    for loss in &recovery.losses_accepted {
        eprintln!(
            "thalweg: lost, and accepted: {loss}; a damaged file is renamed to .damaged, everything else is served; an object store is \
             left as it is until that is acknowledged (thalweg losses --acknowledge)"
        );
    }
    for part in &recovery.parts_fetched {
        eprintln!("thalweg: a part is read from the object store from now on: {part}");
    }
    for file in &recovery.files_set_aside {
        eprintln!(
            "thalweg: nothing names {file}: it was moved to lost+found (thalweg repair --list shows what is there)"
        );
    }
    for file in &recovery.files_left {
        eprintln!(
            "thalweg: nothing names {file}, and lost+found has no room for it: it stays there; move it elsewhere, or raise \
             --lost-found-bytes-max and start again"
        );
    }
    for file in &recovery.lost_found_removed {
        eprintln!("thalweg: lost+found was full: {file} was removed");
    }
    if recovery.objects_unfenced {
        eprintln!(
            "thalweg: the object store has no conditional writes: no copy of the manifest is kept there, and `thalweg rebuild` could \
             make nothing of it; take backups"
        );
    }
    if recovery.log_rows_lost > 0 {
        eprintln!("thalweg: {} rows of the log belong to groups whose record is damaged", recovery.log_rows_lost);
    }
}
