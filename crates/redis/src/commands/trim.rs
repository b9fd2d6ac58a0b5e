//! Samples that are older than the retention of their keys: readers see nothing of them, and now and then they are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::database::State;
use crate::series::catalog::{Catalog, Last};
use crate::series::rows::Rows;

/// How often keys are looked through, and how exact the times are before which samples are deleted, milliseconds: keys that are written to at the
/// same time have one of them, and each is one delete.
const PERIOD_MS: i64 = 3_600_000;

/// Keys of a delete: other commands wait meanwhile.
const KEYS_MAX: usize = 4_096;

/// Deletes that are due.
#[derive(Debug, Default)]
pub(super) struct Trims {
    /// When keys are looked through next, milliseconds since the Unix epoch.
    next_ms: i64,
    /// Keys by the time before which their samples go.
    due: BTreeMap<i64, Vec<Arc<str>>>,
}

impl Trims {
    /// Looks through the keys if it is time to. Of a key whose newest sample is not known nothing is.
    fn look(&mut self, catalog: &Catalog, now_ms: i64) {
        if now_ms < self.next_ms || !self.due.is_empty() {
            return;
        }
        self.next_ms = now_ms.saturating_add(PERIOD_MS);
        for (name, key) in catalog.iter().filter(|(_, key)| key.settings.retention_ms > 0) {
            let Last::Sample(last_ms, _) = key.last else { continue };
            let before_ms = key.settings.oldest_ms(last_ms).div_euclid(PERIOD_MS) * PERIOD_MS;
            if before_ms > key.trimmed_before_ms {
                self.due.entry(before_ms).or_default().push(name.clone());
            }
        }
    }

    /// The next delete: a time, and keys.
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
    /// Deletes what the retention of some keys leaves, if it is time to. What fails is tried when keys are looked through again.
    pub(super) fn trim(&mut self, rows: &Rows<'_>, now_ms: i64) {
        self.trims.look(&self.catalog, now_ms);
        let Some((before_ms, names)) = self.trims.take() else { return };
        // Settings may have changed meanwhile, or keys have gone.
        let is_due = |name: &&Arc<str>| {
            self.catalog.get(name).is_some_and(|key| match key.last {
                Last::Sample(last_ms, _) => key.settings.oldest_ms(last_ms) >= before_ms,
                _ => false,
            })
        };
        let names: Vec<&Arc<str>> = names.iter().filter(is_due).collect();
        let texts: Vec<&str> = names.iter().map(|name| &***name).collect();
        if texts.is_empty() || rows.delete_before(&texts, before_ms).is_err() {
            return;
        }
        for name in names {
            if let Some(key) = self.catalog.get_mut(name) {
                key.trimmed_before_ms = before_ms;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::catalog::Key;
    use crate::series::settings::Settings;

    /// The deletes that are due at a time, given names, retentions and newest samples.
    fn deletes(keys: &[(&str, i64, i64)], now_ms: i64) -> Vec<(i64, Vec<String>)> {
        let mut catalog = Catalog::default();
        for (name, retention_ms, last_ms) in keys {
            let settings = Settings { retention_ms: *retention_ms, ..Settings::default() };
            let last = Last::Sample(*last_ms, 1.0);
            catalog.put((*name).into(), Key { settings, last, ..Key::default() });
        }
        let mut trims = Trims::default();
        trims.look(&catalog, now_ms);
        let texts = |names: Vec<Arc<str>>| {
            let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
            names.sort();
            names
        };
        std::iter::from_fn(|| trims.take()).map(|(before_ms, names)| (before_ms, texts(names))).collect()
    }

    #[test]
    fn keys_are_trimmed_together_to_whole_hours() {
        let hour = PERIOD_MS;
        let keys = [
            ("for_ever", 0, 9 * hour),
            ("a", 2 * hour, 9 * hour + 5),
            ("b", 2 * hour, 9 * hour + 6),
            ("short", 1, 9 * hour + 5),
            ("new", 2 * hour, hour),
        ];
        let name = |text: &str| text.to_owned();
        assert_eq!(deletes(&keys, 0), [(7 * hour, vec![name("a"), name("b")]), (9 * hour, vec![name("short")])]);
    }
}
