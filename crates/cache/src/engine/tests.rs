//! The cache against what is true: a database whose data changes only where a delete says so.

use std::collections::BTreeMap;

use platform::sim::Simulation;
use proptest::prelude::*;

use super::*;
use crate::points::{Answer, FieldPoints, Points, ValueType, Values};
use crate::span::SpanSet;
use crate::{Key, Lookup, Span};

const KEYS: u8 = 5;
const PATH: &str = "cache/flash";

/// What a key's query would answer, and what should be cached of it.
#[derive(Default, Clone)]
struct Truth {
    /// Times whose data was changed, and how often.
    versions: BTreeMap<i64, u32>,
    covered: SpanSet,
}

fn key(number: u8) -> Key {
    Key::of_statement(&format!("select {number}"))
}

/// Keys ask for different fields and series; where they ask for the same they get the same, unless it was changed.
fn answer(number: u8, truth: &Truth, span: Span) -> Answer {
    let series: Vec<Arc<str>> = (0..3).filter(|one| number & 1 == 0 || one & 1 == 0).map(series_name).collect();
    let types =
        [("load", ValueType::F64), ("count", ValueType::I64), ("note", ValueType::Text), ("up", ValueType::Bool)];
    let fields = types.iter().take(usize::from(number)).map(|(name, value_type)| {
        let mut points = Points::new(*value_type);
        for time in span.start..span.end {
            for (place, series) in series.iter().enumerate().filter(|(place, _)| (time + *place as i64) % 3 != 0) {
                let version = truth.versions.get(&time).copied().unwrap_or(0);
                let bits = i64::from(version) * 1_000_003 + time * 31 + series.len() as i64;
                points.timestamps.push(time);
                points.series.push(place as u32);
                push(&mut points.values, bits);
            }
        }
        FieldPoints { name: Arc::from(*name), points }
    });
    Answer { series: series.clone(), fields: fields.collect() }
}

fn series_name(number: usize) -> Arc<str> {
    Arc::from(["", "host=a", "host=bb"][number])
}

fn push(values: &mut Values, bits: i64) {
    match values {
        Values::F64(column) => column.push(bits as f64 / 8.0),
        Values::I64(column) => column.push(bits),
        Values::Bool(column) => column.push(bits & 1 == 1),
        Values::Text(column) => column.push(Arc::from(format!("note {bits}"))),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, Span),
    Get(u8, Span),
    Delete(u8, Span),
    Clear,
    Flush,
    Maintain,
    Reopen,
    Crash,
    /// A bit of the file turns over.
    Damage(u64, u8),
}

fn span() -> impl Strategy<Value = Span> {
    (-60i64..200, 1i64..60).prop_map(|(start, length)| Span::new(start, start + length))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..KEYS, span()).prop_map(|(key, span)| Step::Set(key, span)),
        10 => (0..KEYS, span()).prop_map(|(key, span)| Step::Get(key, span)),
        2 => (0..KEYS, span()).prop_map(|(key, span)| Step::Delete(key, span)),
        3 => Just(Step::Flush),
        2 => Just(Step::Maintain),
        1 => Just(Step::Reopen),
    ]
}

fn rough_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => step(),
        1 => Just(Step::Crash),
        1 => (any::<u64>(), 0u8..8).prop_map(|(place, bit)| Step::Damage(place, bit)),
    ]
}

struct World {
    simulation: Simulation,
    options: Options,
    cache: Cache,
    truths: Vec<Truth>,
    /// Whether nothing was lost that should be there.
    is_exact: bool,
}

impl World {
    fn new(seed: u64, policy: PolicyKind, slabs: u64, is_exact: bool) -> Self {
        let simulation = Simulation::new(seed);
        let mut options = Options::new(PATH, (1 << 20) + slabs * (16 << 10));
        options.slab_bytes = 16 << 10;
        options.policy = policy;
        options.partial_bytes_min = 0;
        options.compaction_slabs = 3;
        options.compaction_write_share_max = 100.0;
        options.read_threads = 0;
        options.open_bytes_max = 64 << 10;
        // A few pages: they come and go.
        options.buffer_bytes_max = 40 << 10;
        let cache = Cache::open(&simulation.platform(), options.clone()).unwrap();
        let truths = vec![Truth::default(); usize::from(KEYS)];
        Self { simulation, options, cache, truths, is_exact }
    }

    /// With so many bytes that may wait for the file.
    fn with_open_bytes(mut self, open_bytes_max: usize) -> Self {
        self.options.open_bytes_max = open_bytes_max;
        self.reopen();
        self
    }

    fn reopen(&mut self) {
        self.cache = Cache::open(&self.simulation.platform(), self.options.clone()).unwrap();
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Set(number, span) => {
                let truth = &mut self.truths[usize::from(*number)];
                self.cache.set(key(*number), &answer(*number, truth, *span), *span).unwrap();
                truth.covered.insert(*span);
            }
            Step::Get(number, span) => self.check(*number, *span),
            Step::Delete(number, span) => {
                let truth = &mut self.truths[usize::from(*number)];
                (span.start..span.end).for_each(|time| *truth.versions.entry(time).or_default() += 1);
                self.cache.delete(key(*number), *span).unwrap();
                truth.covered.remove(*span);
            }
            Step::Clear => {
                self.cache.clear().unwrap();
                self.truths.iter_mut().for_each(|truth| truth.covered = SpanSet::default());
            }
            Step::Flush => self.cache.flush().unwrap(),
            Step::Maintain => while self.cache.maintain().unwrap() {},
            Step::Reopen => {
                self.cache.flush().unwrap();
                self.reopen();
            }
            Step::Crash => {
                self.simulation.crash();
                self.reopen();
            }
            Step::Damage(place, bit) => {
                let size = self.simulation.read(Path::new(PATH)).map_or(0, |content| content.len() as u64);
                if size > 0 {
                    self.simulation.flip_bit(Path::new(PATH), place % size, *bit).unwrap();
                }
            }
        }
    }

    fn check(&self, number: u8, span: Span) {
        let truth = &self.truths[usize::from(number)];
        let (found, part) = match self.cache.get(key(number), span) {
            Lookup::Hit(found) => (found, span),
            Lookup::Partial { answer, span: part } => {
                assert!(
                    span.contains(&part) && (part.start == span.start || part.end == span.end),
                    "{part:?} of {span:?}"
                );
                (answer, part)
            }
            Lookup::Miss => {
                let is_covered = truth.covered.within(span).eq([span]);
                assert!(!(self.is_exact && is_covered), "{span:?} of {number} is covered by {:?}", truth.covered);
                return;
            }
        };
        assert_eq!(found.plain(), answer(number, truth, part).plain(), "{part:?} of {number}");
        let is_covered = truth.covered.within(span).eq([span]);
        assert!(!self.is_exact || !is_covered || part == span, "{span:?} of {number} in part only: {part:?}");
    }

    fn check_all(&self) {
        for number in 0..KEYS {
            for start in (-60..260).step_by(40) {
                self.check(number, Span::new(start, start + 40));
                self.check(number, Span::new(start, start + 7));
            }
        }
    }
}

/// All that a few sets bring, or so little that points are packed.
fn open_bytes() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![8 << 10, 64 << 10])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn with_room_for_all_nothing_is_missed(
        open_bytes in open_bytes(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(1, PolicyKind::TsCache, 4096, true).with_open_bytes(open_bytes);
        steps.iter().for_each(|step| world.run(step));
        world.check_all();
    }

    #[test]
    fn whatever_happens_no_answer_is_wrong(
        seed in any::<u64>(),
        policy in prop::sample::select(PolicyKind::ALL.to_vec()),
        open_bytes in open_bytes(),
        steps in prop::collection::vec(rough_step(), 1..120),
    ) {
        let mut world = World::new(seed, policy, 6, false).with_open_bytes(open_bytes);
        for step in &steps {
            world.run(step);
            world.check_all();
        }
        world.run(&Step::Clear);
        world.check_all();
        world.run(&Step::Reopen);
        world.check_all();
    }
}

#[test]
fn compaction_keeps_what_keys_share_once() {
    let mut world = World::new(7, PolicyKind::Fifo, 4096, true);
    for start in (0..2000).step_by(100) {
        for number in [2, 4] {
            world.run(&Step::Set(number, Span::new(start, start + 100)));
        }
        world.run(&Step::Flush);
    }
    let before = world.cache.stats();
    world.run(&Step::Maintain);
    let after = world.cache.stats();
    assert!(after.compactions > 0 && after.slabs < before.slabs, "{before:?} {after:?}");
    assert!(after.points < before.points, "what two keys share is there once");
    world.check(2, Span::new(0, 2000));
    world.check(4, Span::new(0, 2000));
    world.run(&Step::Reopen);
    world.check(2, Span::new(0, 2000));
    world.check(4, Span::new(0, 2000));
}

#[test]
fn a_hit_reads_a_slab_once_and_then_not_at_all() {
    let mut world = World::new(5, PolicyKind::Sieve, 64, true);
    for start in (0..1200).step_by(100) {
        for number in 1..KEYS {
            world.run(&Step::Set(number, Span::new(start, start + 100)));
        }
    }
    world.run(&Step::Flush);
    for (buffer_bytes_max, reads_again) in [(0, true), (2 << 20, false)] {
        world.options.buffer_bytes_max = buffer_bytes_max;
        world.reopen();
        // The names of series come with the first hit.
        world.check(4, Span::new(0, 1200));
        let read = |world: &World| {
            let before = world.cache.stats();
            world.check(4, Span::new(150, 1050));
            let after = world.cache.stats();
            (after.reads - before.reads, after.slab_reads - before.slab_reads)
        };
        let (reads, slab_reads) = read(&world);
        assert!(slab_reads > 4, "{slab_reads}");
        assert_eq!(reads, if reads_again { slab_reads } else { 0 });
        assert!(world.cache.stats().buffer_bytes <= buffer_bytes_max as u64);
    }
}

#[test]
fn series_of_other_keys_do_not_come_along() {
    let mut world = World::new(9, PolicyKind::Sieve, 64, true);
    for number in [1, 2, 3, 4] {
        world.run(&Step::Set(number, Span::new(0, 50)));
    }
    world.run(&Step::Reopen);
    // Odd numbers ask for two of the three series that the slabs have.
    for (number, count) in [(3, 2), (4, 3)] {
        let Lookup::Hit(found) = world.cache.get(key(number), Span::new(0, 50)) else { panic!("{number} is missed") };
        assert_eq!(found.series.len(), count, "{:?} of {number}", found.series);
        let used: std::collections::BTreeSet<u32> =
            found.fields.iter().flat_map(|field| field.points.series.iter().copied()).collect();
        assert_eq!(used.len(), count);
    }
}

#[test]
fn deletes_survive_although_their_list_overflows() {
    let mut world = World::new(3, PolicyKind::Fifo, 64, false);
    let span = Span::new(0, 50);
    for round in 0..20_000i64 {
        if round % 1000 == 0 {
            world.run(&Step::Set(2, span));
            world.run(&Step::Flush);
            world.run(&Step::Delete(2, span));
        }
        let other = Key::of_statement(&round.to_string());
        world.cache.delete(other, span).unwrap();
    }
    world.check(2, span);
    world.run(&Step::Crash);
    world.check(2, span);
    assert!(world.cache.stats().deletes <= crate::flash::DELETES_MAX as u64);
}

#[test]
fn what_compaction_left_behind_does_not_come_back() {
    let mut world = World::new(3, PolicyKind::Fifo, 256, false);
    let spans: Vec<Span> = (0..150).step_by(50).map(|start| Span::new(start, start + 50)).collect();
    for span in &spans {
        world.run(&Step::Set(2, *span));
        world.run(&Step::Flush);
    }
    world.run(&Step::Delete(2, Span::new(0, 150)));
    world.run(&Step::Maintain);
    assert!(world.cache.stats().slabs_compacted > 4, "{:?}", world.cache.stats());
    let delete_others = |world: &World, count: u32| {
        for other in 0..count {
            world.cache.delete(Key::of_statement(&other.to_string()), spans[0]).unwrap();
        }
    };
    delete_others(&world, 5000);
    world.run(&Step::Set(1, spans[0]));
    world.run(&Step::Flush);
    // The list is full now: deletes that hide nothing in slabs any more go.
    delete_others(&world, 3300);
    let stats = world.cache.stats();
    assert!(stats.deletes < 5000 && stats.keys == 1, "{stats:?}");
    world.run(&Step::Reopen);
    spans.iter().for_each(|span| world.check(2, *span));
}

#[test]
fn a_real_file_is_read_and_written_directly() {
    let folder = std::env::temp_dir().join(format!("thalweg-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut options = Options::new(folder.join("flash"), 16 << 20);
    options.slab_bytes = 64 << 10;
    let platform = Platform::real();
    let truth = Truth::default();
    let cache = Cache::open(&platform, options.clone()).unwrap();
    for start in (0..20_000).step_by(500) {
        let span = Span::new(start, start + 500);
        cache.set(key(4), &answer(4, &truth, span), span).unwrap();
    }
    cache.flush().unwrap();
    drop(cache);
    let cache = Cache::open(&platform, options).unwrap();
    let span = Span::new(17, 19_000);
    let Lookup::Hit(found) = cache.get(key(4), span) else { panic!("not there after a restart") };
    assert_eq!(found.plain(), answer(4, &truth, span).plain());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_no_answer_is_refused() {
    let world = World::new(1, PolicyKind::Lru, 8, true);
    let points = |timestamps: &[i64], series: &[u32]| Points {
        timestamps: timestamps.to_vec(),
        series: series.to_vec(),
        values: Values::F64(vec![1.0; timestamps.len()]),
    };
    let check = |points: Points, span: (i64, i64), expected: &str| {
        let field = FieldPoints { name: Arc::from("a"), points };
        let answer = Answer { series: vec![Arc::from("")], fields: vec![field] };
        let error = world.cache.set(key(1), &answer, Span::new(span.0, span.1)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(points(&[1, 2], &[0, 0]), (5, 5), "empty");
    check(points(&[1, 2], &[0, 0]), (0, 2), "outside");
    check(points(&[1, 1], &[0, 0]), (0, 2), "same time");
    check(points(&[1, 2], &[0, 1]), (0, 9), "series");
    check(points(&[1, 2], &[0]), (0, 9), "equally long");
}

#[test]
fn fields_that_come_later_leave_what_is_cached() {
    let mut world = World::new(3, PolicyKind::Lru, 64, true);
    let (truth, all) = (Truth::default(), Span::new(0, 10 * i64::from(KEYS)));
    let part = |number: u8| Span::new(10 * i64::from(number), 10 * i64::from(number) + 10);
    // From no field to four.
    let expected: BTreeMap<_, _> = (0..KEYS).flat_map(|number| answer(number, &truth, part(number)).plain()).collect();
    let check = |world: &World, span: Span| {
        let Lookup::Hit(found) = world.cache.get(key(9), span) else { panic!("{span:?}") };
        let expected = expected.iter().filter(|((time, ..), _)| (span.start..span.end).contains(time));
        assert!(found.plain().iter().eq(expected), "{span:?}");
    };
    for number in 0..KEYS {
        world.cache.set(key(9), &answer(number, &truth, part(number)), part(number)).unwrap();
        check(&world, Span::new(0, part(number).end));
        world.cache.flush().unwrap();
    }
    world.reopen();
    check(&world, all);
    // What was deleted does not come back with a field that is new.
    world.cache.delete(key(9), part(1)).unwrap();
    let other = FieldPoints { name: Arc::from("other"), points: Points::new(ValueType::F64) };
    let span = Span::new(all.end, all.end + 1);
    world.cache.set(key(9), &Answer { series: Vec::new(), fields: vec![other] }, span).unwrap();
    world.cache.flush().unwrap();
    for _ in 0..2 {
        let found = world.cache.get(key(9), Span::new(0, 15));
        assert!(matches!(found, Lookup::Partial { span, .. } if span == part(0)), "{found:?}");
        check(&world, Span::new(20, all.end));
        world.reopen();
    }
}

#[test]
fn stamps_come_back_and_can_be_refused() {
    let world = World::new(1, PolicyKind::Lru, 8, true);
    let (cache, truth) = (&world.cache, Truth::default());
    let (old, new, both) = (Span::new(0, 10), Span::new(10, 20), Span::new(0, 20));
    cache.set_stamped(key(1), &answer(1, &truth, old), old, 5).unwrap();
    cache.set_stamped(key(1), &answer(1, &truth, new), new, 9).unwrap();
    let ask = |oldest: u64| {
        let holds = move |_: Span, stamp: u64| stamp >= oldest;
        cache.get_with(&Request { key: key(1), span: both, partial_bytes_min: Some(0), holds: &holds })
    };
    assert!(matches!(ask(5), Lookup::Hit(_)));
    assert!(matches!(ask(6), Lookup::Partial { span, .. } if span == new));
    assert_eq!(ask(10), Lookup::Miss);
    cache.restamp(key(1), both, 12);
    assert!(matches!(ask(12), Lookup::Hit(_)));
}

/// What waits for the file is packed before it has to go.
#[test]
fn slabs_are_full_although_little_may_wait() {
    let slab_bytes = 32 << 10;
    let options = Options { slab_bytes, open_bytes_max: 128 << 10, read_threads: 0, ..Options::new(PATH, 8 << 20) };
    let cache = Cache::open(&Simulation::new(3).platform(), options).unwrap();
    let span = Span::new(0, 500);
    let answer = |number: i64| {
        let field = |field: i64| {
            let timestamps: Vec<i64> = (span.start..span.end).collect();
            let mixed =
                |time: i64| (time * 31 + number * 17 + field).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 54;
            let value = |time: &i64| mixed(*time) as f64 / 10.0;
            let values = Values::F64(timestamps.iter().map(value).collect());
            let points = Points { series: vec![0; timestamps.len()], timestamps, values };
            FieldPoints { name: Arc::from(format!("field {field}")), points }
        };
        Answer { series: vec![Arc::from("")], fields: (0..4).map(field).collect() }
    };
    let key = |number: i64| Key::of_statement(&format!("query {number}"));
    (0..300).for_each(|number| cache.set(key(number), &answer(number), span).unwrap());
    let stats = cache.stats();
    let share = stats.slab_bytes as f64 / (stats.slabs * slab_bytes as u64) as f64;
    assert!(stats.slabs >= 8 && share > 0.85 && stats.open_bytes <= 160 << 10, "{share} {stats:?}");
    for number in 0..300 {
        let Lookup::Hit(found) = cache.get(key(number), Span::new(100, 400)) else { panic!("{number} is missing") };
        assert_eq!(found.plain(), answer(number).within(Span::new(100, 400)).plain());
    }
}

#[test]
fn threads_that_set_read_delete_and_compact_at_once_get_nothing_wrong() {
    let mut world = World::new(11, PolicyKind::Sieve, 6, false);
    let mut options = world.options.clone();
    options.read_threads = 2;
    world.cache = Cache::open(&world.simulation.platform(), options).unwrap();
    let cache = &world.cache;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each thread has keys of its own, so that it knows what is true of them.
        let threads: Vec<_> = (0..3u64).map(|thread| scope.spawn(move || hammer(cache, thread))).collect();
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                while cache.maintain().unwrap() {}
                std::thread::yield_now();
            }
        });
        let hits: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(hits > 100, "{hits} hits, {:?}", cache.stats());
    });
    let stats = world.cache.stats();
    assert!(stats.slabs_evicted > 10 && stats.slabs_bad == 0, "{stats:?}");
}

fn hammer(cache: &Cache, thread: u64) -> u64 {
    let simulation = Simulation::new(thread);
    let mut truths = vec![Truth::default(); usize::from(KEYS)];
    let mut hits = 0;
    for _ in 0..3000 {
        let number = simulation.below(u64::from(KEYS)) as u8;
        let own = Key::of_statement(&format!("{thread} {number}"));
        let start = simulation.below(300) as i64;
        let span = Span::new(start, start + 1 + simulation.below(40) as i64);
        let truth = &mut truths[usize::from(number)];
        match simulation.below(20) {
            0 => {
                (span.start..span.end).for_each(|time| *truth.versions.entry(time).or_default() += 1);
                cache.delete(own, span).unwrap();
            }
            1..8 => cache.set(own, &answer(number, truth, span), span).unwrap(),
            _ => {
                let (found, part) = match cache.get(own, span) {
                    Lookup::Hit(found) => (found, span),
                    Lookup::Partial { answer, span } => (answer, span),
                    Lookup::Miss => continue,
                };
                hits += 1;
                assert_eq!(
                    found.plain(),
                    answer(number, truth, part).plain(),
                    "{part:?} of {number} in thread {thread}"
                );
            }
        }
    }
    hits
}
