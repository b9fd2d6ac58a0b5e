//! Metrics of jobs that push them and end, as Prometheus's Pushgateway keeps them: in groups, each written again and again until it is
//! deleted. Groups are documents of the store and survive a restart.

mod families;

use std::collections::BTreeMap;
use std::fmt::Write;

use ingest::exposition::{self, Format};
use ingest::{Parsed, Protocol};
use model::STALE_NAN_BITS;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::write::Outcome;
use crate::sign_in::Destination;
use crate::state::State;

pub(crate) use families::{Description, Families, families};

/// Under which kind groups are kept among the store's documents.
const GROUPS: &str = "pushed";

/// Bytes that all groups may take.
const GROUPS_BYTES_MAX: usize = 64 << 20;

/// How often groups are written: several times within the time that PromQL looks back.
pub(crate) const INTERVAL_MS: u64 = 60_000;

/// What tells groups apart: the database, and the labels that the path names, `job` among them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupName {
    pub(crate) database: String,
    pub(crate) labels: BTreeMap<String, String>,
}

/// The metrics that were pushed for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: GroupName,
    pub(crate) families: Families,
    pub(crate) pushed_ns: i64,
}

/// What a push does to the metrics that a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Push {
    /// PUT: replaces all.
    All,
    /// POST: replaces those of the same name.
    SameName,
}

/// Metrics that were pushed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pushed<'a> {
    pub(crate) push: Push,
    pub(crate) text: &'a str,
    pub(crate) format: Format,
}

impl GroupName {
    /// Its name among the documents.
    fn document(&self) -> String {
        json!([self.database, self.labels]).to_string()
    }
}

impl Group {
    fn read(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let texts = |value: &Value| -> Option<BTreeMap<String, String>> {
            let pairs = value.as_object()?.iter();
            pairs.map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))).collect()
        };
        let name = GroupName { database: value["database"].as_str()?.to_owned(), labels: texts(&value["labels"])? };
        Some(Self { name, families: texts(&value["families"])?, pushed_ns: value["pushed_ns"].as_i64()? })
    }

    fn bytes(&self) -> Vec<u8> {
        let GroupName { database, labels } = &self.name;
        let value =
            json!({ "database": database, "labels": labels, "families": self.families, "pushed_ns": self.pushed_ns });
        value.to_string().into_bytes()
    }

    /// All of its lines, and when it was pushed.
    fn text(&self) -> String {
        let mut text: String = self.families.values().map(String::as_str).collect();
        let seconds = self.pushed_ns as f64 / 1e9;
        // Writing into a string does not fail.
        let _ = write!(text, "# TYPE push_time_seconds gauge\npush_time_seconds {seconds}\n");
        text
    }
}

/// The groups of all databases.
pub(crate) fn groups(state: &State) -> Vec<Group> {
    state.db.documents(GROUPS).iter().filter_map(|(_, bytes)| Group::read(bytes)).collect()
}

fn group(state: &State, name: &GroupName) -> Option<Group> {
    let document = name.document();
    let found = state.db.documents(GROUPS).into_iter().find(|(name, _)| *name == document)?;
    Group::read(&found.1)
}

/// Adds pushed metrics to their group and writes it.
pub(crate) fn push(state: &State, to: &Destination, name: GroupName, pushed: Pushed<'_>) -> Result<(), ApiError> {
    let Pushed { push, text, format } = pushed;
    let _changing = state.pushing();
    let now_ns = state.db.now_ns();
    let before = group(state, &name);
    if let Some(before) = &before {
        check(state, to, before)?;
    }
    let mut kept = match (push, &before) {
        (Push::SameName, Some(before)) => before.families.clone(),
        _ => Families::new(),
    };
    kept.extend(match format {
        Format::Text => families(text),
        // What is written again and again has no exemplars.
        Format::OpenMetrics => families(&plain_text(text)),
    });
    let group = Group { name, families: kept, pushed_ns: now_ns };
    check(state, to, &group)?;
    let document = group.name.document();
    let others = state.db.documents(GROUPS).into_iter().filter(|(name, _)| *name != document);
    let bytes = group.bytes();
    if others.map(|(_, bytes)| bytes.len()).sum::<usize>() + bytes.len() > GROUPS_BYTES_MAX {
        return Err(ApiError::too_large(format!(
            "all pushed groups take more than {GROUPS_BYTES_MAX} bytes: delete some"
        )));
    }
    state.db.put_document(GROUPS, &document, &bytes).map_err(|error| ApiError::internal(error.to_string()))?;
    // What is pushed no more ends; what goes on is written over it.
    if let Some(before) = before.filter(|before| before.families != group.families) {
        write(state, to, &before, Samples::Stale(now_ns))?;
    }
    let mut outcome = write(state, to, &group, Samples::Values(now_ns))?;
    if outcome.dropped == 0 && format == Format::OpenMetrics {
        outcome = write_exemplars(state, to, &group, text)?;
    }
    if outcome.dropped == 0 { Ok(()) } else { Err(ApiError::bad_data(outcome.number_lines().message())) }
}

/// An exposition in OpenMetrics as one in the text format, which has neither exemplars nor an end.
fn plain_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines().map(str::trim).filter(|line| *line != "# EOF") {
        out.push_str(exposition::without_exemplar(line));
        out.push('\n');
    }
    out
}

/// Writes the exemplars of what was pushed for a group, once.
fn write_exemplars(state: &State, to: &Destination, group: &Group, text: &str) -> Result<Outcome, ApiError> {
    let exposed = Exposed { group, text, format: Format::OpenMetrics };
    parse(state, to, exposed, group.pushed_ns, |mut parsed| {
        // The samples are written.
        parsed.batch.blocks.clear();
        parsed.batch.metadata.clear();
        state.store("pushed", to, parsed)
    })
}

/// Deletes a group: its series end.
pub(crate) fn delete(state: &State, to: &Destination, name: &GroupName) -> Result<(), ApiError> {
    let _changing = state.pushing();
    let Some(group) = group(state, name) else { return Ok(()) };
    check(state, to, &group)?;
    let removed = state.db.remove_document(GROUPS, &name.document());
    removed.map_err(|error| ApiError::internal(error.to_string()))?;
    write(state, to, &group, Samples::Stale(state.db.now_ns())).map(drop)
}

/// Writes all groups, whose senders had the right to when they pushed them.
pub(crate) fn write_all(state: &State) {
    let _changing = state.pushing();
    let databases = state.db.databases();
    for group in groups(state) {
        if !databases.contains(&group.name.database) {
            // It was dropped, and its groups with it.
            let _ = state.db.remove_document(GROUPS, &group.name.document());
            continue;
        }
        let to = Destination { database: group.name.database.clone(), scope: access::scope::Scope::open() };
        // What cannot be written now may be at the next time; `/health` and `/metrics` tell why writes fail.
        let _ = write(state, &to, &group, Samples::Values(state.db.now_ns()));
    }
}

/// The samples that are written for a group, and their time.
#[derive(Debug, Clone, Copy)]
enum Samples {
    Values(i64),
    /// Markers that the series have ended.
    Stale(i64),
}

fn write(state: &State, to: &Destination, group: &Group, samples: Samples) -> Result<Outcome, ApiError> {
    let (Samples::Values(time_ns) | Samples::Stale(time_ns)) = samples;
    let text = group.text();
    let exposed = Exposed { group, text: &text, format: Format::Text };
    parse(state, to, exposed, time_ns, |mut parsed| {
        if matches!(samples, Samples::Stale(_)) {
            parsed.batch.blocks.iter_mut().for_each(|block| block.cells.fill(STALE_NAN_BITS));
        }
        state.store("pushed", to, parsed)
    })
}

/// Refuses metrics that cannot be read, those that the sender may not write, and those with times: a group is written anew with the
/// current time.
fn check(state: &State, to: &Destination, group: &Group) -> Result<(), ApiError> {
    let text = group.text();
    // No line has this time.
    let exposed = Exposed { group, text: &text, format: Format::Text };
    parse(state, to, exposed, i64::MIN, |mut parsed| {
        state.db.refuse_outside(&to.database, &to.scope, &mut parsed)?;
        if !parsed.errors.is_empty() {
            return Err(ApiError::bad_data(Outcome::of_errors(parsed.errors).number_lines().message()));
        }
        let mut times = parsed.batch.blocks.iter().flat_map(|block| &block.timestamps_ns);
        if times.any(|time_ns| *time_ns != i64::MIN) {
            return Err(ApiError::bad_data("pushed metrics must not have timestamps"));
        }
        Ok(())
    })
}

/// A text of a group's metrics.
#[derive(Debug, Clone, Copy)]
struct Exposed<'a> {
    group: &'a Group,
    text: &'a str,
    format: Format,
}

fn parse<T>(
    state: &State,
    to: &Destination,
    exposed: Exposed<'_>,
    now_ns: i64,
    then: impl FnOnce(Parsed<'_>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let Exposed { group, text, format } = exposed;
    let labels = group.name.labels.iter().filter(|(_, value)| !value.is_empty());
    let extra_labels: Vec<(String, String)> = labels.map(|(name, value)| (name.clone(), value.clone())).collect();
    let options = exposition::Options {
        hasher: state.hasher(Protocol::Exposition, to)?,
        format,
        now_ns,
        extra_labels: &extra_labels,
        limits: state.db.limits(),
    };
    let parsed = exposition::parse(text.as_bytes(), &options);
    then(parsed.map_err(|error| ApiError::bad_data(error.to_string()))?)
}
