//! Prometheus remote write, <https://prometheus.io/docs/specs/prw/remote_write_spec/> (1.0) and
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>: a snappy block around one protobuf message.
//!
//! * `v1.rs`: `prometheus.WriteRequest`. A series' key is the run of its label fields as sent, so that labels are parsed
//!   only for series that the store does not know ([`decode_key`]).
//! * `v2.rs`: `io.prometheus.write.v2.Request`, whose labels are numbers of symbols. Its keys are spelled as version 1
//!   spells them: a sender that changes its version writes the same series under the same hashes.
//! * `collect.rs`: what both put into the batch. All samples go into one block of lone series.
//! * `histogram.rs`: native histograms, which both versions spell alike. · `key.rs`: labels. · `replica.rs`: the labels of replicas. · `encode.rs`: the way back.
//!
//! Stale markers and other NaNs keep their bits. Exemplars that are malformed, or too many, are left out without a word, as
//! Prometheus does.

mod collect;
mod encode;
mod histogram;
mod key;
mod replica;
pub mod replicas;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

use model::Batch;

pub(crate) use encode::encode_histogram;
pub use encode::{Series, SeriesV2, compress, encode, encode_v1, encode_v2};
pub(crate) use histogram::read_scraped_histogram;
pub use key::decode_key;
pub use replica::{Replica, ReplicaLabels};
pub use v1::{parse, replica};
pub use v2::{parse_v2, replica_v2};

use crate::encoding::{Encoding, UnpackLimits, decompress as unpack};
use crate::{BodyError, Limits, LineErrors, ScopedKeyHasher};

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::RemoteWrite`].
    pub hasher: ScopedKeyHasher<'a>,
    /// Bounds on series.
    pub limits: &'a Limits,
    /// A label that series lose: the one that tells replicas of a Prometheus apart.
    pub dropped_label: Option<&'a str>,
}

/// What a write request holds.
#[derive(Debug)]
pub struct WriteRequest<'body> {
    /// The samples, and metadata. "Lines" are the series of the request, counted from 1.
    pub batch: Batch<'body>,
    /// Series, or single samples of them, that were left out.
    pub errors: LineErrors,
    /// Samples, histograms and exemplars in the batch.
    pub accepted: AcceptedSamples,
}

/// How much of each kind is in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AcceptedSamples {
    /// Floats.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
}

/// Unpacks a snappy block, refusing one that unpacks to more than `size_bytes_max`.
pub fn decompress(body: Vec<u8>, size_bytes_max: usize) -> Result<Vec<u8>, BodyError> {
    unpack(Encoding::Snappy, body, UnpackLimits { size_bytes_max, ratio_max: usize::MAX })
}
