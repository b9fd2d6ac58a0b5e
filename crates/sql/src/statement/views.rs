//! Statements about materialised views.

use std::sync::Arc;

use access::grant::Right;
use query::views::{Dialect, RefreshPolicy, RefreshRequest, View, ViewDefinition};
use query::{QueryError, SqlType, Value};
use sqlparser::ast::{Query, Statement};

use super::Answer;
use super::policies::policy_call;
use crate::Manner;
use crate::error::{SqlError, invalid};
use crate::relation::{Column, Relation};
use crate::run::Run;
use crate::syntax::views::{CreateView, ViewChange, ViewStatement};

impl Run<'_> {
    /// A statement about a view; `None` if it is another one.
    pub(super) fn view_statement(&mut self, statement: &Statement) -> Result<Option<Answer>, SqlError> {
        if let Some(call) = policy_call(statement) {
            return self.policy(call).map(Some);
        }
        let Some(said) = self.parsed.view_statement(statement).cloned() else { return Ok(None) };
        if let ViewStatement::ShowCreate { name } = &said {
            let view = self.existing_view(name)?;
            if view.definition.statement.is_empty() {
                let message =
                    format!("the statement of the view {name:?} is shown to those who may read its whole database");
                return Err(QueryError::Forbidden(message).into());
            }
            return Ok(Some(Answer::Rows(Relation::of_texts(&["ddl"], [vec![view.definition.statement.clone()]]))));
        }
        if said == ViewStatement::Show {
            return self.materialized_views().map(|views| Some(Answer::Rows(views)));
        }
        if self.describes {
            return Ok(Some(Answer::Done(String::new())));
        }
        if self.client.has_pending_writes() {
            return invalid("views are not changed within a transaction that has written rows: COMMIT first");
        }
        self.change_view(&said, statement).map(|tag| Some(Answer::Done(tag.to_owned())))
    }

    fn change_view(&mut self, said: &ViewStatement, statement: &Statement) -> Result<&'static str, SqlError> {
        let database = self.environment.database.clone();
        match said {
            ViewStatement::Create(said) => {
                let Statement::CreateView(create) = statement else { return invalid("the view has no query") };
                self.create_view(said, &create.query)?;
                Ok("CREATE MATERIALIZED VIEW")
            }
            ViewStatement::Drop { name, if_exists } => {
                let missing = match self.existing_view(name) {
                    Ok(view) => return self.drop_view(&view.definition.name),
                    Err(SqlError::UnknownTable(missing)) => missing,
                    Err(error) => return Err(error),
                };
                // One whose definition cannot be read is dropped, too.
                if self.session.drop_view(&database, name)? || *if_exists {
                    Ok("DROP MATERIALIZED VIEW")
                } else {
                    Err(SqlError::UnknownTable(missing))
                }
            }
            ViewStatement::Alter { name, if_exists, change } => {
                match self.existing_view(name) {
                    Err(SqlError::UnknownTable(_)) if *if_exists => {}
                    Err(error) => return Err(error),
                    Ok(view) => self.alter_view(&view, change)?,
                }
                Ok("ALTER MATERIALIZED VIEW")
            }
            ViewStatement::Refresh(refresh) => {
                let view = self.existing_view(&refresh.name)?;
                let (range, is_forced) = (refresh.range, refresh.is_forced);
                let request = RefreshRequest { database: &database, name: &view.definition.name, range, is_forced };
                self.session.refresh_view(&request)?;
                // QuestDB does not wait.
                if self.manner != Manner::QuestDb && !self.session.wait_for_refresh(&request)? {
                    self.client.notices.push(format!(
                        "the view {:?} is refreshed further in the background: /api/v1/views says what is pending",
                        view.definition.name
                    ));
                }
                Ok(refresh.tag)
            }
            ViewStatement::ShowCreate { .. } | ViewStatement::Show => Ok("SHOW"),
        }
    }

    fn drop_view(&self, name: &str) -> Result<&'static str, SqlError> {
        self.session.drop_view(&self.environment.database, name)?;
        Ok("DROP MATERIALIZED VIEW")
    }

    fn alter_view(&mut self, view: &View, change: &ViewChange) -> Result<(), SqlError> {
        let ViewDefinition { database, name, target, .. } = &view.definition;
        let mut options = view.definition.options.clone();
        match change {
            ViewChange::MaterializedOnly(is_only) => options.materialized_only = *is_only,
            ViewChange::Refresh { refresh, lag_ns } => {
                options.refresh = *refresh;
                // A delay stays as it is where none is said.
                options.lag_ns = lag_ns.or(options.lag_ns);
            }
            ViewChange::Ttl(ttl_ns) => return Ok(self.session.set_table_ttl(database, target, *ttl_ns)?),
            ViewChange::AddColumn(added) => return self.add_view_column(&view.definition, added),
            ViewChange::Nothing => return Ok(()),
        }
        Ok(self.session.set_view_options(database, name, options)?)
    }

    /// Refuses a TTL that the sender may not set, before there is a view without it.
    fn check_ttl_right(&self) -> Result<(), SqlError> {
        let (scope, database) = (self.session.budget().scope(), &self.environment.database);
        if scope.may(Right::Admin, database) {
            return Ok(());
        }
        let message = format!(
            "a TTL needs the right admin on the database {database}, which the account {} does not have",
            scope.name
        );
        Err(QueryError::Forbidden(message).into())
    }

    fn create_view(&mut self, said: &CreateView, query: &Query) -> Result<(), SqlError> {
        let is_known = self.session.view(&self.environment.database, &said.name)?.is_some();
        if is_known && said.if_not_exists {
            return Ok(());
        }
        if said.ttl_ns.is_some() {
            self.check_ttl_right()?;
        }
        let definition = self.view_definition(said, query)?;
        let (database, target) = (definition.database.clone(), definition.target.clone());
        let notice = self.notice_of(&definition)?;
        self.session.create_view(definition)?;
        notice.into_iter().for_each(|notice| self.client.notices.push(notice));
        let Some(ttl_ns) = said.ttl_ns else { return Ok(()) };
        if let Err(error) = self.session.set_table_ttl(&database, &target, ttl_ns) {
            self.session.drop_view(&database, &said.name)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Says of a new view if queries do not need it.
    fn notice_of(&self, definition: &ViewDefinition) -> Result<Option<String>, SqlError> {
        let ViewDefinition { database, name, .. } = definition;
        let source = definition.source();
        let is_of_view = self.session.views(database)?.iter().any(|view| view.definition.target == source);
        let table = self.session.table(database, source)?;
        let is_needless = !is_of_view && table.is_some_and(|table| definition.is_in_summaries(&table));
        Ok(is_needless.then(|| {
            format!(
                "the summaries that the table \"{source}\" has give the same as the view \"{name}\" at the same cost: as long as the table keeps its \
                 rows the view is not needed"
            )
        }))
    }

    /// The materialised views that a scan of their table reads.
    pub(crate) fn exposed_views(&self) -> Result<Vec<Arc<View>>, SqlError> {
        let mut views = self.session.views(&self.environment.database)?;
        views.retain(|view| view.definition.is_exposed());
        Ok(views)
    }

    /// The view of a name as it is written, or without regard to case.
    pub(super) fn existing_view(&self, name: &str) -> Result<Arc<View>, SqlError> {
        let views = self.exposed_views()?;
        let exact = views.iter().find(|view| view.definition.name == name);
        let found = exact.or_else(|| views.iter().find(|view| view.definition.name.eq_ignore_ascii_case(name)));
        let missing = || SqlError::UnknownTable(format!("materialized view \"{name}\" does not exist"));
        found.cloned().ok_or_else(missing)
    }

    /// `QuestDB`'s `materialized_views()`, with what is of interest here besides.
    pub(crate) fn materialized_views(&self) -> Result<Relation, SqlError> {
        let columns = [
            ("view_name", SqlType::Text),
            ("refresh_type", SqlType::Text),
            ("base_table_name", SqlType::Text),
            ("last_refresh_finish_timestamp", SqlType::Timestamp),
            ("view_sql", SqlType::Text),
            ("view_table_dir_name", SqlType::Text),
            ("invalidation_reason", SqlType::Text),
            ("view_status", SqlType::Text),
            ("computed_until", SqlType::Timestamp),
            ("pending_ranges", SqlType::Int),
            ("rows_written", SqlType::Int),
            ("late_samples_refused", SqlType::Int),
            ("dialect", SqlType::Text),
        ];
        let mut rows = Vec::new();
        for view in self.session.views(&self.environment.database)? {
            let definition = &view.definition;
            let status = self.session.view_status(&definition.database, &definition.name)?;
            let refresh = match definition.options.refresh {
                RefreshPolicy::Immediate => "immediate",
                RefreshPolicy::Every(_) => "timer",
                RefreshPolicy::Manual => "manual",
            };
            let text = |text: &str| Value::text(text);
            let mut row = vec![text(&definition.name), text(refresh), text(definition.source())];
            row.push(status.refreshed_ns.map_or(Value::Null, Value::Timestamp));
            row.extend([text(&definition.statement), text(&definition.target)]);
            let state = match (&status.error, view.state.is_pending()) {
                (Some(_), _) => "failing",
                (None, false) => "valid",
                (None, true) => "refreshing",
            };
            row.extend([status.error.as_deref().map_or(Value::Null, text), text(state)]);
            row.push(Value::Timestamp(view.state.watermark_ns));
            row.push(Value::Int(view.state.pending.len() as i64));
            row.extend([Value::Int(status.rows_written as i64), Value::Int(status.late_samples_refused as i64)]);
            row.push(text(definition.dialect.name()));
            rows.push(row);
        }
        Ok(Relation { columns: named(&columns), rows })
    }

    /// The name of a table's time: that of a view has one of its own.
    pub(crate) fn time_name_of(&self, table: &str) -> Result<String, SqlError> {
        let view = self.session.view(&self.environment.database, table)?;
        let of_view = view.filter(|view| view.definition.is_exposed() && view.definition.dialect != Dialect::InfluxQl);
        if let Some(view) = of_view {
            return Ok(view.definition.time_name.clone());
        }
        let layout = self.session.table_layout(&self.environment.database, table);
        Ok(layout.and_then(|layout| layout.time_name.clone()).unwrap_or_else(|| self.time_name().to_owned()))
    }
}

pub(super) fn named(columns: &[(&str, SqlType)]) -> Vec<Column> {
    columns.iter().map(|(name, sql_type)| Column::new(*name, *sql_type)).collect()
}
