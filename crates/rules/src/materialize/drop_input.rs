//! Samples that go once no result is made of them any more: `drop_input` of stream aggregation.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Matcher;

use super::follow::KeptRule;
use crate::group::Group;
use crate::store::RuleStore;

const NS_PER_MS: i64 = 1_000_000;

/// How long after the end of its window a sample that comes late counts at least.
const LATE_MS_MAX: i64 = 3_600_000;

/// How far the time before which samples are gone moves from one delete to the next, in nanoseconds: the parts that it masks are merged for it.
const STEP_NS: i64 = 900_000_000_000;

/// From one look to the next, in nanoseconds.
const LOOK_INTERVAL_NS: u64 = 60_000_000_000;

/// Deletes inputs now and then.
#[derive(Debug, Default)]
pub(super) struct InputDropper {
    /// When it looked last, by the monotonic clock.
    looked_ns: Option<u64>,
    /// Of each metric the time before which its samples are gone.
    gone_ns: BTreeMap<String, i64>,
    /// Why the input of a metric stays.
    failures: BTreeMap<String, String>,
}

impl InputDropper {
    /// Deletes the inputs of groups that no rule reads any more. Why one stays is told in the state of the group's rules.
    pub(super) fn drop_due(&mut self, groups: &[Arc<Group>], rules: &[KeptRule], store: &RuleStore) {
        let clock_ns = store.db.clock().monotonic_ns();
        if self.looked_ns.is_some_and(|looked_ns| clock_ns.saturating_sub(looked_ns) < LOOK_INTERVAL_NS) {
            return;
        }
        self.looked_ns = Some(clock_ns);
        let mut inputs: BTreeMap<&str, Vec<Vec<Matcher>>> = BTreeMap::new();
        for input in groups.iter().flat_map(|group| &group.config.dropped) {
            inputs.entry(&input.metric).or_default().extend(input.matcher_sets.iter().cloned());
        }
        let late_ms = store.db.now_ns().div_euclid(NS_PER_MS).saturating_sub(LATE_MS_MAX);
        for (metric, matcher_sets) in inputs {
            let known_ns = self.gone_ns.get(metric).copied().unwrap_or(i64::MIN);
            let before_ns = unread_before_ns(rules, metric, late_ms);
            if before_ns < known_ns.saturating_add(STEP_NS) {
                continue;
            }
            match store.drop_input(metric, &matcher_sets, before_ns) {
                Ok(gone_ns) => {
                    self.gone_ns.insert(metric.to_owned(), gone_ns);
                    let failed = self.failures.remove(metric);
                    tell(rules, metric, |error| drop(error.take_if(|error| failed.as_ref() == Some(error))));
                }
                Err(why) => {
                    tell(rules, metric, |error| *error = Some(why.clone()));
                    self.failures.insert(metric.to_owned(), why);
                }
            }
        }
    }
}

/// The time before which no rule reads samples of a table any more, where results up to a time count as final.
fn unread_before_ns(rules: &[KeptRule], table: &str, final_ms: i64) -> i64 {
    let readers = rules.iter().filter(|rule| rule.may_read_table(table));
    let needed_ms = readers.map(|rule| rule.needed_from_ms(final_ms)).min().unwrap_or(i64::MIN);
    needed_ms.saturating_mul(NS_PER_MS)
}

/// Changes the error of the rules of groups that drop the input of a metric.
fn tell(rules: &[KeptRule], metric: &str, mut change: impl FnMut(&mut Option<String>)) {
    let drops = |rule: &&KeptRule| rule.group.config.dropped.iter().any(|input| input.metric == metric);
    rules.iter().filter(drops).for_each(|rule| change(&mut rule.past.state.lock().error));
}
