//! Each action, by tables.

use model::{MatchOp, Matcher};

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn text(action: Action) -> RuleText {
    RuleText { action, ..RuleText::default() }
}

fn sources(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn condition(matchers: &[(&str, MatchOp, &str)]) -> Condition {
    let matchers: Vec<Matcher> = matchers.iter().map(|(name, op, value)| Matcher::new(*name, *op, *value)).collect();
    Condition { text: format!("{matchers:?}"), matchers }
}

const INPUT: [(&str, &str); 4] = [("__name__", "up"), ("a", "foo"), ("b", "bar"), ("c", "Baz.1")];

#[track_caller]
fn check(rule: RuleText, expected: Option<&[(&str, &str)]>) {
    let rule = Rule::new(rule).unwrap();
    let mut changed = labels(&INPUT);
    let is_kept = relabel(&mut changed, std::slice::from_ref(&rule));
    assert_eq!(is_kept.then_some(changed), expected.map(labels), "{rule:?}");
}

/// The input with one label set, or removed.
#[track_caller]
fn check_set(rule: RuleText, name: &str, value: &str) {
    let rule = Rule::new(rule).unwrap();
    let (mut changed, mut expected) = (labels(&INPUT), labels(&INPUT));
    assert!(relabel(&mut changed, std::slice::from_ref(&rule)));
    if value.is_empty() {
        expected.remove(name);
    } else {
        expected.insert(name.to_owned(), value.to_owned());
    }
    assert_eq!(changed, expected, "{rule:?}");
}

#[test]
fn replace_fills_in_groups() {
    let replace = |sources_of: &[&str], regex: Option<&str>, target: &str, replacement: Option<&str>| RuleText {
        source_labels: sources(sources_of),
        regex: regex.map(str::to_owned),
        target_label: target.to_owned(),
        replacement: replacement.map(str::to_owned),
        ..text(Action::Replace)
    };
    check_set(replace(&["a"], None, "d", None), "d", "foo");
    check_set(replace(&["a", "b"], Some("f(.*);(.*)r"), "d", Some("ch$1-${2}x")), "d", "choo-bax");
    check_set(replace(&["a"], Some("nothing"), "b", None), "b", "bar");
    check_set(replace(&["a"], Some("foo"), "b", Some("")), "b", "");
    // As in Go, the longest name is taken.
    check_set(replace(&["a"], Some("(f)(o+)"), "d", Some("$1x|$$|$2")), "d", "|$|oo");
    check_set(replace(&["a", "b"], Some("(.*);(.*)"), "${1}_new", Some("$2")), "foo_new", "bar");
    check_set(replace(&["missing"], Some("(.+)"), "b", None), "b", "bar");
    check_set(replace(&["missing"], None, "b", None), "b", "");
    check_set(RuleText { separator: Some("-".to_owned()), ..replace(&["a", "b"], None, "d", None) }, "d", "foo-bar");
    // Anchored, and a dot is any character.
    check_set(replace(&["a"], Some("fo"), "b", None), "b", "bar");
}

#[test]
fn keep_and_drop_decide() {
    let rule = |action, regex: &str| RuleText {
        source_labels: sources(&["a"]),
        regex: Some(regex.to_owned()),
        ..text(action)
    };
    check(rule(Action::Keep, "f.*|x"), Some(&INPUT));
    check(rule(Action::Keep, "x"), None);
    check(rule(Action::Drop, "f.*"), None);
    check(rule(Action::Drop, "x"), Some(&INPUT));
    let equal = |action, target: &str| RuleText {
        source_labels: sources(&["a"]),
        target_label: target.to_owned(),
        ..text(action)
    };
    check(equal(Action::KeepEqual, "b"), None);
    check(equal(Action::DropEqual, "b"), Some(&INPUT));
    check(equal(Action::KeepEqual, "a"), Some(&INPUT));
    check(equal(Action::DropEqual, "a"), None);
}

#[test]
fn names_are_mapped_and_filtered() {
    let rule = |action, regex: &str| RuleText { regex: Some(regex.to_owned()), ..text(action) };
    check(
        RuleText { replacement: Some("x_$1".to_owned()), ..rule(Action::LabelMap, "([ab])") },
        Some(&[("__name__", "up"), ("a", "foo"), ("b", "bar"), ("c", "Baz.1"), ("x_a", "foo"), ("x_b", "bar")]),
    );
    check(rule(Action::LabelDrop, "[bc]"), Some(&[("__name__", "up"), ("a", "foo")]));
    check(rule(Action::LabelKeep, "__name__|c"), Some(&[("__name__", "up"), ("c", "Baz.1")]));
}

#[test]
fn values_are_hashed_and_their_case_changed() {
    let rule = |action| RuleText { source_labels: sources(&["c"]), target_label: "d".to_owned(), ..text(action) };
    check_set(rule(Action::Lowercase), "d", "baz.1");
    check_set(rule(Action::Uppercase), "d", "BAZ.1");
    let hashed = |value: &str| hash_of(value, 1000);
    assert_eq!(hashed("foo\nbar"), "734");
    assert_eq!(hash_of("foo", 1000), "696");
    // xxHash of foo is 33bf00a859c4ba3f.
    let agents = RuleText {
        source_labels: sources(&["a"]),
        target_label: "d".to_owned(),
        modulus: u64::MAX,
        ..text(Action::HashMod)
    };
    check_set(RuleText { hash: HashKind::XxHash64, ..agents }, "d", "3728699739546630719");
}

fn hash_of(value: &str, modulus: u64) -> String {
    let rule = Rule::new(RuleText {
        source_labels: sources(&["c"]),
        target_label: "d".to_owned(),
        modulus,
        ..text(Action::HashMod)
    });
    let mut changed = labels(&[("c", value)]);
    assert!(relabel(&mut changed, &[rule.unwrap()]));
    changed["d"].clone()
}

#[test]
fn what_the_agent_has_beyond() {
    let metrics = |action| RuleText { regex: Some("up|down".to_owned()), ..text(action) };
    check(metrics(Action::KeepMetrics), Some(&INPUT));
    check(metrics(Action::DropMetrics), None);
    let all = RuleText {
        source_labels: sources(&["a"]),
        target_label: "a".to_owned(),
        regex: Some("o".to_owned()),
        replacement: Some("0".to_owned()),
        ..text(Action::ReplaceAll)
    };
    check_set(all.clone(), "a", "f00");
    check_set(RuleText { target_label: "d".to_owned(), ..all.clone() }, "d", "f00");
    // Nothing is replaced.
    check(RuleText { target_label: "c".to_owned(), regex: Some("x".to_owned()), ..all }, Some(&INPUT));
    let renamed =
        RuleText { regex: Some("[ab]".to_owned()), replacement: Some("z$0".to_owned()), ..text(Action::LabelMapAll) };
    check(renamed, Some(&[("__nzame__", "up"), ("c", "Baz.1"), ("za", "foo"), ("zb", "bar")]));
    let equal = |action, names: &[&str]| RuleText { source_labels: sources(names), ..text(action) };
    check(equal(Action::KeepIfEqual, &["a", "b"]), None);
    check(equal(Action::DropIfEqual, &["a", "b"]), Some(&INPUT));
    let contains =
        |action| RuleText { source_labels: sources(&["missing"]), target_label: "a".to_owned(), ..text(action) };
    check(contains(Action::KeepIfContains), Some(&INPUT));
    check(contains(Action::DropIfContains), None);
    let with_condition =
        |action, matchers: &[(&str, MatchOp, &str)]| RuleText { conditions: vec![condition(matchers)], ..text(action) };
    check(with_condition(Action::Drop, &[("__name__", MatchOp::Equal, "up"), ("a", MatchOp::Equal, "foo")]), None);
    check(
        with_condition(Action::Drop, &[("__name__", MatchOp::Equal, "up"), ("a", MatchOp::NotRegex, "f.*")]),
        Some(&INPUT),
    );
    check(with_condition(Action::Keep, &[("b", MatchOp::Equal, "other")]), None);
    check(with_condition(Action::Keep, &[("b", MatchOp::Equal, "bar")]), Some(&INPUT));
    // They select nothing by themselves.
    check(with_condition(Action::Keep, &[("missing", MatchOp::NotEqual, "x")]), Some(&INPUT));
    check(
        with_condition(Action::Drop, &[("missing", MatchOp::Equal, ""), ("a", MatchOp::NotEqual, "foo")]),
        Some(&INPUT),
    );
    let graphite = RuleText {
        graphite_match: "*.*.total".to_owned(),
        graphite_labels: vec![
            ("__name__".to_owned(), "${2}_total".to_owned()),
            ("instance".to_owned(), "$1:9100".to_owned()),
        ],
        ..text(Action::Graphite)
    };
    let mut changed = labels(&[("__name__", "host1.requests.total")]);
    assert!(relabel(&mut changed, &[Rule::new(graphite).unwrap()]));
    assert_eq!(changed, labels(&[("__name__", "requests_total"), ("instance", "host1:9100")]));
}

#[test]
fn wrong_steps_are_refused() {
    let with_target = |action, target: &str| RuleText { target_label: target.to_owned(), ..text(action) };
    for (rule, reason) in [
        (text(Action::Replace), "needs target_label"),
        (with_target(Action::HashMod, "a"), "modulus"),
        (RuleText { names: NameScheme::Legacy, ..with_target(Action::Replace, "a-b") }, "no name"),
        (RuleText { regex: Some("(".to_owned()), ..with_target(Action::Replace, "a") }, "regex"),
        (with_target(Action::LabelDrop, "a"), "regex alone"),
        (RuleText { regex: Some("a".to_owned()), ..with_target(Action::KeepEqual, "a") }, "alone"),
        (
            RuleText {
                conditions: vec![condition(&[("a", MatchOp::Regex, "(")])],
                ..with_target(Action::Replace, "a")
            },
            "if",
        ),
        (RuleText { graphite_match: "a.*".to_owned(), ..text(Action::Drop) }, "graphite"),
    ] {
        let error = Rule::new(rule.clone()).unwrap_err();
        assert!(error.contains(reason), "{rule:?}: {error}");
    }
    for (name, action) in [("HashMod", Some(Action::HashMod)), ("keepEqual", Some(Action::KeepEqual)), ("x", None)] {
        assert_eq!(Action::parse(name).ok(), action);
    }
}

#[test]
fn steps_show_the_labels_after_each() {
    let set = RuleText { target_label: "d".to_owned(), replacement: Some("1".to_owned()), ..text(Action::Replace) };
    let drop = RuleText { source_labels: sources(&["d"]), regex: Some("1".to_owned()), ..text(Action::Drop) };
    let rules = [Rule::new(set.clone()).unwrap(), Rule::new(drop).unwrap(), Rule::new(set).unwrap()];
    let steps = relabel_steps(&labels(&INPUT), &rules);
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0].labels.as_ref().unwrap()["d"], "1");
    assert_eq!(steps[1], Step { number: 1, labels: None });
}
