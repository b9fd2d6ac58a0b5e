//! `/api/v1/rules`, `/api/v1/alerts` and `/api/v1/alertmanagers`.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::response::Response;
use model::TimeRange;
use relabel::Selector;
use rules::alert::{Alert, AlertState};
use rules::file::{AlertRule, RuleKind};
use rules::group::{Group, Rule, RuleHealth, RuleState};
use rules::materialize::PastReport;
use scrape::config::read_selector;
use serde_json::{Value, json};

use super::targets::time;
use crate::error::ApiError;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::request::extract;
use crate::state::State;

const NS_PER_MS: i64 = 1_000_000;

/// Which kind of rules is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alert,
    Record,
}

/// Which rules are listed, and how.
struct Filter {
    kind: Option<Kind>,
    names: Vec<String>,
    groups: Vec<String>,
    files: Vec<String>,
    selectors: Vec<Selector>,
    excludes_alerts: bool,
    limit: Option<usize>,
    token: Option<String>,
}

impl Filter {
    fn read(parameters: &Parameters) -> Result<Self, ApiError> {
        let all = |name: &str| parameters.all(name).map(str::to_owned).collect();
        let present = |name: &str| parameters.get(name).filter(|text| !text.is_empty());
        let kind = match present("type").map(str::to_ascii_lowercase).as_deref() {
            None => None,
            Some("alert") => Some(Kind::Alert),
            Some("record") => Some(Kind::Record),
            Some(_) => return Err(ApiError::invalid_parameter("type", "it is neither alert nor record")),
        };
        let selectors: Result<Vec<Selector>, _> = parameters.all("match[]").map(read_selector).collect();
        let limit = match present("group_limit").map(str::parse::<usize>) {
            None => None,
            Some(Ok(limit)) if limit > 0 => Some(limit),
            Some(_) => return Err(ApiError::invalid_parameter("group_limit", "it is no number above 0")),
        };
        let token = present("group_next_token").map(str::to_owned);
        if token.is_some() && limit.is_none() {
            return Err(ApiError::invalid_parameter("group_limit", "group_next_token needs it"));
        }
        Ok(Self {
            kind,
            names: all("rule_name[]"),
            groups: all("rule_group[]"),
            files: all("file[]"),
            selectors: selectors.map_err(|error| ApiError::invalid_parameter("match[]", error))?,
            excludes_alerts: parameters.flag("exclude_alerts", false)?,
            limit,
            token,
        })
    }

    fn has_group(&self, group: &Group) -> bool {
        let file = group.config.file.display().to_string();
        (self.groups.is_empty() || self.groups.contains(&group.config.name))
            && (self.files.is_empty() || self.files.contains(&file))
    }

    fn has_rule(&self, rule: &Rule) -> bool {
        let kind = match rule.config.kind {
            RuleKind::Alert(_) => Kind::Alert,
            RuleKind::Record(_) => Kind::Record,
        };
        self.kind.is_none_or(|wanted| wanted == kind)
            && (self.names.is_empty() || self.names.iter().any(|name| name == rule.config.name()))
            && (self.selectors.is_empty()
                || self.selectors.iter().any(|selector| selector.matches(&rule.config.labels)))
    }
}

fn groups(state: &State) -> Vec<Arc<Group>> {
    let mode = state.settings.prometheus.as_ref();
    mode.and_then(|mode| mode.rules()).map(rules::Manager::groups).unwrap_or_default()
}

pub(crate) async fn rules(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let filter = Filter::read(&parts.parameters)?;
    let groups = groups(&state);
    let data = state.work_unbounded(move |_| list(&groups, &filter)).await??;
    Ok(json::success(&data, &[], &[]))
}

fn list(groups: &[Arc<Group>], filter: &Filter) -> Result<String, ApiError> {
    let first = match &filter.token {
        None => 0,
        Some(token) => {
            let found = groups.iter().position(|group| group.token() == *token);
            found.ok_or_else(|| ApiError::invalid_parameter("group_next_token", "there is no such group any more"))?
        }
    };
    let mut shown = Vec::new();
    let mut next = None;
    for group in groups.iter().skip(first).filter(|group| filter.has_group(group)) {
        let rules: Vec<Value> = group
            .rules
            .iter()
            .filter(|rule| filter.has_rule(rule))
            .map(|rule| rule_json(rule, filter.excludes_alerts))
            .collect();
        let is_filtered = filter.kind.is_some() || !filter.names.is_empty() || !filter.selectors.is_empty();
        if rules.is_empty() && is_filtered {
            continue;
        }
        if filter.limit.is_some_and(|limit| shown.len() >= limit) {
            next = Some(group.token());
            break;
        }
        shown.push(group_json(group, &rules));
    }
    let mut data = json!({ "groups": shown });
    if let Some(next) = next {
        data["groupNextToken"] = next.into();
    }
    Ok(data.to_string())
}

fn time_ms(time_ms: Option<i64>) -> String {
    time(time_ms.unwrap_or(0).saturating_mul(NS_PER_MS))
}

/// Seconds, without a fraction where there is none.
fn seconds(duration_ms: u64) -> Value {
    match duration_ms % 1000 {
        0 => (duration_ms / 1000).into(),
        _ => (duration_ms as f64 / 1000.0).into(),
    }
}

fn group_json(group: &Group, rules: &[Value]) -> Value {
    let last = group.last();
    json!({
        "name": group.config.name,
        "file": group.config.file.display().to_string(),
        "rules": rules,
        "interval": seconds(group.interval_ms() as u64),
        "limit": group.config.limit,
        "evaluationTime": last.duration_s,
        "lastEvaluation": time_ms(last.time_ms),
    })
}

fn rule_json(rule: &Rule, excludes_alerts: bool) -> Value {
    let state = rule.state();
    let mut shown = json!({
        "name": rule.config.name(),
        "query": rule.config.expr,
        "labels": rule.config.labels,
        "health": state.health.name(),
        "evaluationTime": state.duration_s,
        "lastEvaluation": time_ms(state.evaluated_ms),
    });
    if let RuleHealth::Bad(reason) = &state.health {
        shown["lastError"] = reason.clone().into();
    }
    match &rule.config.kind {
        RuleKind::Record(_) => {
            shown["type"] = "recording".into();
            if let Some(past) = rule.past_report() {
                shown["materialized"] = past_json(&past);
            }
        }
        RuleKind::Alert(alert) => add_alert(&mut shown, alert, &state, excludes_alerts),
    }
    shown
}

/// How results of the past are doing that are kept right.
fn past_json(past: &PastReport) -> Value {
    let range = |range: &TimeRange| json!({ "start": time(range.start_ns), "end": time(range.end_ns) });
    let mut shown = json!({
        "pending": past.pending.iter().map(range).collect::<Vec<Value>>(),
        "evaluations": past.counts.evaluations,
        "failures": past.counts.failures,
        "refused": past.counts.refused,
        "samplesWritten": past.counts.samples,
        "cpuTime": past.counts.cpu_ns as f64 / 1e9,
        "lastError": past.error,
    });
    if let Some(dropping) = &past.dropping {
        shown["dropInput"] = json!({
            "goneBefore": dropping.gone_before_ns.map(time),
            "neededFrom": dropping.needed_from_ns.map(time),
            "lastError": dropping.kept_because,
        });
    }
    shown
}

fn add_alert(shown: &mut Value, alert: &AlertRule, state: &RuleState, excludes_alerts: bool) {
    let alerts: Vec<Value> =
        if excludes_alerts { Vec::new() } else { state.alerts.current().map(alert_json).collect() };
    let overall = match state.health {
        RuleHealth::Unknown => "unknown",
        _ => state.alerts.state().name(),
    };
    for (name, value) in [
        ("type", "alerting".into()),
        ("state", overall.into()),
        ("duration", seconds(alert.for_ms)),
        ("keepFiringFor", seconds(alert.keep_firing_for_ms)),
        ("annotations", json!(alert.annotations)),
        ("alerts", alerts.into()),
    ] {
        shown[name] = value;
    }
}

fn alert_json(alert: &Alert) -> Value {
    let mut shown = json!({
        "labels": alert.labels,
        "annotations": alert.annotations,
        "state": alert.state.name(),
        "activeAt": time_ms(Some(alert.active_at_ms)),
        "value": value_text(alert.value),
    });
    if alert.keep_firing_since_ms.is_some() {
        shown["keepFiringSince"] = time_ms(alert.keep_firing_since_ms).into();
    }
    shown
}

/// A value as Go writes it with an exponent.
fn value_text(value: f64) -> String {
    if !value.is_finite() {
        return json::number(value);
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

pub(crate) async fn alerts(From(state): From<Arc<State>>) -> Response {
    let mut shown = Vec::new();
    for rule in groups(&state).iter().flat_map(|group| &group.rules) {
        let state = rule.state();
        shown.extend(state.alerts.current().filter(|alert| alert.state != AlertState::Inactive).map(alert_json));
    }
    json::success(&json!({ "alerts": shown }).to_string(), &[], &[])
}

pub(crate) async fn alertmanagers(From(state): From<Arc<State>>) -> Response {
    let mode = state.settings.prometheus.as_ref();
    let found = mode.and_then(|mode| mode.rules()).map(|rules| rules.notifier().alertmanagers());
    let (active, dropped) = found.unwrap_or_default();
    let shown = |urls: Vec<String>| urls.into_iter().map(|url| json!({ "url": url })).collect::<Vec<_>>();
    let data = json!({ "activeAlertmanagers": shown(active), "droppedAlertmanagers": shown(dropped) });
    json::success(&data.to_string(), &[], &[])
}
