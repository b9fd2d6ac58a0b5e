//! Rows of series with labels that another table says.

use std::fmt::Write;

use super::print::{list, scan_lines, selector_text};
use super::{Plan, Scan, Selector};

/// Rows whose series get labels from the rows of a small table, for each of these once: what a join gives of groups that are by labels. The
/// input may be rows with labels of another table, which this one may be joined by.
#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    /// Whose rows.
    pub input: Plan,
    /// The rows of the table.
    pub table: Scan,
    /// Labels of the input's series, and the tags of the table that equal them.
    pub on: Vec<(String, String)>,
    /// Labels that are added, and the tags or fields of the table that say them; a label that the input has is replaced.
    pub labels: Vec<(String, String)>,
    /// True if rows stay for which the table has none.
    pub keeps_all: bool,
    /// Conditions on the labels that are added.
    pub selectors: Vec<Selector>,
}

impl Labelled {
    /// Tables that say labels of the same rows, at most.
    pub const TABLES_MAX: usize = 4;

    /// The steps that give the same rows labels, in order: this is the last one. The input of the first is the rows.
    pub fn steps(&self) -> Vec<&Self> {
        let (mut step, mut steps) = (self, vec![self]);
        while let Plan::Labelled(before) = &step.input {
            step = before;
            steps.push(step);
        }
        steps.reverse();
        steps
    }

    /// The table's name.
    pub fn table_name(&self) -> &str {
        self.table.table.as_ref().map_or("", |table| &table.name)
    }

    /// Returns whether it adds a label.
    pub fn adds(&self, label: &str) -> bool {
        self.labels.iter().any(|(name, _)| name == label)
    }

    /// Says what is read of the table: the same text stands for the same rows.
    pub(crate) fn table_text(&self) -> String {
        let (_, tags) = unzipped(&self.on);
        let (_, columns) = unzipped(&self.labels);
        format!("{}\n{}\n{}", scan_lines(&self.table).join("\n"), list(&tags), list(&columns))
    }

    /// The step as it is written.
    pub(super) fn text(&self) -> String {
        let kind = if self.keeps_all { "left" } else { "inner" };
        let mut text = format!("(labelled {kind} (->> {})", scan_lines(&self.table).join(" "));
        let _ = write!(text, " (on {})", list(&flat(&self.on)));
        if !self.labels.is_empty() {
            let _ = write!(text, " (labels {})", list(&flat(&self.labels)));
        }
        self.selectors.iter().for_each(|selector| text.extend([" ", &selector_text(selector)]));
        text.push(')');
        text
    }
}

fn flat(pairs: &[(String, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect()
}

fn unzipped(pairs: &[(String, String)]) -> (Vec<String>, Vec<String>) {
    pairs.iter().cloned().unzip()
}
