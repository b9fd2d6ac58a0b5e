//! Requests: sent again until the receiver takes or refuses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platform::network::retry::{Verdict, verdict};
use platform::network::{HttpRequest, compute};

use super::batch::{EncodedBatch, encode, encode_metadata};
use super::collect::metadata;
use super::outgoing::Item;
use super::pace::{backoff, retry_after_ms};
use super::queue::{KindCounts, Queue};

/// Bytes that are read of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Attempts to send metadata; the next ones come soon.
const METADATA_ATTEMPTS_MAX: u32 = 10;

const NS_PER_MS: i64 = 1_000_000;

type Field = fn(&KindCounts) -> &AtomicU64;

impl Queue {
    /// Sends items in one request, again and again until it is taken or refused.
    pub(super) async fn send_batch(self: &Arc<Self>, items: Arc<Vec<Item>>) {
        let mut encoded: Option<Arc<EncodedBatch>> = None;
        for attempt in 0.. {
            let ages = self.config.queue.sample_age_limit_ms > 0;
            let batch = match encoded.take().filter(|_| !ages) {
                Some(batch) => batch,
                None => self.encode_batch(&items, attempt == 0).await,
            };
            if batch.body.is_empty() {
                return;
            }
            match self.post(&batch, attempt).await {
                Verdict::Sent => {
                    self.count(&batch, |kind| &kind.sent);
                    self.counts.sent_bytes.fetch_add(batch.body.len() as u64, Ordering::Relaxed);
                    self.counts.highest_sent_ms.fetch_max(batch.highest_ms, Ordering::Relaxed);
                    return;
                }
                Verdict::Refused(_) => return self.count(&batch, |kind| &kind.failed),
                Verdict::Retry { after_ms, .. } => {
                    self.count(&batch, |kind| &kind.retried);
                    let pause_ms = backoff(&self.config.queue).pause_ms(attempt, after_ms);
                    self.requests_waiting.fetch_add(1, Ordering::Relaxed);
                    self.network.tasks.sleep_ms(pause_ms).await;
                    self.requests_waiting.fetch_sub(1, Ordering::Relaxed);
                }
            }
            encoded = Some(batch);
        }
    }

    async fn encode_batch(self: &Arc<Self>, items: &Arc<Vec<Item>>, counts_old: bool) -> Arc<EncodedBatch> {
        let limit_ms = self.config.queue.sample_age_limit_ms;
        let now_ms = self.network.platform.clock.now_ns() / NS_PER_MS;
        let oldest_ms = if limit_ms == 0 { i64::MIN } else { now_ms.saturating_sub_unsigned(limit_ms) };
        let (items, version, reader) = (items.clone(), self.config.version, self.reader.clone());
        let families = reader.lock().families.clone();
        let batch = compute(&self.network.tasks, move || encode(&items, oldest_ms, version, &families)).await;
        let batch = batch.unwrap_or_default();
        if counts_old {
            self.counts.dropped_too_old.fetch_add(batch.too_old, Ordering::Relaxed);
        }
        Arc::new(batch)
    }

    fn count(&self, batch: &EncodedBatch, field: Field) {
        let counts = &self.counts;
        for (kind, count) in [
            (&counts.samples, batch.counts.samples),
            (&counts.histograms, batch.counts.histograms),
            (&counts.exemplars, batch.counts.exemplars),
            (&counts.metadata, batch.counts.metadata),
        ] {
            field(kind).fetch_add(count, Ordering::Relaxed);
        }
    }

    async fn post(&self, batch: &EncodedBatch, attempt: u32) -> Verdict {
        let begun_ns = self.network.platform.clock.monotonic_ns();
        let verdict = tokio::select! {
            verdict = self.exchange(batch, attempt) => verdict,
            () = self.network.tasks.sleep_ms(self.config.timeout_ms) => Verdict::Retry {
                after_ms: None,
                reason: format!("no answer within {} ms", self.config.timeout_ms),
            },
        };
        let passed_ns = self.network.platform.clock.monotonic_ns().saturating_sub(begun_ns);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.counts.requests_ns.fetch_add(passed_ns, Ordering::Relaxed);
        match &verdict {
            Verdict::Sent => self.note_error(""),
            Verdict::Refused(reason) | Verdict::Retry { reason, .. } => self.note_error(reason),
        }
        verdict
    }

    async fn exchange(&self, batch: &EncodedBatch, attempt: u32) -> Verdict {
        let (content_type, version) = match self.config.version {
            2 => ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0"),
            _ => ("application/x-protobuf", "0.1.0"),
        };
        let url = self.config.url.clone();
        let mut request = HttpRequest { method: "POST", url, headers: Vec::new(), body: batch.body.clone() }
            .with_header("Content-Encoding", "snappy")
            .with_header("Content-Type", content_type)
            .with_header("X-Prometheus-Remote-Write-Version", version);
        if attempt > 0 {
            request = request.with_header("Retry-Attempt", attempt.to_string());
        }
        for (name, value) in &self.config.headers {
            request = request.with_header(name, value);
        }
        let mut response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Verdict::Retry { after_ms: None, reason: error.to_string() },
        };
        let now_ms = self.network.platform.clock.now_ns() / NS_PER_MS;
        let after_ms = retry_after_ms(response.header("retry-after"), now_ms);
        // The connection is used again once the answer is read.
        let body = response.read_body(ANSWER_BYTES_MAX).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        verdict(response.status, after_ms, &text, self.config.queue.retry_on_http_429)
    }

    /// Version 1 has metadata in requests of their own.
    pub(super) async fn send_metadata_again_and_again(self: Arc<Self>) {
        let Some(interval_ms) = self.config.metadata_interval_ms else { return };
        loop {
            self.network.tasks.sleep_ms(interval_ms.max(1)).await;
            let (db, database) = (self.db.clone(), self.database.clone());
            let most = self.config.metadata_per_send.max(1) as usize;
            let encoded = compute(&self.network.tasks, move || {
                let found = metadata(&db, &database).unwrap_or_default();
                found.chunks(most).map(encode_metadata).collect::<Vec<_>>()
            });
            for batch in encoded.await.unwrap_or_default() {
                self.send_metadata(&batch).await;
            }
        }
    }

    async fn send_metadata(&self, batch: &EncodedBatch) {
        for attempt in 0..METADATA_ATTEMPTS_MAX {
            match self.post(batch, attempt).await {
                Verdict::Sent => {
                    self.count(batch, |kind| &kind.sent);
                    self.counts.metadata_bytes.fetch_add(batch.body.len() as u64, Ordering::Relaxed);
                    return;
                }
                Verdict::Refused(_) => break,
                Verdict::Retry { after_ms, .. } => {
                    self.count(batch, |kind| &kind.retried);
                    let pause_ms = backoff(&self.config.queue).pause_ms(attempt, after_ms);
                    self.network.tasks.sleep_ms(pause_ms).await;
                }
            }
        }
        self.count(batch, |kind| &kind.failed);
    }
}
