//! Every request on its way to a cloud passes here: it is counted, and its status is remembered for the error that may
//! come of it, since `object_store` does not name the type of error that holds it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::objects::ObjectCounters;

tokio::task_local! {
    /// Status of the last answer to the call under way; zero if there was none.
    static LAST_STATUS: Arc<AtomicU16>;
}

/// A failed call.
pub(super) struct Failure {
    pub(super) error: object_store::Error,
    /// Status of the last answer, if there was one.
    pub(super) status: Option<u16>,
}

impl Failure {
    /// Whether the connection broke or timed out, as opposed to an answer that refuses.
    pub(super) fn is_broken(&self) -> bool {
        super::classify::holds_transport_error(&self.error)
    }
}

/// Awaits a call and remembers how its last request ended.
pub(super) async fn traced<T>(call: impl Future<Output = object_store::Result<T>>) -> Result<T, Failure> {
    let last = Arc::new(AtomicU16::new(0));
    let done = LAST_STATUS.scope(last.clone(), call).await;
    done.map_err(|error| Failure { error, status: Some(last.load(Ordering::Relaxed)).filter(|status| *status > 0) })
}

/// Counts requests.
#[derive(Debug, Default)]
pub(super) struct Counting {
    requests: AtomicU64,
    requests_failed: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counting {
    pub(super) fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> ObjectCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ObjectCounters {
            requests: count(&self.requests),
            requests_failed: count(&self.requests_failed),
            sent_bytes: count(&self.sent_bytes),
            received_bytes: count(&self.received_bytes),
        }
    }

    fn answered(&self, answer: &Result<HttpResponse, HttpError>) {
        let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        // A future outside of `traced` has no caller that would ask.
        let _ = LAST_STATUS.try_with(|last| last.store(status, Ordering::Relaxed));
        if matches!(status, 0 | 408 | 429 | 500..) {
            self.requests_failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Makes HTTP clients that count.
#[derive(Debug)]
pub(super) struct CountingConnector(pub(super) Arc<Counting>);

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(CountingService { inner, counting: self.0.clone() }))
    }
}

#[derive(Debug)]
struct CountingService {
    inner: HttpClient,
    counting: Arc<Counting>,
}

#[async_trait::async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.counting.requests.fetch_add(1, Ordering::Relaxed);
        self.counting.sent_bytes.fetch_add(request.body().content_length() as u64, Ordering::Relaxed);
        let answer = self.inner.execute(request).await.map_err(refine);
        self.counting.answered(&answer);
        answer
    }
}

/// A connection that the server closed while the request was on its way to it comes as an error of no known kind, which
/// `object_store` would not send again even where that does no harm.
fn refine(error: HttpError) -> HttpError {
    match error.kind() {
        HttpErrorKind::Unknown => HttpError::new(HttpErrorKind::Interrupted, error),
        _ => error,
    }
}
