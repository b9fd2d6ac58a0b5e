//! What a data point says, or, if it is a difference, what its series adds up to with it.

use model::histogram::NativeHistogram;

use super::deltas::{Classic, DeltaInterval, Total};
use super::exponential::Exponential;
use super::key::write_key;
use super::points::{Bounds, Common, Metric, Mode};
use super::walk::Converter;
use crate::errors::Reason;

/// Sums are remembered by kind, so that this is not met.
const OTHER_KIND: &str = "the sum of the series is of another kind";

impl Converter<'_, '_> {
    /// The hash by which the sums of a point's series are remembered; one for all series of a histogram.
    fn total_key(&mut self, metric: &Metric<'_>, common: &Common) -> u128 {
        write_key(&mut self.key, metric.head, [metric.name, ""], None, common.attributes.text(self.body));
        self.options.hasher.hash(&self.key)
    }

    /// What a point of delta temporality makes of its series; the point's own start becomes that of the series. A point that says
    /// that its series ended ends it.
    fn total(&mut self, metric: &Metric<'_>, common: &mut Common, time_ns: i64, delta: Total) -> Result<Total, Reason> {
        let key = self.total_key(metric, common);
        let deltas = self.options.deltas;
        if common.is_stale {
            deltas.end(key);
            return Ok(delta);
        }
        let stretch = DeltaInterval { start_ns: common.start_ns, time_ns };
        let (start_ns, total) = deltas.add(key, self.options.now_ns, stretch, delta)?;
        common.start_ns = start_ns;
        Ok(total)
    }

    pub(super) fn number_total(
        &mut self,
        metric: &Metric<'_>,
        common: &mut Common,
        time_ns: i64,
        value: f64,
    ) -> Result<f64, Reason> {
        if metric.mode != Mode::Cumulated {
            return Ok(value);
        }
        if value.is_nan() || metric.is_monotonic && value < 0.0 {
            return Err(format!("a delta of {value} cannot be added up").into());
        }
        match self.total(metric, common, time_ns, Total::Number(value))? {
            Total::Number(value) => Ok(value),
            Total::Classic(_) | Total::Exponential(_) => Err(OTHER_KIND.into()),
        }
    }

    pub(super) fn classic_total(
        &mut self,
        metric: &Metric<'_>,
        common: &mut Common,
        time_ns: i64,
        mut delta: Classic,
        bounds: &Bounds,
    ) -> Result<Classic, Reason> {
        if metric.mode != Mode::Cumulated {
            return Ok(delta);
        }
        let bytes: Vec<u8> = bounds.values.iter().flat_map(|bound| bound.to_le_bytes()).collect();
        delta.bounds = self.options.hasher.hash(&bytes);
        match self.total(metric, common, time_ns, Total::Classic(delta))? {
            Total::Classic(total) => Ok(total),
            Total::Number(_) | Total::Exponential(_) => Err(OTHER_KIND.into()),
        }
    }

    pub(super) fn exponential_total(
        &mut self,
        metric: &Metric<'_>,
        common: &mut Common,
        time_ns: i64,
        delta: Exponential,
    ) -> Result<NativeHistogram, Reason> {
        let histogram = delta.to_histogram(common.is_stale, metric.mode == Mode::KeptDelta)?;
        if metric.mode != Mode::Cumulated {
            return Ok(histogram);
        }
        match self.total(metric, common, time_ns, Total::Exponential(Box::new(delta)))? {
            Total::Exponential(total) => Ok(total.to_histogram(common.is_stale, false)?),
            Total::Number(_) | Total::Classic(_) => Err(OTHER_KIND.into()),
        }
    }
}
