//! The ratchet: what may stay over a limit for now. The list may only get shorter, and its numbers smaller.
//!
//! A line is `kind path [name] number`, such as `function crates/db/src/open.rs recover 84`; `#` begins a comment.

use std::collections::BTreeMap;

use super::Finding;

#[derive(Debug)]
struct Exception {
    line: usize,
    allowed: usize,
    needed: usize,
}

/// Exceptions by kind, path and name, and how much of each was needed.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    place: String,
    all: BTreeMap<String, Exception>,
}

impl Exceptions {
    pub(super) fn parse(place: &str, text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            let Some((number, key)) = words.split_last() else { continue };
            let line = index + 1;
            let allowed = number.parse().map_err(|_| format!("{place}:{line}: the last word is not a number"))?;
            all.insert(key.join(" "), Exception { line, allowed, needed: 0 });
        }
        Ok(Self { place: place.to_owned(), all })
    }

    /// How much is excused under this key.
    pub(super) fn allowed(&self, key: &str) -> usize {
        self.all.get(key).map_or(0, |exception| exception.allowed)
    }

    /// Whether `size` under this key is excused.
    pub(super) fn excuse(&mut self, key: &str, size: usize) -> bool {
        let Some(exception) = self.all.get_mut(key) else { return false };
        exception.needed = exception.needed.max(size);
        size <= exception.allowed
    }

    /// Exceptions that allow more than there is: the ratchet's click.
    pub(super) fn unused(&self) -> Vec<Finding> {
        let loose = self.all.iter().filter(|(_, exception)| exception.needed < exception.allowed);
        let finding = |(key, exception): (&String, &Exception)| {
            let remedy = match exception.needed {
                0 => "Well done. Delete the line.".to_owned(),
                needed => format!("Well done. Lower it to {needed}."),
            };
            let what = format!("{key} is better than its exception of {}", exception.allowed);
            Finding::new(format!("{}:{}", self.place, exception.line), what, remedy)
        };
        loose.map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# why\nfunction a.rs long 80\nfile b.rs 1200 # a table\n";

    #[test]
    fn an_exception_excuses_up_to_its_number() {
        let mut exceptions = Exceptions::parse("list", LIST).expect("valid");
        assert!(exceptions.excuse("function a.rs long", 80));
        assert!(!exceptions.excuse("function a.rs long", 81));
        assert!(!exceptions.excuse("function a.rs other", 71));
    }

    #[test]
    fn what_is_no_longer_needed_must_go() {
        let mut exceptions = Exceptions::parse("list", LIST).expect("valid");
        exceptions.excuse("function a.rs long", 75);
        let remedies: Vec<String> = exceptions.unused().into_iter().map(|finding| finding.to_string()).collect();
        assert_eq!(remedies.len(), 2);
        assert!(remedies[0].starts_with("list:3") && remedies[0].ends_with("Delete the line."), "{remedies:?}");
        assert!(remedies[1].starts_with("list:2") && remedies[1].ends_with("Lower it to 75."), "{remedies:?}");
    }

    #[test]
    fn a_line_without_a_number_is_an_error() {
        assert_eq!(
            Exceptions::parse("list", "file a.rs").err().as_deref(),
            Some("list:1: the last word is not a number")
        );
    }
}
