//! Connections of HTTP/1.
//!
//! hyper holds a buffer for reading and one for writing, 8 KiB each, for as long as a connection lives. Most connections are
//! silent most of the time, so here hyper has a connection only while it is *awake*: from the first byte of a request until it
//! has been quiet for `park_after_ms`. Then it is taken apart and the bare socket is *parked* until the client has more to say.
//!
//! What makes that safe: hyper works in the connection's own task, so nothing moves between two polls; [`Activity`] knows
//! whether a request is under way or bytes wait to be written; and hyper itself is asked to end the connection, which it does
//! at once if, and only if, it is between two requests. What it has read of the next one goes to its successor. Should it not end at
//! once, the connection closes after its next answer, and says so in it, as HTTP allows at any time.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;

use crate::error::ApiError;
use crate::http::guard::RequestGuard;
use crate::http::health;
use crate::http::routes;
use crate::listen::accept::Serve;
use crate::listen::connection_limit::{FULL, IdleConnections};
use crate::listen::http2;
use crate::listen::request_body::BodyProgress;
use crate::listen::request_line::{self, Boundary};
use crate::listen::socket::{Peer, Socket};
use crate::listen::tls::Inner;
use crate::metrics::Metrics;
use crate::scheduler::running::Remote;
use crate::settings::ServerSettings;
use crate::sign_in::Acquainted;
use crate::state::State;
use crate::wire::linger;

/// Bytes that are read from a connection at a time, and that a request's head may have. A buffer that fits the cache of a
/// core is copied from faster, and got from the allocator without a page fault.
const READ_BYTES_MAX: usize = 128 << 10;

/// What the connections of a port share.
pub(crate) struct Shared {
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) parking: IdleConnections,
    guard: Arc<RequestGuard>,
    /// Who answers until the data folder is open.
    before: Router,
    /// Who answers from then on.
    router: OnceLock<Router>,
}

impl Shared {
    pub(crate) fn new(settings: ServerSettings, guard: Arc<RequestGuard>) -> Self {
        Self {
            metrics: Arc::default(),
            parking: IdleConnections::default(),
            before: settings.web.route_prefix.wrap(&guard, health::recovering(guard.clone(), settings.opening.clone())),
            settings: Arc::new(settings),
            guard,
            router: OnceLock::new(),
        }
    }

    /// The data folder is open: requests are answered from it.
    pub(crate) fn open(&self, state: &Arc<State>) {
        // Once per server.
        let router = routes::router(state.clone(), self.guard.clone());
        let _ = self.router.set(self.settings.web.route_prefix.wrap(&self.guard, router));
    }

    fn router(&self) -> Router {
        self.router.get().unwrap_or(&self.before).clone()
    }
}

/// A connection without a reader, and the bytes that were read of its next request.
struct Parked {
    stream: Socket,
    ahead: Bytes,
}

impl Serve for Shared {
    async fn serve(self: Arc<Self>, socket: Socket, peer: Peer, stop: watch::Receiver<bool>) {
        if socket.speaks_http2() {
            let settings = self.settings.clone();
            http2::serve(move || self.router(), &settings, (socket, peer), stop).await;
        } else {
            serve(&self, socket, peer, stop).await;
        }
    }

    fn inner(&self) -> Inner {
        Inner::Http
    }

    fn evict(&self) -> bool {
        self.parking.evict()
    }

    fn refusal(&self) -> &'static [u8] {
        FULL
    }
}

/// Serves a connection until it ends: because its client wants it to, is silent or slow, or because of the stop.
async fn serve(shared: &Arc<Shared>, stream: Socket, peer: Peer, mut stop: watch::Receiver<bool>) {
    let settings = &shared.settings;
    let mut parked = Parked { stream, ahead: Bytes::new() };
    let acquainted = Acquainted::default();
    let mut patience = Duration::from_millis(settings.head_timeout_ms);
    loop {
        let says_more = {
            let _counted = shared.metrics.park();
            let mut place = shared.parking.enter();
            tokio::select! {
                biased;
                says_more = timeout(patience, parked.says_more()) => says_more.unwrap_or(false),
                _ = &mut place.evicted => false,
                _ = stop.wait_for(|stop| *stop) => false,
            }
        };
        if !says_more {
            return;
        }
        // Boxed, so that a parked connection does not hold the room that it takes awake.
        let client = (peer.clone(), acquainted.clone());
        let awake = Box::pin(Awake::new(shared, parked, client).run(&mut stop));
        match awake.await {
            Some(again) => parked = again,
            None => return,
        }
        patience = acquainted.patience(settings);
    }
}

impl Parked {
    /// Waits for bytes; false if the client has left.
    async fn says_more(&mut self) -> bool {
        !self.ahead.is_empty() || self.stream.says_more().await
    }
}

/// What goes on in a connection that is awake. Only its own task looks and writes here.
#[derive(Debug, Default)]
struct Activity {
    /// Requests whose answers have not been handed to hyper wholly.
    under_way: AtomicUsize,
    /// An answer has been.
    answered: AtomicBool,
    /// Bytes came or went since this was looked at.
    stirred: AtomicBool,
    /// The socket takes no more bytes at present.
    stuck: AtomicBool,
    /// Nothing is to be read: the connection is being taken apart.
    is_paused: AtomicBool,
    /// Bytes that the client took.
    written: AtomicUsize,
    /// The head of the request that is coming, as hyper gets it.
    head: Mutex<Head>,
    /// Where the next request line begins among the bytes that hyper gets.
    boundary: Mutex<Boundary>,
    /// hyper had an answer of its own to what it could not read.
    is_refused: AtomicBool,
}

/// A request's head, for what is not in it any more once it is parsed.
#[derive(Debug, Default)]
struct Head {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Head {
    fn push(&mut self, bytes: &[u8]) {
        if self.is_whole || self.bytes.len() > READ_BYTES_MAX {
            return;
        }
        // The end may have been cut.
        let searched = self.bytes.len().saturating_sub(3);
        // Line ends before a request are of no meaning.
        let blank = bytes.iter().take_while(|byte| self.bytes.is_empty() && matches!(byte, b'\r' | b'\n')).count();
        self.bytes.extend_from_slice(bytes.get(blank..).unwrap_or_default());
        let added = self.bytes.get(searched..).unwrap_or_default();
        // A line may end without a carriage return.
        let end = memchr::memchr_iter(b'\n', added).find_map(|at| match added.get(at + 1..)? {
            [b'\n', ..] => Some(at + 2),
            [b'\r', b'\n', ..] => Some(at + 3),
            _ => None,
        });
        if let Some(end) = end {
            self.bytes.truncate(searched + end);
            self.is_whole = true;
        }
    }

    /// Returns whether the head has a header of this name, or may have one: of a head that came before the last answer had gone nothing is known. The
    /// next head may come then.
    fn take(&mut self, name: &[u8]) -> bool {
        let mut lines = self.bytes.split(|byte| *byte == b'\n').skip(1);
        let is_there = lines.any(|line| {
            let found = line.split(|byte| *byte == b':').next().unwrap_or_default();
            found.trim_ascii().eq_ignore_ascii_case(name)
        });
        self.bytes.clear();
        let is_whole = std::mem::take(&mut self.is_whole);
        is_there || !is_whole
    }
}

impl Activity {
    fn lock_head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_boundary(&self) -> MutexGuard<'_, Boundary> {
        self.boundary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes came; between two requests they are a head.
    fn note_read(&self, bytes: &[u8]) {
        if self.under_way.load(Ordering::Relaxed) == 0 {
            self.lock_head().push(bytes);
        }
    }

    /// A request was parsed whose body has so many bytes, if that is known. Returns whether it has a Content-Length, or may have one.
    fn note_request(&self, body_bytes: Option<u64>) -> bool {
        let mut head = self.lock_head();
        let head_bytes = head.is_whole.then_some(head.bytes.len() as u64);
        self.lock_boundary().note_request(head_bytes.zip(body_bytes).map(|(head, body)| head.saturating_add(body)));
        head.take(header::CONTENT_LENGTH.as_str().as_bytes())
    }

    /// Returns whether bytes that hyper writes are its own refusal of a head, for which no request was handed over.
    fn is_refusal(&self, bytes: &[u8]) -> bool {
        let is_own = bytes.starts_with(b"HTTP/1.1 4")
            && self.under_way.load(Ordering::Relaxed) == 0
            && !self.lock_head().bytes.is_empty()
            && memchr::memmem::find(bytes, b"Content-Length: 0\r\n").is_some();
        self.is_refused.fetch_or(is_own, Ordering::Relaxed);
        is_own
    }

    fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Whether the client has taken nothing of an answer for as long as it may.
    fn is_stuck(&self, reading: &mut Reading, timeout: Duration) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        if written != reading.written || !self.stuck.load(Ordering::Relaxed) {
            *reading = Reading { written, since: now() };
        }
        reading.since.elapsed() >= timeout
    }

    /// Whether nothing at all has happened since this was asked last, and nothing is awaited but another request.
    fn is_quiet(&self) -> bool {
        let stirred = self.stirred.swap(false, Ordering::Relaxed);
        let is_idle = self.under_way.load(Ordering::Relaxed) == 0 && self.answered.load(Ordering::Relaxed);
        !stirred && is_idle && !self.stuck.load(Ordering::Relaxed)
    }
}

/// A request until its answer has been handed over, or given up.
struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.answered.store(true, Ordering::Relaxed);
        self.0.stirred.store(true, Ordering::Relaxed);
    }
}

/// What happens next in a connection that is awake.
enum Event {
    Ended(hyper::Result<()>),
    Stop,
    /// It is time to see whether it is quiet.
    Look,
}

/// A connection in hyper's hands.
struct Awake {
    connection: http1::Connection<TokioIo<Watched>, Requests>,
    activity: Arc<Activity>,
    park_after: Duration,
    write_timeout: Duration,
}

/// How far a client had come with reading when this was looked at last.
struct Reading {
    written: usize,
    since: Instant,
}

impl Awake {
    fn new(shared: &Arc<Shared>, parked: Parked, (peer, acquainted): (Peer, Acquainted)) -> Self {
        let settings = &shared.settings;
        let activity = Arc::new(Activity::default());
        let requests = Requests { shared: shared.clone(), peer, acquainted, activity: activity.clone() };
        let Parked { stream, ahead } = parked;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .max_buf_size(READ_BYTES_MAX)
            // ntopng looks for `X-Influxdb-Version` as InfluxDB spells it.
            .title_case_headers(true)
            .header_read_timeout(Duration::from_millis(settings.head_timeout_ms))
            .serve_connection(
                TokioIo::new(Watched { stream, ahead, is_raw: true, activity: activity.clone() }),
                requests,
            );
        let [park_after, write_timeout] =
            [settings.park_after_ms, settings.write_timeout_ms].map(Duration::from_millis);
        Self { connection, activity, park_after, write_timeout }
    }

    /// Serves requests until the connection is to be parked, or ends.
    async fn run(mut self, stop: &mut watch::Receiver<bool>) -> Option<Parked> {
        let mut look = std::pin::pin!(sleep(self.park_after));
        let mut is_last = false;
        let mut reading = Reading { written: 0, since: now() };
        loop {
            let event = tokio::select! {
                biased;
                ended = poll_fn(|context| self.connection.poll_without_shutdown(context)) => Event::Ended(ended),
                _ = stop.wait_for(|stop| *stop), if !is_last => Event::Stop,
                () = &mut look => Event::Look,
            };
            match event {
                Event::Ended(Err(error)) => {
                    if self.activity.is_refused.load(Ordering::Relaxed) {
                        let patience = self.write_timeout;
                        // A client that does not read why is told by the end.
                        let _ = timeout(patience, request_line::refuse(self.take_apart().stream, &error)).await;
                    }
                    return None;
                }
                Event::Ended(Ok(())) => {
                    // A client that is gone already needs no goodbye.
                    let mut stream = self.take_apart().stream;
                    if stream.shutdown().await.is_ok() && !*stop.borrow() {
                        // A body that was not read would take the answer away from a client that still sends it.
                        linger(stream).await;
                    }
                    return None;
                }
                Event::Stop => {
                    is_last = true;
                    Pin::new(&mut self.connection).graceful_shutdown();
                }
                Event::Look if self.activity.is_stuck(&mut reading, self.write_timeout) => return None,
                Event::Look if is_last || !self.activity.is_quiet() => look.set(sleep(self.park_after)),
                Event::Look => {
                    is_last = true;
                    match self.let_go().await {
                        Poll::Ready(Ok(())) => return Some(self.take_apart()),
                        Poll::Ready(Err(_)) => return None,
                        Poll::Pending => look.set(sleep(self.park_after)),
                    }
                }
            }
        }
    }

    /// Tells hyper to end the connection, which it has done already when this returns if it is between two requests.
    async fn let_go(&mut self) -> Poll<hyper::Result<()>> {
        self.activity.is_paused.store(true, Ordering::Relaxed);
        Pin::new(&mut self.connection).graceful_shutdown();
        let ended = poll_fn(|context| Poll::Ready(self.connection.poll_without_shutdown(context))).await;
        self.activity.is_paused.store(false, Ordering::Relaxed);
        ended
    }

    fn take_apart(self) -> Parked {
        let parts = self.connection.into_parts();
        let Watched { stream, ahead: unread, .. } = parts.io.into_inner();
        // Copied: a few bytes must not hold a whole buffer.
        let ahead = [parts.read_buf, unread].concat();
        // Line ends before a request are of no meaning.
        let blank = ahead.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        Parked { stream, ahead: Bytes::from(ahead).slice(blank..) }
    }
}

/// Hands requests to the router.
struct Requests {
    shared: Arc<Shared>,
    peer: Peer,
    acquainted: Acquainted,
    activity: Arc<Activity>,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Remote(self.peer.address));
        request.extensions_mut().insert(self.peer.clone());
        request.extensions_mut().insert(self.acquainted.clone());
        let under_way = self.activity.begin();
        if let Some(uri) = request_line::without_double_slashes(request.uri()) {
            *request.uri_mut() = uri;
        }
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let may_have_length = self.activity.note_request(request.body().size_hint().exact().filter(|_| !is_chunked));
        if may_have_length && is_chunked {
            // Parsed, the request has one of them left: what stands between client and server may have gone by the other.
            let refused = ApiError::bad_data(
                "a body has a Content-Length or is chunked, not both, and a chunked one is sent after the answer before it has come",
            );
            let refused = refused.into_response();
            let mut refused = refused.map(|body| Answer { body, _under_way: under_way });
            refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return Box::pin(async move { Ok(refused) });
        }
        let (request, body) = BodyProgress::watch(request);
        let answering = self.shared.router().oneshot(request);
        Box::pin(async move {
            let mut response = answering.await?;
            if !body.finish().await {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| Answer { body, _under_way: under_way }))
        })
    }
}

/// The body of an answer; the request is under way until hyper has dropped it.
struct Answer {
    body: axum::body::Body,
    _under_way: UnderWay,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket whose bytes are noticed. What was read of it before comes first.
struct Watched {
    stream: Socket,
    ahead: Bytes,
    /// Whether those are as they came from the socket.
    is_raw: bool,
    activity: Arc<Activity>,
}

impl Watched {
    fn note_written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.stirred.store(true, Ordering::Relaxed);
        self.activity.stuck.store(written.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(count)) = &written {
            self.activity.written.fetch_add(*count, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.activity.is_paused.load(Ordering::Relaxed) {
            // No task needs to be woken: the one that owns the connection polls it again, or takes it apart.
            return Poll::Pending;
        }
        if !self.ahead.is_empty() {
            if std::mem::take(&mut self.is_raw) {
                let encoded = self.activity.lock_boundary().encode(&self.ahead);
                self.ahead = encoded.map_or_else(|| self.ahead.clone(), Bytes::from);
            }
            let count = self.ahead.len().min(buffer.remaining());
            let ahead = self.ahead.split_to(count);
            self.activity.note_read(&ahead);
            buffer.put_slice(&ahead);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            let encoded = self.activity.lock_boundary().encode(buffer.filled().get(before..).unwrap_or_default());
            if let Some(encoded) = encoded {
                buffer.set_filled(before);
                let count = encoded.len().min(buffer.remaining());
                self.ahead = Bytes::from(encoded);
                buffer.put_slice(&self.ahead.split_to(count));
            }
            self.activity.note_read(buffer.filled().get(before..).unwrap_or_default());
            self.activity.stirred.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.activity.is_refusal(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if slices.first().is_some_and(|first| self.activity.is_refusal(first)) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(self.stream, Socket::Tls(_)) {
            // What was written may wait there.
            self.activity.stuck.store(flushed.is_pending(), Ordering::Relaxed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The time, by the runtime's clock.
fn now() -> Instant {
    sleep(Duration::ZERO).deadline()
}
