//! Expressions of fields and conditions become code over calls and references.

use std::collections::HashMap;

use query::Value;

use crate::resolve::names::{self, Schema};
use crate::resolve::selection::{Argument, Call, Code, Column, Reference};
use crate::syntax::ast::{Cast, Expr, Field, Operator};
use crate::syntax::expr_text;
use crate::value::{DataType, Math};

/// Compiles a selection's fields, and collects the calls and references in them.
pub(super) struct Compiler<'a> {
    schema: &'a Schema,
    pub(super) calls: Vec<Call>,
    pub(super) references: Vec<Reference>,
    /// Indexes of the references by what they name: `*` may stand for many thousands.
    known: HashMap<(String, Option<Cast>), usize>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(schema: &'a Schema) -> Self {
        Self { schema, calls: Vec::new(), references: Vec::new(), known: HashMap::new() }
    }

    pub(super) fn columns(&mut self, fields: &[Field], time: &str, writes: bool) -> Result<Vec<Column>, String> {
        let fields = with_top_tags(fields, writes);
        let names = names::column_names(&fields, time);
        let mut columns = Vec::with_capacity(fields.len());
        for (field, name) in fields.iter().zip(names) {
            let (code, data_type) = self.code(&field.expr)?;
            columns.push(Column { name, code, data_type });
        }
        Ok(columns)
    }

    fn code(&mut self, expr: &Expr) -> Result<(Code, DataType), String> {
        Ok(match expr {
            Expr::Reference { name, cast } => {
                let reference = self.reference(name, *cast);
                let data_type = reference.data_type;
                let index = *self.known.entry((name.clone(), *cast)).or_insert_with(|| {
                    self.references.push(reference);
                    self.references.len() - 1
                });
                (Code::Reference(index), data_type)
            }
            Expr::Call { name, arguments } => match Math::named(name) {
                Some((math, _)) => {
                    let mut operands = Vec::with_capacity(arguments.len());
                    let mut first_type = None;
                    for argument in arguments {
                        let (code, data_type) = self.code(argument)?;
                        if matches!(data_type, DataType::Text | DataType::Boolean | DataType::Tag) {
                            return Err(format!("invalid argument type for {name}: {}", data_type.name()));
                        }
                        first_type.get_or_insert(data_type);
                        operands.push(code);
                    }
                    (Code::Math(math, operands), names::type_of_call(name, first_type.unwrap_or(DataType::Unknown)))
                }
                None => {
                    let call = self.call(name, arguments)?;
                    let data_type = call.data_type;
                    (Code::Call(index_of(&mut self.calls, call)), data_type)
                }
            },
            Expr::Binary { operator, left, right } => {
                let ((left, left_type), (right, right_type)) = (self.code(left)?, self.code(right)?);
                let data_type = binary_type(*operator, left_type, right_type).ok_or_else(|| {
                    format!("incompatible operands: {expr}: {} and {}", left_type.name(), right_type.name())
                })?;
                (Code::Binary(*operator, Box::new(left), Box::new(right)), data_type)
            }
            Expr::Parentheses(inner) => self.code(inner)?,
            literal => literal_code(literal).ok_or_else(|| format!("{} cannot be selected", expr_text(literal)))?,
        })
    }

    fn reference(&self, name: &str, cast: Option<Cast>) -> Reference {
        Reference { name: name.to_owned(), cast, data_type: self.schema.type_of(name, cast) }
    }

    fn call(&self, function: &str, arguments: &[Expr]) -> Result<Call, String> {
        let parameters = arguments.iter().skip(1).cloned().collect();
        let argument = match arguments.first() {
            Some(Expr::Call { name, arguments }) => Argument::Call(Box::new(self.call(name, arguments)?)),
            Some(Expr::Reference { name, cast }) => Argument::Reference(self.reference(name, *cast)),
            _ => return Err(format!("expected field argument in {function}()")),
        };
        let data_type = match &argument {
            Argument::Reference(reference) => reference.data_type,
            Argument::Call(call) => call.data_type,
        };
        if data_type < DataType::Tag && !names::takes(function, data_type) {
            return Err(format!("unsupported {function} iterator type: {}", data_type.name()));
        }
        let data_type = names::type_of_call(function, data_type);
        Ok(Call { function: function.to_owned(), argument, parameters, data_type })
    }
}

/// A condition as code: references by their place in a list that grows.
pub(crate) fn condition_code(expr: &Expr, references: &mut Vec<Reference>, schema: &Schema) -> Result<Code, String> {
    let each = |operands: &[Expr], references: &mut Vec<Reference>| {
        operands.iter().map(|operand| condition_code(operand, references, schema)).collect::<Result<Vec<_>, _>>()
    };
    Ok(match expr {
        Expr::All(operands) => Code::All(each(operands, references)?),
        Expr::Any(operands) => Code::Any(each(operands, references)?),
        Expr::Parentheses(inner) => condition_code(inner, references, schema)?,
        Expr::Reference { name, cast } => {
            // What is neither field nor tag is a tag that no row has.
            let data_type = match schema.type_of(name, *cast) {
                DataType::Unknown => DataType::Tag,
                known => known,
            };
            Code::Reference(index_of(references, Reference { name: name.clone(), cast: *cast, data_type }))
        }
        Expr::Binary { operator, left, right } => {
            let left = condition_code(left, references, schema)?;
            if let Expr::Pattern(pattern) = &**right {
                let matches = *operator == Operator::Matches;
                return Ok(Code::Matches(Box::new(left), names::compile(pattern)?, matches));
            }
            Code::Binary(*operator, Box::new(left), Box::new(condition_code(right, references, schema)?))
        }
        Expr::Call { name, arguments } => match Math::named(name) {
            Some((math, takes)) if takes == arguments.len() => Code::Math(math, each(arguments, references)?),
            Some((_, takes)) => {
                return Err(format!(
                    "invalid number of arguments for {name}, expected {takes}, got {}",
                    arguments.len()
                ));
            }
            None => return Err(format!("invalid function call in condition: {expr}")),
        },
        literal => literal_code(literal).ok_or_else(|| format!("invalid condition: {literal}"))?.0,
    })
}

/// The index of an item in a list, at its end if it is new.
fn index_of<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    let known = items.iter().position(|other| *other == item);
    known.unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

/// The tags of `top(field, tag, …)` are columns after it, unless the answer is written: then they are tags of what is written.
fn with_top_tags(fields: &[Field], writes: bool) -> Vec<Field> {
    let mut all = Vec::with_capacity(fields.len());
    for field in fields {
        all.push(field.clone());
        match &field.expr {
            Expr::Call { name, arguments } if !writes && (name == "top" || name == "bottom") => {
                let tags = arguments.iter().skip(1).take(arguments.len().saturating_sub(2));
                all.extend(tags.map(|tag| Field { expr: tag.clone(), alias: None }));
            }
            _ => {}
        }
    }
    all
}

fn literal_code(expr: &Expr) -> Option<(Code, DataType)> {
    let (value, data_type) = match expr {
        Expr::Number(value) => (Value::Float(*value), DataType::Float),
        Expr::Integer(value) | Expr::Duration(value) => (Value::Int(*value), DataType::Integer),
        Expr::Unsigned(value) => (Value::Unsigned(*value), DataType::Unsigned),
        Expr::Boolean(value) => (Value::Bool(*value), DataType::Boolean),
        Expr::Text(text) => (Value::from(text.as_str()), DataType::Text),
        _ => return None,
    };
    Some((Code::Value(value), data_type))
}

/// The type of what an operator gives; `None` if it cannot take such operands.
fn binary_type(operator: Operator, left: DataType, right: DataType) -> Option<DataType> {
    use DataType::{Boolean, Float, Integer, Unknown, Unsigned};
    let bits = matches!(operator, Operator::BitAnd | Operator::BitOr | Operator::BitXor);
    match (left, right) {
        (Unknown, other) | (other, Unknown) => Some(other),
        (Boolean, Boolean) if bits => Some(Boolean),
        (Float, Float | Integer | Unsigned) | (Integer | Unsigned, Float) => (!bits).then_some(Float),
        (Integer, Integer) if operator == Operator::Divide => Some(Float),
        (Integer, Integer) => Some(Integer),
        (Unsigned, Unsigned | Integer) | (Integer, Unsigned) => Some(Unsigned),
        _ => None,
    }
}
