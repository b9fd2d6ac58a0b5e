//! The states of the alerts of one rule. Pure: time and findings are given.

use std::collections::BTreeMap;

use relabel::Labels;

use crate::file::AlertRule;

/// How long a resolved alert is kept, so that an Alertmanager that was away hears of it.
const RESOLVED_RETENTION_MS: i64 = 15 * 60_000;

/// Intervals for which a sent alert holds, should later ones be lost.
const VALID_INTERVALS: i64 = 4;

/// The state of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertState {
    /// Its expression does not hold any more.
    Inactive,
    /// Its expression holds, not for long enough yet.
    Pending,
    /// It fires.
    Firing,
}

impl AlertState {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

/// A result of an alerting rule's expression, its templates expanded.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertResult {
    /// Labels of the alert.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
    /// The value.
    pub value: f64,
}

/// An alert.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Its labels.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
    /// The last value of its expression.
    pub value: f64,
    /// Its state.
    pub state: AlertState,
    /// Since when its expression holds.
    pub active_at_ms: i64,
    /// Since when it fires.
    pub fired_at_ms: Option<i64>,
    /// When it was resolved.
    pub resolved_at_ms: Option<i64>,
    /// When it was sent last.
    pub last_sent_ms: Option<i64>,
    /// When Alertmanagers may take it for resolved unless it is sent again.
    pub valid_until_ms: i64,
    /// Since when it fires on without its expression.
    pub keep_firing_since_ms: Option<i64>,
}

impl Alert {
    fn needs_sending(&self, time_ms: i64, resend_ms: i64) -> bool {
        let sent_ms = self.last_sent_ms.unwrap_or(i64::MIN);
        match (self.state, self.resolved_at_ms) {
            (AlertState::Pending, _) => false,
            (_, Some(resolved_ms)) if resolved_ms > sent_ms => true,
            _ => sent_ms.saturating_add(resend_ms) <= time_ms,
        }
    }
}

/// When alerts are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendTimes {
    /// The time of evaluation.
    pub time_ms: i64,
    /// Alerts are sent again after so long.
    pub resend_ms: i64,
    /// The interval of evaluation.
    pub interval_ms: i64,
}

/// All alerts of a rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Alerts {
    /// By their labels.
    pub active: BTreeMap<Labels, Alert>,
}

impl Alerts {
    /// Takes over what an evaluation found. After an error (two results with equal labels, too many alerts) nothing is written.
    pub fn update(
        &mut self,
        rule: &AlertRule,
        found: Vec<AlertResult>,
        time_ms: i64,
        limit: u64,
    ) -> Result<(), String> {
        let mut results: BTreeMap<Labels, AlertResult> = BTreeMap::new();
        for found in found {
            if results.insert(found.labels.clone(), found).is_some() {
                return Err("vector contains metrics with the same labelset after applying alert labels".to_owned());
            }
        }
        for (labels, found) in &results {
            match self.active.get_mut(labels) {
                Some(alert) if alert.state != AlertState::Inactive => {
                    alert.value = found.value;
                    alert.annotations.clone_from(&found.annotations);
                }
                _ => drop(self.active.insert(labels.clone(), new_alert(found, time_ms))),
            }
        }
        let mut count = 0;
        self.active.retain(|labels, alert| {
            let is_kept = step(alert, rule, time_ms, results.contains_key(labels));
            count += u64::from(is_kept && alert.state != AlertState::Inactive);
            is_kept
        });
        if limit > 0 && count > limit {
            self.active.clear();
            return Err(format!("exceeded limit of {limit} with {count} alerts"));
        }
        Ok(())
    }

    /// The alerts that are to be sent now; they count as sent.
    pub fn take_to_send(&mut self, times: SendTimes) -> Vec<Alert> {
        let SendTimes { time_ms, resend_ms, interval_ms } = times;
        let due = self.active.values_mut().filter(|alert| alert.needs_sending(time_ms, resend_ms));
        due.map(|alert| {
            alert.last_sent_ms = Some(time_ms);
            alert.valid_until_ms = time_ms + VALID_INTERVALS * interval_ms.max(resend_ms);
            alert.clone()
        })
        .collect()
    }

    /// The most urgent state.
    pub fn state(&self) -> AlertState {
        self.active.values().map(|alert| alert.state).max().unwrap_or(AlertState::Inactive)
    }

    /// Alerts that are pending or fire.
    pub fn current(&self) -> impl Iterator<Item = &Alert> {
        self.active.values().filter(|alert| alert.state != AlertState::Inactive)
    }
}

fn new_alert(found: &AlertResult, time_ms: i64) -> Alert {
    Alert {
        labels: found.labels.clone(),
        annotations: found.annotations.clone(),
        value: found.value,
        state: AlertState::Pending,
        active_at_ms: time_ms,
        fired_at_ms: None,
        resolved_at_ms: None,
        last_sent_ms: None,
        valid_until_ms: 0,
        keep_firing_since_ms: None,
    }
}

/// Brings one alert to the time of an evaluation; returns whether it is kept.
fn step(alert: &mut Alert, rule: &AlertRule, time_ms: i64, is_found: bool) -> bool {
    if is_found {
        alert.keep_firing_since_ms = None;
    } else {
        if alert.state == AlertState::Firing && rule.keep_firing_for_ms > 0 {
            let since_ms = *alert.keep_firing_since_ms.get_or_insert(time_ms);
            if time_ms - since_ms < rule.keep_firing_for_ms as i64 {
                return true;
            }
        }
        let is_forgotten =
            alert.resolved_at_ms.is_some_and(|resolved_ms| time_ms - resolved_ms > RESOLVED_RETENTION_MS);
        if alert.state == AlertState::Pending || is_forgotten {
            return false;
        }
        if alert.state != AlertState::Inactive {
            alert.state = AlertState::Inactive;
            alert.resolved_at_ms = Some(time_ms);
        }
        return true;
    }
    if alert.state == AlertState::Pending && time_ms - alert.active_at_ms >= rule.for_ms as i64 {
        alert.state = AlertState::Firing;
        alert.fired_at_ms = Some(time_ms);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(for_ms: u64, keep_firing_for_ms: u64) -> AlertRule {
        AlertRule { name: "A".to_owned(), for_ms, keep_firing_for_ms, annotations: Labels::new() }
    }

    fn found(value: f64) -> Vec<AlertResult> {
        vec![AlertResult { labels: Labels::new(), annotations: Labels::new(), value }]
    }

    #[test]
    fn an_alert_is_pending_fires_and_is_resolved() {
        let mut alerts = Alerts::default();
        let rule = rule(60_000, 0);
        let times = |time_ms| SendTimes { time_ms, resend_ms: 60_000, interval_ms: 30_000 };
        alerts.update(&rule, found(1.0), 0, 0).unwrap();
        assert_eq!((alerts.state(), alerts.take_to_send(times(0)).len()), (AlertState::Pending, 0));
        alerts.update(&rule, found(2.0), 60_000, 0).unwrap();
        let sent = alerts.take_to_send(times(60_000));
        assert_eq!((sent[0].fired_at_ms, sent[0].valid_until_ms, sent[0].value), (Some(60_000), 300_000, 2.0));
        alerts.update(&rule, found(2.0), 90_000, 0).unwrap();
        assert!(alerts.take_to_send(times(90_000)).is_empty());
        alerts.update(&rule, Vec::new(), 95_000, 0).unwrap();
        let sent = alerts.take_to_send(times(95_000));
        assert_eq!((sent[0].state, sent[0].resolved_at_ms), (AlertState::Inactive, Some(95_000)));
        // Resolved ones are sent for a quarter of an hour.
        alerts.update(&rule, Vec::new(), 155_000, 0).unwrap();
        assert_eq!(alerts.take_to_send(times(155_000)).len(), 1);
        alerts.update(&rule, Vec::new(), 95_000 + 900_001, 0).unwrap();
        assert!(alerts.active.is_empty());
    }

    #[test]
    fn a_pending_alert_goes_without_a_word() {
        let mut alerts = Alerts::default();
        alerts.update(&rule(60_000, 0), found(1.0), 0, 0).unwrap();
        alerts.update(&rule(60_000, 0), Vec::new(), 30_000, 0).unwrap();
        assert!(alerts.active.is_empty());
    }

    #[test]
    fn firing_goes_on_for_a_while() {
        let mut alerts = Alerts::default();
        let rule = rule(0, 60_000);
        alerts.update(&rule, found(1.0), 0, 0).unwrap();
        for (time_ms, expected) in
            [(30_000, AlertState::Firing), (60_000, AlertState::Firing), (90_000, AlertState::Inactive)]
        {
            alerts.update(&rule, Vec::new(), time_ms, 0).unwrap();
            assert_eq!(alerts.state(), expected, "{time_ms}");
        }
    }

    #[test]
    fn limits_and_equal_labels_are_errors() {
        let mut alerts = Alerts::default();
        let two = [found(1.0), found(2.0)].concat();
        assert!(alerts.update(&rule(0, 0), two.clone(), 0, 0).is_err());
        let mut two = two;
        two[1].labels.insert("a".to_owned(), "b".to_owned());
        assert!(alerts.update(&rule(0, 0), two, 0, 1).unwrap_err().contains("exceeded limit of 1 with 2 alerts"));
        assert!(alerts.active.is_empty());
    }
}
