//! `INSERT … ON CONFLICT (time, tags) DO NOTHING | DO UPDATE SET …`: a row's time with its tags is unique.

use std::collections::{HashMap, HashSet};

use model::TimeRange;
use query::plan::{Plan, Scan};
use query::{SqlType, TableSchema, Value};
use sqlparser::ast::{AssignmentTarget, ConflictTarget, DoUpdate, Expr, ObjectName, OnConflictAction, OnInsert};

use super::insert::Target;
use crate::catalog::is_time_of;
use crate::error::{SqlError, invalid, refused, unsupported};
use crate::expression::{Bound, cast, holds};
use crate::pending::Kind;
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};

/// The action for rows whose time and tags are there already.
pub(super) enum Conflict {
    Skip,
    Update(Update),
}

/// `DO UPDATE SET …`, bound to the columns of the table and those of `excluded`.
pub(super) struct Update {
    /// Columns by their index among the target's, and their new values.
    assignments: Vec<(usize, SqlType, Bound)>,
    condition: Option<Bound>,
}

/// A row's time and its tags.
type RowKey = Vec<Value>;

impl Run<'_> {
    /// The action of an ON CONFLICT.
    pub(super) fn conflict(&mut self, on: &OnInsert, target: &Target) -> Result<Conflict, SqlError> {
        let OnInsert::OnConflict(conflict) = on else { return unsupported("ON DUPLICATE KEY UPDATE") };
        match &conflict.conflict_target {
            Some(ConflictTarget::Columns(columns)) => {
                let names: Vec<&str> = columns.iter().map(|column| column.value.as_str()).collect();
                check_target(&names, target.schema.as_ref(), self.time_name())?;
            }
            Some(ConflictTarget::OnConstraint(_)) => return unsupported("ON CONFLICT ON CONSTRAINT"),
            None => {}
        }
        match &conflict.action {
            OnConflictAction::DoNothing => Ok(Conflict::Skip),
            OnConflictAction::DoUpdate(update) => Ok(Conflict::Update(self.update(update, target)?)),
        }
    }

    fn update(&mut self, update: &DoUpdate, target: &Target) -> Result<Update, SqlError> {
        let scope = conflict_scope(target);
        let mut assignments = Vec::with_capacity(update.assignments.len());
        for assignment in &update.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return unsupported("SET of several columns at once");
            };
            let name = last(name);
            let index = target.index(&name);
            match index.and_then(|index| Some((index, target.kinds.get(index)?))) {
                Some((index, kind @ (Kind::Field(_) | Kind::New))) => {
                    let value = self.bind(&scope, &assignment.value)?;
                    let sql_type = if let Kind::Field(sql_type) = kind { *sql_type } else { value.sql_type };
                    assignments.push((index, sql_type, value.expression));
                }
                // They are the same, or there was no conflict.
                Some(_) if is_excluded(&assignment.value, &name) => {}
                Some(_) => {
                    return refused(
                        "0A000",
                        format!("\"{name}\" is part of what a row is known by: SET changes fields only"),
                    );
                }
                None => {
                    return invalid(format!("column \"{name}\" of ON CONFLICT DO UPDATE is not among those of INSERT"));
                }
            }
        }
        let condition = update.selection.as_ref().map(|condition| self.bind(&scope, condition)).transpose()?;
        Ok(Update { assignments, condition: condition.map(|condition| condition.expression) })
    }

    /// The rows that are to be written, given those that are there.
    pub(super) fn resolve(
        &mut self,
        conflict: &Conflict,
        target: &Target,
        rows: Vec<Vec<Value>>,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let existing = self.existing(target, &rows)?;
        let mut seen = HashSet::new();
        let mut resolved = Vec::with_capacity(rows.len());
        for row in rows {
            let key = key(target, &row);
            let is_repeated = !seen.insert(key.clone());
            match (conflict, existing.get(&key)) {
                (Conflict::Skip, found) => {
                    if found.is_none() && !is_repeated {
                        resolved.push(row);
                    }
                }
                (Conflict::Update(_), _) if is_repeated => {
                    return refused("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time");
                }
                (Conflict::Update(_), None) => resolved.push(row),
                (Conflict::Update(update), Some(old)) => resolved.extend(self.updated(update, old, &row)?),
            }
        }
        Ok(resolved)
    }

    /// A row that is there, changed; `None` if the condition does not hold.
    fn updated(&self, update: &Update, old: &[Value], new: &[Value]) -> Result<Option<Vec<Value>>, SqlError> {
        let both = [old, new].concat();
        if let Some(condition) = &update.condition
            && !holds(condition, &both, &self.environment)?
        {
            return Ok(None);
        }
        let mut row = old.to_vec();
        for (index, sql_type, value) in &update.assignments {
            let value = cast(value.value(&both, &self.environment)?, *sql_type, &self.environment)?;
            if let Some(cell) = row.get_mut(*index) {
                *cell = value;
            }
        }
        Ok(Some(row))
    }

    /// The rows of the table at the times of these rows, with the target's columns, by time and tags.
    fn existing(&mut self, target: &Target, rows: &[Vec<Value>]) -> Result<HashMap<RowKey, Vec<Value>>, SqlError> {
        let Some(schema) = &target.schema else { return Ok(HashMap::new()) };
        let times: HashSet<i64> = rows.iter().filter_map(|row| time_of(target, row)).collect();
        let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else { return Ok(HashMap::new()) };
        let found = if self.has_pending_rows(&schema.name) {
            self.rows_with_pending(schema, None)?
        } else {
            let mut scan = Scan::of_table(schema.name.as_str());
            scan.range = TimeRange::new(*first, *last);
            let frames = self.plan(Plan::Scan(scan))?;
            self.rows_of_frames(frames, schema, Vec::new())?.made()
        };
        let names: Vec<String> =
            crate::catalog::row_columns(schema, self.time_name()).into_iter().map(|(name, ..)| name).collect();
        let sources: Vec<Option<usize>> = target
            .columns
            .iter()
            .zip(&target.kinds)
            .map(|(column, kind)| match kind {
                Kind::Time => Some(0),
                _ => names.iter().position(|name| name == column),
            })
            .collect();
        let is_wanted = |row: &Vec<Value>| matches!(row.first(), Some(Value::Timestamp(ns)) if times.contains(ns));
        let tag = |row: &[Value], name: &String| {
            let index = names.iter().position(|known| known == name);
            index.and_then(|index| row.get(index)).cloned().unwrap_or(Value::Null)
        };
        let entry = |row: Vec<Value>| {
            let key = row.iter().take(1).cloned().chain(schema.tags.iter().map(|name| tag(&row, name))).collect();
            let cell = |source: &Option<usize>| source.and_then(|source| row.get(source)).cloned();
            (key, sources.iter().map(|source| cell(source).unwrap_or(Value::Null)).collect())
        };
        Ok(found.into_iter().filter(is_wanted).map(entry).collect())
    }
}

fn time_of(target: &Target, row: &[Value]) -> Option<i64> {
    match row.get(target.time_index()?) {
        Some(Value::Timestamp(ns)) => Some(*ns),
        _ => None,
    }
}

/// The identity of a row: its time and the table's tags. New columns that are tags make it a new one.
fn key(target: &Target, row: &[Value]) -> RowKey {
    let cell = |index: Option<usize>| match index.and_then(|index| row.get(index)) {
        Some(Value::Text(text)) if text.is_empty() => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    };
    let tags = target.schema.iter().flat_map(|schema| &schema.tags);
    let new = target.kinds.iter().zip(row).filter(|(kind, _)| **kind == Kind::New).map(|(_, value)| value);
    let new = new.filter(|value| matches!(value, Value::Text(text) if !text.is_empty())).cloned();
    [cell(target.time_index())].into_iter().chain(tags.map(|tag| cell(target.index(tag)))).chain(new).collect()
}

/// The columns of the table's row, then those of the row that was to be inserted, `excluded`.
fn conflict_scope(target: &Target) -> Scope {
    let column = |qualifier: &str, (name, kind): (&String, &Kind)| ScopeColumn {
        qualifier: Some(qualifier.to_owned()),
        name: name.clone(),
        sql_type: match kind {
            Kind::Time => SqlType::Timestamp,
            Kind::Tag => SqlType::Text,
            Kind::Field(sql_type) => *sql_type,
            Kind::New => SqlType::Unknown,
        },
        role: if *kind == Kind::Time { Role::Time } else { Role::Other },
        is_hidden: false,
        shown_at: 0,
        needs_table: qualifier == "excluded",
    };
    let columns = |qualifier| target.columns.iter().zip(&target.kinds).map(move |named| column(qualifier, named));
    Scope { columns: columns(target.table.as_str()).chain(columns("excluded")).collect() }
}

/// A conflict is one of time and all tags.
fn check_target(names: &[&str], schema: Option<&TableSchema>, time_name: &str) -> Result<(), SqlError> {
    let is_time = |name: &str| is_time_of(schema, name);
    let tags: &[String] = schema.map_or(&[], |schema| &schema.tags);
    let has_all = names.iter().any(|name| is_time(name)) && tags.iter().all(|tag| names.contains(&tag.as_str()));
    let has_others = schema.is_some() && names.iter().any(|name| !is_time(name) && !tags.iter().any(|tag| tag == name));
    if has_all && !has_others {
        return Ok(());
    }
    let unique: Vec<&str> = std::iter::once(time_name).chain(tags.iter().map(String::as_str)).collect();
    refused("42P10", format!("a row is known by its time and its tags: ON CONFLICT ({})", unique.join(", ")))
}

/// `excluded.name`
fn is_excluded(value: &Expr, name: &str) -> bool {
    match value {
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, column] => table.value.eq_ignore_ascii_case("excluded") && column.value == name,
            _ => false,
        },
        _ => false,
    }
}

fn last(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_names_time_and_all_tags() {
        let schema =
            TableSchema { name: "t".to_owned(), tags: vec!["host".to_owned()], fields: Vec::new(), layout: None };
        for (names, is_taken) in [
            (&["time", "host"][..], true),
            (&["host", "TIME"], true),
            (&["time"], false),
            (&["host"], false),
            (&["time", "host", "v"], false),
        ] {
            assert_eq!(check_target(names, Some(&schema), "time").is_ok(), is_taken, "{names:?}");
        }
        assert!(check_target(&["time", "anything"], None, "time").is_ok());
    }
}
