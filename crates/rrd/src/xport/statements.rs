//! The columns of an export, as the arguments of `rrdtool xport` name them.

use crate::RrdError;
use crate::file::Consolidation;
use crate::number;
use crate::rpn::{Operand, Program, Summary};
use crate::time::{self, Times};

/// Statements of one export.
const STATEMENTS_MAX: usize = 10_000;

/// A column of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FileColumn {
    pub(super) path: String,
    pub(super) source: String,
    pub(super) function: Consolidation,
    /// What reduces rows that are too fine, if it is not the function.
    pub(super) reduce: Consolidation,
    pub(super) step_s: Option<i64>,
    pub(super) times: Times,
}

/// How far a column is moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Offset {
    Seconds(i64),
    /// The value of a statement.
    Value(usize),
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Statement {
    File(FileColumn),
    Expression(Program),
    Summary { column: usize, summary: Summary },
    Shift { column: usize, offset: Offset },
    Export { column: usize, legend: String },
}

/// Statements in their order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Script {
    pub(super) statements: Vec<Statement>,
    names: Vec<Option<String>>,
}

/// Cuts an argument at colons that no backslash is before.
fn cut(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut is_escaped) = (Vec::new(), String::new(), false);
    for symbol in text.chars() {
        match symbol {
            ':' if !is_escaped => parts.push(std::mem::take(&mut part)),
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            _ => {
                if is_escaped && symbol != ':' {
                    part.push('\\');
                }
                part.push(symbol);
            }
        }
        is_escaped = false;
    }
    parts.push(part);
    parts
}

impl Script {
    /// Reads the statements of an export of a time.
    pub fn parse(arguments: &[&str], times: Times) -> Result<Self, RrdError> {
        if arguments.len() > STATEMENTS_MAX {
            return Err(RrdError::Invalid(format!("more than {STATEMENTS_MAX} statements")));
        }
        let mut script = Self::default();
        for argument in arguments {
            let (name, statement) = script
                .statement(argument, times)
                .map_err(|reason| RrdError::Invalid(format!("in line '{argument}': {reason}")))?;
            script.statements.push(statement);
            script.names.push(name);
        }
        Ok(script)
    }

    fn statement(&self, argument: &str, times: Times) -> Result<(Option<String>, Statement), String> {
        let (kind, rest) = argument.split_once(':').ok_or("it has no colon")?;
        let named = || {
            let (name, value) = rest.split_once('=').ok_or("it is NAME=…")?;
            let is_name = |symbol: char| symbol.is_ascii_alphanumeric() || symbol == '_' || symbol == '-';
            if name.is_empty() || name.len() > 255 || !name.chars().all(is_name) {
                return Err(format!("{name:?} is no name: it has letters, digits, - and _"));
            }
            Ok((name.to_owned(), value))
        };
        match kind {
            "DEF" => {
                let (name, value) = named()?;
                Ok((Some(name), Statement::File(file_column(value, times)?)))
            }
            "CDEF" => {
                let (name, value) = named()?;
                Ok((Some(name), Statement::Expression(Program::parse(value, &|name| self.operand(name))?)))
            }
            "VDEF" => {
                let (name, value) = named()?;
                let (column, summary) = value.split_once(',').ok_or("it is NAME=COLUMN,FUNCTION")?;
                let statement = Statement::Summary { column: self.column(column)?, summary: Summary::parse(summary)? };
                Ok((Some(name), statement))
            }
            "SHIFT" => {
                let (column, by) = rest.rsplit_once(':').ok_or("it is SHIFT:NAME:SECONDS")?;
                let offset = match self.operand(by) {
                    Some(Operand::Scalar(number)) => Offset::Value(number),
                    _ => Offset::Seconds(by.parse().map_err(|_| format!("{by:?} is no number of seconds"))?),
                };
                Ok((None, Statement::Shift { column: self.column(column)?, offset }))
            }
            "XPORT" => {
                let parts = cut(rest);
                let (column, legend) = parts.split_first().ok_or("it is XPORT:NAME:LEGEND")?;
                Ok((None, Statement::Export { column: self.column(column)?, legend: legend.join(":") }))
            }
            _ => Err(format!("{kind:?} is none of DEF, CDEF, VDEF, SHIFT and XPORT")),
        }
    }

    /// What a name stands for: the last statement of that name.
    fn operand(&self, name: &str) -> Option<Operand> {
        let number = self.names.iter().rposition(|known| known.as_deref() == Some(name))?;
        match self.statements.get(number)? {
            Statement::Summary { .. } => Some(Operand::Scalar(number)),
            _ => Some(Operand::Series(number)),
        }
    }

    fn column(&self, name: &str) -> Result<usize, String> {
        match self.operand(name) {
            Some(Operand::Series(number)) => Ok(number),
            Some(Operand::Scalar(_)) => Err(format!("{name:?} is one value, not a column")),
            None => Err(format!("{name:?} is not defined before")),
        }
    }
}

/// Reads `FILE:SOURCE:CF[:step=…][:start=…][:end=…][:reduce=…]`.
fn file_column(text: &str, times: Times) -> Result<FileColumn, String> {
    let parts = cut(text);
    let [path, source, function, options @ ..] = parts.as_slice() else {
        return Err("it is DEF:NAME=FILE:SOURCE:CF".to_owned());
    };
    let function_of = |name: &str| {
        Consolidation::from_name(name).ok_or_else(|| format!("{name:?} is none of AVERAGE, MIN, MAX and LAST"))
    };
    let function = function_of(function)?;
    let mut column =
        FileColumn { path: path.clone(), source: source.clone(), function, reduce: function, step_s: None, times };
    let (mut start, mut end) = (times.start_s.to_string(), times.end_s.to_string());
    for option in options {
        match option.split_once('=') {
            Some(("step", value)) => column.step_s = Some(number::duration(value, 1)?.min(1 << 40) as i64),
            Some(("start", value)) => value.clone_into(&mut start),
            Some(("end", value)) => value.clone_into(&mut end),
            Some(("reduce", value)) => column.reduce = function_of(value)?,
            _ => return Err(format!("{option:?} is none of step=, start=, end= and reduce=")),
        }
    }
    column.times = time::parse_range(Some(&start), Some(&end), times.end_s).map_err(|error| error.to_string())?;
    Ok(column)
}
