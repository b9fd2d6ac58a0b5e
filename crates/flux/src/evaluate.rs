//! Scripts: variables, calls, pipes, and what they yield.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use query::{Budget, Interval, QueryError, Session, Value};
use regex::Regex;

use crate::arguments::Arguments;
use crate::csv::{self, Dialect};
use crate::functions;
use crate::row::{RowExpr, RowFunction};
use crate::stream::Stream;
use crate::stream::source::Source;
use crate::stream::table::{Column, Key, Table};
use crate::syntax::ast::{Call, Expr, ExprKind, Function, Record, Statement, Unary};
use crate::syntax::{FluxError, Position, parse};

/// Functions that call functions.
const CALLS_MAX: usize = 32;
/// The name of a result that has none.
const RESULT: &str = "_result";
/// Values that an array or record may hold, those within others included.
const ITEMS_MAX: usize = 100_000;
/// Results of a script.
const RESULTS_MAX: usize = 100;

/// A script.
#[derive(Debug)]
pub struct Query {
    statements: Vec<Statement>,
}

/// What a script is run with.
#[derive(Debug, Clone, Default)]
pub struct RequestContext {
    /// The time of `now()`, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
    /// `params`: values by their names.
    pub parameters: BTreeMap<String, Value>,
}

/// The tables of each result.
#[derive(Debug)]
pub struct Results {
    results: Vec<(String, Arc<Vec<Table>>)>,
}

impl Query {
    /// Parses a script.
    pub fn parse(text: &str) -> Result<Self, FluxError> {
        Ok(Self { statements: parse::parse(text)? })
    }

    /// Runs it.
    pub fn run(&self, session: &dyn Session, context: &RequestContext) -> Result<Results, QueryError> {
        let parameters = context.parameters.iter().map(|(name, value)| (name.clone(), Item::Value(value.clone())));
        let variables = BTreeMap::from([("params".to_owned(), Item::Record(Arc::new(parameters.collect())))]);
        let mut machine = Machine { variables, ..Machine::new(session, context.now_ns) };
        for statement in &self.statements {
            session.budget().check()?;
            machine.statement(statement)?;
        }
        if machine.results.is_empty() {
            let message = "the script yields nothing: it has an expression such as from(…) |> range(…)".to_owned();
            return Err(QueryError::Invalid(message));
        }
        Ok(Results { results: machine.results })
    }
}

impl Results {
    /// As annotated CSV.
    pub fn csv(&self, dialect: &Dialect) -> String {
        let Ok(text) = csv::text(&self.results, dialect, |_| Ok::<(), Infallible>(()));
        text
    }

    /// As annotated CSV, whose bytes the budget of the query holds.
    pub fn csv_within(&self, dialect: &Dialect, budget: &Budget) -> Result<String, QueryError> {
        csv::text(&self.results, dialect, |bytes| {
            budget.check()?;
            budget.hold_bytes(bytes as u64)
        })
    }
}

/// A value of a script.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Value(Value),
    Duration(Interval),
    Pattern(Regex),
    Array(Arc<Vec<Self>>),
    Record(Arc<Vec<(String, Self)>>),
    Function(Arc<Function>),
    /// A function of the language by its name.
    Builtin(String),
    Stream(Stream),
}

impl Item {
    /// How many values it holds.
    fn size(&self) -> usize {
        match self {
            Self::Array(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Self::Record(members) => 1 + members.iter().map(|(_, item)| item.size()).sum::<usize>(),
            _ => 1,
        }
    }

    /// It, unless it holds too much.
    fn bounded(self, at: Position) -> Result<Self, FluxError> {
        if self.size() <= ITEMS_MAX {
            return Ok(self);
        }
        Err(FluxError::new(at, format!("an array or record holds at most {ITEMS_MAX} values")))
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Value(value) => match value {
                Value::Text(_) => "a string",
                Value::Bool(_) => "a bool",
                Value::Int(_) => "an int",
                Value::Unsigned(_) => "a uint",
                Value::Float(_) => "a float",
                Value::Timestamp(_) => "a time",
                _ => "null",
            },
            Self::Duration(_) => "a duration",
            Self::Pattern(_) => "a regular expression",
            Self::Array(_) => "an array",
            Self::Record(_) => "a record",
            Self::Function(_) | Self::Builtin(_) => "a function",
            Self::Stream(_) => "a stream of tables",
        }
    }
}

/// The record that a function of a row gives.
pub(crate) struct RowRecord {
    /// True if it has the columns of the row, too.
    pub(crate) is_with: bool,
    pub(crate) members: Vec<(Arc<str>, RowExpr)>,
}

/// A script while it runs.
pub(crate) struct Machine<'a> {
    pub(crate) session: &'a dyn Session,
    pub(crate) now_ns: i64,
    variables: BTreeMap<String, Item>,
    results: Vec<(String, Arc<Vec<Table>>)>,
    /// Calls of the script's own functions within one another.
    calls: usize,
}

/// Packages whose functions are known, in whole or in part.
const PACKAGES: [&str; 6] = ["math", "date", "timezone", "universe", "influxdata/influxdb", "influxdata/influxdb/v1"];

impl<'a> Machine<'a> {
    /// One that has run nothing.
    pub(crate) const fn new(session: &'a dyn Session, now_ns: i64) -> Self {
        Self { session, now_ns, variables: BTreeMap::new(), results: Vec::new(), calls: 0 }
    }
}

impl Machine<'_> {
    pub(crate) fn statement(&mut self, statement: &Statement) -> Result<(), QueryError> {
        match statement {
            Statement::Import(at, package) => {
                if PACKAGES.contains(&package.as_str()) {
                    return Ok(());
                }
                Err(FluxError::new(*at, format!("the package {package:?} is not supported: there is \"math\"")).into())
            }
            Statement::Assign(name, expression) => {
                let item = self.item(expression)?;
                if matches!(item, Item::Array(_) | Item::Record(_)) {
                    self.session.budget().take(item.size())?;
                }
                self.variables.insert(name.clone(), item);
                Ok(())
            }
            Statement::Expression(expression) => {
                let is_yield =
                    matches!(&expression.kind, ExprKind::Pipe(_, call) if called(call).as_deref() == Some("yield"));
                match self.item(expression)? {
                    Item::Stream(_) if is_yield => Ok(()),
                    Item::Stream(stream) => self.give(expression.at, RESULT, stream).map(drop),
                    // Of values nothing is shown.
                    _ => Ok(()),
                }
            }
        }
    }

    /// Adds a result.
    pub(crate) fn give(&mut self, at: Position, name: &str, stream: Stream) -> Result<Stream, QueryError> {
        if self.results.len() >= RESULTS_MAX {
            return Err(FluxError::new(at, format!("a script has at most {RESULTS_MAX} results")).into());
        }
        if self.results.iter().any(|(known, _)| known == name) {
            let message =
                format!("tried to produce more than one result with the name {name:?}: name them by yield(name: …)");
            return Err(FluxError::new(at, message).into());
        }
        let range = stream.range();
        let tables = Arc::new(stream.tables(self.session)?);
        self.results.push((name.to_owned(), tables.clone()));
        Ok(Stream::shared(tables, range))
    }

    pub(crate) fn item(&mut self, expression: &Expr) -> Result<Item, QueryError> {
        let at = expression.at;
        Ok(match &expression.kind {
            ExprKind::Text(text) => Item::Value(Value::text(text.as_str())),
            ExprKind::Integer(value) => Item::Value(Value::Int(*value)),
            ExprKind::Float(value) => Item::Value(Value::Float(*value)),
            ExprKind::Bool(value) => Item::Value(Value::Bool(*value)),
            ExprKind::Time(ns) => Item::Value(Value::Timestamp(*ns)),
            ExprKind::Duration(duration) => Item::Duration(*duration),
            ExprKind::Pattern(pattern) => Item::Pattern(pattern.clone()),
            ExprKind::Function(function) => Item::Function(function.clone()),
            ExprKind::Name(name) => self.named(at, name)?,
            ExprKind::Array(items) => {
                let mut held = Vec::with_capacity(items.len());
                for item in items {
                    held.push(self.item(item)?);
                }
                Item::Array(Arc::new(held)).bounded(at)?
            }
            ExprKind::Record(record) => self.record(record)?.bounded(at)?,
            ExprKind::Member(object, name) => self.member(at, object, name)?,
            ExprKind::Index(array, index) => self.indexed(array, index)?,
            ExprKind::Call(call) => self.call(call, None)?,
            ExprKind::Pipe(from, call) => {
                let piped = self.item(from)?;
                let Item::Stream(stream) = piped else {
                    let message = format!("only streams of tables are piped, not {}", piped.kind());
                    return Err(FluxError::new(from.at, message).into());
                };
                self.call(call, Some(stream))?
            }
            ExprKind::Unary(Unary::Negate, operand) => match self.item(operand)? {
                Item::Duration(duration) => match duration.checked_neg() {
                    Some(negative) => Item::Duration(negative),
                    None => return Err(FluxError::new(at, "the duration is too long").into()),
                },
                _ => Item::Value(self.computed(expression)?),
            },
            _ => Item::Value(self.computed(expression)?),
        })
    }

    fn named(&self, at: Position, name: &str) -> Result<Item, FluxError> {
        if let Some(item) = self.variables.get(name) {
            return Ok(item.clone());
        }
        if functions::NAMES.contains(&name) {
            return Ok(Item::Builtin(name.to_owned()));
        }
        Err(FluxError::new(at, format!("undefined identifier {name}")))
    }

    /// A value of an expression that is of no row.
    fn computed(&mut self, expression: &Expr) -> Result<Value, QueryError> {
        let compiled = self.compile(expression, "")?;
        Ok(compiled.value(&|_| Value::Null)?)
    }

    fn record(&mut self, record: &Record) -> Result<Item, QueryError> {
        let mut members = match &record.with {
            None => Vec::new(),
            Some(with) => match self.item(with)? {
                Item::Record(members) => Arc::unwrap_or_clone(members),
                other => {
                    return Err(FluxError::new(with.at, format!("with takes a record, not {}", other.kind())).into());
                }
            },
        };
        for (name, value) in &record.members {
            self.session.budget().check()?;
            let value = self.item(value)?;
            members.retain(|(known, _)| known != name);
            members.push((name.clone(), value));
        }
        Ok(Item::Record(Arc::new(members)))
    }

    fn member(&mut self, at: Position, object: &Expr, name: &str) -> Result<Item, QueryError> {
        match self.item(object)? {
            Item::Record(members) => match members.iter().find(|(known, _)| known == name) {
                Some((_, item)) => Ok(item.clone()),
                None => Err(FluxError::new(at, format!("the record has no {name}")).into()),
            },
            other => Err(FluxError::new(at, format!("{} has no member {name}", other.kind())).into()),
        }
    }

    fn indexed(&mut self, array: &Expr, index: &Expr) -> Result<Item, QueryError> {
        let (items, index_item) = (self.item(array)?, self.item(index)?);
        let (Item::Array(items), Item::Value(Value::Int(place))) = (items, index_item) else {
            return Err(FluxError::new(index.at, "an array has items by ints: array[0]").into());
        };
        let item = usize::try_from(place).ok().and_then(|place| items.get(place).cloned());
        item.ok_or_else(|| FluxError::new(index.at, format!("the array has no item {place}")).into())
    }

    pub(crate) fn arguments(&mut self, call: &Call) -> Result<Vec<(String, Item)>, QueryError> {
        call.arguments.iter().map(|(name, value)| Ok((name.clone(), self.item(value)?))).collect()
    }

    fn call(&mut self, call: &Call, piped: Option<Stream>) -> Result<Item, QueryError> {
        let Some(name) = called(call) else {
            return Err(FluxError::new(call.at, "a function is called by its name").into());
        };
        if let Some(Item::Function(function)) = self.variables.get(&name).cloned() {
            let arguments = self.arguments(call)?;
            return self.call_own(&function, arguments, piped);
        }
        let values = self.arguments(call)?;
        let mut arguments = Arguments::new(&name, call.at, values);
        match piped {
            Some(stream) => functions::apply(self, stream, arguments).map(Item::Stream),
            None => match arguments.take("tables") {
                Some(Item::Stream(stream)) => functions::apply(self, stream, arguments).map(Item::Stream),
                Some(Item::Array(streams)) if name == "union" => {
                    self.union(Arc::unwrap_or_clone(streams), &arguments).map(Item::Stream)
                }
                _ => self.start(&name, arguments),
            },
        }
    }

    /// Calls a function that is an argument, such as `fn` of `aggregateWindow`.
    pub(crate) fn call_with(
        &mut self,
        function: &Item,
        stream: Stream,
        arguments: Vec<(String, Item)>,
        at: Position,
    ) -> Result<Stream, QueryError> {
        let item = match function {
            Item::Builtin(name) => {
                let arguments = Arguments::new(name, at, arguments);
                return functions::apply(self, stream, arguments);
            }
            Item::Function(function) => self.call_own(function, arguments, Some(stream))?,
            other => return Err(FluxError::new(at, format!("fn is a function, not {}", other.kind())).into()),
        };
        match item {
            Item::Stream(stream) => Ok(stream),
            other => Err(FluxError::new(at, format!("fn gives a stream of tables, not {}", other.kind())).into()),
        }
    }

    /// Calls a function of the script.
    fn call_own(
        &mut self,
        function: &Function,
        arguments: Vec<(String, Item)>,
        piped: Option<Stream>,
    ) -> Result<Item, QueryError> {
        self.session.budget().check()?;
        self.calls += 1;
        if self.calls > CALLS_MAX {
            let message = format!("more than {CALLS_MAX} functions call one another");
            return Err(FluxError::new(function.at, message).into());
        }
        let mut bound: Vec<(String, Item)> = Vec::new();
        let mut given = arguments;
        for (name, default) in &function.parameters {
            let index = given.iter().position(|(known, _)| known == name);
            let item = match (index, default) {
                (Some(index), _) => given.remove(index).1,
                (None, Some(default)) => self.item(default)?,
                (None, None) => {
                    return Err(FluxError::new(function.at, format!("the argument {name} is missing")).into());
                }
            };
            bound.push((name.clone(), item));
        }
        if let (Some(name), Some(stream)) = (&function.piped, piped) {
            bound.push((name.clone(), Item::Stream(stream)));
        }
        let outer = self.variables.clone();
        self.variables.extend(bound);
        let result = self.item(&function.body);
        self.variables = outer;
        self.calls -= 1;
        result
    }

    /// Functions that are not piped to.
    fn start(&mut self, name: &str, mut arguments: Arguments) -> Result<Item, QueryError> {
        match name {
            "from" => {
                let bucket = arguments.text("bucket")?;
                let bucket = arguments.required("bucket", bucket)?;
                arguments.finish()?;
                // `database/policy`, as InfluxDB 1.8 has it.
                let database = bucket.split_once('/').map_or(bucket.as_str(), |(database, _)| database).to_owned();
                Ok(Item::Stream(Stream::Source(Source {
                    at: arguments.at,
                    database,
                    range: None,
                    filters: Vec::new(),
                    group_key: None,
                })))
            }
            "buckets" => {
                arguments.finish()?;
                let rows = self.session.databases().into_iter().map(|name| vec![Value::text(name)]).collect();
                let columns = vec![Column::new("name", "string")];
                Ok(Item::Stream(Stream::in_memory(vec![Table { key: Key::new(), columns, rows }], None)))
            }
            "now" => {
                arguments.finish()?;
                Ok(Item::Value(Value::Timestamp(self.now_ns)))
            }
            "duration" => match arguments.take("v") {
                Some(Item::Duration(duration)) => Ok(Item::Duration(duration)),
                Some(Item::Value(Value::Int(ns))) => Ok(Item::Duration(Interval::of_ns(ns))),
                _ => Ok(arguments.error("v is a duration or an int of nanoseconds")?),
            },
            _ => match RowFunction::find(name) {
                Some((function, argument)) => {
                    let value = match arguments.take(argument) {
                        Some(Item::Value(value)) => function.apply(&value),
                        Some(Item::Duration(duration)) if function == RowFunction::Int => Some(Value::Int(duration.ns)),
                        _ => None,
                    };
                    arguments.finish()?;
                    match value {
                        Some(value) => Ok(Item::Value(value)),
                        None => Ok(arguments.error(format_args!("{argument} cannot be converted"))?),
                    }
                }
                None if functions::NAMES.contains(&name) => Ok(arguments.error("tables are piped to it by |>")?),
                None => Err(functions::not_supported(name, arguments.at).into()),
            },
        }
    }

    fn union(&mut self, streams: Vec<Item>, arguments: &Arguments) -> Result<Stream, QueryError> {
        arguments.finish()?;
        let stream = |item| match item {
            Item::Stream(stream) => Ok(stream),
            other => arguments.error(format_args!("tables are streams, not {}", other.kind())),
        };
        Stream::union(self.session, streams.into_iter().map(stream).collect::<Result<_, _>>()?)
    }

    /// The body of a function of a row.
    pub(crate) fn row_function(&mut self, function: &Function) -> Result<RowExpr, QueryError> {
        let row = row_name(function)?;
        self.compile(&function.body, &row)
    }

    /// The members of the record that a function of a row gives, and whether they are added to those of the row.
    pub(crate) fn row_record(&mut self, function: &Function) -> Result<RowRecord, QueryError> {
        let row = row_name(function)?;
        let ExprKind::Record(record) = &function.body.kind else {
            let message = "the function of map gives a record: (r) => ({r with _value: …})";
            return Err(FluxError::new(function.body.at, message).into());
        };
        let is_with = match &record.with {
            None => false,
            Some(with) if matches!(&with.kind, ExprKind::Name(name) if *name == row) => true,
            Some(with) => return Err(FluxError::new(with.at, format!("with takes the row {row} here")).into()),
        };
        let mut members = Vec::with_capacity(record.members.len());
        for (name, value) in &record.members {
            members.push((name.as_str().into(), self.compile(value, &row)?));
        }
        Ok(RowRecord { is_with, members })
    }

    /// An expression over the columns of a row of this name.
    fn compile(&mut self, expression: &Expr, row: &str) -> Result<RowExpr, QueryError> {
        let at = expression.at;
        Ok(match &expression.kind {
            ExprKind::Name(name) if name == row => {
                return Err(FluxError::new(at, format!("a column of the row is expected, such as {row}._value")).into());
            }
            ExprKind::Member(object, column) if matches!(&object.kind, ExprKind::Name(name) if name == row) => {
                RowExpr::Column(column.as_str().into())
            }
            ExprKind::Unary(operator, operand) => RowExpr::Unary(at, *operator, Box::new(self.compile(operand, row)?)),
            ExprKind::Binary(operator, operands) => {
                let [a, b] = &**operands;
                RowExpr::Binary(at, *operator, Box::new([self.compile(a, row)?, self.compile(b, row)?]))
            }
            ExprKind::Conditional(parts) => {
                let [test, then, otherwise] = &**parts;
                let parts = [self.compile(test, row)?, self.compile(then, row)?, self.compile(otherwise, row)?];
                RowExpr::Conditional(Box::new(parts))
            }
            ExprKind::Call(call) => self.compile_call(call, row)?,
            _ => match self.item(expression)? {
                Item::Value(value) => RowExpr::Constant(value),
                Item::Pattern(pattern) => RowExpr::Pattern(pattern),
                other => return Err(FluxError::new(at, format!("a value is expected, not {}", other.kind())).into()),
            },
        })
    }

    /// The nanoseconds of a duration that is of no row, such as `task.every`; `None` if an expression is something else, or of months.
    fn length_ns(&mut self, expression: &Expr, row: &str) -> Result<Option<i64>, QueryError> {
        let is_of_row = |name: &Expr| matches!(&name.kind, ExprKind::Name(name) if name == row);
        let is_plain = match &expression.kind {
            ExprKind::Duration(_) => true,
            ExprKind::Name(_) => !is_of_row(expression),
            ExprKind::Member(object, _) => !is_of_row(object),
            _ => false,
        };
        Ok(match is_plain.then(|| self.item(expression)).transpose()? {
            Some(Item::Duration(duration)) if duration.months == 0 => Some(duration.with_even_days().ns),
            _ => None,
        })
    }

    fn compile_call(&mut self, call: &Call, row: &str) -> Result<RowExpr, QueryError> {
        let name = called(call).unwrap_or_default();
        let argument = |wanted: &str| call.arguments.iter().find(|(known, _)| known == wanted).map(|(_, value)| value);
        if let (Some((function, wanted)), 1) = (RowFunction::find(&name), call.arguments.len())
            && let Some(value) = argument(wanted)
        {
            if let (RowFunction::Int, Some(ns)) = (function, self.length_ns(value, row)?) {
                return Ok(RowExpr::Constant(Value::Int(ns)));
            }
            return Ok(RowExpr::Call(call.at, function, Box::new(self.compile(value, row)?)));
        }
        if let ("contains", Some(value), Some(set)) = (name.as_str(), argument("value"), argument("set")) {
            let operand = self.compile(value, row)?;
            let Item::Array(items) = self.item(set)? else {
                return Err(FluxError::new(set.at, "set is an array").into());
            };
            let value = |item: &Item| match item {
                Item::Value(value) => Ok(value.clone()),
                other => Err(FluxError::new(set.at, format!("set holds values, not {}", other.kind()))),
            };
            let values: Vec<Value> = items.iter().map(value).collect::<Result<_, _>>()?;
            return Ok(RowExpr::In(Box::new(operand), values.into()));
        }
        match self.call(call, None)? {
            Item::Value(value) => Ok(RowExpr::Constant(value)),
            other => Err(FluxError::new(call.at, format!("a value is expected, not {}", other.kind())).into()),
        }
    }
}

/// The name of a call's function: `mean`, `math.abs`.
pub(crate) fn called(call: &Call) -> Option<String> {
    match &call.callee.kind {
        ExprKind::Name(name) => Some(name.clone()),
        ExprKind::Member(package, name) => match &package.kind {
            ExprKind::Name(package) => Some(format!("{package}.{name}")),
            _ => None,
        },
        _ => None,
    }
}

/// The name that a function has for a row.
fn row_name(function: &Function) -> Result<String, FluxError> {
    match function.parameters.as_slice() {
        [(name, None)] => Ok(name.clone()),
        _ => Err(FluxError::new(function.at, "the function takes a row: (r) => …")),
    }
}
