//! Objects in clouds, through the crate `object_store`, which knows their protocols, credentials and retries.
//!
//! The crate is asynchronous. A call here hands its future to a small runtime and waits for the answer on a channel, so
//! that a caller's thread only blocks; reading a local file for an upload is done by the caller's thread.

mod classify;
mod connect;
mod counting;

use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    PutResult, UpdateVersion, UploadPart,
};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::opener::Cloud;
use super::{
    Content, ListedObject, ObjectCounters, ObjectError, ObjectErrorKind, ObjectInfo, ObjectOptions, Objects,
    PutCondition, Version, check_folder, check_key,
};
use counting::{Counting, Failure, traced};

/// Parts of one upload in memory and on their way at once.
const PARTS_IN_FLIGHT_MAX: usize = 4;
/// How often a call that `object_store` does not send again itself is repeated after a broken connection.
const REPEATS_MAX: usize = 2;
/// Threads that drive requests. They move bytes and encrypt; nothing here waits for a disk.
const RUNTIME_THREADS: usize = 2;

pub(crate) struct CloudObjects {
    shared: Arc<Shared>,
    location: String,
    part_bytes: usize,
    conditional_put_bytes_max: usize,
    /// Taken when dropped.
    runtime: Option<Runtime>,
}

/// What requests need that are on their way.
struct Shared {
    store: Box<dyn ObjectStore>,
    /// Ends with `/` unless it is empty.
    prefix: String,
    location: String,
    permits: Semaphore,
    parallel_requests_max: usize,
    retry_total: Duration,
    pause: Duration,
    counting: Arc<Counting>,
    /// Whether a list may be asked to begin behind a key. Azure's emulator takes such a request and answers with nothing.
    lists_behind: bool,
}

impl CloudObjects {
    pub(crate) fn open(cloud: Cloud, url: &str, options: &ObjectOptions) -> Result<Self, ObjectError> {
        let wrong = |message: String| ObjectError::new(ObjectErrorKind::Config, format!("open {url}"), message);
        let location = url.trim_end_matches('/').to_owned();
        let (_, rest) = location.split_once("://").unwrap_or_default();
        let prefix = rest.split_once('/').map_or("", |(_, prefix)| prefix);
        check_folder(prefix).map_err(|error| wrong(error.message))?;
        let counting = Arc::new(Counting::default());
        let store = connect::connect(cloud, &location, options, &counting).map_err(wrong)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .thread_name("thalweg-objects")
            .enable_all()
            .build()
            .map_err(|error| ObjectError::io("start the threads of the object store", &error))?;
        let parallel_requests_max = options.parallel_requests_max.max(1);
        let shared = Shared {
            store,
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            location: location.clone(),
            permits: Semaphore::new(parallel_requests_max),
            parallel_requests_max,
            retry_total: Duration::from_millis(options.retry_total_ms),
            pause: Duration::from_millis(options.backoff_first_ms),
            counting,
            lists_behind: cloud != Cloud::Azure || options.endpoint.is_none(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            location,
            part_bytes: options.part_bytes.max(1 << 16),
            conditional_put_bytes_max: options.conditional_put_bytes_max,
            runtime: Some(runtime),
        })
    }

    /// Runs a future on the runtime and waits for what it gives.
    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Result<T, ObjectError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            // The receiver is gone only if the caller's thread is.
            let _ = sender.send(future.await);
        })?;
        receiver.recv().map_err(|_| self.runtime_is_gone())
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Result<(), ObjectError> {
        let runtime = self.runtime.as_ref().ok_or_else(|| self.runtime_is_gone())?;
        drop(runtime.spawn(future));
        Ok(())
    }

    fn runtime_is_gone(&self) -> ObjectError {
        let message = "the thread that drove the request ended";
        ObjectError::new(ObjectErrorKind::Other, format!("ask {}", self.location), message)
    }

    fn put_whole(&self, key: &str, payload: Vec<u8>, mode: PutMode) -> Result<Version, ObjectError> {
        let (shared, key) = (self.shared.clone(), key.to_owned());
        let conditional = mode != PutMode::Overwrite;
        self.run(async move {
            let path = shared.path(&key)?;
            let options = PutOptions { mode, ..PutOptions::default() };
            let put = shared.store.put_opts(&path, PutPayload::from(payload), options);
            let stored = shared.ask("store", &key, put).await.map_err(|error| storing(error, conditional))?;
            Ok(version_of_put(stored))
        })?
    }

    fn put_parts(&self, key: &str, content: Content<'_>, size: u64) -> Result<Version, ObjectError> {
        let (shared, upload_key) = (self.shared.clone(), key.to_owned());
        let mut upload = self.run(async move {
            let path = shared.path(&upload_key)?;
            let begun = shared.ask("begin to store", &upload_key, shared.store.put_multipart(&path)).await;
            begun.map_err(|error| storing(error, false))
        })??;
        let sent = self.send_parts(key, content, size, &mut *upload);
        let (shared, key) = (self.shared.clone(), key.to_owned());
        self.run(async move {
            if let Err(error) = sent {
                // What stays of an upload that cannot be given up costs space until the bucket's own rule removes it.
                let _ = shared.ask("give up storing", &key, upload.abort()).await;
                return Err(error);
            }
            let stored = shared.ask("finish storing", &key, upload.complete()).await;
            stored.map(version_of_put).map_err(|error| storing(error, false))
        })?
    }

    /// Sends all parts, a few at a time. None is on its way any more when it returns, whatever it returns.
    fn send_parts(
        &self,
        key: &str,
        content: Content<'_>,
        size: u64,
        upload: &mut dyn MultipartUpload,
    ) -> Result<(), ObjectError> {
        let (sender, finished) = mpsc::sync_channel(PARTS_IN_FLIGHT_MAX);
        let wait = || finished.recv().map_err(|_| self.runtime_is_gone())?;
        let (mut outcome, mut in_flight, mut offset) = (Ok(()), 0, 0);
        while offset < size && outcome.is_ok() {
            if in_flight == PARTS_IN_FLIGHT_MAX {
                in_flight -= 1;
                outcome = wait();
                continue;
            }
            let length = (size - offset).min(self.part_bytes as u64) as usize;
            let part = content.read_at(offset, length).map_err(|error| self.unreadable(key, &error));
            outcome = part.and_then(|bytes| self.send_part(key, upload.put_part(bytes.into()), sender.clone()));
            in_flight += usize::from(outcome.is_ok());
            offset += length as u64;
        }
        drop(sender);
        (0..in_flight).fold(outcome, |outcome, _| {
            let part = wait();
            outcome.and(part)
        })
    }

    fn send_part(
        &self,
        key: &str,
        part: UploadPart,
        sender: mpsc::SyncSender<Result<(), ObjectError>>,
    ) -> Result<(), ObjectError> {
        let (shared, key) = (self.shared.clone(), key.to_owned());
        self.spawn(async move {
            let sent = shared.ask("store a part of", &key, part).await.map_err(|error| storing(error, false));
            // The receiver waits for every part.
            let _ = sender.send(sent);
        })
    }

    fn unreadable(&self, key: &str, error: &std::io::Error) -> ObjectError {
        let action = format!("read the file that becomes object {key} in {}", self.location);
        ObjectError::new(ObjectErrorKind::Other, action, error.to_string())
    }
}

impl Drop for CloudObjects {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting would panic where the last owner is a task of another runtime. Every call has ended.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn path(&self, key: &str) -> Result<Path, ObjectError> {
        let failed = |message| ObjectError::new(ObjectErrorKind::Config, format!("use {key:?} as a key"), message);
        Path::parse(format!("{}{key}", self.prefix)).map_err(|error| failed(error.to_string()))
    }

    /// Waits for a permit, then for the request.
    async fn ask<T>(
        &self,
        action: &str,
        key: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, ObjectError> {
        // The semaphore is never closed; without a permit the request would still be right.
        let _permit = self.permits.acquire().await;
        traced(request).await.map_err(|failure| self.error(action, key, &failure))
    }

    /// Sends a request that may be repeated without harm, and that `object_store` does not repeat after each kind
    /// of broken connection: pages of lists, deletions.
    async fn ask_again<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        action: &str,
        key: &str,
        request: impl Fn() -> F,
    ) -> Result<T, ObjectError> {
        let _permit = self.permits.acquire().await;
        let start = Instant::now();
        let mut repeats = 0;
        loop {
            match traced(request()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if repeats < REPEATS_MAX && failure.is_broken() && start.elapsed() < self.retry_total => {
                    repeats += 1;
                    tokio::time::sleep(self.pause).await;
                }
                Err(failure) => return Err(self.error(action, key, &failure)),
            }
        }
    }

    fn error(&self, action: &str, key: &str, failure: &Failure) -> ObjectError {
        let action = format!("{action} object {key} in {}", self.location);
        classify::object_error(action, &failure.error, failure.status)
    }

    async fn fetch(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        let wrong = |message: String| {
            ObjectError::new(ObjectErrorKind::Other, format!("read object {key} in {}", self.location), message)
        };
        if range.start >= range.end {
            return Err(wrong(format!("bytes {range:?} are no range")));
        }
        let path = self.path(key)?;
        let length = usize::try_from(range.end - range.start).map_err(|error| wrong(error.to_string()))?;
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let content =
            self.ask("read", key, async { collect(self.store.get_opts(&path, options).await?, length).await }).await?;
        if content.len() != length {
            return Err(wrong(format!("bytes {range:?} were asked for, {} came", content.len())));
        }
        self.counting.received(length as u64);
        Ok(content)
    }

    fn listed(&self, meta: &object_store::ObjectMeta) -> Option<ListedObject> {
        let key = meta.location.as_ref().strip_prefix(&self.prefix)?;
        check_key(key).ok()?;
        Some(ListedObject { key: key.to_owned(), size_bytes: meta.size })
    }
}

/// The body, cut behind what was asked for: a longer one is an error of the caller's length check, not of memory.
async fn collect(answer: GetResult, length: usize) -> object_store::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(length);
    let mut body = answer.into_stream();
    while let Some(bytes) = body.try_next().await? {
        content.extend_from_slice(&bytes);
        if content.len() > length {
            break;
        }
    }
    Ok(content)
}

fn version_of_put(stored: PutResult) -> Version {
    Version { entity_tag: stored.e_tag, generation: stored.version }
}

/// Where nothing was to be there, nothing can be missing or in conflict: the request met another one's end.
fn storing(mut error: ObjectError, conditional: bool) -> ObjectError {
    if error.kind == ObjectErrorKind::Missing || (error.kind == ObjectErrorKind::Conflict && !conditional) {
        error.kind = ObjectErrorKind::Busy;
    }
    error
}

impl Objects for CloudObjects {
    fn location(&self) -> &str {
        &self.location
    }

    fn put(&self, key: &str, content: Content<'_>, condition: &PutCondition) -> Result<Version, ObjectError> {
        check_key(key)?;
        let size = content.size_bytes().map_err(|error| self.unreadable(key, &error))?;
        let mode = match condition {
            PutCondition::Always => PutMode::Overwrite,
            PutCondition::IfAbsent => PutMode::Create,
            PutCondition::IfMatch(version) => PutMode::Update(UpdateVersion {
                e_tag: version.entity_tag.clone(),
                version: version.generation.clone(),
            }),
        };
        if mode == PutMode::Overwrite && size > self.part_bytes as u64 {
            return self.put_parts(key, content, size);
        }
        if mode != PutMode::Overwrite && size > self.conditional_put_bytes_max as u64 {
            let action = format!("store object {key} in {} under a condition", self.location);
            let message = format!("it has {size} bytes, at most {} are allowed", self.conditional_put_bytes_max);
            return Err(ObjectError::new(ObjectErrorKind::Config, action, message));
        }
        let payload = content.read_at(0, size as usize).map_err(|error| self.unreadable(key, &error))?;
        self.put_whole(key, payload, mode)
    }

    fn read(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ObjectError> {
        check_key(key)?;
        let (shared, key, ranges) = (self.shared.clone(), key.to_owned(), ranges.to_vec());
        self.run(async move {
            let fetches = ranges.into_iter().map(|range| shared.fetch(&key, range));
            stream::iter(fetches).buffered(shared.parallel_requests_max).try_collect().await
        })?
    }

    fn read_each(&self, wanted: &[(&str, Range<u64>)]) -> Vec<Result<Vec<u8>, ObjectError>> {
        let shared = self.shared.clone();
        let owned: Vec<(String, Range<u64>)> =
            wanted.iter().map(|(key, range)| ((*key).to_owned(), range.clone())).collect();
        let read = self.run(async move {
            let fetch = |(key, range): (String, Range<u64>)| {
                let shared = &shared;
                async move {
                    check_key(&key)?;
                    shared.fetch(&key, range).await
                }
            };
            stream::iter(owned.into_iter().map(fetch)).buffered(shared.parallel_requests_max).collect::<Vec<_>>().await
        });
        read.unwrap_or_else(|error| wanted.iter().map(|_| Err(error.clone())).collect())
    }

    fn head(&self, key: &str) -> Result<ObjectInfo, ObjectError> {
        check_key(key)?;
        let (shared, key) = (self.shared.clone(), key.to_owned());
        self.run(async move {
            let path = shared.path(&key)?;
            let meta = shared.ask("look at", &key, shared.store.head(&path)).await?;
            let version = Version { entity_tag: meta.e_tag, generation: meta.version };
            Ok(ObjectInfo { size_bytes: meta.size, version })
        })?
    }

    fn list(&self, folder: &str, after: Option<&str>, objects_max: usize) -> Result<Vec<ListedObject>, ObjectError> {
        check_folder(folder)?;
        let (shared, folder, after) = (self.shared.clone(), folder.to_owned(), after.map(str::to_owned));
        self.run(async move {
            let whole = format!("{}{folder}", shared.prefix);
            let path = Path::parse(whole.trim_end_matches('/')).unwrap_or_default();
            let after = after.map(|after| shared.path(&after)).transpose()?;
            let list = || {
                let found = match &after {
                    Some(after) if shared.lists_behind => shared.store.list_with_offset(Some(&path), after),
                    _ => shared.store.list(Some(&path)),
                };
                let listed = found.try_filter_map(|meta| {
                    let is_behind = after.as_ref().is_none_or(|after| meta.location > *after);
                    std::future::ready(Ok(shared.listed(&meta).filter(|_| is_behind)))
                });
                listed.take(objects_max).try_collect()
            };
            shared.ask_again("list", &folder, list).await
        })?
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        check_key(key)?;
        let (shared, key) = (self.shared.clone(), key.to_owned());
        self.run(async move {
            let path = shared.path(&key)?;
            match shared.ask_again("delete", &key, || shared.store.delete(&path)).await {
                Err(error) if error.kind == ObjectErrorKind::Missing => Ok(()),
                deleted => deleted,
            }
        })?
    }

    fn counters(&self) -> ObjectCounters {
        self.shared.counting.now()
    }
}
