//! Calls of `time_bucket` and `time_bucket_gapfill`, whose arguments may have names.

use query::{SqlType, Value, time};
use sqlparser::ast::{Expr, Function as Call, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::build::{apply, named};
use super::{Binder, Bound, Environment, Grouped, Typed, times};
use crate::error::{SqlError, invalid, unsupported};

/// The arguments of a call by what they are.
#[derive(Default)]
struct Bucket {
    width: Option<Typed>,
    time: Option<Typed>,
    /// Origin, offset and time zone, which differ in type.
    options: Vec<Typed>,
    start: Option<Typed>,
    finish: Option<Typed>,
}

impl Binder<'_> {
    /// The bin of time that a call means.
    pub(super) fn bucket(
        &mut self,
        call: &Call,
        name: &str,
        mut grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let FunctionArguments::List(list) = &call.args else { return unsupported(format!("{call}")) };
        let mut bucket = Bucket::default();
        for argument in &list.args {
            let (argument_name, expression) = named_argument(argument)?;
            let typed = self.expression(expression, grouped.as_deref_mut())?;
            match argument_name.as_deref() {
                None if bucket.width.is_none() => {
                    self.note(expression, SqlType::Interval);
                    bucket.width = Some(typed);
                }
                None if bucket.time.is_none() => {
                    self.note(expression, SqlType::Timestamp);
                    bucket.time = Some(typed);
                }
                Some("bucket_width") => bucket.width = Some(typed),
                Some("ts" | "time") => bucket.time = Some(typed),
                Some("start") => bucket.start = Some(typed),
                Some("finish") => bucket.finish = Some(typed),
                None | Some("timezone" | "origin" | "offset") => bucket.options.push(typed),
                Some(other) => return invalid(format!("{name} has no argument {other}")),
            }
        }
        let is_gapfill = name == "time_bucket_gapfill";
        if is_gapfill {
            bucket.take_range(self.environment);
        }
        let (Some(width), Some(time)) = (bucket.width, bucket.time) else {
            return invalid(format!("{name} takes a width and a time"));
        };
        if !is_gapfill || (bucket.start.is_none() && bucket.finish.is_none()) {
            return apply(named(name)?, [vec![width, time], bucket.options].concat());
        }
        let null = || Typed::constant(Value::Null);
        let range = [bucket.start.unwrap_or_else(null), bucket.finish.unwrap_or_else(null)];
        apply(&times::GAPFILL_BETWEEN, [vec![width, time], range.to_vec(), bucket.options].concat())
    }
}

impl Bucket {
    /// Two times among the options are where filling starts and where it ends.
    fn take_range(&mut self, environment: &Environment) {
        self.options.retain(|option| !matches!(option.expression, Bound::Constant(Value::Null)));
        let times: Vec<usize> = (0..)
            .zip(&self.options)
            .filter(|(_, option)| is_time(option, environment))
            .map(|(index, _)| index)
            .collect();
        if let [start, finish] = times.as_slice() {
            self.finish = Some(self.options.remove(*finish));
            self.start = Some(self.options.remove(*start));
        }
    }
}

fn is_time(option: &Typed, environment: &Environment) -> bool {
    match option.sql_type {
        SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date => true,
        SqlType::Unknown | SqlType::Text => match option.expression.value(&[], environment) {
            Ok(Value::Text(text)) => time::parse(&text).is_some(),
            Ok(value) => value.time_ns().is_some(),
            Err(_) => false,
        },
        _ => false,
    }
}

fn named_argument(argument: &FunctionArg) -> Result<(Option<String>, &Expr), SqlError> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Ok((None, expression)),
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expression), .. }
        | FunctionArg::ExprNamed { name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(expression), .. } => {
            Ok((Some(name.value.to_lowercase()), expression))
        }
        _ => unsupported(format!("the argument {argument}")),
    }
}
