//! Rows with columns of another table as these were at the rows' times.

use std::fmt::Write;

use super::print::{duration, list, scan_lines, selector_text};
use super::{Plan, Scan, Selector};

/// Rows with columns of the newest row of another table that is not later than they are, of those whose tags equal labels of the rows' series. All
/// rows stay, unless conditions on the labels that they get leave them out; the columns of one that finds no row are null. The input may have such columns of other tables.
#[derive(Debug, Clone, PartialEq)]
pub struct AsOf {
    /// Whose rows.
    pub input: Plan,
    /// The rows of the table, of which every one counts.
    pub table: Scan,
    /// Labels of the input's series, and the tags of the table that equal them; none: all rows of the table may be found.
    pub on: Vec<(String, String)>,
    /// Columns that are added, and the fields or tags of the table that hold them; a column that the input has is replaced.
    pub columns: Vec<(String, String)>,
    /// Labels that are added, and the tags or texts of the table that say them; a label that the input has is replaced. Rows of a series that find
    /// different ones are several series. One that finds none has none.
    pub labels: Vec<(String, String)>,
    /// Conditions on the labels that are added: rows for which they do not hold go.
    pub selectors: Vec<Selector>,
    /// True if a row of the same time is too late: SQL's `LT JOIN`.
    pub is_earlier: bool,
    /// Rows that are older than this are not found, in nanoseconds; `None`: one of any age is.
    pub within_ns: Option<i64>,
}

impl AsOf {
    /// The table's name.
    pub fn table_name(&self) -> &str {
        self.table.table.as_ref().map_or("", |table| &table.name)
    }

    /// Returns whether it adds a label.
    pub fn adds_label(&self, label: &str) -> bool {
        self.labels.iter().any(|(name, _)| name == label)
    }

    /// Returns whether it adds a column.
    pub fn adds(&self, column: &str) -> bool {
        self.columns.iter().any(|(name, _)| name == column)
    }

    /// How much older than a row one that it finds may be, in nanoseconds.
    pub fn reach_ns(&self) -> i64 {
        self.within_ns.unwrap_or(i64::MAX)
    }

    /// The step as it is written.
    pub(super) fn text(&self) -> String {
        let flat = |pairs: &[(String, String)]| {
            list(&pairs.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect::<Vec<String>>())
        };
        let mut text = format!("(as-of (->> {})", scan_lines(&self.table).join(" "));
        for (word, pairs) in [("on", &self.on), ("columns", &self.columns), ("labels", &self.labels)] {
            if !pairs.is_empty() {
                let _ = write!(text, " ({word} {})", flat(pairs));
            }
        }
        if self.is_earlier {
            text.push_str(" (earlier)");
        }
        if let Some(within_ns) = self.within_ns {
            let _ = write!(text, " (within {})", duration(within_ns));
        }
        self.selectors.iter().for_each(|selector| text.extend([" ", &selector_text(selector)]));
        text.push(')');
        text
    }
}
