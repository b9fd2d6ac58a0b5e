//! The experiments of `thalweg bench storage` and `thalweg bench views` at tiny sizes: they go through, and say what they measured.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use serde_json::Value;
use support::{Folder, run, text};

/// Runs an experiment; the figures that must be there and positive, in every case.
fn check(arguments: &[&str], cases: usize, positive: &[&str]) -> Value {
    let output = run(&[&["bench", "storage"], arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["experiment"], arguments[0]);
    let measured = report["cases"].as_array().unwrap();
    assert_eq!(measured.len(), cases, "{report:#}");
    for case in measured {
        for figure in positive {
            let value = case["figures"][figure].as_f64();
            assert!(value.is_some_and(|value| value > 0.0), "{figure} of {arguments:?}: {report:#}");
        }
    }
    report
}

#[test]
fn memory_is_told_of_lone_series_and_of_groups() {
    check(&["memory", "--series", "2000", "--samples", "4"], 2, &["series", "bytes_per_series", "index_bytes"]);
    let report = check(&["memory", "--groups", "20", "--members", "10", "--samples", "4"], 2, &["series"]);
    assert_eq!(report["cases"][1]["figures"]["series"], 200.0);
}

#[test]
fn insertion_is_told_for_each_width() {
    let arguments = ["insert", "--series", "1000", "--seconds", "0.2", "--members", "1,10"];
    let report = check(&arguments, 2, &["values", "values_per_cpu_second", "log_bytes_per_value"]);
    assert!(!report["courses"]["groups of 10"]["rows"].as_array().unwrap().is_empty(), "{report:#}");
}

#[test]
fn sizes_are_those_of_level_2() {
    let report = check(&["size", "--hosts", "2", "--days", "0.6"], 6, &["bytes_per_value", "level2_values"]);
    assert_eq!(report["cases"][0]["figures"]["values"], 2.0 * 10.0 * 5184.0);
}

#[test]
fn late_rows_are_written_and_found() {
    let arguments = ["late", "--series", "10", "--hours", "8", "--queries", "3", "--shares", "0,50"];
    let report = check(&arguments, 2, &["values_per_cpu_second", "read_before_us", "windows_after_us", "files"]);
    assert!(report["cases"][1]["figures"]["read_after_us_ratio"].as_f64().is_some(), "{report:#}");
}

#[test]
fn a_year_is_imported_both_ways() {
    let arguments = ["year", "--series", "2", "--interval-s", "3600", "--days", "30"];
    let report = check(&arguments, 2, &["parts", "part_bytes", "write_amplification"]);
    let values = |case: usize| report["cases"][case]["figures"]["values"].as_f64();
    assert_eq!((values(0), values(1)), (Some(1440.0), Some(1440.0)));
}

#[test]
fn the_fast_tier_is_followed_over_time() {
    let arguments = ["elastic", "--series", "2000", "--budget-mib", "1", "--head-mib", "1", "--phases", "10:4,60:2"];
    let report = check(&arguments, 1, &["values", "fast_peak_bytes", "level2_bytes"]);
    assert_eq!(report["courses"]["levels 0 and 1"]["rows"].as_array().unwrap().len(), 6 * 60);
}

#[test]
fn maxima_are_the_same_from_summaries_samples_and_objects() {
    let folder = Folder::new("bench-objects");
    let url = format!("file://{}", folder.0.display());
    let arguments = ["windows", "--days", "3", "--others", "3", "--queries", "2", "--objects", &url];
    let report = check(&arguments, 2, &["warm_ms", "decode_everything_ms", "parts", "manifest_bytes", "nodes_used"]);
    assert!(report["cases"][1]["figures"]["cold_ms"].as_f64().unwrap() > 0.0, "{report:#}");
}

#[test]
fn what_a_killed_writer_acknowledged_is_there() {
    let report = check(&["reopen", "--series", "2000", "--log-mib", "4"], 1, &["samples_of_the_asked_series"]);
    assert_eq!(report["cases"][0]["figures"]["series"], 2000.0);
}

#[test]
fn databases_are_told_in_heads_and_on_disk() {
    check(&["databases", "--databases", "5", "--rows", "10"], 3, &["databases", "files", "folder_bytes"]);
}

#[test]
fn amplification_is_set_against_the_equations() {
    let arguments = ["amplification", "--groups", "50", "--hours", "24", "--head-mib", "1", "--fast-mib", "1"];
    check(&arguments, 1, &["write_amplification", "requests", "sent_bytes", "one_level_equation_9_bytes"]);
}

#[test]
fn views_are_kept_right_and_told_of() {
    let small = "--hosts 20 --hours 4 --interval-s 60 --rows-per-pass 2000 --year-days 10 --year-hosts 2 --year-interval-s 600 --queries 1";
    let arguments: Vec<&str> = ["bench", "views", "--json"].into_iter().chain(small.split(' ')).collect();
    let output = run(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |case: usize, name: &str| report["cases"][case]["figures"][name].as_f64().unwrap_or(0.0);
    assert_eq!(report["cases"].as_array().unwrap().len(), 10, "{report:#}");
    assert_eq!((figure(0, "values"), figure(1, "values")), (48_000.0, 48_000.0), "{report:#}");
    // A window for each minute and each hour of each host.
    assert_eq!(report["cases"][1]["figures"]["view_rows"], 20.0 * (240.0 + 4.0), "{report:#}");
    // All rows of one of twenty hosts, of half of the time.
    assert_eq!(report["cases"][3]["figures"]["late_rows"], 120.0, "{report:#}");
    for (case, name) in [(1, "refresh_cpu_seconds"), (2, "right_of_again_percent"), (3, "again_cpu_seconds")] {
        assert!(figure(case, name) > 0.0, "{name}: {report:#}");
    }
    let rows: Vec<f64> = (4..10).map(|case| figure(case, "query_rows")).collect();
    assert_eq!(rows, [480.0, 480.0, 240.0, 240.0, 1.0, 1.0], "{report:#}");
}

#[test]
fn help_teaches_and_folders_are_kept() {
    let help = run(&["bench", "storage", "--help"]);
    assert!(text(&help.stdout).contains("Examples:"));
    let folder = Folder::new("bench-kept");
    let kept = folder.0.join("kept");
    let arguments =
        ["bench", "storage", "databases", "--databases", "2", "--rows", "2", "--data", kept.to_str().unwrap()];
    let output = run(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("in heads"), "a table by default");
    assert!(kept.join("databases").is_dir());
    assert!(text(&run(&arguments).stderr).contains("exists; the benchmark needs a folder of its own"));
}
