//! Views of plain SQL: statements about them, and what they show when they are read.

use std::sync::Arc;

use access::grant::Right;
use query::views::{DEPTH_MAX, StoredQuery};
use query::{QueryError, Value};
use sqlparser::ast::{CreateTableOptions, CreateView, Expr, ObjectName, ObjectType, ShowCreateObject, Statement};

use super::Answer;
use crate::catalog::CatalogColumn;
use crate::context::Manner;
use crate::error::{SqlError, invalid, refused};
use crate::expression::Environment;
use crate::relation::{Column, Relation};
use crate::run::Run;
use crate::select::narrowed_query;
use crate::syntax::parse::{OPERATORS_MAX, parse, position};
use crate::syntax::view_texts::query_of;

/// How often a statement expands views, those within views counted.
const EXPANSIONS_MAX: usize = 1_000;

/// Bytes of the statements of views that are read for a statement: of a view as often as it is expanded.
const EXPANDED_BYTES_MAX: usize = 8 << 20;

/// Postgres's code for a relation of another kind than the statement is for.
const WRONG_OBJECT: &str = "42809";

impl Run<'_> {
    /// A statement about a view of plain SQL; `None` if it is another one.
    pub(super) fn stored_query_statement(&mut self, statement: &Statement) -> Result<Option<Answer>, SqlError> {
        let answer = match statement {
            Statement::CreateView(create) => self.create_stored_query(create)?,
            Statement::Drop { object_type: ObjectType::View, if_exists, names, .. } => {
                names.iter().try_for_each(|name| self.drop_stored_query(&name_of(name), *if_exists))?;
                Answer::Done("DROP VIEW".to_owned())
            }
            Statement::ShowCreate { obj_type: ShowCreateObject::View, obj_name } => {
                let view = self.existing_query(&name_of(obj_name))?;
                if self.hides_statements() {
                    let name = &view.name;
                    let message =
                        format!("the statement of the view {name:?} is shown to those who may read its whole database");
                    return Err(QueryError::Forbidden(message).into());
                }
                Answer::Rows(Relation::of_texts(&["ddl"], [vec![view.statement.clone()]]))
            }
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    fn create_stored_query(&mut self, create: &CreateView) -> Result<Answer, SqlError> {
        if create.materialized {
            return invalid("a materialised view is not replaced: DROP MATERIALIZED VIEW and make it again");
        }
        let has_options = create.options != CreateTableOptions::None || create.params.is_some() || create.secure;
        let has_types = create.columns.iter().any(|column| column.data_type.is_some() || column.options.is_some());
        if has_options
            || has_types
            || create.temporary
            || create.or_alter
            || create.to.is_some()
            || create.comment.is_some()
        {
            return invalid(
                "CREATE VIEW has a name, names of columns and a query: no options and types, and it is not TEMPORARY",
            );
        }
        let ident = create.name.0.last().and_then(|part| part.as_ident());
        let statement = ident.and_then(|ident| self.parsed.view_texts.get(&position(ident.span.start)));
        let Some(statement) = statement else { return invalid(format!("{} is no name of a view", create.name)) };
        let query = StoredQuery {
            name: name_of(&create.name),
            database: self.environment.database.clone(),
            statement: statement.clone(),
            is_questdb: self.manner == Manner::QuestDb,
            maker: String::new(),
            matchers: Vec::new(),
        };
        if create.if_not_exists && self.session.stored_query(&query.database, &query.name)?.is_some() {
            return Ok(Answer::Done("CREATE VIEW".to_owned()));
        }
        let describes = std::mem::replace(&mut self.describes, true);
        // Those of this statement are the view's.
        let operators = std::mem::take(&mut self.operators);
        self.hides_views = self.hides_statements();
        let shown = self.read_query(&query, None, Origin::Sender);
        (self.describes, self.operators) = (describes, operators);
        let mut names: Vec<String> = shown?.columns.into_iter().map(|column| column.name).collect();
        names.sort_unstable();
        if let Some(name) =
            names.iter().zip(names.iter().skip(1)).find_map(|(name, next)| (name == next).then_some(name))
        {
            return invalid(format!("column \"{name}\" specified more than once: name one of them otherwise"));
        }
        if !self.describes {
            self.refuse_pending()?;
            self.session.put_stored_query(query, create.or_replace)?;
        }
        Ok(Answer::Done("CREATE VIEW".to_owned()))
    }

    fn drop_stored_query(&mut self, name: &str, if_exists: bool) -> Result<(), SqlError> {
        let database = self.environment.database.clone();
        let found = match self.existing_query(name) {
            Ok(view) => view.name.clone(),
            // One whose definition cannot be read is dropped, too.
            Err(SqlError::UnknownTable(_)) => name.to_owned(),
            Err(error) => return Err(error),
        };
        if self.describes {
            return Ok(());
        }
        self.refuse_pending()?;
        if self.session.drop_stored_query(&database, &found)? {
            return Ok(());
        }
        if self.session.view(&database, name)?.is_some_and(|view| view.definition.is_exposed()) {
            return refused(
                WRONG_OBJECT,
                format!("\"{name}\" is a materialised view: DROP MATERIALIZED VIEW drops it"),
            );
        }
        if self.session.table(&database, name)?.is_some() {
            return refused(WRONG_OBJECT, format!("\"{name}\" is not a view: DROP TABLE drops it"));
        }
        if if_exists { Ok(()) } else { Err(missing(name)) }
    }

    fn refuse_pending(&self) -> Result<(), SqlError> {
        if self.client.has_pending_writes() {
            return invalid("views are not changed within a transaction that has written rows: COMMIT first");
        }
        Ok(())
    }

    /// Returns whether the sender may not see how views are made: statements may name what the sender may not read.
    pub(crate) fn hides_statements(&self) -> bool {
        let scope = self.session.budget().scope();
        !scope.matchers(Right::Read, &self.environment.database).is_empty()
    }

    fn existing_query(&self, name: &str) -> Result<Arc<StoredQuery>, SqlError> {
        self.find_query(name, false)?.ok_or_else(|| missing(name))
    }

    /// The view of a name as it is written; without regard to case if it is not quoted and there is no table of the name.
    pub(crate) fn find_query(&self, name: &str, quoted: bool) -> Result<Option<Arc<StoredQuery>>, SqlError> {
        let database = &self.environment.database;
        if let Some(exact) = self.session.stored_query(database, name)? {
            return Ok(Some(exact));
        }
        let same = if quoted { None } else { self.session.stored_query_of_any_case(database, name)? };
        Ok(if same.is_some() && self.session.table(database, name)?.is_some() { None } else { same })
    }

    /// Refuses a view where a table is wanted.
    pub(crate) fn refuse_stored_query(&self, name: &str) -> Result<(), SqlError> {
        match self.session.stored_query(&self.environment.database, name)? {
            None => Ok(()),
            Some(_) => refused(
                WRONG_OBJECT,
                format!("\"{name}\" is a view: its rows are those of its query, and DROP VIEW drops it"),
            ),
        }
    }

    /// The rows of a view: of those for which a condition of the query around cannot hold, some are left out.
    pub(crate) fn query_rows(
        &mut self,
        view: &StoredQuery,
        around: Option<(&Expr, &str)>,
    ) -> Result<Relation, SqlError> {
        if self.views.is_empty() {
            // Before the rights are narrowed to those of the view's maker.
            self.hides_views = self.hides_statements();
        }
        self.read_query(view, around, Origin::Database)
    }

    /// Counts one more expansion of a view; refuses circles, depth, and more expansions than a statement may have.
    fn count_expansion(&mut self, view: &StoredQuery) -> Result<(), SqlError> {
        let name = &view.name;
        self.session.budget().check()?;
        if self.views.contains(name) {
            let way: Vec<String> = self.views.iter().map(|name| format!("\"{name}\"")).collect();
            return invalid(format!("the view \"{name}\" would read itself, by way of {}", way.join(", ")));
        }
        if self.views.len() >= DEPTH_MAX {
            return invalid(format!("views read views at most {DEPTH_MAX} deep: \"{name}\" is deeper"));
        }
        if self.expansions >= EXPANSIONS_MAX {
            return invalid(format!(
                "a statement expands views at most {EXPANSIONS_MAX} times, those within views counted: \"{name}\" is one more; read each view once, in a WITH"
            ));
        }
        self.expansions += 1;
        self.expanded_bytes += view.statement.len();
        if self.expanded_bytes > EXPANDED_BYTES_MAX {
            return invalid(format!(
                "the statements of the views that a statement reads have more than {EXPANDED_BYTES_MAX} bytes, each as often as it is read, with \"{name}\": read each view once, in a WITH"
            ));
        }
        Ok(())
    }

    fn read_query(
        &mut self,
        view: &StoredQuery,
        around: Option<(&Expr, &str)>,
        origin: Origin,
    ) -> Result<Relation, SqlError> {
        let name = &view.name;
        self.count_expansion(view)?;
        let parsed = parse(&view.statement)?;
        let Some(Statement::CreateView(create)) = parsed.statements.first() else {
            return invalid(format!("the view \"{name}\" cannot be read: its statement makes no view"));
        };
        let operators = self.operators + parsed.depth;
        if operators > OPERATORS_MAX {
            return invalid(format!(
                "the query and the views that it reads have more than {OPERATORS_MAX} operators and parentheses together, with \"{name}\": simplify them"
            ));
        }
        let manner = if view.is_questdb { Manner::QuestDb } else { Manner::Postgres };
        // What functions set is of the statement around, not of the view.
        let environment = Environment { manner, changed_settings: None, ..Environment::clone(&self.environment) };
        let mut views = self.views.clone();
        views.push(name.clone());
        let _narrowed = view.narrow(self.session.budget());
        let names: Vec<&str> = create.columns.iter().map(|column| column.name.value.as_str()).collect();
        let narrowed = around.and_then(|around| narrowed_query(&create.query, &parsed, &names, around));
        let mut run = Run {
            session: self.session,
            parsed: &parsed,
            environment: Arc::new(environment),
            client: self.client,
            // Conditions of the query around may have them; the view's own statement has none.
            parameters: if narrowed.is_some() { self.parameters } else { &[] },
            parameter_types: Vec::new(),
            manner,
            describes: self.describes,
            plans: Vec::new(),
            ctes: Vec::new(),
            depth: self.depth,
            views,
            operators,
            expansions: self.expansions,
            expanded_bytes: self.expanded_bytes,
            hides_views: self.hides_views,
        };
        let shown = run.query(narrowed.as_ref().unwrap_or(&create.query));
        (self.expansions, self.expanded_bytes) = (run.expansions, run.expanded_bytes);
        self.plans.extend(run.plans);
        let is_hidden = self.hides_views && origin == Origin::Database;
        let mut relation = shown.map_err(|error| within(name, error, is_hidden))?;
        if names.len() > relation.columns.len() {
            return invalid(format!(
                "the view \"{name}\" names {} columns, and its query has {}",
                names.len(),
                relation.columns.len()
            ));
        }
        relation.columns.iter_mut().zip(names).for_each(|(column, name)| name.clone_into(&mut column.name));
        Ok(relation)
    }

    /// The columns of a view in a list of all; `None` if its query cannot be read now. Each counts its expansions for itself.
    pub(crate) fn listed_query_columns(&mut self, view: &StoredQuery) -> Result<Option<Vec<CatalogColumn>>, SqlError> {
        let before = (std::mem::take(&mut self.expansions), std::mem::take(&mut self.expanded_bytes));
        let budget = self.session.budget();
        let held = budget.samples();
        let columns = self.query_columns(view);
        // Nothing is left of what describing took.
        budget.give_back(budget.samples().saturating_sub(held) as usize);
        (self.expansions, self.expanded_bytes) = before;
        match columns {
            Ok(columns) => Ok(Some(columns)),
            Err(error) if error.is_of_statement() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The columns of a view.
    pub(crate) fn query_columns(&mut self, view: &StoredQuery) -> Result<Vec<CatalogColumn>, SqlError> {
        let describes = std::mem::replace(&mut self.describes, true);
        let plans = self.plans.len();
        let shown = self.query_rows(view, None);
        self.plans.truncate(plans);
        self.describes = describes;
        let column = |column: Column| (column.name, column.sql_type, "column");
        Ok(shown?.columns.into_iter().map(column).collect())
    }

    /// The query of a view, for those who may see it.
    pub(crate) fn query_definition(&self, view: &StoredQuery) -> Value {
        if self.hides_statements() { Value::Null } else { Value::text(query_of(&view.statement)) }
    }
}

fn missing(name: &str) -> SqlError {
    SqlError::UnknownTable(format!("view \"{name}\" does not exist"))
}

fn name_of(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone()).unwrap_or_default()
}

/// Where the statement that makes a view comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// From the sender of the statement that runs, which makes the view.
    Sender,
    /// From the database.
    Database,
}

/// An error of a view's query, as one of the query that reads it. Where it is hidden how views are made, the message would say that.
fn within(view: &str, error: SqlError, is_hidden: bool) -> SqlError {
    let told = |message: String| {
        if is_hidden {
            return format!(
                "the view \"{view}\" cannot be read: the reason is shown to those who may read its whole database"
            );
        }
        format!("in the view \"{view}\": {message}")
    };
    match error {
        SqlError::UnknownTable(message) => SqlError::UnknownTable(told(message)),
        SqlError::UnknownColumn(message) => SqlError::UnknownColumn(told(message)),
        SqlError::Refused(code, message) => SqlError::Refused(code, told(message)),
        SqlError::Query(QueryError::Invalid(message)) => SqlError::Query(QueryError::Invalid(told(message))),
        SqlError::Query(QueryError::Execution(message)) => SqlError::Query(QueryError::Execution(told(message))),
        SqlError::Query(QueryError::Forbidden(message)) if is_hidden => {
            SqlError::Query(QueryError::Forbidden(told(message)))
        }
        SqlError::Query(error) => SqlError::Query(error),
        // Not for another engine, which would be asked for the query around.
        error => SqlError::Invalid(told(error.to_string())),
    }
}
