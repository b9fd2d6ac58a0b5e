//! Alerts after a restart: what was pending before goes on where it was.

use std::collections::BTreeMap;

use model::{METRIC_NAME, MatchOp, Matcher};
use relabel::Labels;

use crate::alert::Alert;
use crate::file::{ALERT_NAME, AlertRule, RuleKind};
use crate::group::{Group, Rule};
use crate::store::RuleStore;

/// Holds for each alert since when it is active.
pub(crate) const FOR_STATE_METRIC: &str = "ALERTS_FOR_STATE";

/// Outages longer than this are not bridged.
const OUTAGE_TOLERANCE_MS: i64 = 3_600_000;

/// After a restart an alert is pending at least so long.
const GRACE_MS: i64 = 600_000;

/// Returns whether a rule's alerts are restored: shorter ones would have to wait for longer.
pub(crate) fn is_restorable(rule: &AlertRule) -> bool {
    rule.for_ms as i64 >= GRACE_MS
}

/// Restores the alerts of a group.
pub(crate) fn restore(group: &Group, store: &RuleStore, time_ms: i64) {
    for rule in &group.rules {
        let RuleKind::Alert(alert) = &rule.config.kind else { continue };
        if !rule.change(|state| state.is_restored) {
            restore_rule(rule, alert, store, time_ms);
        }
    }
}

fn restore_rule(rule: &Rule, config: &AlertRule, store: &RuleStore, time_ms: i64) {
    let name = Matcher::new(METRIC_NAME, MatchOp::Equal, FOR_STATE_METRIC);
    let alert = Matcher::new(ALERT_NAME, MatchOp::Equal, config.name.as_str());
    let stored = store.last_values(&[name, alert], (time_ms - OUTAGE_TOLERANCE_MS, time_ms));
    rule.change(|state| {
        for alert in state.alerts.active.values_mut() {
            restore_alert(alert, config, &stored, time_ms);
        }
        state.is_restored = true;
    });
}

fn restore_alert(alert: &mut Alert, rule: &AlertRule, stored: &BTreeMap<Labels, (i64, f64)>, time_ms: i64) {
    let mut labels = alert.labels.clone();
    labels.insert(METRIC_NAME.to_owned(), FOR_STATE_METRIC.to_owned());
    if let Some((down_ms, since_s)) = stored.get(&labels) {
        alert.active_at_ms = restored_ms(rule.for_ms as i64, *down_ms, (*since_s * 1000.0) as i64, time_ms);
    }
}

/// Since when an alert counts as active that was so before an outage.
fn restored_ms(for_ms: i64, down_ms: i64, active_ms: i64, time_ms: i64) -> i64 {
    let remaining_ms = for_ms - (down_ms - active_ms);
    if remaining_ms <= 0 {
        // It fired before.
        active_ms
    } else if remaining_ms < GRACE_MS {
        time_ms + GRACE_MS - for_ms
    } else {
        // The outage does not count.
        active_ms + (time_ms - down_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_after_an_outage() {
        const MINUTE_MS: i64 = 60_000;
        let restored = |for_ms, down_ms, active_ms, time_ms| {
            restored_ms(for_ms * MINUTE_MS, down_ms * MINUTE_MS, active_ms * MINUTE_MS, time_ms * MINUTE_MS) / MINUTE_MS
        };
        // Fired; 30 minutes to go; 5 minutes to go.
        assert_eq!(restored(20, 100, 70, 110), 70);
        assert_eq!(restored(60, 100, 70, 110), 80);
        assert_eq!(restored(35, 100, 70, 110), 85);
    }
}
