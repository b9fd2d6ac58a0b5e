//! Rules of the kinds that the mixins of `node_exporter` and Kubernetes have, over machines and a cluster where everything is wrong: every recording
//! rule gives series, and every alert fires.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fmt::Write;
use std::path::Path;

use platform::sim::Simulation;
use thalweg_rules::file::{self, ReadOptions, RuleKind};
use thalweg_rules::unit_test::{RunOptions, run};

/// Runs all rules of a file over input series; how many rules recorded, and how many fired.
fn check(rules: &str, input: &str) -> (usize, usize) {
    let files = Simulation::new(1).platform().files;
    files.create_directory(Path::new("/t")).unwrap();
    let write = |name: &str, text: &str| platform::write_file(&*files, Path::new(name), text.as_bytes()).unwrap();
    write("/t/rules.yml", rules);
    let loaded = file::parse(Path::new("/t/rules.yml"), rules, &ReadOptions::default()).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let mut test =
        String::from("rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n");
    input.lines().for_each(|line| writeln!(test, "  {line}").unwrap());
    test.push_str("  promql_expr_test:\n");
    let (mut records, mut alerts) = (0, 0);
    for rule in loaded.groups.iter().flat_map(|group| &group.rules) {
        let expression = match &rule.kind {
            RuleKind::Record(name) => {
                records += 1;
                format!("count({name})")
            }
            RuleKind::Alert(alert) => {
                alerts += 1;
                format!("count(ALERTS{{alertname=\"{}\", alertstate=\"firing\"}})", alert.name)
            }
        };
        let sample = "[{labels: '{}', value: 1}]";
        writeln!(test, "  - {{expr: '{expression} > bool 0', eval_time: 1h, exp_samples: {sample}}}").unwrap();
    }
    write("/t/test.yml", &test);
    let options = RunOptions { files: &*files, read: ReadOptions::default(), only: &[] };
    let failures = run(Path::new("/t/test.yml"), &options).unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    (records, alerts)
}

#[test]
fn rules_for_machines_run() {
    let counts = check(include_str!("mixins/node.rules.yml"), include_str!("mixins/node.input.yml"));
    assert_eq!(counts, (12, 22));
}

#[test]
fn rules_for_kubernetes_run() {
    let counts = check(include_str!("mixins/kubernetes.rules.yml"), include_str!("mixins/kubernetes.input.yml"));
    assert_eq!(counts, (12, 25));
}
