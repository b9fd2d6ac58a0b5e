//! Which columns a name may mean.

use query::SqlType;
use sqlparser::ast::Ident;

use crate::error::{SqlError, invalid};

/// The name of the rows' time in what is asked besides a statement: no column is called so.
pub(crate) const TIME: &str = "#time";

/// The role of a column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The rows' time.
    Time,
    /// A tag.
    Tag,
    /// A field.
    Field,
    /// Computed, or not of a table.
    Other,
}

/// A column that expressions may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScopeColumn {
    /// The table's name or alias.
    pub(crate) qualifier: Option<String>,
    pub(crate) name: String,
    pub(crate) sql_type: SqlType,
    pub(crate) role: Role,
    /// True if `*` leaves it out.
    pub(crate) is_hidden: bool,
    /// Its place among the columns of its table that `*` shows; those of one place stand as they come.
    pub(crate) shown_at: usize,
    /// True if it is meant only with its table before it: USING shows it by another.
    pub(crate) needs_table: bool,
}

/// The columns of what a SELECT reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) columns: Vec<ScopeColumn>,
}

impl Scope {
    /// The column that a name means. Names are tried as they are written first, then without regard to case unless they were
    /// quoted; `time` and `timestamp` both mean the rows' time unless a column has that name.
    pub(crate) fn find(&self, qualifier: Option<&Ident>, name: &Ident) -> Result<usize, SqlError> {
        let of_table = |column: &ScopeColumn| {
            qualifier.map_or(!column.needs_table, |wanted| {
                column.qualifier.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(&wanted.value))
            })
        };
        let exact = self.indexes_where(|column| of_table(column) && column.name == name.value);
        let exact = self.without_hidden_by_time(&exact);
        let loose = || {
            let same = |column: &ScopeColumn| column.name.eq_ignore_ascii_case(&name.value);
            self.indexes_where(|column| of_table(column) && name.quote_style.is_none() && same(column))
        };
        let time = || {
            let is_time = ["time", "timestamp", TIME].contains(&name.value.to_lowercase().as_str());
            self.indexes_where(|column| of_table(column) && is_time && column.role == Role::Time)
        };
        let found = [exact, loose(), time()].into_iter().find(|found| !found.is_empty()).unwrap_or_default();
        match found.as_slice() {
            [place] => Ok(*place),
            [] => Err(SqlError::UnknownColumn(self.unknown(qualifier, name))),
            _ => invalid(format!("column reference \"{}\" is ambiguous: write the table before it", name.value)),
        }
    }

    /// Leaves the time where a field or tag of the same table is called as it is: that came with rows.
    fn without_hidden_by_time(&self, found: &[usize]) -> Vec<usize> {
        let column = |index: &usize| self.columns.get(*index);
        let is_time = |index: &usize| column(index).is_some_and(|column| column.role == Role::Time);
        let table = |index: &usize| column(index).map(|column| &column.qualifier);
        let is_hidden =
            |index: &usize| !is_time(index) && found.iter().any(|other| is_time(other) && table(other) == table(index));
        found.iter().copied().filter(|index| !is_hidden(index)).collect()
    }

    /// The indexes of the columns that `*` stands for, those of one table in the order in which they were declared.
    pub(crate) fn star_columns(&self) -> Vec<usize> {
        let mut shown = self.indexes_where(|column| !column.is_hidden);
        let column = |index: &usize| self.columns.get(*index);
        let table = |index: &usize| column(index).map(|column| &column.qualifier);
        let begins = |index: &usize| column(index).is_some_and(|column| column.role == Role::Time);
        // Another table may have the same name.
        let runs = shown.chunk_by_mut(|a, b| table(a) == table(b) && !begins(b));
        runs.for_each(|run| run.sort_by_key(|index| column(index).map(|column| column.shown_at)));
        shown
    }

    fn indexes_where(&self, is_meant: impl Fn(&ScopeColumn) -> bool) -> Vec<usize> {
        self.columns.iter().enumerate().filter(|(_, column)| is_meant(column)).map(|(place, _)| place).collect()
    }

    fn unknown(&self, qualifier: Option<&Ident>, name: &Ident) -> String {
        const SHOWN: usize = 20;
        let qualifier = qualifier.map(|table| format!("{}.", table.value)).unwrap_or_default();
        let known = self.columns.iter().filter(|column| !column.is_hidden);
        let mut names: Vec<&str> = known.map(|column| column.name.as_str()).take(SHOWN + 1).collect();
        if names.len() > SHOWN {
            names.pop();
            names.push("…");
        }
        format!("column \"{qualifier}{}\" does not exist: there are {}", name.value, names.join(", "))
    }
}
