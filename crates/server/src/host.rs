//! The machine that the server runs on, sampled into the database through the ordinary write path, under node_exporter's
//! names, so that dashboards made for it work.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as machine;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
use elsewhere as machine;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use ingest::{Protocol, exposition};
use model::DEFAULT_DATABASE;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::state::State;

/// Something that is written again and again.
pub(crate) struct Sampling(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Sampling {
    /// Returns when no sample is being written any more.
    pub(crate) async fn stop(self) {
        if let Some((stop, task)) = self.0 {
            let _ = stop.send(());
            let _ = task.await;
        }
    }
}

/// Samples the machine at once, then at the interval of the settings.
pub(crate) fn start(state: &Arc<State>) -> Sampling {
    match state.settings.host_metrics_interval_ms {
        Some(interval_ms) => repeat(state, interval_ms, sample),
        None => Sampling(None),
    }
}

/// Does something at once, then at an interval.
pub(crate) fn repeat(state: &Arc<State>, interval_ms: u64, work: fn(&State)) -> Sampling {
    let (stop, mut stopped) = oneshot::channel();
    let state = state.clone();
    let task = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(interval_ms.max(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = &mut stopped => return,
            }
            // A sample that cannot be taken or written is left out; `/health` and `/metrics` tell why writes fail.
            let _ = state.work(work).await;
        }
    });
    Sampling(Some((stop, task)))
}

/// The host's name.
pub(crate) fn name() -> String {
    machine::host_name()
}

fn sample(state: &State) {
    let mut text = machine::host_text();
    text.push_str(&with_labels(&(state.render_metrics() + &process_text()), &machine::host_name()));
    let Ok(database) = state.db.database_id(DEFAULT_DATABASE) else {
        return;
    };
    let options = exposition::Options {
        hasher: state.db.key_hasher().scope(Protocol::Exposition, database),
        format: exposition::Format::Text,
        now_ns: state.db.now_ns(),
        extra_labels: &[],
        limits: state.db.limits(),
    };
    if let Ok(parsed) = exposition::parse(text.as_bytes(), &options) {
        let _ = state.db.write(DEFAULT_DATABASE, &parsed.batch);
    }
}

/// Adds the labels that a scrape would: job and instance.
fn with_labels(text: &str, instance: &str) -> String {
    let target = format!("job=\"thalweg\",instance=\"{instance}\"");
    let mut out = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        let _ = match (line.starts_with('#'), line.split_once('{'), line.split_once(' ')) {
            (false, Some((name, rest)), _) => writeln!(out, "{name}{{{target},{rest}"),
            (false, None, Some((name, value))) => writeln!(out, "{name}{{{target}}} {value}"),
            _ => writeln!(out, "{line}"),
        };
    }
    out
}

/// The process's own numbers, as Prometheus's client libraries name them.
pub(crate) fn process_text() -> String {
    machine::process_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_added_to_samples_only() {
        let text = "# HELP a b {c}\na 1\nb{x=\"1\"} 2\n";
        let expected =
            "# HELP a b {c}\na{job=\"thalweg\",instance=\"h\"} 1\nb{job=\"thalweg\",instance=\"h\",x=\"1\"} 2\n";
        assert_eq!(with_labels(text, "h"), expected);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_shows_its_numbers() {
        let text = machine::host_text() + &process_text();
        for name in [
            "node_cpu_seconds_total{job=\"host\",instance=",
            "node_memory_MemTotal_bytes{",
            "node_load1{",
            "node_filesystem_size_bytes{",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} is missing in\n{text}");
        }
    }
}
