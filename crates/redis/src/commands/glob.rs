//! Patterns of names.

/// Redis's patterns: `*`, `?`, `[a-c]`, `[^a]`, and a backslash before what is meant as it is.
pub(super) fn glob_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where the last star was, and how far its part of the text reached.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        let step = pattern.get(at).and_then(|byte| match byte {
            b'*' => None,
            _ => one_match(pattern.get(at..).unwrap_or_default(), text.get(from).copied().unwrap_or_default()),
        });
        if let Some(length) = step {
            (at, from) = (at + length, from + 1);
        } else if pattern.get(at) == Some(&b'*') {
            star = Some((at, from));
            at += 1;
        } else if let Some((star_at, reached)) = star {
            (at, from, star) = (star_at + 1, reached + 1, Some((star_at, reached + 1)));
        } else {
            return false;
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// The length of the beginning of a pattern that a byte matches.
fn one_match(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (is_negated, rest) = rest.strip_prefix(b"^").map_or((false, rest), |rest| (true, rest));
            let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
            let class = rest.get(..end).unwrap_or_default();
            (in_class(class, byte) != is_negated).then_some(2 + usize::from(is_negated) + end)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

fn in_class(mut class: &[u8], byte: u8) -> bool {
    while let [first, rest @ ..] = class {
        if let [b'-', last, after @ ..] = rest {
            if (*first.min(last)..=*first.max(last)).contains(&byte) {
                return true;
            }
            class = after;
        } else if *first == byte {
            return true;
        } else {
            class = rest;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::glob_match;

    #[test]
    fn patterns_match_as_redis_has_them() {
        let matching = [
            ("*", ""),
            ("a*c", "abbc"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[^a]", "b"),
            ("\\*", "*"),
            ("a**b", "ab"),
            ("*a*b", "xayab"),
        ];
        let others =
            [("a*c", "abbd"), ("a?c", "ac"), ("[a-c]x", "dx"), ("[^a]", "a"), ("\\*", "a"), ("", "a"), ("a", "")];
        assert!(matching.iter().all(|(pattern, text)| glob_match(pattern.as_bytes(), text.as_bytes())));
        assert!(!others.iter().any(|(pattern, text)| glob_match(pattern.as_bytes(), text.as_bytes())));
    }
}
