//! The catalog's tests.

use model::{MatchOp, Matcher};

use super::*;

fn field(name: &str, value_type: ValueType) -> Field {
    Field { name: name.to_owned(), value_type }
}

fn example() -> Catalog {
    let mut catalog = Catalog::default();
    let (database, _) = catalog.register_database("default");
    let (cpu, _) = catalog.register_measurement(database, "cpu");
    catalog.register_field(cpu, &field("usage_user", ValueType::F64)).unwrap();
    catalog.register_field(cpu, &field("value", ValueType::I64)).unwrap();
    let (cpu_usage, _) = catalog.register_measurement(database, "cpu_usage");
    catalog.register_field(cpu_usage, &field("user", ValueType::F64)).unwrap();
    catalog
}

#[test]
fn one_metric_name_may_stand_for_columns_of_several_measurements() {
    let catalog = example();
    let chosen = |op, value: &str| {
        let matcher = CompiledMatcher::new(&Matcher::new("__name__", op, value)).unwrap();
        let columns = catalog.metrics(0, &[matcher]).into_iter();
        columns.map(|columns| (columns.measurement, columns.slots)).collect::<Vec<_>>()
    };
    assert_eq!(chosen(MatchOp::Equal, "cpu_usage_user"), [(0, vec![0]), (1, vec![0])]);
    assert_eq!(chosen(MatchOp::Equal, "cpu"), [(0, vec![1])]);
    assert_eq!(chosen(MatchOp::Regex, "cpu.*"), [(0, vec![0, 1]), (1, vec![0])]);
    assert_eq!(chosen(MatchOp::NotEqual, "cpu"), [(0, vec![0]), (1, vec![0])]);
    assert_eq!(chosen(MatchOp::Equal, ""), []);
}

#[test]
fn native_histograms_have_the_name_of_their_measurement() {
    let mut catalog = example();
    catalog.register_field(1, &field("native_histogram", ValueType::Histogram)).unwrap();
    for (op, value, expected) in [
        (MatchOp::Equal, "cpu_usage", vec![(1, vec![1])]),
        (MatchOp::Regex, ".*usage", vec![(1, vec![1])]),
        (MatchOp::Equal, "cpu_usage_native_histogram", vec![]),
        (MatchOp::Regex, ".*histogram", vec![]),
    ] {
        let matcher = CompiledMatcher::new(&Matcher::new("__name__", op, value)).unwrap();
        let columns = catalog.metrics(0, &[matcher]).into_iter();
        let found: Vec<_> = columns.map(|columns| (columns.measurement, columns.slots)).collect();
        assert_eq!(found, expected, "{value}");
    }
}

#[test]
fn a_type_conflict_names_the_field_and_both_types() {
    let mut catalog = example();
    let error = catalog.register_field(0, &field("value", ValueType::F64)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "field type conflict: input field \"value\" on measurement \"cpu\" is type float, already exists as type \
         integer"
    );
}

fn entries(bytes: &[u8]) -> Vec<CatalogEntry> {
    crate::decode_entries(&mut codec::Reader::new(bytes)).unwrap()
}

#[test]
fn is_the_sum_of_its_entries() {
    let mut catalog = example();
    let labels = Labels::from_pairs([("core", "7")]).unwrap();
    catalog.register_member(0, &field("usage_user", ValueType::F64), &labels).unwrap();
    let mut bytes = Vec::new();
    let unsaved = catalog.take_unsaved();
    catalog.encode_unsaved(&unsaved, &mut bytes);
    let told = entries(&bytes);
    assert_eq!(told.len(), 7);
    let mut copy = Catalog::default();
    for entry in told.iter().chain(&told) {
        copy.apply(entry).unwrap();
    }
    let again = copy.take_unsaved();
    assert!(!copy.has_unsaved() && again.entries() == 7, "known entries change nothing");
    copy.put_back_unsaved(again.clone());
    assert_eq!(copy.take_unsaved(), again);
    let (mut all, mut all_of_copy) = (Vec::new(), Vec::new());
    catalog.encode_all(&mut all);
    copy.encode_all(&mut all_of_copy);
    assert_eq!(all, all_of_copy);
    let field = told.iter().find(|entry| matches!(entry, CatalogEntry::Field { .. })).unwrap();
    assert!(Catalog::default().apply(field).is_err(), "a field before its measurement");
}

#[test]
fn members_differ_by_labels_of_their_own() {
    let mut catalog = Catalog::default();
    let (database, _) = catalog.register_database("default");
    let (cpu, _) = catalog.register_measurement(database, "cpu");
    let usage = field("usage", ValueType::F64);
    for core in ["", "0", "1"] {
        let labels = Labels::from_pairs([("core", core)]).unwrap();
        let (slot, _) = catalog.register_member(cpu, &usage, &labels).unwrap();
        assert_eq!(catalog.register_member(cpu, &usage, &labels).unwrap(), (slot, None));
        assert_eq!(catalog.field(cpu, slot).unwrap().labels, labels);
    }
    assert_eq!(catalog.find_slots(cpu, std::slice::from_ref(&usage)).unwrap(), Some(vec![0]));
    let chosen = |matchers: &[(&str, MatchOp, &str)]| {
        let compile = |(name, op, value): &(&str, MatchOp, &str)| {
            CompiledMatcher::new(&Matcher::new(*name, *op, *value)).unwrap()
        };
        let columns = catalog.metrics(0, &matchers.iter().map(compile).collect::<Vec<_>>()).into_iter();
        columns.map(|columns| (columns.decided, columns.slots)).collect::<Vec<_>>()
    };
    let name = ("__name__", MatchOp::Equal, "cpu_usage");
    assert_eq!(chosen(&[name]), [(vec![], vec![0, 1, 2])]);
    assert_eq!(chosen(&[name, ("core", MatchOp::Equal, "1")]), [(vec![], vec![0]), (vec![1], vec![2])]);
    assert_eq!(chosen(&[("core", MatchOp::NotEqual, "1"), name]), [(vec![], vec![0]), (vec![0], vec![1])]);
    assert_eq!(chosen(&[("host", MatchOp::Equal, "a")]), [(vec![], vec![0, 1, 2])]);
}

#[test]
fn members_of_a_wide_group_are_small() {
    let mut catalog = Catalog::default();
    let (database, _) = catalog.register_database("default");
    let (wide, _) = catalog.register_measurement(database, "wide");
    for number in 0..200_000 {
        catalog.register_field(wide, &field(&format!("sensor_{number:07}"), ValueType::F64)).unwrap();
    }
    assert_eq!(catalog.find_slots(wide, &[field("sensor_0123456", ValueType::F64)]), Ok(Some(vec![123_456])));
    let bytes = catalog.memory_bytes() / 200_000;
    assert!(bytes <= 60, "{bytes} bytes a member");
}
