//! What the rows of a small table say of series: labels by the values of others.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::Xxh3;

/// Labels by keys, each with how many rows of the table say so. Rows without a part of the key are left out.
#[derive(Debug, PartialEq, Eq)]
pub struct LabelRows {
    by_key: BTreeMap<Vec<String>, BTreeMap<Vec<String>, usize>>,
    bytes: usize,
    fingerprint: String,
}

impl LabelRows {
    /// Rows of a joined table, at most.
    pub const ROWS_MAX: usize = 10_000;
    /// Bytes of the keys and labels of a joined table, at most.
    pub const BYTES_MAX: usize = 4 << 20;

    /// Of rows, each with its key and its labels, which are empty where it has none; `None` if they are too many, or too long.
    pub(crate) fn new(rows: impl IntoIterator<Item = (Vec<String>, Vec<String>)>) -> Option<Self> {
        let mut by_key: BTreeMap<Vec<String>, BTreeMap<Vec<String>, usize>> = BTreeMap::new();
        let mut bytes = 0;
        for (number, (key, labels)) in rows.into_iter().enumerate() {
            bytes += key.iter().chain(&labels).map(String::len).sum::<usize>();
            if number >= Self::ROWS_MAX || bytes > Self::BYTES_MAX {
                return None;
            }
            *by_key.entry(key).or_default().entry(labels).or_default() += 1;
        }
        let mut hash = Xxh3::new();
        for (key, labels) in &by_key {
            update(&mut hash, key);
            hash.update(&labels.len().to_le_bytes());
            for (labels, count) in labels {
                update(&mut hash, labels);
                hash.update(&count.to_le_bytes());
            }
        }
        Some(Self { by_key, bytes, fingerprint: format!("{:032x}", hash.digest128()) })
    }

    /// A text that differs where the rows say something else.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Bytes of its keys and labels.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The labels of a key, each with how many rows say so.
    pub(crate) fn labels_of(&self, key: &[String]) -> impl Iterator<Item = (&[String], usize)> {
        let found = self.by_key.get(key).into_iter().flatten();
        found.map(|(labels, count)| (labels.as_slice(), *count))
    }
}

/// Adds texts with their lengths, so that no others look the same.
fn update(hash: &mut Xxh3, texts: &[String]) {
    hash.update(&texts.len().to_le_bytes());
    for text in texts {
        hash.update(&text.len().to_le_bytes());
        hash.update(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(pairs: &[(&str, &str)]) -> LabelRows {
        LabelRows::new(pairs.iter().map(|(key, label)| (vec![(*key).to_owned()], vec![(*label).to_owned()]))).unwrap()
    }

    #[test]
    fn rows_that_say_the_same_have_one_fingerprint() {
        let one = rows(&[("a", "x"), ("b", "y"), ("a", "x")]);
        assert_eq!(one.fingerprint(), rows(&[("b", "y"), ("a", "x"), ("a", "x")]).fingerprint());
        for other in
            [&[("a", "x"), ("b", "y")][..], &[("a", "x"), ("b", "x"), ("a", "y")], &[("a", "xb"), ("", "y")], &[]]
        {
            assert_ne!(one.fingerprint(), rows(other).fingerprint(), "{other:?}");
        }
        let found: Vec<_> = one.labels_of(&["a".to_owned()]).collect();
        assert_eq!(found, [(&["x".to_owned()][..], 2)]);
        assert_eq!(one.labels_of(&["c".to_owned()]).count(), 0);
    }

    #[test]
    fn a_table_that_is_not_small_is_none() {
        let row = |number: usize| (vec![number.to_string()], vec![String::new()]);
        assert!(LabelRows::new((0..LabelRows::ROWS_MAX).map(row)).is_some());
        assert!(LabelRows::new((0..=LabelRows::ROWS_MAX).map(row)).is_none());
        assert!(LabelRows::new([(vec!["a".to_owned()], vec!["x".repeat(LabelRows::BYTES_MAX)])]).is_none());
    }
}
