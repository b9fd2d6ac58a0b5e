//! Samples that are older than the retention of their keys: readers see nothing of them, and now and then the store gives back their room.
//!
//! A key's samples go up to its retention before its newest sample, or before the present if that one is ahead of it. What a rule still makes
//! a bucket of stays: that of the oldest sample that may still be written, and those that are pending.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::CommandError;
use super::database::State;
use super::pause::Pause;
use crate::series::catalog::{Catalog, Key, Last};
use crate::series::rows::Rows;
use crate::series::settings::Settings;

const HOUR_MS: i64 = 3_600_000;

/// How often keys are looked through, milliseconds.
const PERIOD_MS: i64 = HOUR_MS;

/// Samples go so many times within the retention of their key, but once an hour at most: each time parts are merged anew.
const STEPS: i64 = 32;

/// Keys that are trimmed at a time: other commands wait meanwhile.
const KEYS_MAX: usize = 4_096;

/// Keys that are due to be trimmed.
#[derive(Debug, Default)]
pub(super) struct Trims {
    /// When keys are looked through next, milliseconds since the Unix epoch.
    next_ms: i64,
    /// Keys by the time before which their samples go.
    due: BTreeMap<i64, Vec<Arc<str>>>,
    pause: Pause,
}

/// The time before which the samples of a key may go; `None` if nothing is known of its newest one, or if they are gone already.
fn before_ms(key: &Key, now_ms: i64) -> Option<i64> {
    let Key { settings, last: Last::Sample(last_ms, _), .. } = key else { return None };
    if settings.retention_ms <= 0 {
        return None;
    }
    let oldest_ms = settings.oldest_ms(now_ms.min(*last_ms));
    let needed = settings.rules.iter().map(|rule| rule.needed_from_ms(oldest_ms));
    let before_ms = needed.fold(oldest_ms, i64::min);
    // Steps that are powers of two let keys of different retentions go together.
    let hours = (settings.retention_ms / STEPS / HOUR_MS).max(1);
    let step_ms = HOUR_MS << hours.ilog2();
    let before_ms = before_ms.saturating_sub(before_ms.rem_euclid(step_ms));
    (before_ms > settings.trimmed_ms.unwrap_or(0)).then_some(before_ms)
}

impl Trims {
    /// Looks through the keys if it is time to.
    fn look(&mut self, catalog: &Catalog, now_ms: i64) {
        if now_ms < self.next_ms || !self.due.is_empty() {
            return;
        }
        self.next_ms = now_ms.saturating_add(PERIOD_MS);
        for (name, key) in catalog.iter() {
            if let Some(before_ms) = before_ms(key, now_ms) {
                self.due.entry(before_ms).or_default().push(name.clone());
            }
        }
    }

    /// The next keys, and the time before which their samples go.
    fn take(&mut self) -> Option<(i64, Vec<Arc<str>>)> {
        let mut first = self.due.first_entry()?;
        let before_ms = *first.key();
        let left = first.get().len().saturating_sub(KEYS_MAX);
        let some = first.get_mut().split_off(left);
        if first.get().is_empty() {
            first.remove();
        }
        Some((before_ms, some))
    }
}

impl State {
    /// Trims some of the keys that are due, if it is time to. What fails is tried again later.
    pub(super) fn trim(&mut self, rows: &Rows<'_>, now_ms: i64) {
        self.trims.look(&self.catalog, now_ms);
        if self.trims.due.is_empty() {
            return;
        }
        let clock_ns = rows.db.clock().monotonic_ns();
        if !self.trims.pause.is_over(clock_ns) {
            return;
        }
        let Some((until_ms, mut names)) = self.trims.take() else { return };
        // Settings may have changed meanwhile, or keys have gone.
        names.retain(|name| {
            let before_ms = self.catalog.get(name).and_then(|key| before_ms(key, now_ms));
            before_ms.is_some_and(|before_ms| before_ms >= until_ms)
        });
        match self.trim_keys(rows, &names, until_ms) {
            Ok(()) => self.trims.pause.rest(clock_ns),
            Err(_) => {
                self.trims.due.entry(until_ms).or_default().extend(names);
                self.trims.pause.fail(clock_ns);
            }
        }
    }

    fn trim_keys(&mut self, rows: &Rows<'_>, names: &[Arc<str>], before_ms: i64) -> Result<(), CommandError> {
        if names.is_empty() {
            return Ok(());
        }
        // Buckets of rules that lose samples are never computed again, also after a restart.
        let mut changed: Vec<(Arc<str>, Settings)> = Vec::new();
        for name in names {
            if let Some(key) = self.catalog.get_mut(name).filter(|key| !key.settings.rules.is_empty()) {
                key.settings.trimmed_ms = Some(before_ms);
                changed.push((name.clone(), key.settings.clone()));
            }
        }
        self.save(rows, &changed)?;
        let texts: Vec<&str> = names.iter().map(|name| &**name).collect();
        let gone_ms = rows.trim(&texts, before_ms)?;
        for name in names {
            if let Some(key) = self.catalog.get_mut(name) {
                key.settings.trimmed_ms = key.settings.trimmed_ms.max(Some(gone_ms));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Aggregator;
    use crate::series::settings::Rule;

    const DAY_MS: i64 = 24 * HOUR_MS;

    fn key(retention_ms: i64, last_ms: i64, rules: Vec<Rule>) -> Key {
        let settings = Settings { retention_ms, rules, ..Settings::default() };
        Key { settings, last: Last::Sample(last_ms, 1.0), ..Key::default() }
    }

    #[test]
    fn keys_are_trimmed_together_to_whole_hours() {
        let mut catalog = Catalog::default();
        let hours = |hours: i64| hours * HOUR_MS;
        for (name, retention_ms, last_ms) in [
            ("for_ever", 0, hours(9)),
            ("a", hours(2), hours(9) + 5),
            ("b", hours(2), hours(9) + 6),
            ("short", 1, hours(9) + 5),
            ("new", hours(2), hours(1)),
            ("ahead", hours(2), hours(1_000)),
        ] {
            catalog.put(name.into(), key(retention_ms, last_ms, Vec::new()));
        }
        let mut trims = Trims::default();
        trims.look(&catalog, hours(10));
        let mut found: Vec<(i64, Vec<String>)> = std::iter::from_fn(|| trims.take())
            .map(|(before_ms, names)| (before_ms / HOUR_MS, names.iter().map(ToString::to_string).collect()))
            .collect();
        found.iter_mut().for_each(|(_, names)| names.sort());
        let name = |text: &str| text.to_owned();
        assert_eq!(found, [(7, vec![name("a"), name("b")]), (8, vec![name("ahead")]), (9, vec![name("short")])]);
    }

    #[test]
    fn steps_grow_with_the_retention() {
        let found = |days: i64, last_ms: i64| before_ms(&key(days * DAY_MS, last_ms, Vec::new()), i64::MAX);
        assert_eq!(found(1, 10 * DAY_MS + 1), Some(9 * DAY_MS));
        // A 32nd of 100 days is 75 hours: 64 of them.
        let last_ms = 300 * DAY_MS + 7;
        assert_eq!(found(100, last_ms), Some(200 * DAY_MS - 200 * DAY_MS % (64 * HOUR_MS)));
    }

    #[test]
    fn what_rules_still_need_stays() {
        let rule = |aggregator| Rule::new("to".into(), aggregator, (DAY_MS, 0), None);
        let last_ms = 9 * DAY_MS + 5 * HOUR_MS;
        let found = |rule: Rule| before_ms(&key(HOUR_MS, last_ms, vec![rule]), i64::MAX);
        assert_eq!(found(rule(Aggregator::Sum)), Some(9 * DAY_MS));
        assert_eq!(found(rule(Aggregator::Twa)), Some(8 * DAY_MS));
        let mut pending = rule(Aggregator::Sum);
        pending.put_off(3 * DAY_MS);
        assert_eq!(found(pending), Some(3 * DAY_MS));
    }
}
