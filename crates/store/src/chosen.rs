//! What matchers chose of tables, held for whoever asks for the same again: to put together the labels of many groups from the index's segments
//! costs more than to read a row of each. What is held holds as long as the index does not change, and so long is kept with it what readers
//! made of all these groups.

use std::collections::HashSet;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use index::CompiledMatcher;
use model::Labels;
use tracing_mutex::parkinglot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::generations::Generations;
use crate::newest::NewestOfParts;
use crate::scan::SelectedGroup;

/// Share of the store's memory that chosen groups may take, and how many bytes at most. What readers made of them may take as much again.
const MEMORY_SHARE: u64 = 64;
const HELD_BYTES_MAX: u64 = 32 << 20;

/// Groups that are read together at most.
const GROUPS_AT_ONCE: usize = 64;

/// Sets of tags of which is remembered whether groups differ in them.
const TAG_SETS_MAX: usize = 8;

/// What was asked for, word by word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked(String);

impl Asked {
    pub(crate) fn new(database: &str, table: &str, fields: &[String], matchers: &[CompiledMatcher]) -> Self {
        Self(format!("{database:?} {table:?} {fields:?} {matchers:?}"))
    }

    fn hash(&self) -> u64 {
        xxh3_64(self.0.as_bytes())
    }
}

#[derive(Clone)]
struct Held {
    asked: Arc<Asked>,
    /// As it was before they were chosen.
    index_changes: u64,
    groups: Arc<TableGroups>,
}

/// Groups that readers of a store chose.
pub(crate) struct ChosenGroups {
    held: Mutex<Generations<u64, Held>>,
    /// What readers made of them.
    made: Arc<Room>,
}

impl ChosenGroups {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let bytes_max = (memory_bytes_max / MEMORY_SHARE).min(HELD_BYTES_MAX) as usize;
        let made = Arc::new(Room { used_bytes: AtomicUsize::new(0), bytes_max });
        Self { held: Mutex::new(Generations::new(bytes_max)), made }
    }

    /// The groups that were chosen, if the index is still the same.
    pub(crate) fn get(&self, asked: &Asked, index_changes: u64) -> Option<Arc<TableGroups>> {
        let held = self.held.lock().get(asked.hash())?;
        (held.index_changes == index_changes && *held.asked == *asked).then_some(held.groups)
    }

    /// Holds what was chosen in an index that was so before.
    pub(crate) fn hold(&self, asked: Asked, index_changes: u64, groups: Vec<SelectedGroup>) -> Arc<TableGroups> {
        let labels: usize = groups.iter().map(|group| group.labels.size_bytes()).sum();
        let of_group = size_of::<SelectedGroup>() + size_of::<u32>();
        let bytes = size_of::<Held>() + size_of::<TableGroups>() + asked.0.len() + groups.len() * of_group + labels;
        let groups = Arc::new(TableGroups::new(groups, self.made.clone()));
        let bytes = bytes + size_of_val(&*groups.pieces);
        let hash = asked.hash();
        let held = Held { asked: Arc::new(asked), index_changes, groups: groups.clone() };
        self.held.lock().hold(hash, held, bytes);
        groups
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.held.lock().memory_bytes() + self.made.used_bytes.load(Ordering::Relaxed)
    }

    /// Lets go of everything.
    pub(crate) fn give_back(&self) {
        self.held.lock().clear();
    }
}

/// Bytes that may be taken, and how many are.
struct Room {
    used_bytes: AtomicUsize,
    bytes_max: usize,
}

/// Some bytes, given back when nothing has them any more.
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Groups of a table that matchers chose, each with some columns.
pub struct TableGroups {
    groups: Vec<SelectedGroup>,
    pieces: Vec<GroupsPiece>,
    /// By tags, whether no two groups have the same of them.
    differ_by: Mutex<Vec<(Vec<String>, bool)>>,
    texts: Mutex<Option<Arc<GroupTexts>>>,
    made: Arc<Room>,
}

/// Groups of one shard that have the same columns, and follow one another.
struct GroupsPiece {
    places: Range<usize>,
    newest: Mutex<Option<Arc<NewestOfParts>>>,
}

/// A text of each of some groups, made by somebody for a purpose.
pub struct GroupTexts {
    purpose: String,
    text: String,
    /// Where the text of each group ends.
    ends: Vec<u32>,
    _taken: Taken,
}

impl GroupTexts {
    /// A group's text, by the group's place.
    pub fn of(&self, place: usize) -> &str {
        let end = |place: usize| self.ends.get(place).map_or(0, |end| *end as usize);
        let from = place.checked_sub(1).map_or(0, end);
        self.text.get(from..end(place)).unwrap_or_default()
    }
}

impl Deref for TableGroups {
    type Target = [SelectedGroup];

    fn deref(&self) -> &[SelectedGroup] {
        &self.groups
    }
}

impl Default for TableGroups {
    fn default() -> Self {
        let room = Room { used_bytes: AtomicUsize::new(0), bytes_max: 0 };
        Self::new(Vec::new(), Arc::new(room))
    }
}

impl std::fmt::Debug for TableGroups {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(&self.groups).finish()
    }
}

impl TableGroups {
    fn new(groups: Vec<SelectedGroup>, made: Arc<Room>) -> Self {
        let mut pieces = Vec::new();
        let mut from = 0;
        for alike in groups.chunk_by(|a, b| a.shard == b.shard && Arc::ptr_eq(&a.columns, &b.columns)) {
            for piece in alike.chunks(GROUPS_AT_ONCE) {
                pieces.push(GroupsPiece { places: from..from + piece.len(), newest: Mutex::default() });
                from += piece.len();
            }
        }
        Self { groups, pieces, differ_by: Mutex::default(), texts: Mutex::default(), made }
    }

    /// In how many pieces they are to be read: the groups of one have the same columns.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The groups of a piece, and the place of the first.
    pub fn piece(&self, number: usize) -> (usize, &[SelectedGroup]) {
        let places = self.pieces.get(number).map_or(0..0, |piece| piece.places.clone());
        (places.start, self.groups.get(places).unwrap_or_default())
    }

    /// What is kept of the newest rows that parts have of a piece.
    pub(crate) fn newest_of(&self, number: usize) -> Option<&Mutex<Option<Arc<NewestOfParts>>>> {
        self.pieces.get(number).map(|piece| &piece.newest)
    }

    /// Takes room for what was made of the groups; `None` if there is none.
    pub(crate) fn take_room(&self, bytes: usize) -> Option<Taken> {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.made.bytes_max);
        let room = &self.made;
        room.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Taken { room: room.clone(), bytes })
    }

    /// Whether no two groups have the same values of some tags: then what is one of each group is one of each set of values.
    pub fn differ_by(&self, tags: &[&str]) -> bool {
        let is_it = |known: &&(Vec<String>, bool)| known.0.iter().map(String::as_str).eq(tags.iter().copied());
        if let Some((_, differ)) = self.differ_by.lock().iter().find(is_it) {
            return *differ;
        }
        let mut seen = HashSet::with_capacity(self.groups.len());
        let differ = self.groups.iter().all(|group| seen.insert(values_of(&group.labels, tags)));
        let mut known = self.differ_by.lock();
        if known.len() == TAG_SETS_MAX {
            known.remove(0);
        }
        known.push((tags.iter().map(|tag| (*tag).to_owned()).collect(), differ));
        differ
    }

    /// A text of each group, as somebody makes it for a purpose. They are kept until they are wanted for another; `None` if there is no room
    /// for them.
    pub fn texts(&self, purpose: &str, mut push: impl FnMut(&mut String, &Labels)) -> Option<Arc<GroupTexts>> {
        let mut known = self.texts.lock();
        if let Some(texts) = known.as_ref().filter(|texts| texts.purpose == purpose) {
            return Some(texts.clone());
        }
        *known = None;
        let bytes_max = self.made.bytes_max.min(u32::MAX as usize);
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.groups.len()));
        for group in &self.groups {
            push(&mut text, &group.labels);
            if text.len() > bytes_max {
                return None;
            }
            ends.push(text.len() as u32);
        }
        text.shrink_to_fit();
        let bytes = size_of::<GroupTexts>() + purpose.len() + text.len() + size_of_val(&*ends);
        let taken = self.take_room(bytes)?;
        let texts = Arc::new(GroupTexts { purpose: purpose.to_owned(), text, ends, _taken: taken });
        *known = Some(texts.clone());
        Some(texts)
    }
}

fn values_of<'a>(labels: &'a Labels, tags: &[&str]) -> Vec<Option<&'a str>> {
    tags.iter().map(|tag| labels.get(tag)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::PartKey;

    fn groups(hosts: &[&str]) -> Vec<SelectedGroup> {
        let group = |(rank, host): (u32, &&str)| SelectedGroup {
            labels: Labels::from_pairs([("host", *host), ("os", "x")]).unwrap(),
            columns: Arc::default(),
            rank,
            shard: 0,
            key: PartKey { database: 1, measurement: 1, group: rank, block: 0 },
        };
        (0..).zip(hosts).map(group).collect()
    }

    fn asked(table: &str) -> Asked {
        Asked::new("default", table, &[], &[])
    }

    fn push_host(out: &mut String, labels: &Labels) {
        out.push_str(labels.get("host").unwrap_or("-"));
    }

    #[test]
    fn texts_are_kept_for_a_purpose_and_as_long_as_the_groups_are_the_same() {
        let chosen = ChosenGroups::new(1 << 30);
        let table = chosen.hold(asked("t"), 1, groups(&["a", "", "ccc"]));
        let texts = table.texts("hosts", push_host).unwrap();
        assert_eq!([0, 1, 2, 3].map(|place| texts.of(place)), ["a", "-", "ccc", ""]);
        let again = chosen.get(&asked("t"), 1).unwrap().texts("hosts", |_, _| unreachable!("they are kept"));
        assert!(Arc::ptr_eq(&texts, &again.unwrap()));
        let others = table.texts("x", |out, _| out.push('x')).unwrap();
        assert_eq!((others.of(2), texts.of(2)), ("x", "ccc"));
        assert_eq!(table.texts("hosts", push_host).unwrap().of(0), "a");
        assert!(chosen.get(&asked("t"), 2).is_none() && chosen.get(&asked("u"), 1).is_none());
    }

    #[test]
    fn tags_are_known_to_differ_where_they_do() {
        let chosen = ChosenGroups::new(1 << 30);
        let table = chosen.hold(asked("t"), 1, groups(&["a", "b", ""]));
        // More sets than are remembered, each twice.
        let others: Vec<String> = (0..2 * TAG_SETS_MAX).map(|number| format!("t{number}")).collect();
        for tag in others.iter().chain(&others) {
            assert!(!table.differ_by(&[tag.as_str()]));
            assert!(table.differ_by(&[tag.as_str(), "host"]) && table.differ_by(&["host"]));
            assert!(!table.differ_by(&["os"]) && !table.differ_by(&[]));
            assert!(table.differ_by.lock().len() <= TAG_SETS_MAX);
        }
        assert!(!chosen.hold(asked("t"), 2, groups(&["a", "b", "a"])).differ_by(&["host"]));
    }

    #[test]
    fn what_is_made_of_groups_stays_within_its_room_and_gives_it_back() {
        let room_bytes = 4 << 10;
        let chosen = ChosenGroups::new(room_bytes as u64 * MEMORY_SHARE);
        let used_bytes = || chosen.made.used_bytes.load(Ordering::Relaxed);
        let table = chosen.hold(asked("t"), 1, groups(&["a", "b"]));
        let before_bytes = chosen.memory_bytes();
        let texts = table.texts("long", |out, _| out.extend(['x'; 1_000])).unwrap();
        assert!((2_000..room_bytes).contains(&used_bytes()));
        assert_eq!(chosen.memory_bytes(), before_bytes + used_bytes());
        // There is no room for the texts of both tables, and none at all for texts that are larger than it.
        let other = chosen.hold(asked("u"), 1, groups(&["a", "b"]));
        assert!(other.texts("long", |out, _| out.extend(['x'; 1_000])).is_none());
        assert!(other.texts("longer", |out, _| out.push_str(&"x".repeat(5_000))).is_none());
        assert!(other.texts("short", push_host).is_some() && used_bytes() <= room_bytes);
        drop((table, other));
        chosen.give_back();
        assert!(used_bytes() >= 2_000, "somebody still has them");
        drop(texts);
        assert_eq!((used_bytes(), chosen.memory_bytes()), (0, 0));
    }

    #[test]
    fn pieces_are_of_one_shard_and_the_same_columns() {
        let mut of_two = groups(&["a"; 100]);
        let (same, other) = (Arc::default(), Arc::default());
        for (number, group) in of_two.iter_mut().enumerate() {
            group.columns = if number < 90 { Arc::clone(&same) } else { Arc::clone(&other) };
            group.shard = usize::from(number >= 80);
        }
        let table = ChosenGroups::new(1 << 30).hold(asked("t"), 1, of_two);
        let pieces: Vec<(usize, usize)> =
            (0..table.pieces()).map(|number| (table.piece(number).0, table.piece(number).1.len())).collect();
        assert_eq!(pieces, [(0, 64), (64, 16), (80, 10), (90, 10)]);
        assert_eq!(table.piece(4).1.len(), 0);
    }
}
