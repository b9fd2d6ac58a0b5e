//! `limitk` may take any series, and `topk` and `bottomk` any of equal ones: whether an answer is one that such a query may have. Prometheus takes
//! what its maps have first.

use std::collections::BTreeMap;

use serde_json::Value;

use super::answers::{number, same};

/// A query whose outermost operator chooses series.
#[derive(Debug, PartialEq)]
pub(crate) struct Choice<'a> {
    /// Of `limitk`, which goes by no value.
    is_any: bool,
    /// The labels of `by`, or those of `without`.
    grouping: Option<(bool, Vec<&'a str>)>,
    /// The expression whose series it chooses from.
    pub(crate) inner: &'a str,
}

impl<'a> Choice<'a> {
    /// Reads a query as the grammar writes it; `None` if its outermost operator chooses nothing.
    pub(crate) fn of_query(text: &'a str) -> Option<Self> {
        let (name, rest) = text.split_once([' ', '('])?;
        let is_any = name == "limitk";
        if !is_any && name != "topk" && name != "bottomk" {
            return None;
        }
        let grouped = |word| rest.strip_prefix(word).and_then(|rest| rest.split_once(") "));
        let (grouping, rest) = match (grouped("by ("), grouped("without (")) {
            (Some((labels, rest)), _) => (Some((true, labels)), rest),
            (_, Some((labels, rest))) => (Some((false, labels)), rest),
            _ => (None, rest),
        };
        let names = |labels: &'a str| labels.split(", ").filter(|name| !name.is_empty()).collect();
        let grouping = grouping.map(|(is_by, labels)| (is_by, names(labels)));
        let arguments = rest.strip_prefix('(').unwrap_or(rest).strip_suffix(')')?;
        let (_, inner) = arguments.split_once(", ")?;
        Some(Self { is_any, grouping, inner })
    }

    /// The parts of a query that choose series.
    pub(crate) fn parts_of(text: &str) -> Vec<&str> {
        let names = ["limitk", "topk", "bottomk"].into_iter().flat_map(|name| text.match_indices(name));
        let parts = names.filter_map(|(start, name)| {
            let rest = text.get(start..)?;
            let is_name = text.get(..start)?.ends_with(|before: char| !before.is_alphanumeric());
            let labels =
                ["by (", "without ("].into_iter().find_map(|word| rest.get(name.len() + 1..)?.strip_prefix(word));
            let arguments = labels.map_or(rest, |labels| labels.split_once(") ").map_or(labels, |(_, rest)| rest));
            let length = rest.len() - arguments.len() + closing(arguments)?;
            rest.get(..length).filter(|_| is_name)
        });
        parts.collect()
    }

    fn group(&self, metric: &Value) -> String {
        let mut labels = metric.as_object().cloned().unwrap_or_default();
        labels.retain(|name, _| match &self.grouping {
            None => false,
            Some((true, names)) => names.contains(&name.as_str()),
            Some((false, names)) => name != "__name__" && !names.contains(&name.as_str()),
        });
        Value::Object(labels).to_string()
    }

    /// Points by time and group: how many, and where it goes by values, these in order.
    fn taken(&self, answer: &Value) -> BTreeMap<(String, String), Vec<Option<f64>>> {
        let mut taken: BTreeMap<_, Vec<Option<f64>>> = BTreeMap::new();
        for item in items(answer) {
            for point in points(item) {
                let value = number(&point[1]).filter(|_| !self.is_any);
                taken.entry((point[0].to_string(), self.group(&item["metric"]))).or_default().push(value);
            }
        }
        taken.values_mut().for_each(|values| values.sort_by_key(|value| value.map(order_of)));
        taken
    }

    /// Whether an answer is made of what there is to choose from, and takes as much of each group and time as another answer of the query does.
    pub(crate) fn is_alike(&self, choices: &Value, theirs: &Value, ours: &Value) -> bool {
        let offered: BTreeMap<String, &Value> = items(choices).map(|item| (item["metric"].to_string(), item)).collect();
        let is_offered = |item: &Value| {
            let from = offered.get(&item["metric"].to_string());
            from.is_some_and(|from| points(item).all(|point| points(from).any(|other| same(other, point))))
        };
        let (theirs, taken) = (self.taken(theirs), self.taken(ours));
        let is_same = |a: &Option<f64>, b: &Option<f64>| match (a, b) {
            (Some(a), Some(b)) => super::answers::close(*a, *b),
            _ => a == b,
        };
        let mut pairs = theirs.values().zip(taken.values());
        items(ours).all(is_offered)
            && theirs.keys().eq(taken.keys())
            && pairs.all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)))
    }
}

/// Where the first parenthesis is closed: the length up to then.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at + 1),
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Floats in an order in which NaN is the last, as a key.
fn order_of(value: f64) -> i64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }.cast_signed();
    bits ^ ((bits >> 63) & i64::MAX)
}

fn items(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["data"]["result"].as_array().into_iter().flatten()
}

/// The points of a series of an instant or a range, floats and histograms.
fn points(item: &Value) -> impl Iterator<Item = &Value> {
    let many = ["values", "histograms"].into_iter().flat_map(|name| item[name].as_array().into_iter().flatten());
    many.chain(["value", "histogram"].into_iter().filter_map(|name| item.get(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_choose_are_read() {
        let read = |text| Choice::of_query(text);
        let names = vec!["a", "b"];
        assert_eq!(read("topk (2, f)"), Some(Choice { is_any: false, grouping: None, inner: "f" }));
        assert_eq!(
            read("limitk without (a, b) (2, sum (f))"),
            Some(Choice { is_any: true, grouping: Some((false, names)), inner: "sum (f)" })
        );
        assert_eq!(read("bottomk by () (2, f)").unwrap().grouping, Some((true, Vec::new())));
        assert_eq!(read("sum (topk (2, f))"), None);
    }

    #[test]
    fn parts_that_choose_are_found() {
        for (text, expected) in [
            ("topk (2, f)", vec![]),
            ("avg by (b) (limitk by (a) (2, count (f)))", vec!["limitk by (a) (2, count (f))"]),
            (
                "(bottomk (2, f) + limitk without () (2, topk (2, (g))))",
                vec!["limitk without () (2, topk (2, (g)))", "topk (2, (g))", "bottomk (2, f)"],
            ),
            ("sum (f)", vec![]),
        ] {
            assert_eq!(Choice::parts_of(text), expected, "{text}");
        }
    }

    #[test]
    fn any_of_equal_series_will_do_and_no_other() {
        let answer = |series: &[(&str, &str)]| {
            let item = |(a, value): &(&str, &str)| serde_json::json!({"metric": {"a": a}, "values": [[1, value]]});
            serde_json::json!({"data": {"result": series.iter().map(item).collect::<Vec<_>>()}})
        };
        let choices = answer(&[("1", "5"), ("2", "5"), ("3", "7"), ("4", "NaN")]);
        let is_alike = |query: &str, theirs: &[(&str, &str)], ours: &[(&str, &str)]| {
            Choice::of_query(query).unwrap().is_alike(&choices, &answer(theirs), &answer(ours))
        };
        assert!(is_alike("bottomk (1, f)", &[("1", "5")], &[("2", "5")]));
        assert!(is_alike("limitk (1, f)", &[("1", "5")], &[("3", "7")]));
        assert!(is_alike("topk (2, f)", &[("1", "5"), ("3", "7")], &[("3", "7"), ("2", "5")]));
        for (query, theirs, ours) in [
            ("bottomk (1, f)", vec![("1", "5")], vec![("3", "7")]),
            ("limitk (1, f)", vec![("1", "5")], vec![("3", "8")]),
            ("limitk (1, f)", vec![("1", "5")], vec![("1", "5"), ("2", "5")]),
            ("limitk by (a) (1, f)", vec![("1", "5")], vec![("2", "5")]),
        ] {
            assert!(!is_alike(query, &theirs, &ours), "{query} {ours:?}");
        }
    }
}
