//! Paths with stars, as `rule_files` and lists of targets have them.

use std::path::{Component, Path, PathBuf};

use platform::Files;

/// The paths that a pattern stands for, sorted. A path without stars stands for itself, whether it is there or not.
pub fn expand(files: &dyn Files, pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = match component {
            Component::Normal(name) => name.to_string_lossy().into_owned(),
            other => {
                found.iter_mut().for_each(|path| path.push(other));
                continue;
            }
        };
        if !name.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|path| path.push(&name));
            continue;
        }
        let below = |folder: &PathBuf| {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder.as_path() };
            files.list(folder).unwrap_or_default()
        };
        let mut next = Vec::new();
        for folder in &found {
            let names = below(folder).into_iter().filter(|candidate| matches(name.as_bytes(), candidate.as_bytes()));
            next.extend(names.map(|name| folder.join(name)));
        }
        found = next;
    }
    found.sort();
    found
}

/// Returns whether a name is one that a pattern with `*`, `?` and `[a-z]` stands for.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        let fits = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
                continue;
            }
            Some(b'?') => Some(at + 1),
            Some(b'[') => class_end(pattern, at, name.get(in_name).copied().unwrap_or_default()),
            Some(byte) if name.get(in_name) == Some(byte) => Some(at + 1),
            _ => None,
        };
        match (fits, star) {
            (Some(next), _) => {
                at = next;
                in_name += 1;
            }
            (None, Some((star_at, star_in_name))) => {
                star = Some((star_at, star_in_name + 1));
                at = star_at + 1;
                in_name = star_in_name + 1;
            }
            (None, None) => return false,
        }
    }
    pattern.iter().skip(at).all(|byte| *byte == b'*')
}

/// Where a class of bytes ends, if the byte is in it.
fn class_end(pattern: &[u8], start: usize, byte: u8) -> Option<usize> {
    let inner = pattern.get(start + 1..)?;
    let length = inner.iter().position(|found| *found == b']')?;
    let class = inner.get(..length)?;
    let (is_negated, class) = match class.split_first() {
        Some((b'^' | b'!', rest)) => (true, rest),
        _ => (false, class),
    };
    let mut rest = class;
    let mut is_in = false;
    while let [first, others @ ..] = rest {
        rest = match others {
            [b'-', last, others @ ..] => {
                is_in |= (*first..=*last).contains(&byte);
                others
            }
            _ => {
                is_in |= *first == byte;
                others
            }
        };
    }
    (is_in != is_negated).then_some(start + length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_patterns() {
        for (pattern, name, expected) in [
            ("*.yml", "a.yml", true),
            ("*.yml", "a.yaml", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?[0-9]", "a7", true),
            ("?[^0-9]", "a7", false),
            ("[", "[", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
