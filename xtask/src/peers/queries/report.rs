//! Tables of what was measured.

use std::fmt::Write;

use serde_json::json;

use super::super::Peer;
use super::ask::Timing;
use super::texts::Language;

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    pub(super) language: Language,
    pub(super) query: String,
    pub(super) workers: usize,
    pub(super) server: Peer,
    /// Whether the server might answer with what it kept.
    pub(super) may_keep: bool,
    pub(super) timing: Timing,
}

/// Everything that a run gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Report {
    pub(super) setting: Vec<String>,
    pub(super) figures: Vec<Figures>,
    /// Queries that were answered alike, and how many rows or points they had.
    pub(super) same: Vec<(Language, String, usize)>,
    /// Queries that the suite cannot put in a language.
    pub(super) unknown: Vec<(Language, String)>,
    /// Answers that differ, and queries or servers that could not be measured.
    pub(super) notes: Vec<String>,
}

impl Report {
    /// Notes what went wrong, once.
    pub(super) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    fn of(&self, language: Language, workers: usize, query: &str, server: Peer, may_keep: bool) -> Option<Timing> {
        let is_this = |figures: &&Figures| {
            (figures.language, figures.workers, figures.server, figures.may_keep)
                == (language, workers, server, may_keep)
                && figures.query == query
        };
        self.figures.iter().find(is_this).map(|figures| figures.timing)
    }

    /// A server without a switch was measured once, as it is.
    fn of_peer(&self, language: Language, workers: usize, query: &str, may_keep: bool) -> Option<Timing> {
        let of = |may_keep| self.of(language, workers, query, language.peer(), may_keep);
        of(may_keep).or_else(|| of(!may_keep))
    }

    /// Languages and numbers of workers, in the order of the measurements.
    fn tables(&self) -> Vec<(Language, usize)> {
        let mut tables: Vec<(Language, usize)> = Vec::new();
        for language in Language::ALL {
            for figures in self.figures.iter().filter(|figures| figures.language == language) {
                if !tables.contains(&(language, figures.workers)) {
                    tables.push((language, figures.workers));
                }
            }
        }
        tables
    }

    fn queries(&self, language: Language) -> Vec<&str> {
        let mut queries: Vec<&str> = Vec::new();
        for figures in self.figures.iter().filter(|figures| figures.language == language) {
            if !queries.contains(&figures.query.as_str()) {
                queries.push(&figures.query);
            }
        }
        queries
    }

    /// Markdown: a table for each language and number of workers.
    pub(super) fn render(&self) -> String {
        let mut text = format!("{}\n", self.setting.join(" · "));
        for (language, workers) in self.tables() {
            let (peer, has_switch) = (language.peer().name(), has_switch(language.peer()));
            let kept = if has_switch { format!(" {peer} p50 / p99 ms | CPU ms |") } else { String::new() };
            // Writing into a string does not fail.
            let _ = write!(
                text,
                "\n{}, {workers} at a time. First all computed, then with what servers keep; *times* is {peer} by Thalweg.\n\n\
                 | query | Thalweg p50 / p99 ms | CPU ms | {peer} p50 / p99 ms | CPU ms | times p50 | times CPU | Thalweg, kept, \
                 p50 / p99 ms | CPU ms |{kept} times p50 | times CPU |\n|---{}|\n",
                language.name(),
                "|---".repeat(if has_switch { 12 } else { 10 }),
            );
            for query in self.queries(language) {
                let _ = writeln!(text, "| {query} | {} |", self.row(language, workers, query).join(" | "));
            }
        }
        let _ = writeln!(text, "\n{} queries answered alike.", self.same.len());
        for language in Language::ALL {
            let unknown = self.unknown.iter().filter(|(of, _)| *of == language).map(|(_, query)| query.as_str());
            let unknown: Vec<&str> = unknown.collect();
            if !unknown.is_empty() {
                let peer = language.peer().name();
                let _ = writeln!(text, "* The suite does not ask {peer}: {}", unknown.join(", "));
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "* {note}");
        }
        text
    }

    fn row(&self, language: Language, workers: usize, query: &str) -> Vec<String> {
        let mut cells = Vec::new();
        for may_keep in [false, true] {
            let ours = self.of(language, workers, query, Peer::Thalweg, may_keep);
            let theirs = self.of_peer(language, workers, query, may_keep);
            cells.extend(times(ours));
            if !may_keep || has_switch(language.peer()) {
                cells.extend(times(theirs));
            }
            cells.push(ratio(ours, theirs, |timing| timing.median_ms));
            cells.push(ratio(ours, theirs, |timing| timing.cpu_ms_per_query));
        }
        cells
    }

    /// Everything, for programs.
    pub(super) fn json(&self) -> Result<String, String> {
        let figures = self.figures.iter().map(|figures| {
            json!({
                "language": figures.language.name(),
                "query": figures.query,
                "workers": figures.workers,
                "server": figures.server.name(),
                "may_keep": figures.may_keep,
                "queries": figures.timing.queries,
                "median_ms": figures.timing.median_ms,
                "p99_ms": figures.timing.p99_ms,
                "cpu_ms_per_query": figures.timing.cpu_ms_per_query,
            })
        });
        let figures: Vec<_> = figures.collect();
        let same = self.same.iter();
        let same =
            same.map(|(language, query, rows)| json!({"language": language.name(), "query": query, "rows": rows}));
        let same: Vec<_> = same.collect();
        let unknown = self.unknown.iter().map(|(language, query)| json!([language.name(), query]));
        let unknown: Vec<_> = unknown.collect();
        let report = json!({
            "setting": self.setting,
            "measurements": figures,
            "answered_alike": same,
            "not_asked": unknown,
            "notes": self.notes,
        });
        serde_json::to_string_pretty(&report).map_err(|error| error.to_string())
    }
}

/// Whether a server keeps answers and can be told not to.
pub(super) fn has_switch(server: Peer) -> bool {
    matches!(server, Peer::Thalweg | Peer::VictoriaMetrics)
}

/// Milliseconds with three digits.
fn digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn times(timing: Option<Timing>) -> [String; 2] {
    timing.map_or_else(
        || ["–".to_owned(), "–".to_owned()],
        |timing| {
            let span = format!("{} / {}", digits(timing.median_ms), digits(timing.p99_ms));
            [span, digits(timing.cpu_ms_per_query)]
        },
    )
}

/// The other's by ours.
fn ratio(ours: Option<Timing>, theirs: Option<Timing>, figure: impl Fn(&Timing) -> f64) -> String {
    let pair = ours.as_ref().map(&figure).zip(theirs.as_ref().map(&figure)).filter(|(ours, _)| *ours > 0.0);
    pair.map_or_else(|| "–".to_owned(), |(ours, theirs)| digits(theirs / ours))
}

/// A line to watch.
pub(super) fn progress(figures: &Figures) -> String {
    let Timing { queries, median_ms, p99_ms, cpu_ms_per_query } = figures.timing;
    format!(
        "{} {}, {} at a time, {}{}: {queries} queries, {} / {} ms, {} ms CPU",
        figures.language.name(),
        figures.query,
        figures.workers,
        figures.server.name(),
        if figures.may_keep { "" } else { ", computed" },
        digits(median_ms),
        digits(p99_ms),
        digits(cpu_ms_per_query)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(language: Language, server: Peer, may_keep: bool, median_ms: f64) -> Figures {
        let timing = Timing { queries: 50, median_ms, p99_ms: 2.0 * median_ms, cpu_ms_per_query: median_ms / 2.0 };
        Figures { language, query: "lastpoint".to_owned(), workers: 4, server, may_keep, timing }
    }

    #[test]
    fn ratios_are_to_the_same_way_of_answering() {
        let mut report = Report { setting: vec!["2 cores".to_owned()], ..Report::default() };
        report.figures = vec![
            figures(Language::Promql, Peer::Thalweg, false, 2.0),
            figures(Language::Promql, Peer::Thalweg, true, 1.0),
            figures(Language::Promql, Peer::VictoriaMetrics, false, 8.0),
            figures(Language::Promql, Peer::VictoriaMetrics, true, 0.25),
            figures(Language::Influxql, Peer::Thalweg, false, 2.0),
            figures(Language::Influxql, Peer::Thalweg, true, 1.0),
            figures(Language::Influxql, Peer::Influxdb, true, 120.0),
            figures(Language::Sql, Peer::Thalweg, true, 1.0),
        ];
        report.unknown.push((Language::Sql, "cpu-max-all-1".to_owned()));
        for text in ["SQL lastpoint: refused", "SQL lastpoint: refused"] {
            report.note(text.to_owned());
        }
        let text = report.render();
        let wanted = [
            "| lastpoint | 2.00 / 4.00 | 1.00 | 8.00 / 16.0 | 4.00 | 4.00 | 4.00 | 1.00 / 2.00 | 0.50 | 0.25 / 0.50 | 0.12 | 0.25 | 0.25 |",
            "| lastpoint | 2.00 / 4.00 | 1.00 | 120 / 240 | 60.0 | 60.0 | 60.0 | 1.00 / 2.00 | 0.50 | 120 | 120 |",
            "| lastpoint | – | – | – | – | – | – | 1.00 / 2.00 | 0.50 | – | – |",
            "* The suite does not ask questdb: cpu-max-all-1\n* SQL lastpoint: refused\n",
        ];
        assert!(wanted.iter().all(|part| text.matches(part).count() == 1), "{text}");
        // Every row of a table has the cells of its head.
        let cells = |line: &str| line.matches('|').count();
        let mut width = 0;
        for line in text.lines() {
            width = if line.starts_with("| query") { cells(line) } else { width };
            assert!(!line.starts_with('|') || cells(line) == width, "{line}");
        }
        assert!(report.json().unwrap().contains(r#""median_ms": 120.0"#));
    }
}
