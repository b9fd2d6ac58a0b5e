//! What recording rules would have given in the past, written as they would have written it.

use std::sync::Arc;

use crate::file::{GroupConfig, RuleKind};
use crate::group::{Group, RuleHealth, Surroundings};
use crate::materialize::{RuleReads, complete_from_ms};
use crate::store::RuleStore;

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackfillRange {
    /// The first moment.
    pub start_ms: i64,
    /// The last one.
    pub end_ms: i64,
    /// The interval of groups without their own.
    pub interval_ms: u64,
}

/// Refuses a rule some of whose results would lack samples that are gone: they would take the place of those that were made of all.
fn check_complete(store: &RuleStore, group: &Group, start_ms: i64) -> Result<(), String> {
    for rule in &group.rules {
        let Some(reads) = RuleReads::new(&rule.config.expr, &store.db) else { continue };
        let Some(reach) = reads.interval() else {
            if reads.lacks_dropped(store, start_ms, true) {
                return Err(format!(
                    "{}: {}: samples that it may read are gone by drop_input, and how far it looks back is not known",
                    group.config.name,
                    rule.config.name()
                ));
            }
            continue;
        };
        let Some(gone_ns) = reads.gone_before_ns(store) else { continue };
        let complete_ms = complete_from_ms(gone_ns, &reach);
        if start_ms < complete_ms {
            return Err(format!(
                "{}: {}: results before {} would lack samples that retention or a TTL has taken: --start must not be earlier",
                group.config.name,
                rule.config.name(),
                jiff::Timestamp::from_millisecond(complete_ms).map(|time| time.to_string()).unwrap_or_default()
            ));
        }
    }
    Ok(())
}

/// Evaluates the recording rules of all groups from the first moment to the last, in order of time, so that rules see what others
/// recorded; the number of evaluations of groups. Ends at the first rule that fails. `progress` is told each moment.
///
/// # Errors
/// Rules that fail, and those some of whose results would be made of a part of their samples, the others having gone by their age: nothing is written
/// then.
pub fn backfill(
    store: &RuleStore,
    groups: &[GroupConfig],
    range: BackfillRange,
    progress: &mut dyn FnMut(i64),
) -> Result<u64, String> {
    let surroundings = Arc::new(Surroundings { interval_ms: range.interval_ms, ..Surroundings::default() });
    let recording = groups.iter().map(|config| {
        let rules = config.rules.iter().filter(|rule| matches!(rule.kind, RuleKind::Record(_))).cloned().collect();
        Group::new(GroupConfig { rules, ..config.clone() }, &surroundings, false)
    });
    let recording: Vec<Group> = recording.filter(|group| !group.rules.is_empty()).collect();
    recording.iter().try_for_each(|group| check_complete(store, group, range.start_ms))?;
    let mut due: Vec<i64> = recording
        .iter()
        .map(|group| match group.evaluation_ms(range.start_ms) {
            first_ms if first_ms < range.start_ms => first_ms + group.interval_ms(),
            first_ms => first_ms,
        })
        .collect();
    let mut evaluations = 0;
    loop {
        let next = due.iter().copied().enumerate().min_by_key(|(_, due_ms)| *due_ms);
        let Some((at, due_ms)) = next.filter(|(_, due_ms)| *due_ms <= range.end_ms) else { break };
        let Some(group) = recording.get(at) else { break };
        group.evaluate(store, due_ms);
        for rule in &group.rules {
            if let RuleHealth::Bad(reason) = rule.state().health {
                return Err(format!("{}: {}: {reason}", group.config.name, rule.config.name()));
            }
        }
        evaluations += 1;
        progress(due_ms);
        if let Some(due) = due.get_mut(at) {
            *due += group.interval_ms();
        }
    }
    store.sync()?;
    Ok(evaluations)
}
