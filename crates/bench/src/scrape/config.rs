//! The configuration of a program that scrapes the targets, and the rules that it runs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// Rules of a group.
const GROUP_RULES: usize = 20;

/// What a program is to scrape and to run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup<'a> {
    /// Where the targets are.
    pub(super) addresses: &'a [SocketAddr],
    /// Seconds between two scrapes of a target, and between two evaluations of a rule.
    pub(super) interval_s: u32,
    /// How many rules there are, half of them alerts.
    pub(super) rules: usize,
}

/// The file of Prometheus's scrapes by a program, which asks for a path of its own.
pub(super) fn scrape_config(setup: &Setup<'_>, program: &str) -> String {
    let interval_s = setup.interval_s;
    let mut text = format!("global:\n  scrape_interval: {interval_s}s\n  scrape_timeout: {}s\n", interval_s.min(10));
    let _ = write!(
        text,
        "scrape_configs:\n- job_name: node\n  metrics_path: /{program}\n  static_configs:\n  - targets:\n"
    );
    for address in setup.addresses {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    - {address}");
    }
    text
}

/// The file with rules beside the scrapes.
pub(super) fn full_config(setup: &Setup<'_>, program: &str) -> String {
    let scrapes = scrape_config(setup, program);
    let evaluation = format!("global:\n  evaluation_interval: {}s\n", setup.interval_s);
    scrapes.replacen("global:\n", &evaluation, 1) + "rule_files: [rules.yml]\n"
}

/// Expressions of recording rules, by the number of a device.
fn recorded(device: usize) -> [String; 5] {
    [
        format!("sum by (instance) (rate(node_cpu_seconds_total{{cpu=\"{device}\",mode!=\"idle\"}}[5m]))"),
        format!("rate(node_network_receive_bytes_total{{device=\"eth{device}\"}}[5m]) * 8"),
        format!("rate(node_disk_io_time_seconds_total{{device=\"nvme{device}n1\"}}[5m])"),
        format!("1 - node_filesystem_avail_bytes{{mountpoint=\"/srv/volume-{device}\"}} / node_filesystem_size_bytes"),
        format!("avg without (cpu) (rate(node_cpu_seconds_total{{cpu=~\"{device}|{}\"}}[5m]))", device + 1),
    ]
}

/// Conditions of alerting rules, by the number of a device.
fn conditions(device: usize) -> [String; 5] {
    [
        format!("rate(node_cpu_seconds_total{{cpu=\"{device}\",mode=\"iowait\"}}[5m]) > 0.9"),
        format!("rate(node_network_transmit_errs_total{{device=\"eth{device}\"}}[5m]) > 10"),
        format!("node_filesystem_readonly{{mountpoint=\"/srv/volume-{device}\"}} == 7"),
        format!(
            "predict_linear(node_filesystem_avail_bytes{{mountpoint=\"/srv/volume-{device}\"}}[10m], 3600) < -1e15"
        ),
        format!("node_load1 > {} and node_load5 > {}", 100 + device, 50 + device),
    ]
}

/// A file of recording and alerting rules, in groups.
pub(super) fn rule_file(setup: &Setup<'_>) -> String {
    let mut text = String::from("groups:\n");
    for rule in 0..setup.rules {
        if rule % GROUP_RULES == 0 {
            let _ = write!(text, "- name: group-{}\n  interval: {}s\n  rules:\n", rule / GROUP_RULES, setup.interval_s);
        }
        // Two of a kind follow each other.
        let (device, kind) = (rule / 10, rule / 2 % 5);
        if rule % 2 == 0 {
            let expression = recorded(device).into_iter().nth(kind).unwrap_or_default();
            let _ = write!(text, "  - record: device{device}:kind{kind}\n    expr: '{expression}'\n");
        } else {
            let condition = conditions(device).into_iter().nth(kind).unwrap_or_default();
            let _ = write!(text, "  - alert: Device{device}Kind{kind}\n    expr: '{condition}'\n    for: 5m\n");
            text.push_str("    labels: {severity: page}\n    annotations: {summary: '{{ $labels.instance }} is at {{ $value }}'}\n");
        }
    }
    text
}

/// Writes all files of a program to a folder.
pub(super) fn write(setup: &Setup<'_>, program: &str, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = [
        ("prometheus.yml", full_config(setup, program)),
        ("scrape.yml", scrape_config(setup, program)),
        ("rules.yml", rule_file(setup)),
    ];
    for (name, text) in files {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_loads_and_its_rules_are_as_many_as_asked_for() {
        let addresses = ["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
        let setup = Setup { addresses: &addresses, interval_s: 10, rules: 205 };
        let loaded = scrape::config::parse(Path::new("p.yml"), &full_config(&setup, "thalweg"), &|_| None).unwrap();
        let [job] = &loaded.config.scrape_configs[..] else { panic!("one job") };
        assert_eq!((job.interval_ms, job.metrics_path.as_str()), (10_000, "/thalweg"));
        let text = rule_file(&setup);
        let file = rules::file::parse(Path::new("rules.yml"), &text, &rules::file::ReadOptions::default()).unwrap();
        let counted: usize = file.groups.iter().map(|group| group.rules.len()).sum();
        assert_eq!((counted, file.groups.len()), (205, 11));
        assert!(!scrape_config(&setup, "vmagent").contains("rule_files"));
    }
}
