//! The file of tests.

use std::path::{Path, PathBuf};

use platform::{Files, read_file};
use relabel::Labels;
use scrape::config::parse_tree;
use scrape::config::reader::{Fields, Problem, Reading};
use scrape::config::yaml::Position;

const FILE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct TestFile {
    pub(super) rule_files: Vec<PathBuf>,
    pub(super) evaluation_interval_ms: u64,
    pub(super) group_eval_order: Vec<String>,
    pub(super) is_fuzzy: bool,
    pub(super) tests: Vec<Test>,
}

pub(super) struct Test {
    pub(super) name: String,
    pub(super) interval_ms: u64,
    pub(super) start_ms: i64,
    pub(super) input: Vec<InputSeries>,
    pub(super) alerts: Vec<AlertTest>,
    pub(super) expressions: Vec<ExpressionTest>,
    pub(super) external_labels: Labels,
    pub(super) external_url: String,
}

pub(super) struct InputSeries {
    pub(super) series: String,
    pub(super) values: String,
}

pub(super) struct AlertTest {
    pub(super) eval_time_ms: u64,
    pub(super) alertname: String,
    pub(super) expected: Vec<(Labels, Labels)>,
}

pub(super) struct ExpressionTest {
    pub(super) expr: String,
    pub(super) eval_time_ms: u64,
    pub(super) samples: Vec<ExpectedSample>,
}

pub(super) struct ExpectedSample {
    /// Name and labels as expressions spell them.
    pub(super) series: String,
    pub(super) value: ExpectedValue,
}

pub(super) enum ExpectedValue {
    Float(f64),
    /// As it is written when two are compared.
    Histogram(String),
}

pub(super) fn read(files: &dyn Files, path: &Path) -> Result<TestFile, Vec<Problem>> {
    let problem = |message| vec![Problem { file: path.to_owned(), position: Position::default(), message }];
    let content = read_file(files, path, FILE_BYTES_MAX).map_err(|error| problem(error.to_string()))?;
    let text = String::from_utf8(content).map_err(|_| problem("the file is not UTF-8".to_owned()))?;
    let node = parse_tree(path, &text).map_err(|problem| vec![problem])?;
    let reading = Reading::new(path);
    let file = reading.fields(&node).map(|fields| {
        let file = read_test_file(&fields);
        fields.finish();
        file
    });
    let (problems, _) = reading.finish();
    match file {
        Some(file) if problems.is_empty() => Ok(file),
        _ => Err(problems),
    }
}

fn read_test_file(fields: &Fields<'_>) -> TestFile {
    let evaluation_interval_ms = fields.duration_ms("evaluation_interval").filter(|ms| *ms > 0).unwrap_or(60_000);
    TestFile {
        rule_files: fields.texts("rule_files").iter().map(|pattern| fields.reading.path(pattern)).collect(),
        evaluation_interval_ms,
        group_eval_order: fields.texts("group_eval_order"),
        is_fuzzy: fields.flag_or("fuzzy_compare", false),
        tests: fields.maps("tests", |section| Some(read_test(section, evaluation_interval_ms))),
    }
}

fn read_test(fields: &Fields<'_>, evaluation_interval_ms: u64) -> Test {
    Test {
        name: fields.text_or("name", ""),
        interval_ms: fields.duration_ms("interval").filter(|ms| *ms > 0).unwrap_or(evaluation_interval_ms),
        start_ms: fields.parsed("start_timestamp", start_ms).unwrap_or(0),
        input: fields.maps("input_series", |section| {
            Some(InputSeries { series: section.required("series"), values: section.text_or("values", "") })
        }),
        alerts: fields.maps("alert_rule_test", |section| Some(read_alert_test(section))),
        expressions: fields.maps("promql_expr_test", |section| Some(read_expression_test(section))),
        external_labels: fields.text_pairs("external_labels").into_iter().collect(),
        external_url: fields.text_or("external_url", ""),
    }
}

/// Seconds since 1970, or a moment as RFC 3339 has it.
fn start_ms(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Ok((seconds * 1000.0) as i64);
    }
    let moment: Result<jiff::Timestamp, _> = text.parse();
    moment.map(jiff::Timestamp::as_millisecond).map_err(|error| format!("start_timestamp: {error}"))
}

fn read_alert_test(fields: &Fields<'_>) -> AlertTest {
    AlertTest {
        eval_time_ms: fields.duration_ms("eval_time").unwrap_or(0),
        alertname: fields.required("alertname"),
        expected: fields.maps("exp_alerts", |section| {
            let labels = section.text_pairs("exp_labels").into_iter().collect();
            Some((labels, section.text_pairs("exp_annotations").into_iter().collect()))
        }),
    }
}

fn read_expression_test(fields: &Fields<'_>) -> ExpressionTest {
    ExpressionTest {
        expr: fields.required("expr"),
        eval_time_ms: fields.duration_ms("eval_time").unwrap_or(0),
        samples: fields.maps("exp_samples", |section| {
            let number = |text: &str| super::values::number(text).ok_or_else(|| format!("{text:?} is no number"));
            let value = section.parsed("value", number).unwrap_or(0.0);
            let histogram = section.parsed("histogram", super::histograms::parse);
            let value = match histogram {
                Some(histogram) => ExpectedValue::Histogram(super::histograms::text(&histogram)),
                None => ExpectedValue::Float(value),
            };
            Some(ExpectedSample { series: section.text_or("labels", ""), value })
        }),
    }
}
