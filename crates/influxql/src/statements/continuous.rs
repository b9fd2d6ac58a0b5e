//! Continuous queries: views whose windows are rows of measurements like any other, a view for each measurement that a query reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::TimeRange;
use query::plan::{Expression, Grouping, Operator as PlanOperator};
use query::time::CalendarBins;
use query::views::{Dialect, RefreshPolicy, View, ViewDefinition, ViewOptions, ViewOutput, WindowWidth};
use query::{Plan, QueryError, Session, Value};

use crate::resolve::names::Schema;
use crate::resolve::selection::{Argument, Call, Code, From, Resolved};
use crate::resolve::{self, Outer};
use crate::select::plan_aggregates::{self, BinRange};
use crate::select::plan_calls::PlanCall;
use crate::statements::pattern_query::PatternQuery;
use crate::statements::request::existing;
use crate::syntax::ast::{
    ContinuousQuery, Dimension, Expr, Fill, Measurement, Named, Operator, Select, Source, Statement, Target,
};
use crate::syntax::{duration, parse};
use crate::value::DataType;

/// The functions that views have, as errors name them.
const FUNCTIONS: &str = "count, sum, mean, median, mode, percentile, stddev, spread, integral, min, max, count(distinct()), \
                         approx_percentile, approx_count_distinct, and first and last where series stay apart";

/// `CREATE CONTINUOUS QUERY`
pub(super) fn create(session: &dyn Session, query: &ContinuousQuery) -> Result<(), QueryError> {
    let database = &query.database;
    existing(&session.databases(), database)?;
    let known = views_of(session, database, &query.name)?;
    let statement = query.to_string();
    if known.iter().any(|view| view.definition.statement != statement) {
        return Err(QueryError::Invalid(format!("continuous query already exists: {}", query.name)));
    }
    if !matches!(query.select.fill, None | Some(Fill::Null | Fill::None)) {
        return Err(QueryError::Invalid(format!(
            "continuous query {}: it writes the windows that have rows, so that it fills none: leave fill() out, and fill where its rows are read",
            query.name
        )));
    }
    // As InfluxDB: the same one again is no error, whatever became of what it reads. Measurements and fields that came since are taken in.
    match PatternQuery::new(query).filter(|_| !known.is_empty()) {
        Some(pattern) => pattern.extend_all(session, &known),
        None if !known.is_empty() => Ok(()),
        None => session.create_views(definitions(session, query)?).map_err(|error| with_hint(query, error)),
    }
}

/// Says of an error of one of several measurements how the others can be read.
fn with_hint(query: &ContinuousQuery, error: QueryError) -> QueryError {
    match error {
        QueryError::Invalid(message) if !is_of_one(query) => QueryError::Invalid(format!(
            "{message}; to leave a measurement out, name the others, as in FROM cpu, mem, or have a pattern that is not that of its name, as in FROM /^(cpu|mem)/"
        )),
        other => other,
    }
}

/// Returns whether it names one measurement.
pub(super) fn is_of_one(query: &ContinuousQuery) -> bool {
    matches!(query.select.sources.as_slice(), [Source::Measurement(Measurement { name: Named::Exactly(_), .. })])
}

/// `DROP CONTINUOUS QUERY`
pub(super) fn remove(session: &dyn Session, database: &str, name: &str) -> Result<(), QueryError> {
    existing(&session.databases(), database)?;
    let mut views = views_of(session, database, name)?;
    if views.is_empty() {
        return Err(QueryError::Invalid(format!("continuous query not found: {name}")));
    }
    // A measurement may be taken in meanwhile, until none of its views is left.
    while !views.is_empty() {
        views.iter().try_for_each(|view| session.drop_view(database, &view.definition.name).map(drop))?;
        views = views_of(session, database, name)?;
    }
    Ok(())
}

/// The views of a continuous query.
fn views_of(session: &dyn Session, database: &str, name: &str) -> Result<Vec<Arc<View>>, QueryError> {
    let mut views = session.views(database)?;
    views.retain(|view| {
        let definition = &view.definition;
        // The beginning first: statements are only parsed of what may be one.
        definition.dialect == Dialect::InfluxQl && definition.name.starts_with(name) && name_of(definition) == name
    });
    Ok(views)
}

/// The name of the continuous query that a view is, or is one of the views of.
pub(super) fn name_of(definition: &ViewDefinition) -> String {
    match parse(&definition.statement, &BTreeMap::new()).as_deref() {
        Ok([Statement::CreateContinuousQuery(query)]) => query.name.clone(),
        _ => definition.name.clone(),
    }
}

/// The views that a continuous query is: one, or one for each measurement that there is of those that it names.
fn definitions(session: &dyn Session, query: &ContinuousQuery) -> Result<Vec<ViewDefinition>, QueryError> {
    let invalid = |message: &str| QueryError::Invalid(format!("continuous query {}: {message}", query.name));
    let target = target_of(query)?;
    let names = sources(session, query)?;
    let into = target_database(session, &query.database, target)?;
    if is_of_one(query) {
        let name = names.first().map_or("", String::as_str);
        let part = Part { query, target, into, source: name, is_only: true };
        let definition = part.definition(session)?.ok_or_else(|| {
            invalid(&format!(
                "the measurement {name:?} has no rows with these fields yet: make it after the first ones"
            ))
        })?;
        return Ok(vec![definition]);
    }
    let mut definitions = Vec::with_capacity(names.len());
    for source in &names {
        let part = Part { query, target, into: into.clone(), source, is_only: false };
        definitions.extend(part.definition(session).map_err(|error| with_hint(query, error))?);
    }
    if definitions.len() > 1 && target.measurement.is_some() {
        return Err(invalid(OF_SEVERAL));
    }
    if definitions.is_empty() {
        return Err(invalid("none of its measurements has rows with these fields yet: make it after the first ones"));
    }
    Ok(definitions)
}

/// Why several measurements are not written into one.
pub(super) const OF_SEVERAL: &str = "rows of several measurements would replace one another in one: INTO \"database\".\"policy\".:MEASUREMENT \
                                     writes each into one of its own name";

/// What a continuous query writes into.
pub(super) fn target_of(query: &ContinuousQuery) -> Result<&Target, QueryError> {
    let missing = || QueryError::Invalid(format!("continuous query {}: it must have INTO", query.name));
    query.select.into.as_ref().ok_or_else(missing)
}

/// The names of the measurements that a continuous query reads, sorted: of patterns those that there are.
pub(super) fn sources(session: &dyn Session, query: &ContinuousQuery) -> Result<Vec<String>, QueryError> {
    let invalid = |message: &str| QueryError::Invalid(format!("continuous query {}: {message}", query.name));
    let of_another = |measurement: &Measurement| {
        measurement.database.as_deref().is_some_and(|database| !database.is_empty() && *database != query.database)
    };
    let mut names = Vec::new();
    for source in &query.select.sources {
        let Source::Measurement(source) = source else {
            return Err(invalid("it reads measurements, no subquery"));
        };
        if of_another(source) {
            return Err(invalid("it reads its own database"));
        }
        let mut found = resolve::tables(session, &query.database, source)?;
        if matches!(source.name, Named::Pattern(_)) {
            // Views are kept right by their own statements.
            let views = session.views(&query.database)?;
            let targets: BTreeSet<&str> = views
                .iter()
                .filter(|view| view.definition.is_exposed())
                .map(|view| view.definition.target.as_str())
                .collect();
            found.retain(|name| !targets.contains(name.as_str()));
        }
        names.extend(found);
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// A continuous query of one measurement.
pub(super) struct Part<'a> {
    pub(super) query: &'a ContinuousQuery,
    pub(super) target: &'a Target,
    /// The database that it writes into, if that is another one.
    pub(super) into: Option<String>,
    pub(super) source: &'a str,
    /// True if the query names no other.
    pub(super) is_only: bool,
}

impl Part<'_> {
    /// The name of its view.
    pub(super) fn view_name(&self) -> String {
        let Self { query, source, is_only, .. } = self;
        if *is_only { query.name.clone() } else { format!("{}:{source}", query.name) }
    }

    fn invalid(&self, message: &str) -> QueryError {
        let of = if self.is_only { String::new() } else { format!(" of {:?}", self.source) };
        QueryError::Invalid(format!("continuous query {}{of}: {message}", self.query.name))
    }

    /// Its view; `None` if the measurement has none of its fields.
    pub(super) fn definition(&self, session: &dyn Session) -> Result<Option<ViewDefinition>, QueryError> {
        let Self { query, target, into, source, is_only } = self;
        if target.measurement.is_none() && into.is_none() {
            let message = "INTO :MEASUREMENT would write into what it reads: name another database, as in INTO \
                           \"a_year\".\"autogen\".:MEASUREMENT";
            return Err(self.invalid(message));
        }
        let select = &*query.select;
        // What it says of the time is ignored, as in InfluxDB; nothing is filled.
        let from = Measurement { database: None, policy: None, name: Named::Exactly((*source).to_owned()) };
        let wanted = Select { into: None, fill: None, sources: vec![Source::Measurement(from)], ..select.clone() };
        let mut resolved = resolve::resolve(session, &wanted, &Outer::statement(&query.database))?;
        let Some(windows) = resolved.windows.clone() else {
            return Err(self.invalid("it must have GROUP BY time(…)"));
        };
        if let Some(name) = unknown_name(select, &resolved) {
            // Of a name that is neither it is not known whether it becomes a tag or a field.
            let message = format!(
                "the measurement {source:?} has no tag and no field {name:?}, which WHERE names: make it after the first row with it"
            );
            return if *is_only { Err(self.invalid(&message)) } else { Ok(None) };
        }
        self.add_missing_fields(&mut resolved)?;
        if resolved.columns.len() > select.fields.len() {
            leave_out_untaken(&mut resolved);
        }
        if resolved.columns.is_empty() {
            return Ok(None);
        }
        let plans = plan_aggregates::plans_of_ranges(session, &resolved, &[range_of_plan(&windows, resolved.range)])?;
        let plan = match plans.as_deref() {
            Some([(_, _, plan)]) => plan.clone(),
            Some(_) => return Ok(None),
            None => return Err(self.invalid(&format!("it has {FUNCTIONS}, of the fields of measurements"))),
        };
        let zone = windows.zone_name().ok_or_else(|| self.invalid("its zone has no name"))?;
        let plan = if select.dimensions.contains(&Dimension::Wildcard) { by_all_tags(plan) } else { plan };
        check_for(query, windows.width().ns)?;
        self.check_integral(&resolved, windows.width().ns)?;
        let columns = columns(&resolved, &|message| self.invalid(message))?;
        let fields = columns.iter().map(|(name, _, value_type)| (name.clone(), *value_type)).collect();
        let columns = columns.into_iter().map(|(name, of, _)| (name, of)).collect();
        let refresh = query.every_ns.map_or(RefreshPolicy::Immediate, RefreshPolicy::Every);
        Ok(Some(ViewDefinition {
            name: self.view_name(),
            database: query.database.clone(),
            target: target.measurement.clone().unwrap_or_else(|| (*source).to_owned()),
            time_name: "time".to_owned(),
            output: ViewOutput { database: into.clone(), ..ViewOutput::default() },
            plan: Plan::Map { input: Box::new(of_all_times(plan)), columns },
            windows: WindowWidth { width: windows.width(), origin_ns: windows.origin_ns(), zone },
            fields,
            options: ViewOptions { refresh, lag_ns: Some(0), ..ViewOptions::default() },
            maker: String::new(),
            statement: query.to_string(),
            dialect: Dialect::InfluxQl,
            task: None,
        }))
    }

    /// Refuses `integral` where InfluxDB computes several windows at once: there its line goes on from one to the next.
    fn check_integral(&self, resolved: &Resolved, width_ns: i64) -> Result<(), QueryError> {
        let at_once_ns = self.query.for_ns.max(self.query.every_ns).unwrap_or(width_ns);
        if at_once_ns <= width_ns || resolved.calls.iter().all(|call| call.function != "integral") {
            return Ok(());
        }
        let message = "with RESAMPLE over several windows the line of integral() goes on from one to the next in InfluxDB, and here it is of the rows of a \
                       window alone: leave RESAMPLE out, late rows are counted without it";
        Err(self.invalid(message))
    }

    /// Adds the fields that the measurement does not have yet, and may get later. Of one of several measurements columns of such fields are left out.
    fn add_missing_fields(&self, resolved: &mut Resolved) -> Result<(), QueryError> {
        let missing: Vec<Option<String>> = resolved.calls.iter().map(missing_field).collect();
        if !self.is_only {
            let has_all = |code: &Code| each_call(code).iter().all(|call| matches!(missing.get(*call), Some(None)));
            resolved.columns.retain(|column| has_all(&column.code));
            return Ok(());
        }
        if resolved.sources.is_empty() {
            self.check_without_rows(resolved)?;
            let (database, name) = (self.query.database.clone(), self.source.into());
            resolved.sources.push(From::Table { database, name, schema: Schema::default() });
        }
        let Some(From::Table { schema, .. }) = resolved.sources.first_mut() else { return Ok(()) };
        for (call, field) in resolved.calls.iter().zip(missing) {
            let Some(field) = field else { continue };
            if schema.tags.contains(&field) {
                return Err(self.invalid(&format!("{field:?} is a tag of {:?}: functions take fields", self.source)));
            }
            if PlanCall::new(call).is_some_and(|call| !call.is_of_one_type()) {
                let message = format!(
                    "the measurement {:?} has no field {field:?} yet, whose type is that of {}(): make it after the first row with it",
                    self.source, call.function
                );
                return Err(self.invalid(&message));
            }
            // The aggregates tell its type when windows are computed.
            schema.add_field(&field, DataType::Float);
        }
        Ok(())
    }

    /// Refuses what depends on the tags and fields of a measurement that has no rows.
    fn check_without_rows(&self, resolved: &Resolved) -> Result<(), QueryError> {
        let has_pattern = self.query.select.dimensions.iter().any(|by| matches!(by, Dimension::Pattern(_)));
        if resolved.condition.is_none() && !has_pattern && !resolved.columns.is_empty() {
            return Ok(());
        }
        Err(self.invalid(&format!(
            "the measurement {:?} has no rows yet, so that it is not known which tags and fields WHERE, patterns and * are of: make it after the first one",
            self.source
        )))
    }
}

/// A name in the condition that the measurement has neither as a tag nor as a field, if it has rows.
fn unknown_name(select: &Select, resolved: &Resolved) -> Option<String> {
    fn names(expr: &Expr) -> Vec<&str> {
        match expr {
            Expr::Reference { name, .. } => vec![name],
            other => other.children().into_iter().flat_map(names).collect(),
        }
    }
    let Some(From::Table { schema, .. }) = resolved.sources.first() else { return None };
    let is_known = |name: &str| name == "time" || schema.tags.contains(name) || schema.fields.contains_key(name);
    let named = select.condition.as_ref().map(names).unwrap_or_default();
    named.into_iter().find(|name| !is_known(name)).map(str::to_owned)
}

/// Leaves out the columns of calls that a view cannot have, where they stand for `*` or a pattern: such as sketches.
fn leave_out_untaken(resolved: &mut Resolved) {
    // Of these columns the names end in those of fields.
    let untaken = |call: &Call| match &call.argument {
        Argument::Reference(reference) => {
            let is_taken = PlanCall::new(call).is_some_and(|of| of.takes(reference.data_type));
            (!is_taken).then(|| format!("_{}", reference.name))
        }
        Argument::Call(_) => None,
    };
    let untaken: Vec<Option<String>> = resolved.calls.iter().map(untaken).collect();
    resolved.columns.retain(|column| {
        let calls = each_call(&column.code);
        let mut endings = calls.iter().filter_map(|call| untaken.get(*call)?.as_deref());
        !endings.any(|ending| column.name.ends_with(ending))
    });
    // Calls have numbers: one that no column has any more is another one again.
    let Some(taken) = untaken.iter().position(Option::is_none).and_then(|at| resolved.calls.get(at)).cloned() else {
        return;
    };
    let is_used = |at: usize| resolved.columns.iter().any(|column| each_call(&column.code).contains(&at));
    let unused: Vec<usize> = (0..untaken.len()).filter(|at| !is_used(*at)).collect();
    for at in unused {
        resolved.calls.get_mut(at).into_iter().for_each(|call| call.clone_from(&taken));
    }
}

/// The field of a call that its measurement does not have.
fn missing_field(call: &Call) -> Option<String> {
    match &call.argument {
        Argument::Reference(reference) => (reference.data_type >= DataType::Tag).then(|| reference.name.clone()),
        Argument::Call(inner) => missing_field(inner),
    }
}

/// The calls in an expression, by their numbers.
fn each_call(code: &Code) -> Vec<usize> {
    match code {
        Code::Call(number) => vec![*number],
        Code::Binary(_, left, right) => [each_call(left), each_call(right)].concat(),
        Code::Math(_, operands) | Code::All(operands) | Code::Any(operands) => {
            operands.iter().flat_map(each_call).collect()
        }
        Code::Matches(of, ..) => each_call(of),
        Code::Value(_) | Code::Reference(_) => Vec::new(),
    }
}

/// All of a range with bins as the plan of a view has them: where windows differ in length those of the view take their place.
fn range_of_plan(windows: &CalendarBins, range: TimeRange) -> BinRange {
    let about = || (i64::try_from(windows.width().approximate_ns()).unwrap_or(i64::MAX), 0);
    BinRange { bins: Some(windows.equal_bins().unwrap_or_else(about)), range }
}

/// Refuses a `FOR` that is shorter than what is computed at once.
fn check_for(query: &ContinuousQuery, width_ns: i64) -> Result<(), QueryError> {
    let least_ns = width_ns.max(query.every_ns.unwrap_or(0));
    match query.for_ns.filter(|for_ns| *for_ns < least_ns) {
        None => Ok(()),
        Some(for_ns) => Err(QueryError::Invalid(format!(
            "FOR duration must be >= GROUP BY time duration: must be a minimum of {} got {}",
            duration::text(least_ns),
            duration::text(for_ns)
        ))),
    }
}

/// The database that a query of one writes into, if it is another one. A retention policy is a database here, but for the one that every
/// database has; beside another database's name it says nothing.
pub(super) fn target_database(session: &dyn Session, own: &str, target: &Target) -> Result<Option<String>, QueryError> {
    let is_default = |policy: &str| ["", "autogen", "default"].contains(&policy);
    let policy = target.policy.as_deref().filter(|policy| !is_default(policy));
    let named = target.database.as_deref().filter(|database| *database != own && !database.is_empty());
    let Some(into) = named.or(policy).filter(|into| *into != own) else { return Ok(None) };
    if session.databases().iter().any(|database| database == into) {
        return Ok(Some(into.to_owned()));
    }
    Err(QueryError::Invalid(match named {
        Some(database) => format!("database not found: {database}"),
        None => format!(
            "retention policy not found: {into}: make a database of this name that keeps its rows as long as the policy should, and INTO \
             {into:?} writes there"
        ),
    }))
}

/// A plan whose rows are grouped by all tags that there are whenever it is computed.
fn by_all_tags(plan: Plan) -> Plan {
    match plan {
        Plan::GroupBy { input, grouping } => Plan::GroupBy { input, grouping: Grouping { by: None, ..grouping } },
        other => other,
    }
}

/// The columns of the answer by the plan's, and their types.
fn columns(
    resolved: &Resolved,
    invalid: &dyn Fn(&str) -> QueryError,
) -> Result<Vec<(String, Expression, model::ValueType)>, QueryError> {
    let mut columns = Vec::with_capacity(resolved.columns.len());
    for column in &resolved.columns {
        let value_type = match column.data_type {
            DataType::Float => model::ValueType::F64,
            DataType::Integer => model::ValueType::I64,
            DataType::Unsigned => model::ValueType::U64,
            DataType::Boolean => model::ValueType::Bool,
            _ => model::ValueType::String,
        };
        let is_call = matches!(column.code, Code::Call(_));
        if !is_call && value_type != model::ValueType::F64 {
            return Err(invalid("what it computes of aggregates are floats"));
        }
        let expression = expression(&column.code, resolved);
        let expression = expression.ok_or_else(|| invalid("it computes with + - * / of aggregates and numbers"))?;
        columns.push((column.name.clone(), expression, value_type));
    }
    Ok(columns)
}

fn expression(code: &Code, resolved: &Resolved) -> Option<Expression> {
    match code {
        Code::Call(place) => PlanCall::new(resolved.calls.get(*place)?).map(|call| call.expression()),
        Code::Value(Value::Float(number)) => Some(Expression::Float(*number)),
        Code::Value(Value::Int(number)) => Some(Expression::Integer(*number)),
        Code::Binary(operator, left, right) => {
            let operator = match operator {
                Operator::Add => PlanOperator::Add,
                Operator::Subtract => PlanOperator::Subtract,
                Operator::Multiply => PlanOperator::Multiply,
                Operator::Divide => PlanOperator::Divide,
                _ => return None,
            };
            Some(Expression::Apply(operator, vec![expression(left, resolved)?, expression(right, resolved)?]))
        }
        _ => None,
    }
}

/// A plan of rows of any time.
fn of_all_times(plan: Plan) -> Plan {
    let of = |input: Box<Plan>| Box::new(of_all_times(*input));
    match plan {
        Plan::Scan(scan) => Plan::Scan(query::plan::Scan { range: TimeRange::ALL, ..scan }),
        Plan::Where { input, condition } => Plan::Where { input: of(input), condition },
        Plan::GroupBy { input, grouping } => Plan::GroupBy { input: of(input), grouping },
        other => other,
    }
}
