//! VictoriaMetrics's stream aggregation file: the rules that it becomes can be evaluated, and it is known which samples they read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use promql::{EvaluationSettings, Expression, Features};
use rules::stream_aggregation::AggregationFile;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let file = AggregationFile { path: "s.yml".into(), lookback_ms: 300_000, features: Features::default() };
    let Ok(loaded) = file.parse(text, &|name| Some(name.to_owned())) else { return };
    for rule in loaded.groups.iter().flat_map(|group| &group.rules) {
        let expression = Expression::parse(&rule.expr).expect("a rule is PromQL");
        let reads = expression.step_read_interval(&EvaluationSettings::default());
        assert!(reads.is_some() && !rule.name().is_empty(), "{} = {}", rule.name(), rule.expr);
    }
});
