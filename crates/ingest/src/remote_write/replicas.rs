//! Replicas of a Prometheus that send the same samples: one of each cluster is elected, what the others send is left out.
//!
//! The rules are Mimir's. The first replica that sends is elected. Another one takes its place when it sends after the elected one
//! has sent nothing for longer than the failover timeout. So an entry that is older than that decides nothing any more, and may be
//! forgotten where there is no room for another cluster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::remote_write::{Replica, ReplicaLabels};

/// Bytes that the name of a cluster or of a replica may have: it is held in memory.
const NAME_BYTES_MAX: usize = 1024;

const NS_PER_MS: u64 = 1_000_000;

/// How replicas are told apart, and when another one is elected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// The labels that tell them apart.
    pub labels: ReplicaLabels,
    /// How long the elected replica of a cluster may be silent before another one takes its place.
    pub failover_timeout_ms: u64,
    /// Clusters that are known at the same time; requests of others are refused.
    pub clusters_max: usize,
}

impl Default for ReplicaSettings {
    /// Mimir's labels and times.
    fn default() -> Self {
        let labels = ReplicaLabels { cluster: "cluster".to_owned(), replica: "__replica__".to_owned() };
        Self { labels, failover_timeout_ms: 30_000, clusters_max: 1_000 }
    }
}

/// The decision about a replica's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is of the elected replica: it is written.
    Accepted,
    /// It is of another replica: it is left out.
    Duplicate,
    /// It is refused. Holds why.
    Refused(String),
}

/// Counts of replicas and their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaStats {
    /// Clusters that are known.
    pub clusters: usize,
    /// Requests that were left out.
    pub duplicate_requests: u64,
    /// Samples of those, histograms among them.
    pub duplicate_samples: u64,
    /// How often a replica took the place of another.
    pub failovers: u64,
}

/// The elected replica of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Elected {
    replica: String,
    last_seen_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// The elected replica has sent again.
    Renew,
    /// The replica is elected.
    Elect,
    /// Another replica is the elected one.
    LeaveOut,
}

/// Decides about a request of a replica by what is known of its cluster.
fn decide(elected: Option<&Elected>, replica: &str, now_ns: u64, failover_timeout_ns: u64) -> Decision {
    match elected {
        Some(elected) if elected.replica == replica => Decision::Renew,
        Some(elected) if !is_silent(elected, now_ns, failover_timeout_ns) => Decision::LeaveOut,
        _ => Decision::Elect,
    }
}

const fn is_silent(elected: &Elected, now_ns: u64, failover_timeout_ns: u64) -> bool {
    now_ns.saturating_sub(elected.last_seen_ns) > failover_timeout_ns
}

/// A cluster of a database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClusterKey {
    database: String,
    cluster: String,
}

/// The elected replicas of all clusters.
#[derive(Debug)]
pub struct Replicas {
    settings: ReplicaSettings,
    clusters: Mutex<HashMap<ClusterKey, Elected>>,
    duplicate_requests: AtomicU64,
    duplicate_samples: AtomicU64,
    failovers: AtomicU64,
}

impl Replicas {
    /// None is elected yet.
    pub fn new(settings: ReplicaSettings) -> Self {
        Self {
            settings,
            clusters: Mutex::default(),
            duplicate_requests: AtomicU64::new(0),
            duplicate_samples: AtomicU64::new(0),
            failovers: AtomicU64::new(0),
        }
    }

    /// The labels that tell replicas apart.
    pub const fn labels(&self) -> &ReplicaLabels {
        &self.settings.labels
    }

    /// Decides about a replica's request into a database. Times are of a clock that never goes back.
    pub fn admit(&self, database: &str, replica: Replica<'_>, now_ns: u64) -> Verdict {
        if replica.cluster.len().max(replica.name.len()) > NAME_BYTES_MAX {
            return Verdict::Refused(format!(
                "the labels {:?} and {:?} have at most {NAME_BYTES_MAX} bytes",
                self.labels().cluster,
                self.labels().replica
            ));
        }
        let failover_timeout_ns = self.settings.failover_timeout_ms.saturating_mul(NS_PER_MS);
        let key = ClusterKey { database: database.to_owned(), cluster: replica.cluster.to_owned() };
        let mut clusters = self.lock();
        let elected = clusters.get_mut(&key);
        match (decide(elected.as_deref(), replica.name, now_ns, failover_timeout_ns), elected) {
            (Decision::LeaveOut, _) => return Verdict::Duplicate,
            (Decision::Renew, Some(elected)) => elected.last_seen_ns = elected.last_seen_ns.max(now_ns),
            (_, Some(elected)) => {
                *elected = Elected { replica: replica.name.to_owned(), last_seen_ns: now_ns };
                self.failovers.fetch_add(1, Ordering::Relaxed);
            }
            (_, None) => {
                let clusters_max = self.settings.clusters_max;
                if clusters.len() >= clusters_max {
                    clusters.retain(|_, elected| !is_silent(elected, now_ns, failover_timeout_ns));
                }
                if clusters.len() >= clusters_max {
                    return Verdict::Refused(format!(
                        "{clusters_max} clusters of replicas send already (ha_clusters_max): {:?} is one more",
                        replica.cluster
                    ));
                }
                clusters.insert(key, Elected { replica: replica.name.to_owned(), last_seen_ns: now_ns });
            }
        }
        Verdict::Accepted
    }

    /// Counts a request that was left out.
    pub fn count_duplicate(&self, samples: u64) {
        self.duplicate_requests.fetch_add(1, Ordering::Relaxed);
        self.duplicate_samples.fetch_add(samples, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn stats(&self) -> ReplicaStats {
        ReplicaStats {
            clusters: self.lock().len(),
            duplicate_requests: self.duplicate_requests.load(Ordering::Relaxed),
            duplicate_samples: self.duplicate_samples.load(Ordering::Relaxed),
            failovers: self.failovers.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Elected>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn the_elected_replica_stays_until_it_is_silent_for_longer_than_the_timeout() {
        let elected = Elected { replica: "a".to_owned(), last_seen_ns: 100 * SECOND_NS };
        for (elected, replica, now_s, expected) in [
            (None, "a", 0, Decision::Elect),
            (Some(&elected), "a", 100, Decision::Renew),
            (Some(&elected), "a", 1_000, Decision::Renew),
            (Some(&elected), "b", 100, Decision::LeaveOut),
            (Some(&elected), "b", 130, Decision::LeaveOut),
            (Some(&elected), "b", 131, Decision::Elect),
            // A request that was read before the last one of the elected replica, and is decided about after it.
            (Some(&elected), "b", 99, Decision::LeaveOut),
        ] {
            let decision = decide(elected, replica, now_s * SECOND_NS, 30 * SECOND_NS);
            assert_eq!(decision, expected, "{replica} at {now_s} s");
        }
    }

    /// Which of some requests (seconds, database, cluster, replica) are written.
    fn run(replicas: &Replicas, requests: &[(u64, &str, &str, &str)]) -> String {
        let verdicts = requests.iter().map(|(now_s, database, cluster, name)| {
            match replicas.admit(database, Replica { cluster, name }, now_s * SECOND_NS) {
                Verdict::Accepted => 'w',
                Verdict::Duplicate => '-',
                Verdict::Refused(_) => '!',
            }
        });
        verdicts.collect()
    }

    #[test]
    fn one_replica_of_each_cluster_is_written() {
        let replicas = Replicas::new(ReplicaSettings::default());
        let requests = [
            (0, "d", "one", "a"),
            (1, "d", "one", "b"),
            (2, "d", "two", "b"),
            (3, "d", "two", "a"),
            // Databases have clusters of their own.
            (4, "e", "one", "b"),
            (15, "d", "one", "a"),
            (45, "d", "one", "b"),
            // "a" was silent for more than 30 s; it has lost its place then.
            (46, "d", "one", "b"),
            (47, "d", "one", "a"),
            (76, "d", "one", "a"),
            (77, "d", "one", "a"),
        ];
        assert_eq!(run(&replicas, &requests), "w-w-ww-w--w");
        assert_eq!((replicas.stats().clusters, replicas.stats().failovers), (3, 2));
    }

    #[test]
    fn clusters_are_bounded_and_silent_ones_make_room() {
        let settings = ReplicaSettings { clusters_max: 2, ..ReplicaSettings::default() };
        let replicas = Replicas::new(settings);
        let requests = [
            (0, "d", "one", "a"),
            (20, "d", "two", "a"),
            (21, "d", "three", "a"),
            (21, "d", "two", "b"),
            (31, "d", "three", "a"),
            (31, "d", "one", "a"),
        ];
        assert_eq!(run(&replicas, &requests), "ww!-w!");
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(run(&replicas, &[(31, "d", &long, "a"), (31, "d", "two", &long)]), "!!");
    }
}
