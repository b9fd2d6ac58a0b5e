//! Bodies, within bounds of size and time.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use ingest::encoding::{Encoding, UnpackLimits, decompress_into};

use crate::error::ApiError;
use crate::state::State;

/// Up to so many bytes a body may take of what is left for small ones.
const SMALL_BYTES: usize = 256 << 10;

/// Up to so many bytes that a client announces are made room for at once. More than that it has to send first.
const ANNOUNCED_BYTES_MAX: usize = 4 << 20;

/// Buffers of a kind that are kept for the next bodies, and bytes that one of them, and all, may have room for.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 8 << 20;
const SPARES_BYTES_MAX: usize = 16 << 20;

/// Buffers of bodies that are done with: memory that is got from the system anew for each of them costs more than reading it.
#[derive(Debug, Default)]
pub(crate) struct Spares(Mutex<Vec<Vec<u8>>>);

impl Spares {
    /// A buffer; what is in it is of no meaning.
    pub(crate) fn take(self: &Arc<Self>) -> Buffer {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        Buffer { bytes, spares: self.clone() }
    }

    fn give(&self, bytes: Vec<u8>) {
        if bytes.capacity() == 0 || bytes.capacity() > SPARE_BYTES_MAX {
            return;
        }
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept_bytes: usize = spares.iter().map(Vec::capacity).sum();
        if spares.len() < SPARES_MAX && kept_bytes + bytes.capacity() <= SPARES_BYTES_MAX {
            spares.push(bytes);
        }
    }

    /// Bytes that are kept.
    pub(crate) fn size_bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::capacity).sum()
    }

    /// Gives what is kept back to the system.
    pub(crate) fn give_back(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }
}

/// A body; its memory is used again.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    spares: Arc<Spares>,
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.spares.give(std::mem::take(&mut self.bytes));
    }
}

/// Bytes of bodies that all connections hold together. The last eighth is for small ones, so that a few clients with large
/// bodies do not shut the others out.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    bytes_max: usize,
}

/// A body's share of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { held: AtomicUsize::new(0), bytes_max }
    }

    /// Nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

impl Share {
    /// Takes so many bytes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let Budget { held, bytes_max } = &*self.budget;
        let before = held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        let bytes_max = if self.bytes <= SMALL_BYTES { *bytes_max } else { bytes_max - bytes_max / 8 };
        if before + bytes <= bytes_max {
            return Ok(());
        }
        Err(ApiError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "unavailable",
            message: format!(
                "the server holds {before} bytes of requests already (bodies_bytes_max); send it again later"
            ),
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Takes a body as it was sent.
pub(crate) async fn collect(state: &Arc<State>, body: Body) -> Result<(Buffer, Share), ApiError> {
    match tokio::time::timeout(state.body_timeout(), collect_frames(state, body)).await {
        Ok(collected) => collected,
        Err(_) => Err(ApiError {
            status: StatusCode::REQUEST_TIMEOUT,
            kind: "timeout",
            message: format!("the body took longer than {} ms (body_timeout_ms)", state.settings.body_timeout_ms),
        }),
    }
}

async fn collect_frames(state: &Arc<State>, mut body: Body) -> Result<(Buffer, Share), ApiError> {
    check_announced(&body, state.settings.body_bytes_max)?;
    let limit = state.settings.body_bytes_max;
    let mut share = state.bodies.share();
    let mut collected = state.spares.take();
    collected.clear();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_data(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let taken = if collected.len() + data.len() > limit { Err(too_long(limit)) } else { share.grow(data.len()) };
        if let Err(error) = taken {
            drop((collected, share));
            pass_over(&mut body, limit).await;
            return Err(error);
        }
        if collected.is_empty() {
            let announced = body.size_hint().exact().unwrap_or(0).min(ANNOUNCED_BYTES_MAX as u64);
            // Untouched room takes no memory; where there is none, the body grows as it comes.
            let _ = collected.try_reserve_exact(data.len() + announced as usize);
        }
        collected.extend_from_slice(&data);
    }
    Ok((collected, share))
}

/// Refuses a body that says itself that it is too long, before anything of it is read.
fn check_announced(body: &Body, limit: usize) -> Result<(), ApiError> {
    match body.size_hint().exact().filter(|announced| *announced > limit as u64) {
        Some(_) => Err(too_long(limit)),
        None => Ok(()),
    }
}

fn too_long(limit: usize) -> ApiError {
    ApiError::too_large(format!("the body has more than {limit} bytes (body_bytes_max)"))
}

/// Reads on without keeping anything: a client that still sends when the connection is closed does not get to see why.
async fn pass_over(body: &mut Body, bytes_max: usize) {
    let mut passed = 0;
    while let Some(Ok(frame)) = body.frame().await {
        passed += frame.data_ref().map_or(0, Bytes::len);
        if passed > bytes_max {
            return;
        }
    }
}

/// Unpacks a body by what its headers say of it.
pub(crate) fn unpack(state: &State, headers: &HeaderMap, body: Buffer, share: &mut Share) -> Result<Buffer, ApiError> {
    let name = headers.get(header::CONTENT_ENCODING).map_or("", |value| value.to_str().unwrap_or("?"));
    let encoding = Encoding::from_name(name).ok_or_else(|| ApiError {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        kind: "bad_data",
        message: format!("content encoding {name:?} is not supported; use {}", Encoding::NAMES),
    })?;
    unpack_as(state, encoding, body, share)
}

/// Unpacks a body that is packed so.
pub(crate) fn unpack_as(
    state: &State,
    encoding: Encoding,
    body: Buffer,
    share: &mut Share,
) -> Result<Buffer, ApiError> {
    if encoding == Encoding::Identity {
        return Ok(body);
    }
    let limits = UnpackLimits {
        size_bytes_max: state.settings.unpacked_bytes_max,
        ratio_max: state.settings.unpacked_ratio_max,
    };
    let mut unpacked = state.unpacked_spares.take();
    decompress_into(encoding, &body, limits, &mut unpacked).map_err(|error| body_error(&error))?;
    share.grow(unpacked.len())?;
    Ok(unpacked)
}

/// A body that no parser can use.
pub(crate) fn body_error(error: &ingest::BodyError) -> ApiError {
    match error {
        ingest::BodyError::TooLarge { .. } => ApiError::too_large(error.to_string()),
        ingest::BodyError::Malformed(_) => ApiError::bad_data(error.to_string()),
    }
}
