//! The bodies of requests of HTTP/1, for what is left of them when the answer is there.
//!
//! The rest of a body stands before the next request. What of it is at hand is read, as hyper would do; if that is not all, the
//! connection has to close, and the answer has to say so: else the client sends its next request into a closed connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::header;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Bytes of a rest that are read for nothing.
const REST_BYTES_MAX: usize = 64 << 10;

/// How often the connection is given the chance to find more bytes of a rest.
const LOOKS_MAX: usize = 3;

/// How far the body of a request has been read.
#[derive(Debug, Default)]
pub(super) struct BodyProgress {
    is_read: AtomicBool,
    /// A body that its handler has dropped before its end.
    rest: Mutex<Option<Incoming>>,
}

impl BodyProgress {
    /// Watches over the body of a request that begins.
    pub(super) fn watch(request: Request<Incoming>) -> (Request<RequestBody>, Arc<Self>) {
        let progress = Arc::new(Self::default());
        progress.is_read.store(request.body().is_end_stream(), Ordering::Relaxed);
        // A client that waits for "100 Continue" before it sends the body would be told to send it by the first look at it.
        let is_awaited = request.headers().contains_key(header::EXPECT);
        (request.map(|body| RequestBody { body: Some(body), is_awaited, progress: progress.clone() }), progress)
    }

    /// Reads what of the body is left and at hand. Returns whether the body has come to its end.
    pub(super) async fn finish(&self) -> bool {
        if self.is_read.load(Ordering::Relaxed) {
            return true;
        }
        let rest = self.lock().take();
        match rest {
            Some(rest) => pass_over(rest).await,
            None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Incoming>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn pass_over(mut rest: Incoming) -> bool {
    let (mut passed_bytes, mut looks) = (0, 0);
    loop {
        match poll_fn(|context| Poll::Ready(Pin::new(&mut rest).poll_frame(context))).await {
            Poll::Ready(None) => return true,
            Poll::Ready(Some(Ok(frame))) => {
                passed_bytes += frame.data_ref().map_or(0, Bytes::len);
                looks = 0;
            }
            Poll::Ready(Some(Err(_))) => return false,
            Poll::Pending => {
                looks += 1;
                // hyper reads in the task that waits here.
                tokio::task::yield_now().await;
            }
        }
        if passed_bytes > REST_BYTES_MAX || looks > LOOKS_MAX {
            return false;
        }
    }
}

/// The body of a request.
pub(super) struct RequestBody {
    /// `None` once it is dropped.
    body: Option<Incoming>,
    is_awaited: bool,
    progress: Arc<BodyProgress>,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(&mut *body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || body.is_end_stream() {
            self.progress.is_read.store(true, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_awaited && !self.progress.is_read.load(Ordering::Relaxed) {
            *self.progress.lock() = self.body.take();
        }
    }
}
