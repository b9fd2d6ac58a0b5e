//! Bodies, within bounds of size and time.

use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use db::{MemoryPool, TenantMemory};
use http_body_util::BodyExt;
use ingest::encoding::{Encoding, UnpackLimits, decompress_within};

use crate::error::ApiError;
use crate::scheduler::tenants::Tenant;
use crate::scheduler::tenants::slots::{FairSlots, Slot};
use crate::state::State;

/// Up to so many bytes a body may take of what is left for small ones.
const SMALL_BYTES: usize = 256 << 10;

/// Up to so many bytes that a client announces are made room for at once. More than that it has to send first.
const ANNOUNCED_BYTES_MAX: usize = 4 << 20;

/// How long a request waits for memory that others are about to give back.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes, unpacked, from which on a request is a large one.
const LARGE_BYTES: usize = 1 << 20;
/// How much text a packed byte stands for, mostly.
const LIKELY_RATIO: usize = 8;
/// Large requests that may work beside one for each core: some wait for the disk.
const LARGE_BESIDE_CORES: usize = 2;
/// A body of text that unpacks to more than this many times its bytes may be a bomb.
const BOMB_RATIO: usize = 64;
/// What the rows of such a body may need.
const BOMB_WORK_BYTES_MAX: usize = 16 << 20;

/// Bytes of rows for a byte of text: the line `m v=1 1` is a row of a batch, of a shard and of the log.
const TEXT_WORK_FACTOR: usize = 12;
/// And for a byte of protobuf, where a sample of zeros has two.
const PROTOBUF_WORK_FACTOR: usize = 44;
/// Bytes of rows for a byte of protobuf in which samples and points have at least so many bytes.
const PROTOBUF_LIKELY_FACTOR: usize = 12;
const SHORT_MESSAGE_BYTES: u8 = 8;
/// And for each message that is shorter.
const SHORT_MESSAGE_WORK_BYTES: usize = 88;
/// Bytes of rows for each separator of a text: every value and every row has one.
const SEPARATOR_WORK_BYTES: usize = 25;

/// Bytes that stand between the values of a text.
const IS_SEPARATOR: [bool; 256] = {
    let mut table = [false; 256];
    let mut rest: &[u8] = b",= \n:\t;";
    while let [byte, behind @ ..] = rest {
        table[*byte as usize] = true;
        rest = behind;
    }
    table
};

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

/// What all requests on their way in may hold together: bodies, what they unpack to, and the rows made of them. The last eighth is for small
/// ones, so that a few clients with large bodies do not shut the others out.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes of bodies, as sent and unpacked; what rows take is the pool's alone.
    used_bytes: AtomicUsize,
    bytes_max: usize,
    pool: Arc<MemoryPool>,
    /// Large requests that work at the same time: the others wait, so that small ones find a core.
    large: Arc<FairSlots>,
}

/// A request's share of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    /// Of the pool.
    bytes: usize,
    /// How many of them are a body's.
    body_bytes: usize,
    /// A large request's place among those that work at the same time.
    large: Option<Slot>,
    /// Its tenant.
    tenant: Arc<Tenant>,
}

impl Budget {
    /// A setting bounds it, and the memory that requests may take of the database's.
    pub(crate) fn new(bytes_max: usize, pool: Arc<MemoryPool>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { used_bytes: AtomicUsize::new(0), bytes_max, pool, large: FairSlots::new(cores + LARGE_BESIDE_CORES) }
    }

    /// Nothing yet, for a request of a tenant.
    pub(crate) fn share(self: &Arc<Self>, tenant: &Arc<Tenant>) -> Share {
        Share { budget: self.clone(), bytes: 0, body_bytes: 0, large: None, tenant: tenant.clone() }
    }
}

/// A packed body, as far as it is unpacked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unpacked {
    pub(super) sent_bytes: usize,
    pub(super) bytes: usize,
}

impl Unpacked {
    /// Returns whether the body is a bomb: hardly any sender's text packs so well, and its rows need much memory.
    const fn is_bomb(self, work_bytes: usize) -> bool {
        work_bytes > BOMB_WORK_BYTES_MAX && self.bytes / BOMB_RATIO > self.sent_bytes
    }
}

impl Share {
    /// Has a request whose body will be large wait until few enough others work, for so long at most.
    pub(crate) async fn queue_if_large(
        &mut self,
        encoding: Encoding,
        body: &[u8],
        patience: Duration,
    ) -> Result<(), ApiError> {
        if likely_bytes(encoding, body) <= LARGE_BYTES {
            return Ok(());
        }
        let slot = tokio::time::timeout(patience, self.budget.large.acquire(&self.tenant.name, usize::MAX)).await;
        self.large = slot.map_err(|_| busy_with_large())?.ok();
        Ok(())
    }

    /// A body that unpacks to more than was to be expected needs a large one's place from here on. It does not wait for it: it holds a place
    /// that small ones want.
    fn enter_large(&mut self) -> Result<(), ApiError> {
        if self.large.is_none() {
            let slot = self.budget.large.try_acquire(&self.tenant.name);
            self.large = Some(slot.ok_or_else(busy_with_large)?);
        }
        Ok(())
    }

    /// Takes so many bytes more of a body, if they are to be had now.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.take_body(bytes, |memory, held| memory.take(bytes as u64, held))
    }

    /// As [`Share::grow`], but waits a moment for others to end. Only for threads that may block.
    pub(crate) fn grow_patiently(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.take_body(bytes, |memory, held| memory.take_within(bytes as u64, held, PATIENCE))
    }

    /// Takes memory for something that is no body. Waits a moment for others to end: only for threads that may block.
    pub(crate) fn reserve_patiently(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.take(bytes, |memory, held| memory.take_within(bytes as u64, held, PATIENCE))
    }

    /// Takes memory for rows, one of two amounts: the second is for when the first is not to be had. Only for threads that may block.
    fn grow_to_fit(&mut self, most: usize, counted: impl FnOnce() -> usize) -> Result<(), ApiError> {
        if self.take(most, |memory, held| memory.take(most as u64, held)).is_ok() {
            return Ok(());
        }
        let counted = counted().min(most);
        self.take(counted, |memory, held| memory.take_within(counted as u64, held, PATIENCE))
    }

    /// Gives its place among large requests to another share, and takes that one's.
    pub(super) fn swap_place(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.large, &mut other.large);
    }

    /// Takes the memory of the rows of a piece of text. Only for threads that may block.
    pub(super) fn grow_for_piece(&mut self, text: &[u8], unpacked: Unpacked) -> Result<(), ApiError> {
        if unpacked.bytes > LARGE_BYTES {
            self.enter_large()?;
        }
        let counted = Form::Text.work_bytes_counted(text);
        if unpacked.is_bomb(self.bytes.saturating_add(counted)) {
            return Err(ApiError::too_large(format!(
                "the body, unpacked, has more than {BOMB_RATIO} times the bytes sent, and the rows of such a one may need {BOMB_WORK_BYTES_MAX} bytes \
                 of memory (bomb_work_bytes_max): send it in smaller pieces"
            )));
        }
        self.take(counted, |memory, held| memory.take_within(counted as u64, held, PATIENCE))
    }

    /// Takes bytes of a body: of all bodies' (`bodies_bytes_max`), and of the pool.
    fn take_body(&mut self, bytes: usize, take: impl FnOnce(&TenantMemory, u64) -> bool) -> Result<(), ApiError> {
        let budget = self.budget.clone();
        let own = self.body_bytes + bytes;
        let most = if own <= SMALL_BYTES { budget.bytes_max } else { budget.bytes_max - budget.bytes_max / 8 };
        if own > most {
            return Err(ApiError::too_large(format!(
                "the body takes {own} bytes as sent and unpacked, and one may have {most} (bodies_bytes_max): send it in smaller pieces or \
                 raise bodies_bytes_max"
            )));
        }
        let before = budget.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken =
            if before + bytes <= most { self.take(bytes, take) } else { Err(full("bodies_bytes_max", before as u64)) };
        match taken {
            Ok(()) => self.body_bytes = own,
            Err(_) => drop(budget.used_bytes.fetch_sub(bytes, Ordering::Relaxed)),
        }
        taken
    }

    /// Takes bytes of the pool.
    fn take(&mut self, bytes: usize, take: impl FnOnce(&TenantMemory, u64) -> bool) -> Result<(), ApiError> {
        let pool = &self.budget.pool;
        let needed = self.bytes.saturating_add(bytes);
        // What will never be there is not waited for.
        if !pool.may_ever_hold(needed as u64) {
            let most = pool.bytes_max;
            return Err(ApiError::too_large(format!(
                "the request needs {needed} bytes of memory, and all requests together have {most} (a quarter of memory_bytes_max): send it \
                 in smaller pieces or raise memory_bytes_max"
            )));
        }
        if take(&self.tenant.request_memory, self.bytes as u64) {
            self.bytes += bytes;
            return Ok(());
        }
        Err(full("memory_bytes_max", pool.used_bytes()))
    }
}

fn full(limit: &str, used: u64) -> ApiError {
    unavailable(format!("the server holds {used} bytes of requests already ({limit}); send it again later"))
}

fn busy_with_large() -> ApiError {
    unavailable(format!(
        "as many requests of more than {LARGE_BYTES} bytes as may are being worked on: send it again later, or in smaller pieces"
    ))
}

fn unavailable(message: String) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
}

/// Bytes that a body will probably unpack to: by what it says of itself where that is quickly found, else by its size.
fn likely_bytes(encoding: Encoding, body: &[u8]) -> usize {
    let said = match encoding {
        Encoding::Identity => return body.len(),
        // RFC 1952: the last four bytes.
        Encoding::Gzip => body.last_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size) as usize),
        Encoding::Snappy => snappy_bytes(body),
        Encoding::Deflate | Encoding::Zstd => 0,
    };
    said.max(body.len().saturating_mul(LIKELY_RATIO))
}

/// What a block of snappy begins with: its unpacked bytes, seven bits at a time.
fn snappy_bytes(body: &[u8]) -> usize {
    let mut bytes = 0;
    for (place, byte) in body.iter().take(5).enumerate() {
        bytes |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    bytes
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.body_bytes, Ordering::Relaxed);
        self.tenant.request_memory.give_back(self.bytes as u64);
    }
}

/// What a body holds, which says how much memory its rows take at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Lines, JSON, CSV: values between separators.
    Text,
    /// Messages of protobuf: a sample may take two bytes.
    Protobuf,
}

impl Form {
    /// Bytes that parsing, routing and logging the rows of a body take beside it, at most.
    fn work_bytes_max(self, body: &[u8]) -> usize {
        match self {
            Self::Text => body.len().saturating_mul(TEXT_WORK_FACTOR),
            Self::Protobuf => body.len().saturating_mul(PROTOBUF_WORK_FACTOR),
        }
    }

    /// As [`Form::work_bytes_max`], after a look at the body.
    fn work_bytes_counted(self, body: &[u8]) -> usize {
        match self {
            Self::Text => {
                let separators = body.iter().filter(|byte| IS_SEPARATOR[usize::from(**byte)]).count();
                body.len().saturating_add(separators.saturating_mul(SEPARATOR_WORK_BYTES))
            }
            Self::Protobuf => {
                // The tag of a message has the type 2, then comes its length; one of several bytes may be a small number, too.
                let is_short = |pair: &&[u8]| matches!(pair, [tag, length] if tag & 7 == 2 && !(SHORT_MESSAGE_BYTES..0x80).contains(length));
                let short = body.windows(2).filter(is_short).count();
                let likely = body.len().saturating_mul(PROTOBUF_LIKELY_FACTOR);
                likely.saturating_add(short.saturating_mul(SHORT_MESSAGE_WORK_BYTES))
            }
        }
    }
}

/// Takes the memory that the rows of a body will need, before they are made. Only for threads that may block.
pub(crate) fn reserve_rows(share: &mut Share, form: Form, body: &[u8]) -> Result<(), ApiError> {
    share.grow_to_fit(form.work_bytes_max(body), || form.work_bytes_counted(body))
}

/// Takes a body as it was sent.
pub(crate) async fn collect(state: &Arc<State>, tenant: &Arc<Tenant>, body: Body) -> Result<(Buffer, Share), ApiError> {
    match tokio::time::timeout(state.body_timeout(), collect_frames(state, tenant, body)).await {
        Ok(collected) => collected,
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            format!("the body took longer than {} ms (body_timeout_ms)", state.settings.body_timeout_ms),
        )),
    }
}

async fn collect_frames(state: &Arc<State>, tenant: &Arc<Tenant>, mut body: Body) -> Result<(Buffer, Share), ApiError> {
    check_announced(&body, state.settings.body_bytes_max)?;
    let limit = state.settings.body_bytes_max;
    let mut share = state.bodies.share(tenant);
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

/// Unpacks a body by what its headers say of it, and takes the memory that its rows will need.
pub(crate) fn unpack(
    state: &State,
    headers: &HeaderMap,
    body: Buffer,
    (share, form): (&mut Share, Form),
) -> Result<Buffer, ApiError> {
    unpack_as(state, encoding_of(headers)?, body, (share, form))
}

/// How a body is packed, by its headers.
pub(crate) fn encoding_of(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let name = headers.get(header::CONTENT_ENCODING).map_or("", |value| value.to_str().unwrap_or("?"));
    Encoding::from_name(name).ok_or_else(|| {
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "bad_data",
            format!("content encoding {name:?} is not supported; use {}", Encoding::NAMES),
        )
    })
}

/// Unpacks a body that is packed so.
pub(crate) fn unpack_as(
    state: &State,
    encoding: Encoding,
    body: Buffer,
    (share, form): (&mut Share, Form),
) -> Result<Buffer, ApiError> {
    if encoding == Encoding::Identity {
        reserve_rows(share, form, &body)?;
        return Ok(body);
    }
    let mut unpacked = state.unpacked_spares.take();
    let mut refused = None;
    let mut unpacked_bytes = 0;
    let mut reserve = |bytes| {
        // A step that a small body has begun may be more than it needs.
        let is_large = unpacked_bytes > LARGE_BYTES || bytes > LARGE_BYTES;
        unpacked_bytes += bytes;
        let place = if is_large { share.enter_large() } else { Ok(()) };
        place.and_then(|()| share.grow_patiently(bytes)).map_err(|error| refused = Some(error)).is_ok()
    };
    let done = decompress_within(encoding, &body, unpack_limits(state), &mut unpacked, &mut reserve);
    done.map_err(|error| refused.take().unwrap_or_else(|| body_error(&error)))?;
    if unpacked.len() > LARGE_BYTES {
        share.enter_large()?;
    }
    reserve_rows(share, form, &unpacked)?;
    Ok(unpacked)
}

pub(super) fn unpack_limits(state: &State) -> UnpackLimits {
    UnpackLimits { size_bytes_max: state.settings.unpacked_bytes_max, ratio_max: state.settings.unpacked_ratio_max }
}

/// A body that no parser can use.
pub(crate) fn body_error(error: &ingest::BodyError) -> ApiError {
    match error {
        ingest::BodyError::TooLarge { .. } => ApiError::too_large(error.to_string()),
        ingest::BodyError::Malformed(_) => ApiError::bad_data(error.to_string()),
        ingest::BodyError::NoMemory => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_packs_too_well_and_needs_much_memory_is_a_bomb() {
        let at = |bytes, work_bytes| Unpacked { sent_bytes: 1000, bytes }.is_bomb(work_bytes);
        assert!(at(65_000, BOMB_WORK_BYTES_MAX + 1));
        assert!(!at(65_000, BOMB_WORK_BYTES_MAX));
        assert!(!at(64_000, usize::MAX));
    }

    #[test]
    fn rows_of_protobuf_are_counted_where_they_are_short() {
        let counted = |body: &[u8]| Form::Protobuf.work_bytes_counted(body);
        // A sample as Prometheus sends it, and one of zeros.
        let sample = [&[0x12, 0x10, 0x09][..], &[0x40; 8], &[0x10, 1, 1, 1, 1, 1, 1]].concat();
        assert_eq!(counted(&sample.repeat(100)), 100 * sample.len() * PROTOBUF_LIKELY_FACTOR);
        assert!(counted(&[0x12, 0].repeat(100)) >= 100 * SHORT_MESSAGE_WORK_BYTES);
        // Spelled longer than needed.
        assert!(counted(&[0x12, 0x80, 0].repeat(100)) >= 100 * SHORT_MESSAGE_WORK_BYTES);
        assert!(counted(&[0x92, 0, 0].repeat(100)) >= 100 * SHORT_MESSAGE_WORK_BYTES);
    }

    #[test]
    fn bodies_say_what_they_unpack_to() {
        let packed = |encoding, body: &[u8]| likely_bytes(encoding, body);
        assert_eq!(packed(Encoding::Identity, b"abc"), 3);
        assert_eq!(packed(Encoding::Gzip, &[0, 0, 0, 0x20, 0]), 0x0020_0000);
        // As much as it says, seven bits at a time.
        assert_eq!(packed(Encoding::Snappy, &[0x80, 0x80, 0x80, 1, 0]), 1 << 21);
        assert_eq!(packed(Encoding::Snappy, &[3, 0]), 2 * LIKELY_RATIO);
        assert_eq!(packed(Encoding::Zstd, &[0; 100]), 100 * LIKELY_RATIO);
    }
}
