//! What jobs do, and the jobs that triggers and subscriptions are.

use super::definition::{
    Batching, JobKey, Origin, SubscriptionDefinition, SubscriptionName, TriggerDefinition, TriggerName,
};
use crate::subscription::SubscriptionWork;
use crate::trigger::TriggerWork;

/// What a job does.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JobSpec {
    pub(crate) origin: Origin,
    pub(crate) batching: Batching,
    pub(crate) work: Work,
}

/// The two kinds of work.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Work {
    Trigger(TriggerWork),
    Subscription(SubscriptionWork),
}

/// The job of a trigger.
pub(super) fn trigger_job(name: &TriggerName, trigger: &TriggerDefinition) -> (JobKey, JobSpec) {
    let TriggerDefinition { table, condition, action, batching, origin, .. } = trigger.clone();
    let work = TriggerWork { name: name.clone(), table, condition, action };
    (JobKey::Trigger(name.clone()), JobSpec { origin, batching, work: Work::Trigger(work) })
}

/// Batches of subscriptions.
const SUBSCRIPTION_BATCHING: Batching =
    Batching { batch_rows: 5_000, batch_bytes: 1 << 20, batch_age_ms: 100, timeout_ms: 30_000, retry_for_ms: None };

/// The jobs of a subscription: one for each destination, or one for all that take turns.
pub(super) fn subscription_jobs(
    name: &SubscriptionName,
    subscription: &SubscriptionDefinition,
) -> Vec<(JobKey, JobSpec)> {
    let destinations = &subscription.destinations;
    let groups: Vec<Vec<String>> = if subscription.sends_to_all {
        destinations.iter().map(|destination| vec![destination.clone()]).collect()
    } else {
        vec![destinations.clone()]
    };
    let job = |(number, destinations): (usize, Vec<String>)| {
        let work = Work::Subscription(SubscriptionWork { name: name.clone(), destinations });
        let spec = JobSpec { origin: subscription.origin.clone(), batching: SUBSCRIPTION_BATCHING, work };
        (JobKey::Subscription(name.clone(), number), spec)
    };
    groups.into_iter().enumerate().map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_destination_is_a_job_unless_they_take_turns() {
        let name = SubscriptionName { database: "d".into(), policy: "p".into(), name: "n".into() };
        let destinations = vec!["http://a".to_owned(), "udp://b:1".to_owned()];
        let origin = Origin { owner: String::new(), owner_created_ns: None, created_ns: 0, database_number: None };
        let mut subscription = SubscriptionDefinition { sends_to_all: true, destinations, origin };
        let cursors = |subscription: &SubscriptionDefinition| {
            subscription_jobs(&name, subscription).iter().map(|(key, _)| key.cursor()).collect::<Vec<_>>()
        };
        assert_eq!(cursors(&subscription), [r#"subscription/["d","p","n"]/0"#, r#"subscription/["d","p","n"]/1"#]);
        subscription.sends_to_all = false;
        assert_eq!(cursors(&subscription).len(), 1);
    }
}
