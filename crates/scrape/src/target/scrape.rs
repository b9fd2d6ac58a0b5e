//! One target's requests, again and again.

use std::sync::Arc;

use ingest::encoding::{Encoding, UnpackLimits, decompress_within};
use model::{MetricMetadata, STALE_NAN_BITS};
use parking_lot::Mutex;
use platform::network::{HttpError, HttpRequest, NetworkPlatform};
use tokio::sync::watch;

use super::append::{Body, Counts, Destination, Reader, Rows};
use super::body_memory::BodyMemory;
use super::cache::LineCache;
use super::identity::Target;
use super::negotiation::{accept, format_of};
use super::report::{Extra, Report, ReportSeries};
use crate::client::Client;
use crate::config::ScrapeConfig;

/// Bytes of a response, packed and unpacked, whatever the job's limit says.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// Bytes that a packed response may unpack to for each byte sent.
const UNPACKED_RATIO_MAX: usize = 1_000;

const NS_PER_MS: i64 = 1_000_000;

/// A scrape that begins so little after its time is stored under it: times at even distances take less room.
const TOLERANCE_MS: i64 = 2;

/// A pause is cut into pieces, so that a jump of the clock is noticed.
const SLEEP_MS_MAX: i64 = 30_000;

/// What becomes of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// It goes on.
    Run,
    /// It ends, and its series go on in another loop or with the next start: no markers.
    Stop,
    /// Its target is gone: markers end its series after a while.
    Gone,
}

/// The state of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// It was not scraped yet.
    #[default]
    Unknown,
    /// Its last scrape succeeded.
    Up,
    /// Its last scrape failed.
    Down,
}

impl Health {
    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// A target's last scrape.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LastScrape {
    /// When it began; 0: there was none.
    pub begun_ns: i64,
    /// How long it took.
    pub duration_s: f64,
    /// Whether it succeeded.
    pub health: Health,
    /// Why not.
    pub error: String,
}

/// A target that is scraped.
pub struct TargetLoop {
    /// The target.
    pub target: Target,
    /// Its job.
    pub job: Arc<ScrapeConfig>,
    client: Arc<Client>,
    destination: Arc<Destination>,
    network: NetworkPlatform,
    series: Mutex<SeriesState>,
    last: Mutex<LastScrape>,
    metadata: Mutex<Vec<MetricMetadata>>,
    /// Why it is not scraped: its job has too many targets.
    forced_error: Mutex<Option<String>>,
}

#[derive(Default)]
struct SeriesState {
    cache: LineCache,
    report: ReportSeries,
}

/// A response, unpacked.
struct Response {
    content: Vec<u8>,
    /// What its content takes, packed and unpacked.
    memory: BodyMemory,
    encoding: Encoding,
    content_type: String,
}

/// What is left of a response that could not be read.
struct Failure {
    reason: String,
    is_too_large: bool,
}

impl TargetLoop {
    /// A target that was not scraped yet.
    pub(crate) fn new(
        target: Target,
        job: &Arc<ScrapeConfig>,
        destination: &Arc<Destination>,
        network: &NetworkPlatform,
        client: Arc<Client>,
    ) -> Self {
        Self {
            target,
            job: job.clone(),
            client,
            destination: destination.clone(),
            network: network.clone(),
            series: Mutex::default(),
            last: Mutex::default(),
            metadata: Mutex::default(),
            forced_error: Mutex::default(),
        }
    }

    /// Takes over from a loop of an earlier configuration: its last scrape, and the series of that if they are made alike.
    pub(crate) fn go_on_from(&self, old: &Self) {
        *self.last.lock() = old.last();
        *self.metadata.lock() = old.metadata();
        let is_alike = self.job.metric_relabel == old.job.metric_relabel
            && self.job.honor_labels == old.job.honor_labels
            && self.job.settings == old.job.settings
            && self.job.agent == old.job.agent;
        if is_alike {
            *self.series.lock() = std::mem::take(&mut *old.series.lock());
        }
    }

    /// Its last scrape.
    pub fn last(&self) -> LastScrape {
        self.last.lock().clone()
    }

    /// What its metrics are about.
    pub fn metadata(&self) -> Vec<MetricMetadata> {
        self.metadata.lock().clone()
    }

    /// Lets scrapes fail for a reason, or go on.
    pub(crate) fn force_error(&self, reason: Option<String>) {
        *self.forced_error.lock() = reason;
    }

    fn now_ms(&self) -> i64 {
        self.network.platform.clock.now_ns() / NS_PER_MS
    }

    /// The next time at or after this one at which it is scraped.
    fn next_ms(&self, from_ms: i64) -> i64 {
        let agent = &self.job.agent;
        let step_ms = match agent.align_interval_ms {
            0 => self.target.interval_ms,
            align_ms => align_ms.max(self.target.interval_ms),
        };
        let step_ms = step_ms.max(1) as i64;
        let offset_ms = match agent.offset_ms {
            Some(offset_ms) => offset_ms as i64 % step_ms,
            None if agent.align_interval_ms > 0 => 0,
            None => (self.target.hash() % step_ms as u64) as i64,
        };
        let behind_ms = (from_ms - offset_ms).rem_euclid(step_ms);
        if behind_ms == 0 { from_ms } else { from_ms - behind_ms + step_ms }
    }

    /// Waits until a time of the wall clock.
    async fn sleep_until(&self, time_ms: i64) {
        loop {
            let left_ms = time_ms - self.now_ms();
            if left_ms <= 0 {
                return;
            }
            self.network.tasks.sleep_ms(left_ms.min(SLEEP_MS_MAX) as u64).await;
        }
    }

    async fn scrape(self: &Arc<Self>, planned_ms: i64) {
        let begun_ns = self.network.platform.clock.now_ns();
        let begun_at_monotonic = self.network.platform.clock.monotonic_ns();
        let late_ms = begun_ns / NS_PER_MS - planned_ms;
        let samples_at_ns = if (0..=TOLERANCE_MS).contains(&late_ms) {
            planned_ms * NS_PER_MS
        } else {
            begun_ns / NS_PER_MS * NS_PER_MS
        };
        let forced = self.forced_error.lock().clone();
        let response = match forced {
            Some(reason) => Err(Failure { reason, is_too_large: false }),
            None => self.fetch().await,
        };
        let own = self.clone();
        let times = ScrapeTimes { samples_at_ns, begun_ns, begun_at_monotonic };
        self.network.tasks.block(Box::new(move || own.store(response, &times))).await;
    }

    async fn fetch(&self) -> Result<Response, Failure> {
        let timeout_ms = self.target.timeout_ms;
        tokio::select! {
            response = self.request() => response.map_err(|error| self.failure(error)),
            () = self.network.tasks.sleep_ms(timeout_ms) => Err(Failure {
                reason: format!("no answer within {timeout_ms} ms"),
                is_too_large: false,
            }),
        }
    }

    fn failure(&self, error: HttpError) -> Failure {
        match error {
            HttpError::TooLarge => Failure {
                reason: format!("body_size_limit exceeded: more than {} bytes", self.body_bytes_max()),
                is_too_large: true,
            },
            HttpError::Failed(reason) => Failure { reason, is_too_large: false },
        }
    }

    fn body_bytes_max(&self) -> usize {
        match self.job.settings.limits.body_bytes_max {
            0 => BODY_BYTES_MAX as usize,
            limit => limit.min(BODY_BYTES_MAX) as usize,
        }
    }

    async fn request(&self) -> Result<Response, HttpError> {
        let settings = &self.job.settings;
        let histograms = self.target.histograms;
        let encodings = if self.job.enable_compression { "gzip, zstd;q=0.9" } else { "identity" };
        let request = HttpRequest::get(&self.target.url)
            .with_header("Accept", accept(&settings.protocols, histograms.native, settings.escaping))
            .with_header("Accept-Encoding", encodings)
            .with_header("X-Prometheus-Scrape-Timeout-Seconds", (self.target.timeout_ms as f64 / 1000.0).to_string());
        let mut response = self.client.send(request).await?;
        if response.status != 200 {
            return Err(HttpError::Failed(format!("the target answered with HTTP status {}", response.status)));
        }
        let mut memory = BodyMemory::new(self.destination.body_memory.clone());
        let content = memory.read(&mut response, self.body_bytes_max()).await?;
        let encoding = response.header("content-encoding").unwrap_or_default();
        let unknown = || HttpError::Failed(format!("unknown Content-Encoding {encoding:?}"));
        let encoding = Encoding::from_name(encoding).ok_or_else(unknown)?;
        let content_type = response.header("content-type").unwrap_or_default().to_owned();
        Ok(Response { content, memory, encoding, content_type })
    }

    /// Unpacks a body, and gives its memory back but for what is left. It takes as long as the body is large: not for threads of the
    /// network.
    fn unpack(&self, encoding: Encoding, content: Vec<u8>, memory: &mut BodyMemory) -> Result<Vec<u8>, Failure> {
        if encoding == Encoding::Identity {
            return Ok(content);
        }
        let limits = UnpackLimits { size_bytes_max: self.body_bytes_max(), ratio_max: UNPACKED_RATIO_MAX };
        let mut unpacked = Vec::new();
        let done = decompress_within(encoding, &content, limits, &mut unpacked, &mut |bytes| {
            memory.take(bytes as u64).is_ok()
        });
        done.map_err(|error| {
            self.failure(match error {
                ingest::BodyError::TooLarge { .. } => HttpError::TooLarge,
                ingest::BodyError::NoMemory => HttpError::Failed(memory.refusal()),
                other @ ingest::BodyError::Malformed(_) => HttpError::Failed(other.to_string()),
            })
        })?;
        memory.give_back(content.len() as u64);
        Ok(unpacked)
    }

    /// Stores a scrape's samples, markers and report.
    fn store(&self, response: Result<Response, Failure>, times: &ScrapeTimes) {
        // Held until the samples are stored.
        let mut memory = None;
        let response = response.and_then(|mut response| {
            let format = format_of(&response.content_type, self.job.fallback_protocol);
            let failed = |reason| Failure { reason, is_too_large: false };
            let content = self.unpack(response.encoding, response.content, &mut response.memory)?;
            memory = Some(response.memory);
            Ok((content, format.map_err(failed)?))
        });
        let mut outcome = self.append(&response, times);
        if outcome.is_outdated {
            // Series had left the database: they are registered anew, and all is written again.
            outcome = self.append(&response, times);
        }
        drop(memory);
        let duration_s = self.passed_s(times);
        let health = if outcome.error.is_none() { Health::Up } else { Health::Down };
        *self.last.lock() =
            LastScrape { begun_ns: times.begun_ns, duration_s, health, error: outcome.error.unwrap_or_default() };
    }

    fn passed_s(&self, times: &ScrapeTimes) -> f64 {
        (self.network.platform.clock.monotonic_ns() - times.begun_at_monotonic) as f64 / 1e9
    }

    fn append(&self, response: &Result<(Vec<u8>, super::Format), Failure>, times: &ScrapeTimes) -> Outcome {
        let mut state = self.series.lock();
        let SeriesState { cache, report } = &mut *state;
        cache.begin();
        let mut rows = Rows::default();
        let mut counts = Counts::default();
        let mut error = None;
        let ended = match response {
            Ok((content, format)) => {
                let labels = &self.target.labels;
                let mut reader = Reader {
                    job: &self.job,
                    labels,
                    histograms: self.target.histograms,
                    destination: &self.destination,
                    cache,
                    counts,
                };
                let body = Body { content, format: *format, time_ns: times.samples_at_ns };
                let read = reader.read(&body, &mut rows);
                counts = reader.counts;
                match read {
                    Ok(metadata) => {
                        metadata.into_iter().for_each(|metadata| self.describe(metadata));
                        cache.finish()
                    }
                    Err(reason) => {
                        error = Some(reason);
                        rows = Rows::default();
                        cache.fail()
                    }
                }
            }
            Err(failure) => {
                error = Some(failure.reason.clone());
                cache.fail()
            }
        };
        if !self.job.agent.no_stale_markers {
            ended.into_iter().for_each(|token| rows.push(token, times.samples_at_ns, STALE_NAN_BITS));
        }
        let body_bytes = match response {
            Ok((content, _)) => content.len() as i64,
            Err(failure) => -i64::from(failure.is_too_large),
        };
        let extra = self.job.settings.extra_metrics.then(|| Extra {
            timeout_s: self.target.timeout_ms as f64 / 1000.0,
            samples_max: self.job.settings.limits.samples_max,
            body_bytes,
        });
        let reported = Report { is_up: error.is_none(), duration_s: self.passed_s(times), counts, extra };
        match report.tokens(&self.destination, &self.target.labels, reported.extra.is_some()) {
            Ok(tokens) => reported.push(tokens, times.samples_at_ns, &mut rows),
            Err(reason) => error = Some(reason),
        }
        match self.destination.append(&rows) {
            Ok(outdated) if outdated.is_empty() => Outcome { error, is_outdated: false },
            Ok(outdated) => {
                cache.forget(&outdated);
                report.forget();
                Outcome { error, is_outdated: true }
            }
            Err(reason) => Outcome { error: Some(reason), is_outdated: false },
        }
    }

    fn describe(&self, metadata: Vec<MetricMetadata>) {
        let mut known = self.metadata.lock();
        if *known != metadata {
            self.destination.describe(&metadata);
            *known = metadata;
        }
    }

    /// Ends all of its series, those about scrapes too.
    fn end(&self, time_ns: i64) {
        if self.job.agent.no_stale_markers {
            return;
        }
        let mut state = self.series.lock();
        let SeriesState { cache, report } = &mut *state;
        cache.begin();
        let mut rows = Rows::default();
        cache.fail().into_iter().for_each(|token| rows.push(token, time_ns, STALE_NAN_BITS));
        let has_extra = self.job.settings.extra_metrics;
        if let Ok(tokens) = report.tokens(&self.destination, &self.target.labels, has_extra) {
            tokens.iter().for_each(|token| rows.push(*token, time_ns, STALE_NAN_BITS));
        }
        // What cannot be written now is ended by the time that queries look back.
        let _ = self.destination.append(&rows);
    }
}

/// When a scrape began, and the time of its samples.
struct ScrapeTimes {
    samples_at_ns: i64,
    begun_ns: i64,
    begun_at_monotonic: u64,
}

struct Outcome {
    error: Option<String>,
    /// Series were not there any more.
    is_outdated: bool,
}

/// Scrapes a target until it is told otherwise.
pub async fn run(target: Arc<TargetLoop>, mut command: watch::Receiver<Command>) {
    let mut next_ms = target.next_ms(target.now_ms());
    let ended = async {
        // A sender that is gone stops the loop.
        command.wait_for(|command| *command != Command::Run).await.map_or(Command::Stop, |command| *command)
    };
    let mut ended = std::pin::pin!(ended);
    let command = loop {
        tokio::select! {
            command = &mut ended => break command,
            () = target.sleep_until(next_ms) => {}
        }
        // A scrape under way goes on to its end, unless the loop stops.
        tokio::select! {
            biased;
            command = &mut ended => break command,
            () = target.scrape(next_ms) => {}
        }
        next_ms = target.next_ms(target.now_ms().max(next_ms) + 1);
    };
    if command == Command::Gone && target.last().begun_ns != 0 {
        end_after_a_while(&target, next_ms).await;
    }
}

/// Waits until the scrape after the next would be over, as Prometheus does: the target may only have been away for a moment.
async fn end_after_a_while(target: &Arc<TargetLoop>, next_ms: i64) {
    let stale_ms = target.next_ms(target.now_ms().max(next_ms));
    let interval_ms = target.target.interval_ms as i64;
    target.sleep_until(stale_ms + interval_ms + interval_ms / 10).await;
    if target.destination.is_running(&target.target.labels) {
        return;
    }
    let own = target.clone();
    target.network.tasks.block(Box::new(move || own.end(stale_ms * NS_PER_MS))).await;
}
