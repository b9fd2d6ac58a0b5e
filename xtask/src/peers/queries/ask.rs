//! Asks a server many queries and takes the time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::process::cpu_clock_seconds;
use super::super::server::Server;
use super::texts::Request;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_mins(5);
const ANSWER_BYTES_MAX: u64 = 2 << 30;

/// What asking took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timing {
    /// Fewer than were to be asked where time was up.
    pub(super) queries: usize,
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
    /// The server's.
    pub(super) cpu_ms_per_query: f64,
}

/// One connection, kept.
fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT)).build().into()
}

/// Sends a request and reads the answer to its end.
fn send(agent: &ureq::Agent, server: &Server, request: &Request, is_packed: bool) -> Result<Vec<u8>, String> {
    let told = |error: ureq::Error| format!("{}: {error}", request.path);
    let (url, pairs) = (format!("{}{}", server.url, request.path), request.parameters.iter());
    let pairs = pairs.map(|(name, value)| (*name, value.as_str()));
    // The suite's clients take packed answers; unpacking them is not the server's work.
    let encoding = if is_packed { "gzip" } else { "identity" };
    let answer = if request.is_post {
        agent.post(url).query_pairs(pairs).header("accept-encoding", encoding).send_empty()
    } else {
        agent.get(url).query_pairs(pairs).header("accept-encoding", encoding).call()
    };
    let mut answer = answer.map_err(told)?;
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(told)?;
    if answer.status().is_success() {
        return Ok(body);
    }
    // What is packed is not shown.
    Err(format!("{} {}", answer.status(), error(&body).unwrap_or_default()))
}

/// The words of a refusal, which every server has under the same name.
fn error(body: &[u8]) -> Option<String> {
    let refusal: serde_json::Value = serde_json::from_slice(body).ok()?;
    refusal.get("error")?.as_str().map(str::to_owned)
}

/// An answer as JSON.
pub(super) fn answer(server: &Server, request: &Request) -> Result<serde_json::Value, String> {
    let body = send(&agent(), server, request, false)?;
    serde_json::from_slice(&body).map_err(|error| format!("{}: no JSON: {error}", request.path))
}

/// Asks the first once, so that files are in memory for all, then the others by so many at the same time. No more are begun once
/// the time is up, but each who asks has asked once.
pub(super) fn measure(
    server: &Server,
    requests: &[Request],
    workers: usize,
    time_max: Duration,
) -> Result<Timing, String> {
    let Some((first, requests)) = requests.split_first() else { return Err("nothing to ask".to_owned()) };
    send(&agent(), server, first, true)?;
    let (next, cpu_before, begun) = (AtomicUsize::new(0), cpu_clock_seconds(server.pid)?, Instant::now());
    let work = || {
        let (agent, mut latencies_ms) = (agent(), Vec::new());
        while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            send(&agent, server, request, true)?;
            latencies_ms.push(start.elapsed().as_secs_f64() * 1000.0);
            if begun.elapsed() >= time_max {
                break;
            }
        }
        Ok::<_, String>(latencies_ms)
    };
    let done: Vec<Result<Vec<f64>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a worker ended early".to_owned())))
            .collect()
    });
    let cpu_seconds = cpu_clock_seconds(server.pid)? - cpu_before;
    let mut latencies_ms = Vec::new();
    for latencies in done {
        latencies_ms.extend(latencies?);
    }
    Ok(timing(latencies_ms, cpu_seconds))
}

fn timing(mut latencies_ms: Vec<f64>, cpu_seconds: f64) -> Timing {
    latencies_ms.sort_by(f64::total_cmp);
    Timing {
        queries: latencies_ms.len(),
        median_ms: quantile(&latencies_ms, 0.5),
        p99_ms: quantile(&latencies_ms, 0.99),
        cpu_ms_per_query: cpu_seconds * 1000.0 / latencies_ms.len().max(1) as f64,
    }
}

/// The least value that such a share of all does not exceed; of fewer than a hundred, 0.99 is the largest.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let of_hundred = timing(hundred, 0.5);
        assert_eq!((of_hundred.median_ms, of_hundred.p99_ms, of_hundred.cpu_ms_per_query), (50.0, 99.0, 5.0));
        let of_three = timing(vec![9.0, 1.0, 2.0], 0.003);
        assert_eq!((of_three.queries, of_three.median_ms, of_three.p99_ms), (3, 2.0, 9.0));
        assert!(timing(Vec::new(), 0.0).median_ms.is_nan());
    }

    #[test]
    fn refusals_say_why() {
        let found = [br#"{"query":"x","error":"not both"}"#.as_slice(), b"not found", b"{}"].map(error);
        assert_eq!(found, [Some("not both".to_owned()), None, None]);
    }
}
