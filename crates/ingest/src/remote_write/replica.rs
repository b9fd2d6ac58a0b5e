//! Which replica of a Prometheus a request comes from: two labels of its first series tell.

use crate::protobuf::{Value, Walker, WireField};

/// The labels that tell replicas of a Prometheus apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaLabels {
    /// The label whose value replicas share.
    pub cluster: String,
    /// The label whose value each replica has of its own.
    pub replica: String,
}

/// A replica of a Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica<'body> {
    /// The cluster that it is one of.
    pub cluster: &'body str,
    /// Its own name in the cluster.
    pub name: &'body str,
}

/// The two labels, as far as they have been found among those of a series.
pub(super) struct ReplicaSearch<'a, 'body> {
    labels: &'a ReplicaLabels,
    replica: Replica<'body>,
}

impl<'a, 'body> ReplicaSearch<'a, 'body> {
    pub(super) const fn new(labels: &'a ReplicaLabels) -> Self {
        Self { labels, replica: Replica { cluster: "", name: "" } }
    }

    pub(super) fn look_at(&mut self, name: &str, value: &'body str) {
        if name == self.labels.cluster {
            self.replica.cluster = value;
        } else if name == self.labels.replica {
            self.replica.name = value;
        }
    }

    /// The replica, if the series has both labels. An empty label is a missing one.
    pub(super) fn finish(self) -> Option<Replica<'body>> {
        Some(self.replica).filter(|replica| !replica.cluster.is_empty() && !replica.name.is_empty())
    }
}

/// The label fields of a series without the label of this name; `None` if it has none. What is malformed is for the decoder to report.
pub(super) fn without_label(key: &[u8], name: &str) -> Option<Vec<u8>> {
    memchr::memmem::find(key, name.as_bytes())?;
    let mut rest = Vec::with_capacity(key.len());
    let mut fields = Walker::new(key, 0..key.len());
    loop {
        let start = fields.at();
        match fields.next_field().ok()? {
            None => return Some(rest),
            Some(WireField { value: Value::Bytes(range), .. })
                if super::key::read_label(key, range.clone()).is_ok_and(|(found, _)| found == name) => {}
            Some(_) => rest.extend_from_slice(key.get(start..fields.at()).unwrap_or_default()),
        }
    }
}
