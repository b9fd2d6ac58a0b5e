//! How well names match what is searched for, from 0 to 1, as Prometheus scores them.

/// How texts are compared beside containing one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// All characters come in order; runs count more than single ones.
    Subsequence,
    /// Jaro-Winkler, for names that do not contain the text.
    JaroWinkler,
}

/// The terms of a search; one of them must match.
#[derive(Debug, Clone)]
pub(super) struct Search {
    /// In lower case if case does not count.
    terms: Vec<Vec<char>>,
    algorithm: Algorithm,
    /// Scores below do not match.
    threshold: f64,
    is_case_sensitive: bool,
}

/// Scores of names that are not equal to the text stay below 1.
const NOT_EQUAL: f64 = 0.999;

impl Search {
    pub(super) fn new<'a>(
        terms: impl Iterator<Item = &'a str>,
        algorithm: Algorithm,
        threshold: f64,
        is_case_sensitive: bool,
    ) -> Self {
        let folded = |term: &str| if is_case_sensitive { term.to_owned() } else { term.to_lowercase() };
        let terms = terms.filter(|term| !term.is_empty()).map(|term| folded(term).chars().collect()).collect();
        Self { terms, algorithm, threshold, is_case_sensitive }
    }

    /// The score of a name; `None` if it does not match.
    pub(super) fn score(&self, name: &str) -> Option<f64> {
        if self.terms.is_empty() {
            return Some(1.0);
        }
        let name: Vec<char> =
            if self.is_case_sensitive { name.chars().collect() } else { name.to_lowercase().chars().collect() };
        self.terms.iter().filter_map(|term| self.score_of_term(term, &name)).reduce(f64::max)
    }

    fn score_of_term(&self, term: &[char], name: &[char]) -> Option<f64> {
        match self.algorithm {
            _ if name.starts_with(term) => Some(1.0),
            Algorithm::Subsequence => subsequence(term, name).filter(|score| *score > 0.0 && *score >= self.threshold),
            Algorithm::JaroWinkler => contained(term, name).or_else(|| {
                let score = jaro_winkler(term, name);
                (self.threshold > 0.0 && score >= self.threshold).then_some(score)
            }),
        }
    }
}

/// The score of a name that contains a term: the earlier the higher, at least 0.1.
fn contained(term: &[char], name: &[char]) -> Option<f64> {
    let at = name.windows(term.len()).position(|window| window == term)?;
    let last = name.len() - term.len();
    Some(if last == 0 { 1.0 } else { 1.0 - 0.9 * at as f64 / last as f64 })
}

/// The best score of a name that has a term's characters in order, over all places where it may begin: squares of the lengths of runs, less
/// the shares of the name that lie before and between them, and half of that after them; a whole run is 1.
fn subsequence(term: &[char], name: &[char]) -> Option<f64> {
    let length = name.len() as f64;
    let from = |start: usize| {
        let (mut score, mut at, mut found, mut after_run) = (0.0, start, 0, 0);
        while found < term.len() {
            let next = name.get(at..)?.iter().position(|character| Some(character) == term.get(found))?;
            at += next;
            let run_start = at;
            while found < term.len() && at < name.len() && name.get(at) == term.get(found) {
                at += 1;
                found += 1;
            }
            score -= (run_start - after_run) as f64 / length;
            score += ((at - run_start) as f64).powi(2);
            after_run = at;
        }
        Some(score - (name.len() - after_run) as f64 / length / 2.0)
    };
    let starts = name.iter().enumerate().filter(|(_, character)| Some(*character) == term.first());
    // Where the term cannot be completed, it cannot be from later on.
    let best = starts.map_while(|(start, _)| from(start)).reduce(f64::max)?;
    Some((best / (term.len() as f64).powi(2)).max(0.0) * NOT_EQUAL)
}

/// The similarity of two texts by their common characters, and their common beginning.
fn jaro_winkler(a: &[char], b: &[char]) -> f64 {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if short.is_empty() {
        return 0.0;
    }
    let reach = (long.len() / 2).saturating_sub(1);
    let mut is_taken = vec![false; long.len()];
    let mut common = Vec::with_capacity(short.len());
    for (place, character) in short.iter().enumerate() {
        let near = place.saturating_sub(reach)..(place + reach + 1).min(long.len());
        let mut free = near.filter(|other| is_taken.get(*other) == Some(&false));
        if let Some(other) = free.find(|other| long.get(*other) == Some(character)) {
            is_taken.iter_mut().skip(other).take(1).for_each(|taken| *taken = true);
            common.push(*character);
        }
    }
    if common.is_empty() {
        return 0.0;
    }
    let of_long = long.iter().zip(&is_taken).filter(|(_, taken)| **taken).map(|(character, _)| character);
    let moved = common.iter().zip(of_long).filter(|(a, b)| a != b).count() as f64;
    let count = common.len() as f64;
    let jaro = (count / short.len() as f64 + count / long.len() as f64 + (count - moved / 2.0) / count) / 3.0;
    let prefix = short.iter().zip(long).take(4).take_while(|(a, b)| a == b).count() as f64;
    jaro + prefix * 0.1 * (1.0 - jaro)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(algorithm: Algorithm, threshold: f64, term: &str, name: &str) -> Option<f64> {
        Search::new([term].into_iter(), algorithm, threshold, true).score(name)
    }

    #[test]
    fn names_are_scored_by_runs() {
        let of = |term, name| score(Algorithm::Subsequence, 0.0, term, name);
        assert_eq!(of("http", "http"), Some(1.0));
        assert_eq!(of("http", "http_requests_total"), Some(1.0));
        assert_eq!(of("hrt", "http"), None);
        // A run of 2 after 2 of 4 characters.
        assert_eq!(of("cd", "abcd"), Some((4.0 - 0.5) / 4.0 * 0.999));
        // Two runs of 1, one character between, one before and one after them.
        assert_eq!(of("bd", "abcde"), Some((1.0 - 0.2 + 1.0 - 0.2 - 0.1) / 4.0 * 0.999));
        assert_eq!(score(Algorithm::Subsequence, 0.5, "bd", "abcde"), None);
    }

    #[test]
    fn similar_names_match_by_jaro_winkler() {
        let of = |threshold, term, name| score(Algorithm::JaroWinkler, threshold, term, name);
        assert!(
            (jaro_winkler(&['m', 'a', 'r', 't', 'h', 'a'], &['m', 'a', 'r', 'h', 't', 'a']) - 0.961_111_1).abs() < 1e-6
        );
        assert_eq!(of(0.0, "marhta", "martha"), None);
        assert!(of(0.9, "marhta", "martha").is_some());
        assert_eq!(of(0.0, "b", "abc"), Some(1.0 - 0.9 / 2.0));
        let folded = Search::new(["ABC", "x"].into_iter(), Algorithm::Subsequence, 0.0, false);
        assert_eq!(folded.score("aBcd"), Some(1.0));
        assert_eq!(folded.score("d"), None);
    }
}
