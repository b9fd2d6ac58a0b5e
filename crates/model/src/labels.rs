//! Label sets, packed into one allocation.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A label set: `name=value` pairs sorted by name, each name once. Cheap to clone, to compare and to hash.
///
/// Packed as `len(name) name len(value) value …` in one string; lengths are little-endian groups of six bits,
/// each an ASCII character whose bit 6 says that another follows, so that the whole stays valid UTF-8.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<str>);

/// A label name was given twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateLabel(
    /// The repeated name.
    pub String,
);

impl fmt::Display for DuplicateLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "label {:?} is given twice", self.0)
    }
}

impl std::error::Error for DuplicateLabel {}

impl Labels {
    /// The set without labels.
    pub fn empty() -> Self {
        Self(Arc::from(""))
    }

    /// Sorts and packs the pairs. Labels with an empty value are left out: to Prometheus they are the same as
    /// missing ones.
    pub fn from_pairs<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Result<Self, DuplicateLabel>
    where
        N: AsRef<str>,
        V: AsRef<str>,
    {
        let mut pairs: Vec<(N, V)> = pairs.into_iter().filter(|(_, value)| !value.as_ref().is_empty()).collect();
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        if let Some(twice) = pairs.windows(2).find(|pair| pair[0].0.as_ref() == pair[1].0.as_ref()) {
            return Err(DuplicateLabel(twice[0].0.as_ref().to_owned()));
        }
        Ok(Self::from_sorted(pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))))
    }

    /// Packs pairs that are sorted by name, without repeats and without empty values.
    pub fn from_sorted<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::pack(pairs, 0)
    }

    /// As [`Labels::from_sorted`], with room for so many bytes of packed pairs: a length and the text of each.
    pub fn from_sorted_within<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>, bytes: usize) -> Self {
        Self::pack(pairs, bytes)
    }

    fn pack<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>, bytes: usize) -> Self {
        let mut packed = String::with_capacity(bytes);
        for (name, value) in pairs {
            push_text(&mut packed, name);
            push_text(&mut packed, value);
        }
        Self(Arc::from(packed))
    }

    /// The pairs in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        Pairs { rest: &self.0 }
    }

    /// The value of one label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Bytes that they take, but for what stands for them where they are held.
    pub fn size_bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This set with one label set, replaced, or (by an empty value) removed.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let before = self.iter().take_while(|(candidate, _)| *candidate < name);
        let behind = self.iter().skip_while(|(candidate, _)| *candidate <= name);
        let own = (!value.is_empty()).then_some((name, value));
        // Lengths up to 4 KiB take two bytes at most.
        Self::pack(before.chain(own).chain(behind), self.0.len() + name.len() + value.len() + 4)
    }

    /// The labels whose names satisfy the condition.
    #[must_use]
    pub fn retain(&self, mut keep: impl FnMut(&str) -> bool) -> Self {
        Self::pack(self.iter().filter(|(name, _)| keep(name)), self.0.len())
    }

    /// The packed form, unique for a label set: for hashing and for keys.
    pub fn packed(&self) -> &str {
        &self.0
    }

    /// Bytes that the packed form occupies.
    pub fn packed_bytes(&self) -> usize {
        self.0.len()
    }
}

#[derive(Clone)]
struct Pairs<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = split_text(self.rest)?;
        let (value, rest) = split_text(rest)?;
        self.rest = rest;
        Some((name, value))
    }
}

fn push_text(packed: &mut String, text: &str) {
    let mut length = text.len();
    while length >= 64 {
        packed.push(char::from((length & 63) as u8 | 64));
        length >>= 6;
    }
    packed.push(char::from(length as u8));
    packed.push_str(text);
}

fn split_text(packed: &str) -> Option<(&str, &str)> {
    // Mostly one byte says it.
    if let Some(length) = packed.as_bytes().first().filter(|byte| **byte < 64) {
        return packed.get(1..)?.split_at_checked(usize::from(*length));
    }
    let mut length = 0usize;
    let mut shift = 0;
    for (place, byte) in packed.bytes().enumerate() {
        length |= usize::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 {
            return packed.get(place + 1..)?.split_at_checked(length);
        }
    }
    None
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Pair by pair, as Prometheus orders series.
impl Ord for Labels {
    fn cmp(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (self.0.as_bytes(), other.0.as_bytes());
        // What both begin with needs no look at each pair: only the text in which they differ says which comes first.
        let Some(differs) = first_difference(ours, theirs) else {
            return ours.len().cmp(&theirs.len());
        };
        let mut start = 0;
        while let Some((_, end)) = text_at(ours, start).filter(|(_, end)| *end <= differs) {
            start = end;
        }
        let text = |packed: &'_ [u8]| text_at(packed, start).map(|(text, end)| (text, end.min(packed.len())));
        match (text(ours), text(theirs)) {
            (Some((from, end)), Some((other_from, other_end))) => {
                ours.get(from..end).cmp(&theirs.get(other_from..other_end))
            }
            (ours, theirs) => ours.is_some().cmp(&theirs.is_some()),
        }
    }
}

/// The place of the first byte in which two texts differ; `None` if one begins with the other.
fn first_difference(ours: &[u8], theirs: &[u8]) -> Option<usize> {
    let words = ours.as_chunks::<8>().0.iter().zip(theirs.as_chunks::<8>().0);
    let alike = words.take_while(|(a, b)| a == b).count() * 8;
    let rest = ours.iter().zip(theirs).skip(alike);
    rest.zip(alike..).find(|((a, b), _)| a != b).map(|(_, place)| place)
}

/// Where the text whose length stands at a place begins and ends.
fn text_at(packed: &[u8], start: usize) -> Option<(usize, usize)> {
    let (mut length, mut shift) = (0usize, 0);
    for (place, byte) in packed.get(start..)?.iter().enumerate() {
        length |= usize::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 {
            let from = start + place + 1;
            return Some((from, from + length));
        }
    }
    None
}

/// `{name="value", …}`, values escaped as PromQL writes them.
impl fmt::Display for Labels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("{")?;
        for (place, (name, value)) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(formatter, "{comma}{name}={value:?}")?;
        }
        formatter.write_str("}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against comparing pair by pair.
        #[test]
        fn order_is_that_of_the_pairs(
            pairs in proptest::collection::btree_map("[ab]{1,2}|é|a{70}", "[ab]{1,2}|é|a{63,66}|b{130}", 0..4),
            others in proptest::collection::btree_map("[ab]{1,2}|é|a{70}", "[ab]{1,2}|é|a{63,66}|b{130}", 0..4),
        ) {
            let (labels, other) = (Labels::from_pairs(&pairs).unwrap(), Labels::from_pairs(&others).unwrap());
            prop_assert_eq!(labels.cmp(&other), pairs.iter().cmp(others.iter()));
        }

        #[test]
        fn packs_and_unpacks(pairs in proptest::collection::btree_map(".{0,5}", ".{1,200}", 0..8)) {
            let labels = Labels::from_pairs(&pairs).unwrap();
            let back: BTreeMap<String, String> =
                labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(&back, &pairs);
            prop_assert_eq!(labels.len(), pairs.len());
            for (name, value) in &pairs {
                prop_assert_eq!(labels.get(name), Some(value.as_str()));
            }
        }

        #[test]
        fn orders_as_its_pairs_do(
            a in proptest::collection::btree_map("[ab]{0,3}", "[ab]{1,3}", 0..4),
            b in proptest::collection::btree_map("[ab]{0,3}", "[ab]{1,3}", 0..4),
        ) {
            let packed = Labels::from_pairs(&a).unwrap().cmp(&Labels::from_pairs(&b).unwrap());
            prop_assert_eq!(packed, a.iter().cmp(b.iter()));
        }
    }

    #[test]
    fn refuses_a_repeated_name() {
        let error = Labels::from_pairs([("a", "1"), ("b", "2"), ("a", "3")]).unwrap_err();
        assert_eq!(error.to_string(), "label \"a\" is given twice");
    }

    #[test]
    fn an_empty_value_is_a_missing_label() {
        let labels = Labels::from_pairs([("a", ""), ("b", "2")]).unwrap();
        assert_eq!(labels.to_string(), r#"{b="2"}"#);
        assert_eq!(labels.with("b", ""), Labels::empty());
        assert_eq!(labels.with("a", "1").to_string(), r#"{a="1", b="2"}"#);
    }
}
