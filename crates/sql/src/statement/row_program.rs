//! A condition and a list of columns over the rows of one table, one row at a time: what triggers evaluate.

use query::{SqlType, TableSchema, Value};
use sqlparser::ast::{BinaryOperator, Expr, Ident, Query, SelectItem, UnaryOperator};

use crate::context::{ClientContext, Manner};
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Binder, Bound, Environment, LookupAnswers, ParameterType, Subqueries, Typed, holds};
use crate::pending::Kind;
use crate::relation::Relation;
use crate::scope::{Role, Scope, ScopeColumn};
use crate::select::table_scope;
use crate::syntax::triggers::{names, parse_columns, parse_condition};

/// The qualifier of columns: triggers may write it before their names.
const QUALIFIER: &str = "new";

/// The text of a program.
#[derive(Debug, Clone, Copy)]
pub struct RowProgramText<'a> {
    /// The condition that rows satisfy.
    pub condition: &'a str,
    /// The columns that are made of such rows, as SQL writes them after SELECT; `None`: all.
    pub columns: Option<&'a str>,
}

/// The meaning of names of columns that a table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingColumns {
    /// An error.
    Refused,
    /// They are null: rows with them may come later.
    Null,
}

/// A condition and columns, bound to the columns of a table. A row has its time, then the tags, then the fields of the table.
#[derive(Debug)]
pub struct RowProgram {
    condition: Bound,
    outputs: Vec<(OutputColumn, Bound)>,
    environment: Environment,
}

/// A column of rows that a program makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputColumn {
    pub(crate) name: String,
    /// How it is written to a table that does not have it.
    pub(crate) kind: Kind,
}

/// Queries within expressions of a row are refused.
struct NoQueries;

impl Subqueries for NoQueries {
    fn rows(&mut self, _: &Query) -> Result<Relation, SqlError> {
        invalid("a trigger looks at one row: queries within its expressions are refused")
    }

    fn note_parameter(&mut self, _: usize, _: ParameterType) {}

    fn table_number(&mut self, _: &str) -> Result<i64, SqlError> {
        unsupported("a name of a table in a trigger")
    }

    fn table_names(&mut self) -> Result<LookupAnswers, SqlError> {
        unsupported("names of tables in a trigger")
    }
}

impl RowProgram {
    /// Binds a program to a table.
    pub fn new(
        text: RowProgramText<'_>,
        schema: &TableSchema,
        client: &ClientContext,
        missing: MissingColumns,
    ) -> Result<Self, SqlError> {
        let environment = Environment {
            now_ns: client.now_ns,
            time_zone: client.time_zone.clone(),
            manner: Manner::Postgres,
            database: client.database.clone(),
            user: client.user.clone(),
            settings: client.settings.clone(),
            changed_settings: None,
        };
        let mut scope = table_scope(schema, "time", QUALIFIER);
        if missing == MissingColumns::Null {
            for name in names(text.condition)?.into_iter().chain(names(text.columns.unwrap_or_default())?) {
                add_missing(&mut scope, &name);
            }
        }
        let mut queries = NoQueries;
        let mut binder = Binder {
            scope: &scope,
            environment: &environment,
            parameters: &[],
            subqueries: &mut queries,
            depth: 0,
            copies: 1,
        };
        let parsed = parse_condition(text.condition)?;
        let condition = binder.bind(&parsed)?;
        if missing == MissingColumns::Refused {
            check_comparisons(&parsed, &mut binder)?;
        }
        if !matches!(condition.sql_type, SqlType::Bool | SqlType::Unknown) {
            let name = condition.sql_type.name();
            return invalid(format!("the condition {} is of type {name}, not boolean", text.condition));
        }
        let items = match text.columns {
            Some(columns) => parse_columns(columns)?,
            None => vec![SelectItem::Wildcard(sqlparser::ast::WildcardAdditionalOptions::default())],
        };
        let mut outputs = Vec::new();
        for item in &items {
            outputs.extend(outputs_of(item, &mut binder)?);
        }
        check_names(&outputs)?;
        if !outputs.iter().any(|(column, _)| column.kind == Kind::Time) {
            // A row that is made again is the same row.
            outputs.extend(column_at(&scope, 0).map(|time| (time, Bound::Column(0))));
        }
        Ok(Self { condition: condition.expression, outputs, environment })
    }

    /// Returns whether a row satisfies the condition.
    pub fn holds(&self, row: &[Value]) -> Result<bool, SqlError> {
        holds(&self.condition, row, &self.environment)
    }

    /// The columns that it makes.
    pub fn columns(&self) -> Vec<OutputColumn> {
        self.outputs.iter().map(|(column, _)| column.clone()).collect()
    }

    /// The values of those columns in a row.
    pub fn values(&self, row: &[Value]) -> Result<Vec<Value>, SqlError> {
        self.outputs.iter().map(|(_, output)| output.value(row, &self.environment)).collect()
    }
}

/// Refuses a condition that compares what has a type with a constant that is nothing of this type: it would fail for each row.
fn check_comparisons(condition: &Expr, binder: &mut Binder<'_>) -> Result<(), SqlError> {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            check_comparisons(left, binder)?;
            check_comparisons(right, binder)
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            let of = binder.bind(expr)?.sql_type;
            if !matches!(of, SqlType::Bool | SqlType::Unknown) {
                return invalid(format!(
                    "{condition} is of the type {}, not boolean: compare {expr} with a value",
                    of.name()
                ));
            }
            check_comparisons(expr, binder)
        }
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => check_comparisons(inner, binder),
        Expr::IsTrue(inner) | Expr::IsNotTrue(inner) | Expr::IsFalse(inner) | Expr::IsNotFalse(inner) => {
            check_comparisons(inner, binder)
        }
        Expr::Between { expr, low, high, .. } => {
            check_comparison(expr, low, binder)?;
            check_comparison(expr, high, binder)
        }
        Expr::BinaryOp { left, op, right } if is_comparison(op) => {
            check_comparison(left, right, binder)?;
            check_comparison(right, left, binder)
        }
        _ => Ok(()),
    }
}

const fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

fn check_comparison(compared: &Expr, with: &Expr, binder: &mut Binder<'_>) -> Result<(), SqlError> {
    let (compared_as, constant) = (binder.bind(compared)?, binder.bind(with)?);
    let Bound::Constant(value) = &constant.expression else { return Ok(()) };
    // A text is read as what it is compared with, so that it is no sample of its type; constants beside times are read when they are bound.
    let sample = match compared_as.sql_type {
        SqlType::Float => Value::Float(0.0),
        SqlType::Int | SqlType::Int4 => Value::Int(0),
        SqlType::Bool => Value::Bool(false),
        _ => return Ok(()),
    };
    if value.is_null() || compared_as.expression.is_constant() || sample.compare(value).is_some() {
        return Ok(());
    }
    let what = if compared_as.expression.column().is_some() { "the column" } else { "the expression" };
    invalid(format!(
        "{what} {compared} is of type {}, which {with} is not: compare it with a value of this type",
        compared_as.sql_type.name()
    ))
}

/// Adds a column that is null in every row, unless there is one of the name. One that is the name of something else is asked for by nothing.
fn add_missing(scope: &mut Scope, name: &Ident) {
    if scope.find(None, name).is_ok() {
        return;
    }
    scope.columns.push(ScopeColumn {
        qualifier: Some(QUALIFIER.to_owned()),
        name: name.value.clone(),
        sql_type: SqlType::Unknown,
        role: Role::Other,
        is_hidden: true,
        shown_at: 0,
        needs_table: false,
    });
}

fn outputs_of(item: &SelectItem, binder: &mut Binder<'_>) -> Result<Vec<(OutputColumn, Bound)>, SqlError> {
    match item {
        SelectItem::Wildcard(options) if options.to_string().is_empty() => {
            let output = |index| Some((column_at(binder.scope, index)?, Bound::Column(index)));
            Ok(binder.scope.star_columns().into_iter().filter_map(output).collect())
        }
        SelectItem::UnnamedExpr(expression) => {
            let bound = binder.bind(expression)?;
            let name = match expression {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                    bound.expression.column().and_then(|index| column_at(binder.scope, index)).map(|column| column.name)
                }
                _ => None,
            };
            let Some(name) = name else {
                return invalid(format!("the column {expression} needs a name: write {expression} AS name"));
            };
            Ok(vec![output(name, bound, binder.scope)])
        }
        SelectItem::ExprWithAlias { expr, alias } => {
            let bound = binder.bind(expr)?;
            Ok(vec![output(alias.value.clone(), bound, binder.scope)])
        }
        other => unsupported(format!("the column {other} of a trigger")),
    }
}

fn output(name: String, bound: Typed, scope: &Scope) -> (OutputColumn, Bound) {
    let source = bound.expression.column().and_then(|index| column_at(scope, index));
    let is_time = name.eq_ignore_ascii_case("time") || name.eq_ignore_ascii_case("timestamp");
    let is_source = source.as_ref().is_some_and(|source| source.name == name);
    let kind = match source.map(|source| source.kind) {
        _ if is_time => Kind::Time,
        Some(Kind::Time) if !is_source => Kind::New,
        Some(kind) => kind,
        None => Kind::New,
    };
    (OutputColumn { name, kind }, bound.expression)
}

fn column_at(scope: &Scope, index: usize) -> Option<OutputColumn> {
    let column = scope.columns.get(index)?;
    let kind = match column.role {
        Role::Time => Kind::Time,
        Role::Tag => Kind::Tag,
        Role::Field => Kind::Field(column.sql_type),
        Role::Other => Kind::New,
    };
    Some(OutputColumn { name: column.name.clone(), kind })
}

fn check_names(outputs: &[(OutputColumn, Bound)]) -> Result<(), SqlError> {
    let mut names: Vec<&str> = outputs.iter().map(|(column, _)| column.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => invalid(format!("the column {} is there twice: give one another name", pair[0])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use model::ValueType;

    use super::*;

    fn program(condition: &str, columns: Option<&str>) -> Result<RowProgram, SqlError> {
        with_missing(condition, columns, MissingColumns::Refused)
    }

    fn with_missing(condition: &str, columns: Option<&str>, missing: MissingColumns) -> Result<RowProgram, SqlError> {
        let schema = TableSchema {
            name: "cpu".to_owned(),
            tags: vec!["host".to_owned()],
            fields: vec![("usage".to_owned(), ValueType::F64), ("note".to_owned(), ValueType::String)],
            layout: None,
        };
        RowProgram::new(RowProgramText { condition, columns }, &schema, &ClientContext::new("default", 7), missing)
    }

    fn row(host: &str, usage: f64) -> Vec<Value> {
        vec![Value::Timestamp(5), Value::text(host), Value::Float(usage), Value::Null]
    }

    #[test]
    fn rows_are_chosen_and_made() {
        let hot = program("usage > 90 AND host <> 'b'", Some("host, usage / 2 AS half, new.note")).unwrap();
        let chosen = [("a", 95.0), ("a", 90.0), ("b", 95.0)].map(|(host, usage)| hot.holds(&row(host, usage)).unwrap());
        assert_eq!(chosen, [true, false, false]);
        assert_eq!(
            hot.values(&row("a", 95.0)).unwrap(),
            [Value::text("a"), Value::Float(47.5), Value::Null, Value::Timestamp(5)]
        );
        let kinds: Vec<Kind> = hot.columns().iter().map(|column| column.kind).collect();
        assert_eq!(kinds, [Kind::Tag, Kind::New, Kind::Field(SqlType::Text), Kind::Time]);
        let all = program("note IS NULL", None).unwrap();
        assert!(all.holds(&row("a", 0.0)).unwrap());
        assert_eq!(all.columns().len(), 4);
        for compared in [
            "usage > '90'",
            "usage BETWEEN '1' AND 2",
            "usage > NULL OR true",
            "note > 5 OR true",
            "time > 'yesterday'",
        ] {
            assert!(program(compared, None).is_ok(), "{compared}");
        }
        // A trigger that there is already goes on as it is.
        assert!(with_missing("usage > 'abc'", None, MissingColumns::Null).is_ok());
        assert!(!program("note = 'x'", None).unwrap().holds(&row("a", 0.0)).unwrap(), "null does not hold");
    }

    #[test]
    fn columns_that_a_table_does_not_have_yet_may_be_null() {
        let later = with_missing(
            "usage > 90 AND (Later IS NULL OR new.\"Other\" > upper('x'))",
            Some("*, later"),
            MissingColumns::Null,
        );
        let later = later.unwrap();
        assert!(later.holds(&row("a", 95.0)).unwrap());
        let expected = [Value::Timestamp(5), Value::text("a"), Value::Float(95.0), Value::Null, Value::Null];
        assert_eq!(later.values(&row("a", 95.0)).unwrap(), expected);
        assert!(!with_missing("later > 1", None, MissingColumns::Null).unwrap().holds(&row("a", 1.0)).unwrap());
    }

    #[test]
    fn programs_that_cannot_be_are_refused() {
        for (condition, columns, part) in [
            ("usage", None, "not boolean"),
            ("nothing > 1", None, "does not exist"),
            ("usage > (SELECT 1)", None, "one row"),
            ("avg(usage) > 1", None, "avg"),
            ("usage > 'abc'", None, "the column usage is of type double precision, which 'abc' is not"),
            (
                "host = 'a' AND (NOT 'abc' <= new.usage OR usage IS NULL)",
                None,
                "the column new.usage is of type double",
            ),
            ("usage BETWEEN 1 AND 'high'", None, "'high' is not"),
            ("(usage = true) IS TRUE", None, "which true is not"),
            ("usage * 2 < 'abc'", None, "the expression usage * 2 is of type double precision"),
            ("NOT usage OR host = 'a'", None, "NOT usage is of the type double precision, not boolean"),
            ("usage > 1", Some("usage * 2"), "needs a name"),
            ("usage > 1", Some("usage, host AS usage"), "twice"),
        ] {
            let made = program(condition, columns).map(|_| ());
            assert!(made.as_ref().is_err_and(|error| error.to_string().contains(part)), "{condition}: {made:?}");
        }
    }
}
