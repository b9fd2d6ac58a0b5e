//! Groups against their definition, through any sequence of registering, extending, removing, freezing, merging and reopening.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Labels, MatchOp, Matcher};
use proptest::prelude::*;
use thalweg_index::{
    CompiledMatcher, FrozenGroups, GroupEntry, Groups, MetricColumns, RoaringBitmap, Segment, Selected, TextSet,
    cardinality,
};

#[derive(Debug, Clone)]
enum Step {
    Register { database: u32, measurement: u32, labels: Vec<(String, String)>, slots: Vec<u32> },
    Extend { group: u32, slots: Vec<u32> },
    Remove { groups: Vec<u32> },
    Freeze,
    Install,
    Merge,
    MergeAll,
    Reopen,
}

#[derive(Debug, Clone, PartialEq)]
struct Known {
    database: u32,
    measurement: u32,
    labels: Labels,
    slots: BTreeSet<u32>,
}

/// The groups, what they should be, and what a folder would keep of them.
#[derive(Default)]
struct Pair {
    groups: Groups,
    expected: Vec<Option<Known>>,
    log: Vec<GroupEntry>,
    frozen: Option<FrozenGroups>,
    files: BTreeMap<u64, Vec<u8>>,
    files_made: u64,
}

impl Pair {
    fn file(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Segment {
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.files_made += 1;
        self.files.insert(self.files_made, bytes.clone());
        let segment = Segment::open(self.files_made, Arc::new(bytes)).unwrap();
        segment.verify().unwrap();
        segment
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Register { database, measurement, labels, slots } => {
                self.register(database, measurement, &Labels::from_pairs(labels).unwrap(), &slots);
            }
            Step::Extend { group, slots } => {
                let id = group % (self.expected.len() as u32 + 1);
                let known = self.expected.get_mut(id as usize).and_then(Option::as_mut);
                let grows =
                    known.is_some_and(|known| slots.iter().filter(|slot| known.slots.insert(**slot)).count() > 0);
                assert_eq!(self.groups.extend(id, &slots).unwrap(), grows);
                self.log.extend(grows.then_some(GroupEntry::Extend { id, slots }));
            }
            Step::Remove { groups } => {
                let ids: RoaringBitmap = groups.iter().map(|id| id % (self.expected.len() as u32 + 1)).collect();
                let removed = ids.iter().filter_map(|id| self.expected.get_mut(id as usize)?.take()).count();
                let entry = self.groups.remove(&ids);
                assert_eq!(entry.is_some(), removed > 0);
                self.log.extend(entry);
            }
            Step::Freeze => self.frozen = self.groups.freeze(),
            Step::Install => {
                if let Some(frozen) = self.frozen.take() {
                    let segment = self.file(|bytes| frozen.write(bytes).unwrap());
                    self.groups.install_frozen(segment);
                }
            }
            Step::Merge => self.merge(self.groups.merge_due()),
            Step::MergeAll => self.merge(self.groups.merge_all()),
            Step::Reopen => self.reopen(),
        }
    }

    fn register(&mut self, database: u32, measurement: u32, labels: &Labels, slots: &[u32]) {
        let same =
            |known: &Known| (known.database, known.measurement, &known.labels) == (database, measurement, labels);
        let place = self.expected.iter().position(|known| known.as_ref().is_some_and(same));
        assert_eq!(self.groups.find(database, measurement, labels).unwrap(), place.map(|place| place as u32));
        let (id, entry) = self.groups.register(database, measurement, labels, slots).unwrap();
        assert_eq!(id as usize, place.unwrap_or(self.expected.len()));
        assert_eq!(entry.is_some(), place.is_none());
        if place.is_none() {
            let slots = slots.iter().copied().collect();
            self.expected.push(Some(Known { database, measurement, labels: labels.clone(), slots }));
        }
        self.log.extend(entry);
    }

    fn merge(&mut self, job: Option<thalweg_index::MergeJob>) {
        let Some(job) = job else {
            return;
        };
        let segment = self.file(|bytes| job.write(bytes).unwrap());
        self.groups.install_merged(&job, segment);
        job.input_numbers().for_each(|number| drop(self.files.remove(&number)));
    }

    /// The log holds everything from the beginning: known entries must change nothing.
    fn reopen(&mut self) {
        let open = |(number, bytes): (&u64, &Vec<u8>)| Segment::open(*number, Arc::new(bytes.clone())).unwrap();
        self.groups = Groups::open(self.files.iter().map(open).collect(), 7).unwrap();
        self.groups.cache_matched(1 << 20);
        self.frozen = None;
        for entry in &self.log {
            self.groups.apply(entry).unwrap();
        }
    }

    fn live(&self) -> impl Iterator<Item = (u32, &Known)> {
        self.expected.iter().enumerate().filter_map(|(id, known)| Some((id as u32, known.as_ref()?)))
    }

    fn check(&self, matchers: &[CompiledMatcher]) {
        for (id, expected) in self.expected.iter().enumerate() {
            let group = self.groups.get(id as u32).unwrap();
            let slots = self.groups.slots(id as u32).unwrap().map(|slots| slots.iter().collect());
            let found = group.map(|group| Known {
                database: group.database,
                measurement: group.measurement,
                labels: group.labels,
                slots: slots.unwrap(),
            });
            assert_eq!(&found, expected, "group {id}");
        }
        assert_eq!(self.groups.len(), self.live().count() as u64);
        assert_eq!(self.groups.next_id() as usize, self.expected.len());
        for database in 0..2 {
            self.check_database(database, matchers);
        }
    }

    fn check_database(&self, database: u32, matchers: &[CompiledMatcher]) {
        let columns: Vec<MetricColumns> = (0..2)
            .map(|measurement| MetricColumns { measurement, slots: vec![0, 2, 3], decided: Vec::new() })
            .collect();
        let selected = self.groups.select(database, &columns, matchers).unwrap();
        let mut expected = Vec::new();
        for columns in &columns {
            for (id, known) in self.live().filter(|(_, known)| known.database == database) {
                let satisfied =
                    |matcher: &CompiledMatcher| matcher.matches(known.labels.get(matcher.name()).unwrap_or(""));
                let slots: Vec<u32> = columns.slots.iter().copied().filter(|slot| known.slots.contains(slot)).collect();
                if known.measurement == columns.measurement && matchers.iter().all(satisfied) && !slots.is_empty() {
                    expected.push(Selected { id, measurement: columns.measurement, slots: slots.into() });
                }
            }
        }
        assert_eq!(selected, expected, "{matchers:?}");
        let chosen: RoaringBitmap = selected.iter().map(|selected| selected.id).collect();
        let (mut names, mut values) = (TextSet::default(), TextSet::default());
        self.groups.add_label_names(database, &chosen, &mut names).unwrap();
        self.groups.add_label_values((database, "x"), &chosen, &mut values, &mut |_| true).unwrap();
        let [names, values] = [names, values].map(|texts| BTreeSet::from_iter(texts.into_sorted()));
        let (mut all_names, mut all_values) = (BTreeSet::new(), BTreeSet::new());
        for (_, known) in self.live().filter(|(id, _)| chosen.contains(*id)) {
            all_names.extend(known.labels.iter().map(|(name, _)| name.to_owned()));
            all_values.extend(known.labels.get("x").map(str::to_owned));
        }
        assert_eq!((names, values), (all_names, all_values));
        let counts = cardinality(&[&self.groups], database, 100, &|_| true).unwrap();
        let live: Vec<&Known> =
            self.live().map(|(_, known)| known).filter(|known| known.database == database).collect();
        assert_eq!(counts.groups, live.len() as u64);
        let refused = cardinality(&[&self.groups], database, 100, &|_| false);
        assert!(live.is_empty() || matches!(refused, Err(thalweg_index::IndexError::Refused)), "{refused:?}");
        assert_eq!(counts.series, live.iter().map(|known| known.slots.len() as u64).sum::<u64>());
    }
}

fn slots() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::btree_set(0u32..5, 0..4).prop_map(|slots| slots.into_iter().rev().collect())
}

fn step() -> impl Strategy<Value = Step> {
    let labels = proptest::collection::btree_map("[xyz]", "[abü]{1,2}", 0..4);
    let register = (0u32..2, 0u32..2, labels, slots()).prop_map(|(database, measurement, labels, slots)| {
        Step::Register { database, measurement, labels: labels.into_iter().collect(), slots }
    });
    prop_oneof![
        12 => register,
        3 => (any::<u32>(), slots()).prop_map(|(group, slots)| Step::Extend { group, slots }),
        2 => proptest::collection::vec(any::<u32>(), 0..4).prop_map(|groups| Step::Remove { groups }),
        2 => Just(Step::Freeze),
        3 => Just(Step::Install),
        2 => Just(Step::Merge),
        1 => Just(Step::MergeAll),
        1 => Just(Step::Reopen),
    ]
}

fn matchers() -> impl Strategy<Value = Vec<(String, MatchOp, String)>> {
    let operator = proptest::sample::select(vec![MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex]);
    proptest::collection::vec(("[xyz]", operator, "(a|ab|b|)|[ab]?|a.*|a[|]b|.*|.*b|.+|ü.?|aü|(a|ü)b|.*a.*"), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn groups_are_what_was_registered(
        steps in proptest::collection::vec(step(), 0..80),
        matchers in proptest::collection::vec(matchers(), 3),
    ) {
        let mut pair = Pair::default();
        for (number, step) in steps.into_iter().enumerate() {
            pair.take(step);
            if number % 16 == 0 {
                pair.check(&[]);
            }
        }
        for matchers in matchers {
            let compile = |(name, op, value): &(String, MatchOp, String)| {
                CompiledMatcher::new(&Matcher::new(name, *op, value)).ok()
            };
            let compiled: Vec<CompiledMatcher> = matchers.iter().filter_map(compile).collect();
            pair.check(&compiled);
            // Again from the cache.
            pair.check(&compiled);
        }
    }

    /// Damage anywhere is an error or harmless, never a panic; `verify` finds all of it.
    #[test]
    fn damage_is_told(
        steps in proptest::collection::vec(step(), 1..60),
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut pair = Pair::default();
        pair.register(0, 0, &Labels::from_pairs([("x", "a")]).unwrap(), &[0]);
        steps.into_iter().for_each(|step| pair.take(step));
        pair.take(Step::Freeze);
        pair.take(Step::Install);
        pair.take(Step::MergeAll);
        let mut bytes = pair.files.values().last().unwrap().clone();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let Ok(segment) = Segment::open(1, Arc::new(bytes)) else {
            return Ok(());
        };
        prop_assert!(segment.verify().is_err(), "bit {} of byte {} flipped unnoticed", bit, place);
        thalweg_index::fuzzing::segment_opened(segment);
    }
}

/// More groups than fit one block of anything, so that every table has several.
#[test]
fn many_groups_come_back() {
    let mut pair = Pair::default();
    for number in 0..3000u32 {
        let values = [number % 7, number / 10, number];
        let pairs = values.iter().enumerate().map(|(name, value)| (format!("l{name}"), format!("v-{value}")));
        pair.register(0, number % 2, &Labels::from_pairs(pairs).unwrap(), &[number % 4]);
        if number % 500 == 499 {
            [Step::Freeze, Step::Install, Step::Merge].into_iter().for_each(|step| pair.take(step));
        }
        if number % 700 == 699 {
            pair.take(Step::Remove { groups: (number - 650..number - 100).collect() });
        }
    }
    pair.check(&[]);
    pair.take(Step::MergeAll);
    pair.check(&[]);
    for (pattern, op) in [("v-1.*", MatchOp::Regex), (".*9.*", MatchOp::NotRegex), ("v-2[0-9]{2}", MatchOp::Regex)] {
        pair.check(&[CompiledMatcher::new(&Matcher::new("l1", op, pattern)).unwrap()]);
        pair.check(&[CompiledMatcher::new(&Matcher::new("l2", op, pattern)).unwrap()]);
    }
}
