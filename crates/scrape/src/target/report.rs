//! The series about scrapes: `up` and its companions.

use model::METRIC_NAME;

use super::append::{Counts, Destination, Rows, named};
use relabel::Labels;

const NAMES: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

const EXTRA_NAMES: [&str; 3] = ["scrape_timeout_seconds", "scrape_sample_limit", "scrape_body_size_bytes"];

/// The samples that report on a scrape.
pub(super) struct Report {
    pub(super) is_up: bool,
    pub(super) duration_s: f64,
    pub(super) counts: Counts,
    /// The three further series, if the job has them.
    pub(super) extra: Option<Extra>,
}

/// What the further series hold.
pub(super) struct Extra {
    pub(super) timeout_s: f64,
    pub(super) samples_max: u64,
    /// Bytes of the response, unpacked; negative: it was too large.
    pub(super) body_bytes: i64,
}

/// The tokens of a target's report series, once they are registered.
#[derive(Default)]
pub(super) struct ReportSeries(Vec<u64>);

impl ReportSeries {
    /// Registers the series, if they are not.
    pub(super) fn tokens(&mut self, to: &Destination, target: &Labels, has_extra: bool) -> Result<&[u64], String> {
        if self.0.is_empty() {
            let extra = EXTRA_NAMES.into_iter().filter(|_| has_extra);
            let series = NAMES.into_iter().chain(extra).map(|name| {
                let mut labels = target.clone();
                labels.insert(METRIC_NAME.to_owned(), name.to_owned());
                labels
            });
            let series: Vec<Labels> = series.collect();
            self.0 = to.register(&series.iter().map(named).collect::<Vec<_>>())?;
        }
        Ok(&self.0)
    }

    /// Registers them anew the next time.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Report {
    /// Adds a sample of each series.
    pub(super) fn push(&self, tokens: &[u64], time_ns: i64, rows: &mut Rows) {
        let Counts { scraped, after_relabelling, series_added } = self.counts;
        let values = [
            f64::from(u8::from(self.is_up)),
            self.duration_s,
            scraped as f64,
            after_relabelling as f64,
            series_added as f64,
        ];
        let extra =
            self.extra.iter().flat_map(|extra| [extra.timeout_s, extra.samples_max as f64, extra.body_bytes as f64]);
        for (token, value) in tokens.iter().zip(values.into_iter().chain(extra)) {
            rows.push(*token, time_ns, value.to_bits());
        }
    }
}
