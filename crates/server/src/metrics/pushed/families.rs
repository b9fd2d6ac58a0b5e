//! A text exposition by its families: what a push replaces.

use std::collections::BTreeMap;

/// Endings of the names of samples of a family.
const ENDINGS: [&str; 5] = ["_bucket", "_sum", "_count", "_total", "_created"];

/// The lines of each family, comments included.
pub(crate) type Families = BTreeMap<String, String>;

/// Cuts a text into families. What is no sample, HELP or TYPE belongs to the family around it.
pub(crate) fn families(text: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match name_of(line) {
            Name::Family(name) => name.clone_into(&mut current),
            Name::Sample(name) if !is_of(name, &current) => name.clone_into(&mut current),
            Name::Sample(_) | Name::None => {}
        }
        let lines = families.entry(current.clone()).or_default();
        lines.push_str(line);
        lines.push('\n');
    }
    families
}

/// What HELP and TYPE say of a family.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Description<'a> {
    pub(crate) kind: &'a str,
    pub(crate) help: &'a str,
}

impl<'a> Description<'a> {
    pub(crate) fn read(lines: &'a str) -> Self {
        let mut description = Self { kind: "untyped", help: "" };
        for (keyword, rest) in lines.lines().filter_map(comment) {
            let text = rest.split_once(char::is_whitespace).map_or("", |(_, text)| text.trim());
            match keyword {
                "TYPE" => description.kind = text,
                "HELP" => description.help = text,
                _ => {}
            }
        }
        description
    }
}

enum Name<'a> {
    Family(&'a str),
    Sample(&'a str),
    None,
}

fn name_of(line: &str) -> Name<'_> {
    if line.starts_with('#') {
        return match comment(line) {
            Some(("HELP" | "TYPE", rest)) => Name::Family(rest.split_whitespace().next().unwrap_or_default()),
            _ => Name::None,
        };
    }
    let end = line.find(|letter: char| letter == '{' || letter.is_whitespace()).unwrap_or(line.len());
    match line.get(..end).filter(|name| !name.is_empty()) {
        Some(name) => Name::Sample(name),
        // A name in quotes within the braces.
        None => Name::Sample(line.split('"').nth(1).unwrap_or_default()),
    }
}

fn comment(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('#')?.trim_start().split_once(char::is_whitespace).map(|(keyword, rest)| (keyword, rest.trim()))
}

fn is_of(sample: &str, family: &str) -> bool {
    sample.strip_prefix(family).is_some_and(|ending| ending.is_empty() || ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_belong_to_the_family_that_they_are_named_after() {
        let text = "# a remark\n# TYPE h histogram\n# HELP h Some help.\nh_bucket{le=\"1\"} 1\nh_sum 2\n\nother 3\nh_count 1\n{\"x.y\"} 4\n";
        let families = families(text);
        assert_eq!(families.keys().collect::<Vec<_>>(), ["", "h", "h_count", "other", "x.y"]);
        let h = &families["h"];
        assert_eq!(h, "# TYPE h histogram\n# HELP h Some help.\nh_bucket{le=\"1\"} 1\nh_sum 2\n");
        assert_eq!(Description::read(h), Description { kind: "histogram", help: "Some help." });
        assert_eq!(Description::read(&families["other"]), Description { kind: "untyped", help: "" });
    }
}
