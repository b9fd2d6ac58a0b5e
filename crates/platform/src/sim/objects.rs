//! Object stores of a simulated machine: they survive its crashes, and fail as told.
//!
//! What a fault may do follows what clouds do: a request is refused and nothing happens; a request happens and its
//! answer is lost; an upload is cut and nothing of it is visible; a condition fails without a write, because an
//! earlier answer was lost on its way. An answer that arrives is right.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_mutex::parkinglot::Mutex;

use super::{Disk, SimRandom};
use crate::objects::{
    Content, ListedObject, ObjectCounters, ObjectError, ObjectErrorKind, ObjectInfo, ObjectOptions, ObjectStores,
    Objects, PutCondition, Version, check_folder, check_key,
};

/// How often requests to simulated object stores fail, each per thousand requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectFaults {
    /// The store is busy, and nothing happens.
    pub busy_per_mille: u16,
    /// Another error, and nothing happens.
    pub other_per_mille: u16,
    /// A put or a deletion happens, but its answer is lost.
    pub lost_answers_per_mille: u16,
    /// An upload is cut: nothing of it is visible.
    pub cut_uploads_per_mille: u16,
    /// A condition is said not to hold, and nothing happens.
    pub conflicts_per_mille: u16,
}

#[derive(Default)]
pub(super) struct SimBuckets {
    state: Mutex<BucketsState>,
    requests: AtomicU64,
    requests_failed: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

#[derive(Default)]
struct BucketsState {
    /// By the store's address, then by key.
    buckets: BTreeMap<String, BTreeMap<String, SimObject>>,
    versions_made: u64,
    faults: ObjectFaults,
}

#[derive(Clone)]
struct SimObject {
    content: Arc<Vec<u8>>,
    version: u64,
}

impl SimObject {
    fn version(&self) -> Version {
        Version { entity_tag: Some(self.version.to_string()), generation: None }
    }
}

impl SimBuckets {
    pub(super) fn set_faults(&self, faults: ObjectFaults) {
        self.state.lock().faults = faults;
    }

    pub(super) fn content(&self, url: &str, key: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        Some(state.buckets.get(url)?.get(key)?.content.to_vec())
    }

    pub(super) fn keys(&self, url: &str) -> Vec<String> {
        self.state.lock().buckets.get(url).map(|bucket| bucket.keys().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn flip_bit(&self, url: &str, key: &str, offset: u64, bit: u8) -> Option<()> {
        let mut state = self.state.lock();
        let object = state.buckets.get_mut(url)?.get_mut(key)?;
        *Arc::make_mut(&mut object.content).get_mut(offset as usize)? ^= 1 << (bit & 7);
        Some(())
    }
}

/// Opens simulated stores for one life of the machine.
pub(super) struct SimObjectStores {
    pub(super) buckets: Arc<SimBuckets>,
    pub(super) random: Arc<SimRandom>,
    pub(super) disk: Arc<Disk>,
    pub(super) boot: u64,
}

impl ObjectStores for SimObjectStores {
    fn open(&self, url: &str, _options: &ObjectOptions) -> Result<Arc<dyn Objects>, ObjectError> {
        if !url.starts_with("sim://") {
            let message = "a simulated machine knows sim://name only";
            return Err(ObjectError::new(ObjectErrorKind::Config, format!("open {url}"), message));
        }
        Ok(Arc::new(SimObjects {
            buckets: self.buckets.clone(),
            random: self.random.clone(),
            disk: self.disk.clone(),
            boot: self.boot,
            url: url.to_owned(),
        }))
    }
}

struct SimObjects {
    buckets: Arc<SimBuckets>,
    random: Arc<SimRandom>,
    disk: Arc<Disk>,
    boot: u64,
    url: String,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    DoneButUnheard,
    Fails(ObjectErrorKind, &'static str),
}

impl SimObjects {
    fn error(&self, action: &str, key: &str, kind: ObjectErrorKind, message: &str) -> ObjectError {
        ObjectError::new(kind, format!("{action} object {key} in {}", self.url), message)
    }

    /// Counts a request and refuses it if the machine has crashed since.
    fn begin(&self, action: &str, key: &str) -> Result<(), ObjectError> {
        self.buckets.requests.fetch_add(1, Ordering::Relaxed);
        self.disk.check(self.boot).map_err(|error| self.error(action, key, ObjectErrorKind::Other, &error.to_string()))
    }

    fn fate(&self, writes: bool, uploads: bool, conditional: bool) -> Fate {
        let faults = self.buckets.state.lock().faults;
        let happens = |per_mille: u16| per_mille > 0 && self.random.below(1000) < u64::from(per_mille);
        if happens(faults.busy_per_mille) {
            Fate::Fails(ObjectErrorKind::Busy, "simulated: slow down")
        } else if happens(faults.other_per_mille) {
            Fate::Fails(ObjectErrorKind::Other, "simulated: internal error")
        } else if uploads && happens(faults.cut_uploads_per_mille) {
            Fate::Fails(ObjectErrorKind::Busy, "simulated: the upload was cut")
        } else if conditional && happens(faults.conflicts_per_mille) {
            Fate::Fails(ObjectErrorKind::Conflict, "simulated: the condition does not hold")
        } else if writes && happens(faults.lost_answers_per_mille) {
            Fate::DoneButUnheard
        } else {
            Fate::Done
        }
    }

    fn failed(&self, action: &str, key: &str, kind: ObjectErrorKind, message: &str) -> ObjectError {
        self.buckets.requests_failed.fetch_add(1, Ordering::Relaxed);
        self.error(action, key, kind, message)
    }

    /// A request that only reads.
    fn ask<T>(
        &self,
        action: &str,
        key: &str,
        answer: impl FnOnce(Option<&SimObject>) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        self.begin(action, key)?;
        check_key(key)?;
        if let Fate::Fails(kind, message) = self.fate(false, false, false) {
            return Err(self.failed(action, key, kind, message));
        }
        let state = self.buckets.state.lock();
        answer(state.buckets.get(&self.url).and_then(|bucket| bucket.get(key)))
    }

    fn missing(&self, action: &str, key: &str) -> ObjectError {
        self.error(action, key, ObjectErrorKind::Missing, "there is no such object")
    }
}

impl Objects for SimObjects {
    fn location(&self) -> &str {
        &self.url
    }

    fn put(&self, key: &str, content: Content<'_>, condition: &PutCondition) -> Result<Version, ObjectError> {
        self.begin("store", key)?;
        check_key(key)?;
        let size = content.size_bytes().map_err(|error| ObjectError::io(format!("store object {key}"), &error))?;
        let content = content.read_at(0, size as usize).map_err(|error| {
            ObjectError::new(ObjectErrorKind::Other, format!("store object {key}"), error.to_string())
        })?;
        let fate = self.fate(true, true, *condition != PutCondition::Always);
        if let Fate::Fails(kind, message) = fate {
            return Err(self.failed("store", key, kind, message));
        }
        let mut state = self.buckets.state.lock();
        state.versions_made += 1;
        let object = SimObject { content: Arc::new(content), version: state.versions_made };
        let version = object.version();
        let bucket = state.buckets.entry(self.url.clone()).or_default();
        let current = bucket.get(key).map(SimObject::version);
        let holds = match condition {
            PutCondition::Always => true,
            PutCondition::IfAbsent => current.is_none(),
            PutCondition::IfMatch(expected) => current.as_ref() == Some(expected),
        };
        if !holds {
            return Err(self.error("store", key, ObjectErrorKind::Conflict, "it is not as the condition wants it"));
        }
        bucket.insert(key.to_owned(), object);
        self.buckets.sent_bytes.fetch_add(size, Ordering::Relaxed);
        match fate {
            Fate::Done => Ok(version),
            _ => Err(self.failed("store", key, ObjectErrorKind::Busy, "simulated: the answer was lost")),
        }
    }

    fn read(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ObjectError> {
        self.ask("read", key, |object| {
            let content = &object.ok_or_else(|| self.missing("read", key))?.content;
            let one = |range: &Range<u64>| {
                let found = content.get(range.start as usize..range.end as usize).filter(|found| !found.is_empty());
                let message = format!("bytes {range:?} were asked for, it has {}", content.len());
                let found = found.ok_or_else(|| self.error("read", key, ObjectErrorKind::Other, &message))?;
                self.buckets.received_bytes.fetch_add(found.len() as u64, Ordering::Relaxed);
                Ok(found.to_vec())
            };
            ranges.iter().map(one).collect()
        })
    }

    fn head(&self, key: &str) -> Result<ObjectInfo, ObjectError> {
        self.ask("look at", key, |object| {
            let object = object.ok_or_else(|| self.missing("look at", key))?;
            Ok(ObjectInfo { size_bytes: object.content.len() as u64, version: object.version() })
        })
    }

    fn list(&self, folder: &str, after: Option<&str>, objects_max: usize) -> Result<Vec<ListedObject>, ObjectError> {
        self.begin("list", folder)?;
        check_folder(folder)?;
        if let Fate::Fails(kind, message) = self.fate(false, false, false) {
            return Err(self.failed("list", folder, kind, message));
        }
        let state = self.buckets.state.lock();
        let objects = state.buckets.get(&self.url).into_iter().flatten();
        let inside =
            |key: &str| folder.is_empty() || key.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let wanted = objects.filter(|(key, _)| inside(key) && after.is_none_or(|after| key.as_str() > after));
        let listed =
            wanted.map(|(key, object)| ListedObject { key: key.clone(), size_bytes: object.content.len() as u64 });
        Ok(listed.take(objects_max).collect())
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.begin("delete", key)?;
        check_key(key)?;
        let fate = self.fate(true, false, false);
        if let Fate::Fails(kind, message) = fate {
            return Err(self.failed("delete", key, kind, message));
        }
        if let Some(bucket) = self.buckets.state.lock().buckets.get_mut(&self.url) {
            bucket.remove(key);
        }
        match fate {
            Fate::Done => Ok(()),
            _ => Err(self.failed("delete", key, ObjectErrorKind::Busy, "simulated: the answer was lost")),
        }
    }

    fn counters(&self) -> ObjectCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ObjectCounters {
            requests: count(&self.buckets.requests),
            requests_failed: count(&self.buckets.requests_failed),
            sent_bytes: count(&self.buckets.sent_bytes),
            received_bytes: count(&self.buckets.received_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Simulation;
    use super::*;

    const URL: &str = "sim://bucket";

    #[test]
    fn what_was_acknowledged_survives_a_crash_and_old_handles_are_dead() {
        let simulation = Simulation::new(1);
        let open = || simulation.platform().objects.open(URL, &ObjectOptions::default()).unwrap();
        let objects = open();
        let first = objects.put("a/1", Content::Bytes(b"one"), &PutCondition::IfAbsent).unwrap();
        simulation.crash();
        assert!(objects.head("a/1").is_err());
        let objects = open();
        assert_eq!(objects.head("a/1").unwrap(), ObjectInfo { size_bytes: 3, version: first.clone() });
        let second = objects.put("a/1", Content::Bytes(b"two"), &PutCondition::IfMatch(first.clone())).unwrap();
        let conflict = objects.put("a/1", Content::Bytes(b"x"), &PutCondition::IfMatch(first)).unwrap_err();
        assert_eq!((conflict.kind, second), (ObjectErrorKind::Conflict, objects.head("a/1").unwrap().version));
        assert_eq!(objects.list("a", None, 9).unwrap(), [ListedObject { key: "a/1".into(), size_bytes: 3 }]);
        assert_eq!(simulation.platform().objects.open("s3://b", &ObjectOptions::default()).err().unwrap().kind, {
            ObjectErrorKind::Config
        });
    }

    #[test]
    fn faults_come_as_often_as_told_and_leave_all_or_nothing() {
        let simulation = Simulation::new(7);
        let objects = simulation.platform().objects.open(URL, &ObjectOptions::default()).unwrap();
        simulation.set_object_faults(ObjectFaults {
            busy_per_mille: 100,
            lost_answers_per_mille: 200,
            cut_uploads_per_mille: 100,
            ..ObjectFaults::default()
        });
        let (mut unheard, mut nothing) = (0, 0);
        for number in 0..1_000 {
            let key = number.to_string();
            let put = objects.put(&key, Content::Bytes(b"content"), &PutCondition::Always);
            match (put, simulation.object(URL, &key)) {
                (put, Some(found)) => {
                    assert_eq!(found, b"content");
                    unheard += u32::from(put.is_err());
                }
                (Err(error), None) => {
                    assert_eq!(error.kind, ObjectErrorKind::Busy);
                    nothing += 1;
                }
                (Ok(_), None) => panic!("acknowledged, but not there"),
            }
        }
        assert!((100..250).contains(&unheard) && (120..270).contains(&nothing), "{unheard} {nothing}");
    }
}
