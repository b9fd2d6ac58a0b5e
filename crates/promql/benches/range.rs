//! A dashboard's query over a source in memory: 1,000 counters scraped every 15 s, a day in steps of a minute.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use model::Labels;
use query::{Budget, QueryError, Selection, Series, Source, TextSink, scan_without_texts};
use thalweg_promql::{Evaluation, EvaluationSettings, Expression, QueryTimes, evaluate_range};

const SERIES: usize = 1_000;
const SAMPLES: i64 = 5_760;
const SCRAPE_MS: i64 = 15_000;

struct Counters(Vec<Series>);

impl Counters {
    fn new() -> Self {
        let series = (0..SERIES).map(|number| {
            let (instance, mode) = (format!("host-{}", number / 8), format!("mode-{}", number % 8));
            let labels = [("__name__", "x"), ("instance", &instance), ("mode", &mode)];
            let total = |place: i64| (place * (1 + number as i64 % 7) % 1_000_000) as f64;
            Series {
                labels: Labels::from_pairs(labels).unwrap_or_else(|_| Labels::empty()),
                timestamps_ms: Arc::new((0..SAMPLES).map(|place| place * SCRAPE_MS).collect()),
                values: (0..SAMPLES).map(total).collect(),
                ..Series::empty()
            }
        });
        Self(series.collect())
    }
}

impl Source for Counters {
    fn select(&self, _: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
        budget.take(self.0.iter().map(|series| series.values.len()).sum())?;
        Ok(self.0.clone())
    }

    fn scan_texts(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn TextSink) -> Result<(), QueryError> {
        scan_without_texts(self, selection, budget, sink)
    }
}

fn range(criterion: &mut Criterion) {
    let source = Counters::new();
    let settings = EvaluationSettings::default();
    let mut group = criterion.benchmark_group("1,000 series, 1,440 steps");
    group.sample_size(10);
    for text in [
        "x",
        "sum by (mode) (rate(x[5m]))",
        "sum by (mode) (rate(x[1d]))",
        "max_over_time(x[5m])",
        "x / on (instance, mode) x",
        "topk(5, x)",
    ] {
        let expression = Expression::parse(text);
        group.bench_function(text, |bencher| {
            bencher.iter(|| {
                let budget = Budget::new(50_000_000);
                let answer = expression.clone().and_then(|expression| {
                    evaluate_range(
                        &expression,
                        QueryTimes { start_ms: 0, end_ms: SAMPLES * SCRAPE_MS - 1, step_ms: 60_000 },
                        &Evaluation::new(&source, &settings, &budget),
                    )
                });
                black_box(answer.is_ok_and(|answer| answer.warnings.is_empty()))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, range);
criterion_main!(benches);
