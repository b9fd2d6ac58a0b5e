//! `ALTER MATERIALIZED VIEW … ADD COLUMN`.

use std::sync::Arc;

use query::QueryError;
use query::views::{Dialect, ViewDefinition};
use sqlparser::ast::Statement;

use super::Environment;
use crate::context::Manner;
use crate::error::{SqlError, invalid};
use crate::run::Run;
use crate::syntax::parse::parse;
use crate::syntax::view_columns::{AddColumn, with_column};
use crate::syntax::views::ViewStatement;

impl Run<'_> {
    /// Gives a view a column besides, as if its statement had had it.
    pub(super) fn add_view_column(&mut self, view: &ViewDefinition, added: &AddColumn) -> Result<(), SqlError> {
        let ViewDefinition { name, time_name, .. } = view;
        let is_same = |known: &str| known.eq_ignore_ascii_case(&added.name);
        if view.shown_fields().any(|(known, _)| is_same(known)) {
            if added.if_not_exists {
                return Ok(());
            }
            return invalid(format!("column {:?} of the view {name:?} already exists", added.name));
        }
        if view.labels().iter().any(|label| is_same(label)) || is_same(time_name) {
            return invalid(format!(
                "the view {name:?} has a label or a time {:?}: name the column otherwise",
                added.name
            ));
        }
        if view.statement.is_empty() {
            let message = format!("the view {name:?} is changed by those who may read its whole database");
            return Err(QueryError::Forbidden(message).into());
        }
        let statement = with_column(&view.statement, added)?;
        // How names and times are read was said by the way on which the view was made.
        let of_questdb = view.dialect == Dialect::QuestDb || self.manner == Manner::QuestDb;
        let manners =
            if of_questdb { [Manner::QuestDb, Manner::Postgres] } else { [Manner::Postgres, Manner::QuestDb] };
        let mut first_error = None;
        for manner in manners {
            let definition = self.definition_by(&statement, manner, view);
            match definition.and_then(|definition| Ok(self.session.add_view_columns(definition)?)) {
                Ok(()) => return Ok(()),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// The view as a statement makes it.
    fn definition_by(
        &mut self,
        statement: &str,
        manner: Manner,
        view: &ViewDefinition,
    ) -> Result<ViewDefinition, SqlError> {
        let parsed = parse(statement)?;
        let made = parsed.statements.first();
        let said = made.and_then(|statement| parsed.view_statement(statement));
        let (Some(Statement::CreateView(create)), Some(ViewStatement::Create(said))) = (made, said) else {
            return invalid(format!("the statement that made the view {:?} cannot be read: make it again", view.name));
        };
        let environment = Environment { manner, changed_settings: None, ..Environment::clone(&self.environment) };
        let mut run = Run {
            session: self.session,
            parsed: &parsed,
            environment: Arc::new(environment),
            client: self.client,
            parameters: &[],
            parameter_types: Vec::new(),
            manner,
            describes: false,
            plans: Vec::new(),
            ctes: Vec::new(),
            depth: self.depth,
            views: Vec::new(),
            operators: parsed.depth,
            expansions: 0,
            expanded_bytes: 0,
            hides_views: self.hides_views,
        };
        let definition = run.view_definition(said, &create.query)?;
        let ViewDefinition { name, target, options, dialect, .. } = view.clone();
        Ok(ViewDefinition { name, target, options, dialect, ..definition })
    }
}
