//! Matchers over one source: which groups satisfy them. A label that a group does not have has the empty value, as in
//! Prometheus.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use regex::Regex;
use roaring::RoaringBitmap;
use tracing_mutex::parkinglot::Mutex;

use crate::ids::Union;
use crate::matcher::Search;
use crate::source::{Name, Source};
use crate::{CompiledMatcher, DatabaseId, IndexError};

/// Bytes that a result costs beside the set.
const RESULT_BYTES: usize = 128;

/// The groups of a source that satisfy all matchers; those on the metric name are not looked at. `None` stands for all.
pub(crate) fn matching(
    source: &dyn Source,
    database: DatabaseId,
    matchers: &[&CompiledMatcher],
    cache: Option<(&MatcherCache, u64)>,
) -> Result<Option<RoaringBitmap>, IndexError> {
    let mut chosen: Option<RoaringBitmap> = None;
    for matcher in matchers.iter().filter(|matcher| matcher.name() != model::METRIC_NAME) {
        if chosen.as_ref().is_some_and(RoaringBitmap::is_empty) {
            break;
        }
        let passing = passing(source, database, matcher, cache)?;
        chosen = Some(match (chosen, matcher.is_negated()) {
            (Some(groups), false) => groups & &*passing,
            (Some(groups), true) => groups - &*passing,
            (None, false) => Arc::unwrap_or_clone(passing),
            (None, true) => source.all(database)? - &*passing,
        });
    }
    Ok(chosen)
}

/// The groups that pass the matcher's test before it is negated.
fn passing(
    source: &dyn Source,
    database: DatabaseId,
    matcher: &CompiledMatcher,
    cache: Option<(&MatcherCache, u64)>,
) -> Result<Arc<RoaringBitmap>, IndexError> {
    let Some(name) = source.name(database, matcher.name()) else {
        let empty_passes = matcher.matches("") != matcher.is_negated();
        return Ok(Arc::new(if empty_passes { source.all(database)? } else { RoaringBitmap::new() }));
    };
    match matcher.search() {
        Search::Values(values) => with_values(source, database, name.number, values).map(Arc::new),
        Search::Regex { regex, prefix } => {
            let key = |segment| ResultKey(segment, database, name.text.to_owned(), regex.as_str().to_owned());
            if let Some(known) = cache.and_then(|(cache, segment)| cache.get(&key(segment))) {
                return Ok(known);
            }
            let found = Arc::new(with_regex(source, database, name, regex, prefix)?);
            if let Some((cache, segment)) = cache {
                cache.insert(key(segment), found.clone());
            }
            Ok(found)
        }
    }
}

fn with_values(
    source: &dyn Source,
    database: DatabaseId,
    name: u32,
    values: &[String],
) -> Result<RoaringBitmap, IndexError> {
    let mut found = Union::default();
    let mut empty_passes = false;
    for value in values {
        empty_passes |= value.is_empty();
        source.value(database, name, value)?.into_iter().for_each(|ids| found.add(ids));
    }
    let found = found.finish();
    Ok(if empty_passes { found | (source.all(database)? - source.having(database, name)?) } else { found })
}

fn with_regex(
    source: &dyn Source,
    database: DatabaseId,
    name: Name<'_>,
    regex: &Regex,
    prefix: &str,
) -> Result<RoaringBitmap, IndexError> {
    if !prefix.is_empty() {
        return with_prefix(source, database, name, regex, prefix);
    }
    let mut terms = source.terms(database, name.number, "", false)?;
    let mut verdicts = Vec::new();
    while terms.advance()? {
        verdicts.push(regex.is_match(terms.text()));
    }
    let passed = verdicts.iter().filter(|passed| **passed).count();
    // The sets of the fewer values are united, and taken away from all if those are the ones that fail.
    let unite_passed = passed <= verdicts.len() / 2;
    let mut found = Union::default();
    let mut terms = source.terms(database, name.number, "", false)?;
    for passed in verdicts {
        if !terms.advance()? {
            break;
        }
        if passed == unite_passed {
            found.add(terms.ids()?);
        }
    }
    let found = found.finish();
    match (unite_passed, regex.is_match("")) {
        (true, false) => Ok(found),
        (true, true) => Ok(found | (source.all(database)? - source.having(database, name.number)?)),
        (false, false) => Ok(source.having(database, name.number)? - found),
        (false, true) => Ok(source.all(database)? - found),
    }
}

/// As [`with_regex`]. Values with the prefix are few, and the empty one is not among them: those that pass are united at once.
fn with_prefix(
    source: &dyn Source,
    database: DatabaseId,
    name: Name<'_>,
    regex: &Regex,
    prefix: &str,
) -> Result<RoaringBitmap, IndexError> {
    let mut terms = source.terms(database, name.number, prefix, false)?;
    let mut found = Union::default();
    while terms.advance()? {
        if regex.is_match(terms.text()) {
            found.add(terms.ids()?);
        }
    }
    Ok(found.finish())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ResultKey(u64, DatabaseId, String, String);

/// What regular expressions found in immutable segments: never stale, the oldest go first. Empty until it is given memory.
#[derive(Debug, Default)]
pub(crate) struct MatcherCache {
    bytes_max: usize,
    results: Mutex<Results>,
}

#[derive(Debug, Default)]
struct Results {
    by_key: HashMap<ResultKey, Arc<RoaringBitmap>>,
    order: VecDeque<ResultKey>,
    bytes: usize,
}

impl MatcherCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, results: Mutex::default() }
    }

    pub(crate) fn clear(&self) {
        *self.results.lock() = Results::default();
    }

    fn get(&self, key: &ResultKey) -> Option<Arc<RoaringBitmap>> {
        self.results.lock().by_key.get(key).cloned()
    }

    fn insert(&self, key: ResultKey, found: Arc<RoaringBitmap>) {
        let bytes = bytes_of(&key, &found);
        let mut results = self.results.lock();
        if bytes > self.bytes_max / 4 || results.by_key.contains_key(&key) {
            return;
        }
        results.bytes += bytes;
        results.order.push_back(key.clone());
        results.by_key.insert(key, found);
        while results.bytes > self.bytes_max {
            let Some(oldest) = results.order.pop_front() else {
                break;
            };
            if let Some(found) = results.by_key.remove(&oldest) {
                results.bytes -= bytes_of(&oldest, &found);
            }
        }
    }

    /// Forgets what was found in segments that are gone.
    pub(crate) fn retain(&self, keep: impl Fn(u64) -> bool) {
        let mut results = self.results.lock();
        let Results { by_key: found, order, bytes } = &mut *results;
        order.retain(|key| keep(key.0));
        found.retain(|key, _| keep(key.0));
        *bytes = found.iter().map(|(key, found)| bytes_of(key, found)).sum();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.results.lock().bytes
    }
}

fn bytes_of(key: &ResultKey, found: &RoaringBitmap) -> usize {
    RESULT_BYTES + 2 * (key.2.len() + key.3.len()) + found.serialized_size()
}
