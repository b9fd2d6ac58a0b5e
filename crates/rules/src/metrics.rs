//! The numbers of rules and notifications, by the names that Prometheus's dashboards look for.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::group::Group;
use crate::manager::Manager;
use crate::notify::{QUEUE_MAX, SendCounts};

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const fn family(name: &'static str, kind: &'static str, help: &'static str) -> Family {
    Family { name, kind, help }
}

fn head(out: &mut String, family: &Family) {
    let Family { name, kind, help } = family;
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn count(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

type ReadNumber = fn(&Group) -> f64;

/// All of it as text.
pub(crate) fn render(manager: &Manager) -> String {
    let families: [(Family, ReadNumber); 9] = [
        (family("prometheus_rule_evaluations_total", "counter", "Evaluations of rules."), |group| {
            count(&group.counts.evaluations)
        }),
        (
            family("prometheus_rule_evaluation_failures_total", "counter", "Evaluations of rules that failed."),
            |group| count(&group.counts.failures),
        ),
        (
            family("prometheus_rule_group_iterations_total", "counter", "Evaluations of groups that were due."),
            |group| count(&group.counts.iterations),
        ),
        (
            family(
                "prometheus_rule_group_iterations_missed_total",
                "counter",
                "Evaluations of groups that were missed because one before took too long.",
            ),
            |group| count(&group.counts.missed),
        ),
        (family("prometheus_rule_group_interval_seconds", "gauge", "Intervals of groups."), |group| {
            group.interval_ms() as f64 / 1000.0
        }),
        (family("prometheus_rule_group_last_duration_seconds", "gauge", "How long evaluations took."), |group| {
            group.last().duration_s
        }),
        (
            family(
                "prometheus_rule_group_last_evaluation_timestamp_seconds",
                "gauge",
                "When groups were evaluated last.",
            ),
            |group| group.last().time_ms.unwrap_or(0) as f64 / 1000.0,
        ),
        (
            family("prometheus_rule_group_last_evaluation_samples", "gauge", "Samples of the last evaluations."),
            |group| count(&group.counts.samples),
        ),
        (family("prometheus_rule_group_rules", "gauge", "Rules of groups."), |group| group.rules.len() as f64),
    ];
    let groups = manager.groups();
    let mut out = String::new();
    for (family, read) in families {
        head(&mut out, &family);
        for group in &groups {
            let label = escaped(&format!("{};{}", group.config.file.display(), group.config.name));
            let _ = writeln!(out, "{}{{rule_group=\"{label}\"}} {}", family.name, read(group));
        }
    }
    notifications(manager, &mut out);
    out
}

type ReadCount = fn(&SendCounts) -> u64;

fn notifications(manager: &Manager, out: &mut String) {
    let by_alertmanager = manager.notifier().counts();
    let families: [(Family, ReadCount); 5] = [
        (family("prometheus_notifications_sent_total", "counter", "Alerts that were sent."), |counts| counts.sent),
        (family("prometheus_notifications_errors_total", "counter", "Alerts of requests that failed."), |counts| {
            counts.errors
        }),
        (family("prometheus_notifications_dropped_total", "counter", "Alerts that never arrived."), |counts| {
            counts.dropped
        }),
        (family("prometheus_notifications_queue_length", "gauge", "Alerts that wait."), |counts| counts.waiting as u64),
        (family("prometheus_notifications_queue_capacity", "gauge", "Alerts that may wait."), |_| QUEUE_MAX as u64),
    ];
    for (family, read) in families {
        head(out, &family);
        for (url, counts) in &by_alertmanager {
            let _ = writeln!(out, "{}{{alertmanager=\"{}\"}} {}", family.name, escaped(url), read(counts));
        }
    }
    let name = "prometheus_notifications_alertmanagers_discovered";
    head(out, &family(name, "gauge", "Alertmanagers that were found."));
    let _ = writeln!(out, "{name} {}", manager.notifier().alertmanagers().0.len());
}
