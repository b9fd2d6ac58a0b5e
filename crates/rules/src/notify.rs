//! Alerts to Alertmanagers, by version 2 of their API: all to each, in batches, from a queue of its own. The oldest go first where that is full.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use platform::network::{HttpRequest, NetworkPlatform};
use relabel::{Labels, relabel};
use scrape::Client;
use scrape::config::{AlertingConfig, AlertmanagerConfig};
use scrape::discovery::{self, Found, TargetGroup};
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::alert::Alert;
use crate::file::RuleConfig;
use crate::group::Surroundings;
use crate::template::link;

/// Alerts of one request.
const BATCH: usize = 256;

/// Alerts that wait for one Alertmanager.
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
    /// Alerts that it never got: those of requests that failed, and those that a full queue had no room for.
    pub dropped: u64,
    /// Alerts that wait.
    pub waiting: usize,
}

/// Sends alerts.
pub struct Notifier {
    network: NetworkPlatform,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    alert_relabel: Vec<relabel::Rule>,
    external_labels: Labels,
    sets: Vec<Arc<AlertmanagerSet>>,
}

/// Alertmanagers that are found and asked alike.
struct AlertmanagerSet {
    config: AlertmanagerConfig,
    network: NetworkPlatform,
    discovered: Mutex<Vec<Vec<TargetGroup>>>,
    /// By address.
    senders: Mutex<BTreeMap<String, Arc<Sender>>>,
    stop: watch::Sender<bool>,
}

impl Drop for AlertmanagerSet {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.senders.lock().values().for_each(|sender| sender.stop());
    }
}

/// One Alertmanager with a queue and a loop of its own: one that hangs holds no other up.
struct Sender {
    url: String,
    timeout_ms: u64,
    client: Client,
    network: NetworkPlatform,
    queue: Mutex<SendQueue>,
    wake: Notify,
    stop: watch::Sender<bool>,
}

#[derive(Default)]
struct SendQueue {
    messages: VecDeque<Arc<Message>>,
    counts: SendCounts,
}

impl Notifier {
    /// Begins without Alertmanagers.
    pub fn start(network: &NetworkPlatform) -> Arc<Self> {
        Arc::new(Self { network: network.clone(), state: Mutex::default() })
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

    /// Queues alerts, for each Alertmanager.
    pub fn send(&self, rule: &RuleConfig, alerts: &[Alert], external_url: &str) {
        let state = self.state.lock();
        let generator_url = format!("{}{}", external_url.trim_end_matches('/'), link(&rule.expr, 1));
        let mut messages = Vec::new();
        for alert in alerts {
            let mut labels = alert.labels.clone();
            for (name, value) in &state.external_labels {
                labels.entry(name.clone()).or_insert_with(|| value.clone());
            }
            if !relabel(&mut labels, &state.alert_relabel) {
                continue;
            }
            messages.push(Message {
                labels,
                annotations: alert.annotations.clone(),
                starts_at: time_text(alert.fired_at_ms.unwrap_or(alert.active_at_ms)),
                ends_at: time_text(alert.resolved_at_ms.unwrap_or(alert.valid_until_ms)),
                generator_url: generator_url.clone(),
            });
        }
        let sets = state.sets.clone();
        drop(state);
        sets.iter().for_each(|set| set.send(&messages));
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

    /// Numbers by Alertmanager.
    pub fn counts(&self) -> BTreeMap<String, SendCounts> {
        let sets = self.state.lock().sets.clone();
        let senders = sets.iter().flat_map(|set| set.senders.lock().values().cloned().collect::<Vec<_>>());
        senders.map(|sender| (sender.url.clone(), sender.counts())).collect()
    }

    /// Ends.
    pub fn stop(&self) {
        self.state.lock().sets.clear();
    }
}

impl AlertmanagerSet {
    fn start(config: &AlertmanagerConfig, network: &NetworkPlatform) -> Arc<Self> {
        let count = if config.disabled.is_some() { 0 } else { config.discoveries.len() };
        let set = Arc::new(Self {
            config: config.clone(),
            network: network.clone(),
            discovered: Mutex::new(vec![Vec::new(); count]),
            senders: Mutex::default(),
            stop: watch::Sender::new(false),
        });
        for index in 0..count {
            let (own, discovery_network, mut stopped) = (Arc::downgrade(&set), network.clone(), set.stop.subscribe());
            let Some(discovery) = config.discoveries.get(index).cloned() else { continue };
            network.tasks.spawn(Box::pin(async move {
                let sink = move |found: Found| {
                    // What was found last holds where looking fails.
                    if let (Some(set), Ok(groups)) = (own.upgrade(), found) {
                        set.update(index, groups);
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

    /// Takes over what a discovery found: new Alertmanagers get a queue, those that are gone lose theirs.
    fn update(&self, index: usize, groups: Vec<TargetGroup>) {
        if let Some(known) = self.discovered.lock().get_mut(index) {
            *known = groups;
        }
        let urls = self.urls().0;
        let mut senders = self.senders.lock();
        senders.retain(|url, sender| {
            let stays = urls.contains(url);
            if !stays {
                sender.stop();
            }
            stays
        });
        for url in urls {
            senders.entry(url).or_insert_with_key(|url| Sender::start(url, &self.config, &self.network));
        }
    }

    fn send(&self, messages: &[Message]) {
        let mut own = messages.to_vec();
        own.retain_mut(|message| relabel(&mut message.labels, &self.config.alert_relabel));
        if own.is_empty() {
            return;
        }
        let own: Vec<Arc<Message>> = own.into_iter().map(Arc::new).collect();
        self.senders.lock().values().for_each(|sender| sender.push(&own));
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
}

impl Sender {
    fn start(url: &str, config: &AlertmanagerConfig, network: &NetworkPlatform) -> Arc<Self> {
        let sender = Arc::new(Self {
            url: url.to_owned(),
            timeout_ms: config.timeout_ms,
            client: Client::new(network, &config.http),
            network: network.clone(),
            queue: Mutex::default(),
            wake: Notify::new(),
            stop: watch::Sender::new(false),
        });
        let (own, mut stopped) = (sender.clone(), sender.stop.subscribe());
        network.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = own.send_all() => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }));
        sender
    }

    fn stop(&self) {
        self.stop.send_replace(true);
    }

    async fn send_all(&self) {
        loop {
            if !self.send_batch().await {
                self.wake.notified().await;
            }
        }
    }

    fn push(&self, messages: &[Arc<Message>]) {
        let mut queue = self.queue.lock();
        queue.messages.extend(messages.iter().cloned());
        let beyond = queue.messages.len().saturating_sub(QUEUE_MAX);
        queue.messages.drain(..beyond);
        queue.counts.dropped += beyond as u64;
        drop(queue);
        self.wake.notify_one();
    }

    fn counts(&self) -> SendCounts {
        let queue = self.queue.lock();
        SendCounts { waiting: queue.messages.len(), ..queue.counts }
    }

    /// Sends a batch; returns whether there was one. What an Alertmanager does not take comes again with the alert's next sending.
    async fn send_batch(&self) -> bool {
        let batch: Vec<Arc<Message>> = {
            let mut queue = self.queue.lock();
            let count = queue.messages.len().min(BATCH);
            queue.messages.drain(..count).collect()
        };
        if batch.is_empty() {
            return false;
        }
        let is_sent = self.post(body(&batch)).await;
        let (count, mut queue) = (batch.len() as u64, self.queue.lock());
        if is_sent {
            queue.counts.sent += count;
        } else {
            queue.counts.errors += count;
            queue.counts.dropped += count;
        }
        true
    }

    /// Sends a request; returns whether it was taken.
    async fn post(&self, body: Vec<u8>) -> bool {
        let request = HttpRequest { method: "POST", url: self.url.clone(), headers: Vec::new(), body };
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
            () = self.network.tasks.sleep_ms(self.timeout_ms) => false,
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

fn body(batch: &[Arc<Message>]) -> Vec<u8> {
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
