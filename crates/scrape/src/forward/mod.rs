//! Forwarding: `remote_write` of a `prometheus.yml`. What is written to the database goes to receivers, in order and at least once.
//!
//! ```text
//! log ──► cursor of each receiver ──► outgoing: external labels, relabelling ──► rounds ──► shards by series ──► batch ──► request
//!                                                                                   │ all of a round sent: the cursor goes on
//! store, by time ──► gap: what the log does not hold any more ──────────────────────┘
//! ```
//!
//! * this file: all receivers · `queue`: one receiver and its rounds · `collect`: what goes into a round · `lanes`: rounds on their way · `batch`: bodies of requests, compressed · `send`: requests, again until they
//!   are taken or refused · `gap`: times that are read from the store · `pace`: pauses, and how many shards · `metrics`: Prometheus's names for the numbers

mod batch;
mod collect;
mod gap;
mod lanes;
mod metrics;
mod outgoing;
mod pace;
mod queue;
mod send;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use db::Db;
use parking_lot::Mutex;
use platform::network::NetworkPlatform;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{AzureIdentity, Config, Credentials, RemoteWriteConfig, Source};
use queue::Queue;
use relabel::Labels;

/// Names of cursors begin with this.
const CURSOR_PREFIX: &str = "forward/";

/// The receiver that a cursor of the log is for; `None`: it is for another reader.
pub fn receiver_of_cursor(cursor: &str) -> Option<&str> {
    cursor.strip_prefix(CURSOR_PREFIX)
}

/// The names of a configuration's receivers, in its order.
pub fn receivers(config: &Config) -> Vec<String> {
    let mut names = Vec::new();
    for remote in &config.remote_write {
        let name = unique_name(remote, |name| names.iter().any(|known| known == name));
        names.push(name);
    }
    names
}

/// Forwards what is written to a database.
pub struct Forwarder {
    network: NetworkPlatform,
    db: Arc<Db>,
    database: String,
    queues: Mutex<BTreeMap<String, Arc<Queue>>>,
}

impl Forwarder {
    /// Begins without receivers. On a simulated network its tasks run there.
    pub fn start(network: &NetworkPlatform, db: Arc<Db>, database: &str) -> Self {
        Self { network: network.clone(), db, database: database.to_owned(), queues: Mutex::default() }
    }

    /// Takes a configuration over. Receivers that did not change go on undisturbed; those that changed go on where they were. What the log
    /// holds for one that is gone is given up.
    pub fn apply(&self, config: &Config) {
        let mut queues = self.queues.lock();
        let mut before = std::mem::take(&mut *queues);
        let external_labels: &Labels = &config.global.external_labels;
        for (remote, name) in config.remote_write.iter().zip(receivers(config)) {
            if remote.http.not_built_in().is_some() {
                continue;
            }
            let queue = match before.remove(&name) {
                Some(known) if known.is_of(remote, external_labels) => known,
                known => {
                    if let Some(known) = known {
                        known.stop();
                    }
                    Queue::start(&name, remote, external_labels, self)
                }
            };
            queues.insert(name, queue);
        }
        before.into_values().for_each(|gone| gone.stop());
        let cursors = self.db.log_cursors().into_iter().map(|cursor| cursor.name);
        for cursor in cursors.filter(|cursor| receiver_of_cursor(cursor).is_some_and(|name| !queues.contains_key(name)))
        {
            // Where it fails the log is held for it until the next start.
            let _ = self.db.remove_log_cursor(&cursor);
        }
    }

    /// Receivers whose last request failed, and why.
    pub fn failures(&self) -> Vec<(String, String)> {
        let queues = self.queues.lock();
        queues.values().filter_map(|queue| Some((queue.name.clone(), queue.last_error()?))).collect()
    }

    /// The numbers of all receivers, as text.
    pub fn metrics(&self) -> String {
        let queues: Vec<Arc<Queue>> = self.queues.lock().values().cloned().collect();
        metrics::render(&queues)
    }

    /// Ends. The next start goes on where this one stopped.
    pub fn stop(&self) {
        std::mem::take(&mut *self.queues.lock()).into_values().for_each(|queue| queue.stop());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The name of a receiver, with a number where others have the same.
fn unique_name(remote: &RemoteWriteConfig, is_taken: impl Fn(&str) -> bool) -> String {
    let base = name_of(remote);
    let numbered = (2..).map(|number| format!("{base}#{number}"));
    std::iter::once(base.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(base)
}

/// The name of a receiver: as it is configured, or its address with a hash of what tells it from others there. It has to stay across
/// versions, since it names the cursor.
fn name_of(remote: &RemoteWriteConfig) -> String {
    if !remote.name.is_empty() {
        return remote.name.clone();
    }
    let url = without_credentials(&remote.url);
    let rules = remote.relabel.iter().map(|rule| {
        let text = rule.text();
        let (labels, conditions) = (&text.source_labels, &text.conditions);
        let graphite = (&text.graphite_match, &text.graphite_labels);
        let texts = (&text.separator, &text.target_label, &text.regex, &text.replacement);
        format!("{:?}", (text.action, labels, texts, text.modulus, conditions, graphite))
    });
    let rules: Vec<String> = rules.collect();
    let headers = remote.http.headers.iter();
    let headers = headers.map(|header| (&*header.name, header.values.iter().map(place_of).collect()));
    let headers: Vec<(&str, Vec<String>)> = headers.collect();
    let account = match &remote.http.credentials {
        Credentials::Basic { username, .. } => username.as_ref().map(place_of),
        Credentials::Oauth2(client) => Some(client.client_id.clone()),
        // Keys are changed now and then, which makes it no other receiver.
        Credentials::Sigv4(signing) => Some(signing.identity.role_arn.clone()),
        Credentials::Azure(config) => account_of(&config.identity),
        Credentials::Google(config) => config.credentials_file.as_ref().map(|path| path.display().to_string()),
        Credentials::None | Credentials::Authorization { .. } | Credentials::NotBuiltIn(_) => None,
    };
    let user = user_of(&remote.url);
    let hash = xxh3_64(format!("{:?}", (&url, user, account, &remote.headers, headers, rules)).as_bytes());
    format!("{url}#{:08x}", hash >> 32)
}

/// Who signs in at Azure, if the configuration says.
fn account_of(identity: &AzureIdentity) -> Option<String> {
    match identity {
        AzureIdentity::Managed { client_id } | AzureIdentity::Workload { client_id, .. } => Some(client_id.clone()),
        AzureIdentity::Certificate(certificate) => Some(certificate.client_id.clone()),
        AzureIdentity::Environment { .. } => None,
    }
}

/// A text of a configuration, or where it is: what a file holds may change.
fn place_of(source: &Source) -> String {
    match source {
        Source::Inline(text) => text.clone(),
        Source::File(path) => path.display().to_string(),
    }
}

/// The user in an address.
fn user_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let credentials = authority.rsplit_once('@').map_or("", |(credentials, _)| credentials);
    credentials.split(':').next().unwrap_or_default()
}

/// An address without the user and the password in it.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(host_end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}
