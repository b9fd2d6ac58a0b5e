//! The fields of a step as names and texts, for those who write steps into a language of theirs: a field that has several texts is there
//! several times, and the labels of `graphite` are fields `labels.NAME`.

use super::rule::{Action, Condition, HashKind, RuleText};

/// Before the names of the labels that `graphite` gives.
const GRAPHITE_LABELS: &str = "labels.";

impl RuleText {
    /// The fields, such as `action` and `replace`, those that are not said left out. Names of labels are taken to be of any text when they are
    /// read again.
    pub fn fields(&self) -> Vec<(String, String)> {
        let mut fields = vec![("action", self.action.name().to_owned())];
        fields.extend(self.source_labels.iter().map(|name| ("source_label", name.clone())));
        fields.extend(self.separator.iter().map(|separator| ("separator", separator.clone())));
        fields.extend((!self.target_label.is_empty()).then(|| ("target_label", self.target_label.clone())));
        fields.extend(self.regex.iter().map(|regex| ("regex", regex.clone())));
        fields.extend((self.modulus != 0).then(|| ("modulus", self.modulus.to_string())));
        fields.extend((self.hash != HashKind::default()).then(|| ("hash", self.hash.name().to_owned())));
        fields.extend(self.replacement.iter().map(|replacement| ("replacement", replacement.clone())));
        fields.extend(self.conditions.iter().map(|condition| ("if", condition.text.clone())));
        fields.extend((!self.graphite_match.is_empty()).then(|| ("match", self.graphite_match.clone())));
        let mut fields: Vec<(String, String)> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let labels = self.graphite_labels.iter();
        fields.extend(labels.map(|(name, template)| (format!("{GRAPHITE_LABELS}{name}"), template.clone())));
        fields
    }

    /// Reads [`fields`](Self::fields); `condition` reads those named `if`.
    ///
    /// # Errors
    /// A field is unknown, stands twice, or cannot be read. Which fields go together is checked by [`Rule::new`](super::Rule::new).
    pub fn from_fields<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
        condition: impl Fn(&str) -> Result<Condition, String>,
    ) -> Result<Self, String> {
        let mut text = Self::default();
        let (mut action, mut target, mut graphite) = (None, None, None);
        let (mut modulus, mut hash) = (None, None);
        for (name, value) in fields {
            let single = match name {
                "source_label" => {
                    text.source_labels.push(value.to_owned());
                    continue;
                }
                "if" => {
                    text.conditions.push(condition(value)?);
                    continue;
                }
                "action" => &mut action,
                "separator" => &mut text.separator,
                "target_label" => &mut target,
                "regex" => &mut text.regex,
                "modulus" => &mut modulus,
                "hash" => &mut hash,
                "replacement" => &mut text.replacement,
                "match" => &mut graphite,
                _ => {
                    let label = name.strip_prefix(GRAPHITE_LABELS);
                    let label = label.ok_or_else(|| format!("a step has no field {name:?}"))?;
                    text.graphite_labels.push((label.to_owned(), value.to_owned()));
                    continue;
                }
            };
            if single.replace(value.to_owned()).is_some() {
                return Err(format!("the field {name:?} stands twice"));
            }
        }
        text.action = action.as_deref().map_or(Ok(Action::default()), Action::parse)?;
        text.hash = hash.as_deref().map_or(Ok(HashKind::default()), HashKind::parse)?;
        text.modulus = match modulus {
            Some(modulus) => modulus.parse().map_err(|_| format!("modulus {modulus:?} is no whole number above 0"))?,
            None => 0,
        };
        text.target_label = target.unwrap_or_default();
        text.graphite_match = graphite.unwrap_or_default();
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<RuleText, String> {
        let condition = |text: &str| Ok(Condition { text: text.to_owned(), matchers: Vec::new() });
        RuleText::from_fields(fields.iter().copied(), condition)
    }

    #[test]
    fn fields_are_read_as_they_are_written() {
        let lists: [&[(&str, &str)]; 4] = [
            &[("action", "replace"), ("target_label", "a"), ("replacement", "")],
            &[
                ("action", "hashmod"),
                ("source_label", "b"),
                ("source_label", "a.\"b\""),
                ("separator", ""),
                ("target_label", "shard"),
                ("modulus", "18446744073709551615"),
                ("hash", "xxhash64"),
                ("if", "{a=\"b\"}"),
                ("if", "{c=~\"d|\"}"),
            ],
            &[("action", "labeldrop"), ("regex", "")],
            &[("action", "graphite"), ("match", "*.b"), ("labels.a.b", "$1"), ("labels.", "x"), ("labels.c", "")],
        ];
        for fields in lists {
            let written: Vec<(String, String)> =
                fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let text = read(fields).unwrap();
            assert_eq!(text.fields(), written);
        }
        let defaults = read(&[]).unwrap();
        assert_eq!(
            (defaults.clone(), defaults.fields()),
            (RuleText::default(), vec![("action".to_owned(), "replace".to_owned())])
        );
    }

    #[test]
    fn wrong_fields_are_named() {
        for (fields, expected) in [
            (vec![("actoin", "drop")], "no field \"actoin\""),
            (vec![("regex", "a"), ("regex", "b")], "\"regex\" stands twice"),
            (vec![("action", "")], "unknown relabel action"),
            (vec![("hash", "sha1")], "unknown hash \"sha1\""),
            (vec![("modulus", "-1")], "modulus \"-1\""),
        ] {
            assert!(read(&fields).unwrap_err().contains(expected), "{fields:?}");
        }
    }
}
