//! The targets: one listener each, on loopback, with how much each program fetched.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::series::Series;

/// What the targets serve.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    /// Targets.
    pub(super) targets: u32,
    /// Series of each.
    pub(super) series: usize,
    /// For so long the values stay what they are.
    pub(super) interval_ms: u64,
    /// Bodies are packed for those who take it.
    pub(super) gzip: bool,
}

/// Targets that are served; they end when this is dropped.
pub(super) struct Exporters {
    /// Where each target is.
    pub(super) addresses: Vec<SocketAddr>,
    state: Arc<State>,
    _runtime: Runtime,
}

struct State {
    series: Series,
    served: Served,
    /// The interval that values are counted from.
    first_tick: u64,
    /// Of each program, by the path that it asks for: its scrapes.
    programs: Vec<(String, AtomicU64)>,
}

impl Exporters {
    /// Serves targets to programs, each under a path of its own.
    pub(super) fn start(served: Served, programs: &[&str]) -> Result<Self, String> {
        raise_file_limit(u64::from(served.targets) * (programs.len() as u64 + 2) + 256)?;
        let failed = |error: std::io::Error| format!("cannot serve the targets: {error}");
        let runtime = Runtime::new().map_err(failed)?;
        let state = Arc::new(State {
            series: Series::new(served.series),
            served,
            first_tick: now_ms() / served.interval_ms,
            programs: programs.iter().map(|name| (format!("/{name}"), AtomicU64::new(0))).collect(),
        });
        let mut addresses = Vec::new();
        for target in 0..served.targets {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            runtime.spawn(accept(listener, state.clone(), target));
        }
        Ok(Self { addresses, state, _runtime: runtime })
    }

    /// How often a program has fetched a target.
    pub(super) fn scrapes(&self, program: &str) -> u64 {
        let found = self.state.programs.iter().find(|(path, _)| path.strip_prefix('/') == Some(program));
        found.map_or(0, |(_, scrapes)| scrapes.load(Ordering::Relaxed))
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Each target takes a listener, and a connection for each program; programs started later inherit the limit.
fn raise_file_limit(needed: u64) -> Result<(), String> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed.max(65_536)) {
        return Ok(());
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("cannot raise the limit of open files: {error}"))?;
    match limit.maximum {
        Some(maximum) if maximum < needed => Err(format!(
            "so many targets need {needed} open files and {maximum} are allowed: raise `ulimit -Hn`, or lower --targets"
        )),
        _ => Ok(()),
    }
}

async fn accept(listener: TcpListener, state: Arc<State>, target: u32) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, state.clone(), target));
    }
}

async fn serve(stream: TcpStream, state: Arc<State>, target: u32) {
    let service = service_fn(move |request| {
        let response = state.answer(target, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    // A program that goes away ends its connection in any state.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl State {
    fn answer(&self, target: u32, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let Some((_, scrapes)) = self.programs.iter().find(|(known, _)| known == path) else {
            let mut response = Response::new(Full::from("no program scrapes this path\n"));
            *response.status_mut() = hyper::StatusCode::NOT_FOUND;
            return response;
        };
        scrapes.fetch_add(1, Ordering::Relaxed);
        let tick = (now_ms() / self.served.interval_ms).saturating_sub(self.first_tick);
        let mut text = String::with_capacity(self.served.series * 100);
        self.series.render(target, tick, &mut text);
        let accepted = request.headers().get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let is_packed = self.served.gzip && accepted.is_some_and(|names| names.contains("gzip"));
        let body = if is_packed { gzip(text.as_bytes()) } else { text.into_bytes() };
        let mut response = Response::new(Full::from(body));
        let headers = response.headers_mut();
        headers
            .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
        if is_packed {
            headers.insert(CONTENT_ENCODING, hyper::header::HeaderValue::from_static("gzip"));
        }
        response
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(text.len() / 8), flate2::Compression::fast());
    // Writing to a vector cannot fail.
    let _ = encoder.write_all(text);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use client::http::HttpClient;

    use super::*;

    #[test]
    fn targets_serve_each_program_and_count_its_scrapes() {
        let served = Served { targets: 2, series: 50, interval_ms: 1_000_000_000, gzip: false };
        let exporters = Exporters::start(served, &["thalweg", "prometheus"]).unwrap();
        let [first, second] = exporters.addresses[..] else { panic!("two targets") };
        let fetch =
            |address: SocketAddr, path: &str| HttpClient::new(&format!("http://{address}")).get(path, &[]).unwrap();
        let text = fetch(first, "/thalweg").body;
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 50);
        assert_eq!(fetch(first, "/prometheus").body, text);
        assert_ne!(fetch(second, "/thalweg").body, text);
        assert_eq!(fetch(second, "/metrics").status, 404);
        assert_eq!([exporters.scrapes("thalweg"), exporters.scrapes("prometheus")], [2, 1]);
    }
}
