//! One attempt to deliver rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use access::scope::Scope;
use platform::network::retry::Verdict;
use platform::network::{HttpRequest, compute};

use super::context::Delivered;
use super::job::Job;
use super::queue::Chunk;
use super::work::Work;
use crate::hook;
use crate::subscription::{Lines, SubscriptionWork};
use crate::trigger::TriggerWork;

/// Rows as a receiver gets them: made once, however often they are sent.
pub(super) enum Outgoing {
    /// For a table.
    Rows(Arc<Chunk>),
    /// For a hook.
    Request(HttpRequest),
    /// For a destination of a subscription.
    Lines(Lines),
}

impl Outgoing {
    pub(super) fn new(work: &Work, chunk: Arc<Chunk>) -> Self {
        match work {
            Work::Subscription(_) => Self::Lines(SubscriptionWork::lines(&chunk)),
            Work::Trigger(trigger) => trigger.request(&chunk).map_or(Self::Rows(chunk), Self::Request),
        }
    }
}

impl Job {
    /// Attempts before the pause becomes longer: each destination that takes turns has one.
    pub(super) fn attempts_of_round(&self) -> u32 {
        match &self.spec.work {
            Work::Subscription(subscription) => subscription.destinations.len().max(1) as u32,
            Work::Trigger(_) => 1,
        }
    }

    /// Tries once.
    pub(super) async fn send(self: &Arc<Self>, outgoing: &Outgoing, scope: &Arc<Scope>) -> Delivered {
        match (&self.spec.work, outgoing) {
            (Work::Trigger(trigger), Outgoing::Rows(chunk)) => self.insert(trigger, chunk, scope).await,
            (Work::Subscription(subscription), Outgoing::Lines(lines)) => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                self.in_time(subscription.send(&self.shared, lines, turn)).await.into()
            }
            (_, Outgoing::Request(request)) => {
                let client = match &self.shared.client {
                    Ok(client) => client,
                    Err(reason) => return Verdict::Retry { after_ms: None, reason: reason.clone() }.into(),
                };
                let now_ns = self.shared.db().now_ns();
                self.in_time(async { hook::post(&**client, request.clone(), now_ns).await.verdict }).await.into()
            }
            _ => Verdict::Refused("rows of another kind".to_owned()).into(),
        }
    }

    async fn in_time(&self, sending: impl Future<Output = Verdict>) -> Verdict {
        let timeout_ms = self.spec.batching.timeout_ms;
        tokio::select! {
            verdict = sending => verdict,
            () = self.shared.feed.network.tasks.sleep_ms(timeout_ms) => {
                Verdict::Retry { after_ms: None, reason: format!("no answer within {timeout_ms} ms") }
            }
        }
    }

    async fn insert(self: &Arc<Self>, trigger: &TriggerWork, chunk: &Arc<Chunk>, scope: &Arc<Scope>) -> Delivered {
        let (own, trigger, chunk, scope) = (self.clone(), trigger.clone(), chunk.clone(), scope.clone());
        let inserted =
            compute(&self.shared.feed.network.tasks, move || trigger.insert(&own.shared, &chunk, &scope)).await;
        let stopped = || Verdict::Retry { after_ms: None, reason: "writing stopped short".to_owned() };
        inserted.unwrap_or_else(|| stopped().into())
    }
}
