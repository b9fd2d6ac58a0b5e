//! `thalweg check service-discovery`: what a job's discoveries find, and what relabelling makes of it, as promtool prints it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use platform::Platform;
use platform::network::NetworkPlatform;
use scrape::config::{self, Origin, ScrapeConfig};
use scrape::discovery::{self, Found, TargetGroup};
use scrape::target::{Unusable, from_discovered};
use serde_json::{Value, json};

/// Look for the targets of a job once, and print their labels before and after relabelling as JSON
///
/// Exit code: 0 every discovery gave an answer, 2 the job does not run or one gave none.
#[derive(Debug, Args)]
pub(crate) struct DiscoveryFlags {
    /// The prometheus.yml
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The job's name
    #[arg(value_name = "JOB")]
    job: String,
    /// How long to wait for answers, in seconds
    #[arg(long = "timeout", value_name = "SECONDS", default_value_t = 30)]
    timeout_s: u64,
}

pub(super) fn run(flags: &DiscoveryFlags) -> Result<ExitCode, String> {
    let files = Platform::real().files;
    let variable = |name: &str| std::env::var(name).ok();
    let loaded = config::load(&flags.file, &Origin { files: &*files, variable: &variable });
    let loaded = loaded.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let jobs = &loaded.config.scrape_configs;
    let job = jobs.iter().find(|job| job.job_name == flags.job).ok_or_else(|| {
        let names: Vec<&str> = jobs.iter().map(|job| job.job_name.as_str()).collect();
        format!("{} has no job {:?}; it has {}", flags.file.display(), flags.job, names.join(", "))
    })?;
    if let Some(reason) = &job.disabled {
        return Err(format!("the job {:?} does not run: {reason}", job.job_name));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let found = runtime.block_on(find(job, flags.timeout_s.saturating_mul(1000)));
    let (mut shown, mut failures) = (Vec::new(), Vec::new());
    for (number, found) in found.into_iter().enumerate() {
        match found {
            Some(Ok(groups)) => {
                shown.extend(groups.iter().flat_map(TargetGroup::targets).map(|labels| show(&labels, job)));
            }
            Some(Err(reason)) => failures.push(format!("discovery {}: {reason}", number + 1)),
            None => failures.push(format!("discovery {}: no answer within {} s", number + 1, flags.timeout_s)),
        }
    }
    say!("{:#}", Value::Array(shown));
    if failures.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(failures.join("\n")) }
}

/// The first answer of each discovery; `None` if there was none in time.
async fn find(job: &ScrapeConfig, timeout_ms: u64) -> Vec<Option<Found>> {
    let network = NetworkPlatform::real(Platform::real());
    let mut tasks = Vec::new();
    for discovery in job.discoveries.clone() {
        let network = network.clone();
        tasks.push(tokio::spawn(async move {
            let answer: Arc<Mutex<Option<Found>>> = Arc::default();
            let answered = Arc::new(tokio::sync::Notify::new());
            let (slot, signal) = (answer.clone(), answered.clone());
            let sink = move |found: Found| {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                signal.notify_one();
            };
            tokio::select! {
                () = discovery::run(&discovery, &network, &sink) => {}
                () = answered.notified() => {}
                () = network.tasks.sleep_ms(timeout_ms) => {}
            }
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            answer.take()
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.ok().flatten());
    }
    all
}

fn show(discovered: &relabel::Labels, job: &ScrapeConfig) -> Value {
    match from_discovered(discovered, job) {
        Ok(target) => json!({ "discoveredLabels": discovered, "labels": target.labels }),
        Err(Unusable::Dropped) => json!({ "discoveredLabels": discovered, "labels": {} }),
        Err(Unusable::Invalid(reason)) => json!({ "discoveredLabels": discovered, "labels": {}, "error": reason }),
    }
}
