//! Alerts to Alertmanagers, by version 2 of their API: all to each, in batches. The oldest go first where the queue is full.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use parking_lot::Mutex;
use platform::network::{HttpRequest, NetworkPlatform};
use scrape::Client;
use scrape::config::{AlertingConfig, AlertmanagerConfig};
use scrape::discovery::{self, Found, TargetGroup};
use scrape::relabel::{self, Labels, relabel};
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::alert::Alert;
use crate::file::RuleConfig;
use crate::group::Surroundings;
use crate::template::link;

/// Alerts of one request.
const BATCH: usize = 256;

/// Alerts that wait.
pub(crate) const QUEUE_MAX: usize = 10_000;

/// Bytes that are read of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The label by which relabelling changes the path.
const PATH_LABEL: &str = "__alerts_path__";

/// An alert as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    labels: Labels,
    annotations: Labels,
    starts_at: String,
    ends_at: String,
    generator_url: String,
}

/// Numbers of one Alertmanager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendCounts {
    /// Alerts that were sent.
    pub sent: u64,
    /// Alerts of requests that failed.
    pub errors: u64,
}

/// Sends alerts.
pub struct Notifier {
    network: NetworkPlatform,
    state: Mutex<State>,
    wake: Notify,
    stop: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Message>,
    dropped: u64,
    alert_relabel: Vec<relabel::Rule>,
    external_labels: Labels,
    sets: Vec<Arc<AlertmanagerSet>>,
    counts: BTreeMap<String, SendCounts>,
}

/// Alertmanagers that are found and asked alike.
struct AlertmanagerSet {
    config: AlertmanagerConfig,
    client: Client,
    discovered: Mutex<Vec<Vec<TargetGroup>>>,
    stop: watch::Sender<bool>,
}

impl Drop for AlertmanagerSet {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl Notifier {
    /// Begins without Alertmanagers.
    pub fn start(network: &NetworkPlatform) -> Arc<Self> {
        let notifier = Arc::new(Self {
            network: network.clone(),
            state: Mutex::default(),
            wake: Notify::new(),
            stop: watch::Sender::new(false),
        });
        let (own, mut stopped) = (Arc::downgrade(&notifier), notifier.stop.subscribe());
        network.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = send_all(own) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }));
        notifier
    }

    /// Takes a configuration over. Sets of Alertmanagers that did not change go on.
    pub fn apply(&self, config: &AlertingConfig, surroundings: &Surroundings) {
        let mut state = self.state.lock();
        let before = std::mem::take(&mut state.sets);
        state.alert_relabel.clone_from(&config.alert_relabel);
        state.external_labels.clone_from(&surroundings.external_labels);
        state.sets = config
            .alertmanagers
            .iter()
            .map(|config| {
                let known = before.iter().find(|set| set.config == *config);
                known.cloned().unwrap_or_else(|| AlertmanagerSet::start(config, &self.network))
            })
            .collect();
    }

    /// Queues alerts.
    pub fn send(&self, rule: &RuleConfig, alerts: &[Alert], external_url: &str) {
        let mut state = self.state.lock();
        let generator_url = format!("{}{}", external_url.trim_end_matches('/'), link(&rule.expr, 1));
        for alert in alerts {
            let mut labels = alert.labels.clone();
            for (name, value) in &state.external_labels {
                labels.entry(name.clone()).or_insert_with(|| value.clone());
            }
            if !relabel(&mut labels, &state.alert_relabel) {
                continue;
            }
            if state.queue.len() >= QUEUE_MAX {
                state.queue.pop_front();
                state.dropped += 1;
            }
            state.queue.push_back(Message {
                labels,
                annotations: alert.annotations.clone(),
                starts_at: time_text(alert.fired_at_ms.unwrap_or(alert.active_at_ms)),
                ends_at: time_text(alert.resolved_at_ms.unwrap_or(alert.valid_until_ms)),
                generator_url: generator_url.clone(),
            });
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Addresses of Alertmanagers, and of those that relabelling dropped.
    pub fn alertmanagers(&self) -> (Vec<String>, Vec<String>) {
        let sets = self.state.lock().sets.clone();
        let (mut active, mut dropped) = (BTreeSet::new(), BTreeSet::new());
        for set in sets {
            let (own_active, own_dropped) = set.urls();
            active.extend(own_active);
            dropped.extend(own_dropped);
        }
        (active.into_iter().collect(), dropped.into_iter().collect())
    }

    /// Why sets do not run.
    pub fn disabled(&self) -> Vec<String> {
        self.state.lock().sets.iter().filter_map(|set| set.config.disabled.clone()).collect()
    }

    /// Numbers by Alertmanager, alerts that wait, and alerts that were dropped.
    pub fn counts(&self) -> (BTreeMap<String, SendCounts>, usize, u64) {
        let state = self.state.lock();
        (state.counts.clone(), state.queue.len(), state.dropped)
    }

    /// Ends.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        self.state.lock().sets.clear();
    }

    /// Sends what waits, batch by batch.
    async fn drain(&self) {
        loop {
            let (batch, sets) = {
                let mut state = self.state.lock();
                let count = state.queue.len().min(BATCH);
                (state.queue.drain(..count).collect::<Vec<_>>(), state.sets.clone())
            };
            if batch.is_empty() {
                return;
            }
            let requests = sets.iter().flat_map(|set| {
                let own = set.relabelled(&batch);
                let urls = if own.is_empty() { BTreeSet::new() } else { set.urls().0 };
                let body = body(&own);
                urls.into_iter().map(move |url| (set, url, body.clone(), own.len() as u64))
            });
            let sends = requests.map(|(set, url, body, count)| async move {
                let is_sent = set.post(&url, body, &self.network).await;
                let mut state = self.state.lock();
                let counts = state.counts.entry(url).or_default();
                if is_sent {
                    counts.sent += count;
                } else {
                    counts.errors += count;
                }
                is_sent
            });
            let taken = join_all(sends).await;
            if !taken.is_empty() && !taken.contains(&true) {
                self.state.lock().dropped += batch.len() as u64;
            }
        }
    }
}

async fn send_all(own: Weak<Notifier>) {
    loop {
        let Some(notifier) = own.upgrade() else { return };
        notifier.drain().await;
        notifier.wake.notified().await;
    }
}

impl AlertmanagerSet {
    fn start(config: &AlertmanagerConfig, network: &NetworkPlatform) -> Arc<Self> {
        let count = if config.disabled.is_some() { 0 } else { config.discoveries.len() };
        let set = Arc::new(Self {
            client: Client::new(network, &config.http),
            config: config.clone(),
            discovered: Mutex::new(vec![Vec::new(); count]),
            stop: watch::Sender::new(false),
        });
        for index in 0..count {
            let (own, discovery_network, mut stopped) = (Arc::downgrade(&set), network.clone(), set.stop.subscribe());
            let Some(discovery) = config.discoveries.get(index).cloned() else { continue };
            network.tasks.spawn(Box::pin(async move {
                let sink = move |found: Found| {
                    // What was found last holds where looking fails.
                    if let (Some(set), Ok(groups)) = (own.upgrade(), found)
                        && let Some(known) = set.discovered.lock().get_mut(index)
                    {
                        *known = groups;
                    }
                };
                tokio::select! {
                    () = discovery::run(&discovery, &discovery_network, &sink) => {}
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                }
            }));
        }
        set
    }

    fn relabelled(&self, batch: &[Message]) -> Vec<Message> {
        let mut own = batch.to_vec();
        own.retain_mut(|message| relabel(&mut message.labels, &self.config.alert_relabel));
        own
    }

    /// Addresses, and those that relabelling dropped.
    fn urls(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut active, mut dropped) = (BTreeSet::new(), BTreeSet::new());
        let groups = self.discovered.lock().clone();
        for mut labels in groups.iter().flatten().flat_map(TargetGroup::targets) {
            let path = format!("/{}/api/v2/alerts", self.config.path_prefix.trim_matches('/')).replace("//", "/");
            labels.insert("__scheme__".to_owned(), self.config.scheme.clone());
            labels.insert(PATH_LABEL.to_owned(), path);
            let before = url(&labels);
            if relabel(&mut labels, &self.config.relabel) {
                active.extend(url(&labels));
            } else {
                dropped.extend(before);
            }
        }
        (active, dropped)
    }

    /// Sends a request; returns whether it was taken.
    async fn post(&self, url: &str, body: Vec<u8>, network: &NetworkPlatform) -> bool {
        let request = HttpRequest { method: "POST", url: url.to_owned(), headers: Vec::new(), body };
        let request = request.with_header("Content-Type", "application/json");
        let exchange = async {
            let mut response = self.client.send(request).await.ok()?;
            let is_taken = (200..300).contains(&response.status);
            // The connection is used again once the answer is read.
            let _ = response.read_body(ANSWER_BYTES_MAX).await;
            is_taken.then_some(())
        };
        tokio::select! {
            taken = exchange => taken.is_some(),
            () = network.tasks.sleep_ms(self.config.timeout_ms) => false,
        }
    }
}

fn url(labels: &Labels) -> Option<String> {
    let get = |name: &str| labels.get(name).map(String::as_str).filter(|value| !value.is_empty());
    Some(format!("{}://{}{}", get("__scheme__")?, get("__address__")?, get(PATH_LABEL).unwrap_or("/")))
}

fn time_text(time_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(time_ms).map(|time| time.to_string()).unwrap_or_default()
}

fn body(batch: &[Message]) -> Vec<u8> {
    let alerts = batch.iter().map(|message| {
        json!({
            "labels": message.labels,
            "annotations": message.annotations,
            "startsAt": message.starts_at,
            "endsAt": message.ends_at,
            "generatorURL": message.generator_url,
        })
    });
    serde_json::Value::Array(alerts.collect()).to_string().into_bytes()
}
