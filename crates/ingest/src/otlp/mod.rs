//! OpenTelemetry metrics, <https://opentelemetry.io/docs/specs/otlp/>: the message `ExportMetricsServiceRequest`, as protobuf or
//! as JSON.
//!
//! What becomes of a metric is what Prometheus 3 makes of it
//! (<https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/>): gauges and sums are series, explicit
//! histograms and summaries the classic series `_bucket`, `_sum`, `_count`, exponential histograms native ones; the
//! resource's name, namespace and instance become `job` and `instance`, its other attributes `target_info`.
//!
//! * `walk.rs`: down from the request to the metrics. · `points.rs`: data points to rows.
//! * `exponential.rs`: exponential histograms to native ones; `exponential_sum.rs`: added up. · `exemplars.rs`: exemplars.
//! * `deltas.rs`: delta temporality to cumulative; `totals.rs`: for the points at hand.
//! * `names.rs`: names of metrics and labels. · `key.rs`: a point's key, decoded only for series that the store does not know
//!   ([`decode_key`]): the labels that all points of a metric share, and the attributes as sent.
//! * `attributes.rs`: attributes as texts.
//! * `json.rs`: JSON to protobuf, so that there is one reader. · `encode.rs`: answers, and requests for clients.

mod attributes;
#[cfg(test)]
mod delta_tests;
mod deltas;
mod encode;
mod exemplars;
mod exponential;
mod exponential_sum;
mod json;
mod key;
mod names;
mod points;
#[cfg(test)]
mod tests;
mod totals;
mod walk;

use model::Batch;

pub use deltas::{DeltaLimits, DeltaStats, Deltas};
pub use encode::{Answer, NumberPoint, encode_gauge, encode_status};
pub use json::json_to_protobuf;
pub use key::decode_key;
pub use walk::parse;

use crate::{Limits, LineErrors, ScopedKeyHasher};

/// How OpenTelemetry's names become those of metrics and labels: the strategies of Prometheus 3, by their names there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Translation {
    /// Letters, digits and underscores only; units and `_total` are appended.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// Letters, digits and underscores only.
    UnderscoreEscapingWithoutSuffixes,
    /// All characters stay; units and `_total` are appended.
    NoUTF8EscapingWithSuffixes,
    /// Names stay as they are.
    NoTranslation,
}

impl Translation {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::UnderscoreEscapingWithSuffixes,
        Self::UnderscoreEscapingWithoutSuffixes,
        Self::NoUTF8EscapingWithSuffixes,
        Self::NoTranslation,
    ];

    /// The name that Prometheus gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnderscoreEscapingWithSuffixes => "UnderscoreEscapingWithSuffixes",
            Self::UnderscoreEscapingWithoutSuffixes => "UnderscoreEscapingWithoutSuffixes",
            Self::NoUTF8EscapingWithSuffixes => "NoUTF8EscapingWithSuffixes",
            Self::NoTranslation => "NoTranslation",
        }
    }

    /// The strategy of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    const fn escapes(self) -> bool {
        matches!(self, Self::UnderscoreEscapingWithSuffixes | Self::UnderscoreEscapingWithoutSuffixes)
    }
}

/// What becomes of sums and histograms of delta temporality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeltaPolicy {
    /// They are added up and stored as cumulative ones, so that `rate` and `increase` work on them.
    #[default]
    Cumulate,
    /// They are stored as they come, as gauges.
    Keep,
    /// They are refused.
    Reject,
}

impl DeltaPolicy {
    /// The policy that a setting names.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "cumulate" => Some(Self::Cumulate),
            "keep" => Some(Self::Keep),
            "reject" => Some(Self::Reject),
            _ => None,
        }
    }
}

/// How metrics are named and stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How names are translated.
    pub translation: Translation,
    /// Whether series get the labels `otel_scope_name`, `otel_scope_version`, `otel_scope_schema_url` and one for each attribute
    /// of the scope, as Prometheus's `promote_scope_metadata`: without them series of scopes that differ in these alone are one.
    pub scope_labels: bool,
    /// What becomes of delta temporality.
    pub delta: DeltaPolicy,
    /// Bounds on what is remembered of series of delta temporality.
    pub delta_limits: DeltaLimits,
    /// Resource attributes that become labels of every series.
    pub promoted_attributes: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            translation: Translation::default(),
            scope_labels: true,
            delta: DeltaPolicy::default(),
            delta_limits: DeltaLimits::default(),
            promoted_attributes: Vec::new(),
        }
    }
}

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::Otlp`].
    pub hasher: ScopedKeyHasher<'a>,
    /// How metrics are named and stored.
    pub settings: &'a Settings,
    /// What series of delta temporality add up to.
    pub deltas: &'a Deltas,
    /// The time of points that bring none.
    pub now_ns: i64,
    /// Bounds on series.
    pub limits: &'a Limits,
}

/// What a request holds.
#[derive(Debug)]
pub struct Request<'body> {
    /// The samples, histograms, exemplars and metadata. "Lines" are the data points of the request, counted from 1.
    pub batch: Batch<'body>,
    /// Data points that were left out.
    pub errors: LineErrors,
    /// How many data points there were.
    pub points: u64,
}
