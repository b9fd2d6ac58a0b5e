//! Expressions: from the grammar's tree ([`bind`]) to something that has a value for each row ([`Bound::value`]).

mod aggregates;
mod arrays;
mod bind;
mod bucket_arguments;
mod build;
mod calls;
mod cast;
mod correlated;
mod dates;
mod evaluate;
mod functions;
mod lists;
mod operators;
mod parameters;
mod questdb;
mod regclass;
mod shapes;
mod text_limit;
mod times;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(crate) use aggregates::{Accumulator, AggregateFunction, BoundAggregate, Fold, RowOrigin};
pub use arrays::array;
pub(crate) use arrays::items;
pub(crate) use bind::{Binder, Grouped, Key, Subqueries, is_time};
pub(crate) use calls::is_aggregate;
pub(crate) use cast::{array_element, cast, sql_type, text_of};
pub(crate) use evaluate::holds;
pub(crate) use functions::call_by_name;
pub use parameters::ParameterType;
pub(crate) use parameters::parameter_index;
pub(crate) use shapes::{begins_at, equal, equal_columns, sample_bin, sum, take_as_of, time_bins};
pub(crate) use times::{FilledRange, calendar_bins, filled_range, time_zone, width};

use jiff::tz::TimeZone;
use regex::Regex;

use crate::context::{ChangedSettings, Manner};
use crate::error::SqlError;
use query::{SqlType, Value};

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// An expression whose names are places in a row.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    Constant(Value),
    Column(usize),
    Call(&'static Function, Vec<Bound>),
    And(Vec<Bound>),
    Or(Vec<Bound>),
    Not(Box<Bound>),
    Case {
        branches: Vec<(Bound, Bound)>,
        otherwise: Option<Box<Bound>>,
    },
    In {
        operand: Box<Bound>,
        list: Vec<Bound>,
        is_negated: bool,
    },
    Cast(Box<Bound>, SqlType),
    Matches {
        text: Box<Bound>,
        pattern: Pattern,
        is_negated: bool,
    },
    /// The value of a query for these keys.
    Lookup {
        keys: Vec<Bound>,
        answers: Arc<LookupAnswers>,
    },
}

/// Values by their keys; `None` where there are several.
pub(crate) type LookupAnswers = HashMap<Vec<Value>, Option<Value>>;

/// A regular expression, or the expression whose value is compiled in each row.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    Compiled(Regex),
    Computed { pattern: Box<Bound>, is_like: bool, ignores_case: bool },
}

/// An expression and the type of its values.
#[derive(Debug, Clone)]
pub(crate) struct Typed {
    pub(crate) expression: Bound,
    pub(crate) sql_type: SqlType,
}

/// A function of values of one row.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// Fewest and most arguments.
    pub(crate) takes: (usize, usize),
    /// True if it is null if an argument is.
    pub(crate) is_strict: bool,
    pub(crate) returns: Returns,
    pub(crate) call: fn(&[Value], &Environment) -> Result<Value, SqlError>,
}

/// A function that is null if an argument is.
const fn strict(
    name: &'static str,
    takes: (usize, usize),
    returns: SqlType,
    call: fn(&[Value], &Environment) -> Result<Value, SqlError>,
) -> Function {
    Function { name, takes, is_strict: true, returns: Returns::Fixed(returns), call }
}

/// The type of a function's value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Returns {
    Fixed(SqlType),
    /// Of the argument at this place.
    Argument(usize),
    /// A type that holds the values of all arguments.
    Unified,
    /// As operators on numbers, times and lengths of time have it.
    Arithmetic,
}

/// The context of functions.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) now_ns: i64,
    /// The session's time zone.
    pub(crate) time_zone: TimeZone,
    pub(crate) manner: Manner,
    pub(crate) database: String,
    pub(crate) user: String,
    /// The session's settings that differ from their defaults.
    pub(crate) settings: Arc<BTreeMap<String, String>>,
    /// The settings that functions change; `None` where there is no session.
    pub(crate) changed_settings: Option<ChangedSettings>,
}

impl Bound {
    /// The column that it is, if it is one as it stands.
    pub(crate) const fn column(&self) -> Option<usize> {
        if let Self::Column(place) = self { Some(*place) } else { None }
    }

    /// Returns whether it has the same value in every row.
    pub(crate) fn is_constant(&self) -> bool {
        self.is_of_columns(&|_| false)
    }

    /// Returns whether all columns that it reads are of some sort.
    pub(crate) fn is_of_columns(&self, is_of_sort: &dyn Fn(usize) -> bool) -> bool {
        let all = |operands: &[Self]| operands.iter().all(|operand| operand.is_of_columns(is_of_sort));
        match self {
            Self::Constant(_) => true,
            Self::Column(place) => is_of_sort(*place),
            Self::Call(_, operands)
            | Self::And(operands)
            | Self::Or(operands)
            | Self::Lookup { keys: operands, .. } => all(operands),
            Self::Not(operand) | Self::Cast(operand, _) => operand.is_of_columns(is_of_sort),
            Self::Case { branches, otherwise } => {
                let is_met =
                    |(when, then): &(Self, Self)| when.is_of_columns(is_of_sort) && then.is_of_columns(is_of_sort);
                branches.iter().all(is_met)
                    && otherwise.as_ref().is_none_or(|otherwise| otherwise.is_of_columns(is_of_sort))
            }
            Self::In { operand, list, .. } => operand.is_of_columns(is_of_sort) && all(list),
            Self::Matches { text, pattern, .. } => {
                text.is_of_columns(is_of_sort) && matches!(pattern, Pattern::Compiled(_))
            }
        }
    }
}
