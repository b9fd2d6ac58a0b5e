//! Names: what stands for several fields is replaced by them, and columns get names that differ.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::functions::sketched;
use crate::syntax::ast::{Cast, Dimension, Expr, Field};
use crate::value::{DataType, Math};

/// Columns of what a selection reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schema {
    pub(crate) fields: BTreeMap<String, DataType>,
    pub(crate) tags: BTreeSet<String>,
}

impl Schema {
    /// The columns of a table.
    pub(crate) fn from_table(table: &query::TableSchema) -> Self {
        let mut schema = Self { tags: table.tags.iter().cloned().collect(), ..Self::default() };
        for (name, value_type) in &table.fields {
            let data_type = match value_type {
                model::ValueType::F64 => DataType::Float,
                model::ValueType::I64 => DataType::Integer,
                model::ValueType::U64 => DataType::Unsigned,
                model::ValueType::Bool => DataType::Boolean,
                model::ValueType::String => DataType::Text,
                model::ValueType::Histogram => continue,
            };
            schema.add_field(name, data_type);
        }
        schema
    }

    /// Adds a field; where types differ, the one counts that comes first among them.
    pub(crate) fn add_field(&mut self, name: &str, data_type: DataType) {
        let known = self.fields.entry(name.to_owned()).or_insert(data_type);
        *known = (*known).min(data_type);
    }

    /// The type of a reference.
    pub(crate) fn type_of(&self, name: &str, cast: Option<Cast>) -> DataType {
        let tag = || if self.tags.contains(name) { DataType::Tag } else { DataType::Unknown };
        let field = self.fields.get(name).copied();
        match cast {
            Some(Cast::Tag) => tag(),
            Some(Cast::Field) => field.unwrap_or(DataType::Unknown),
            None => field.unwrap_or_else(tag),
            Some(Cast::Text) if field.is_none() => tag(),
            Some(cast) => match field {
                None => DataType::Unknown,
                Some(field) => match cast {
                    Cast::Float if field.is_number() => DataType::Float,
                    Cast::Integer if field.is_number() => DataType::Integer,
                    Cast::Unsigned if field.is_number() => DataType::Unsigned,
                    Cast::Text if field == DataType::Text => DataType::Text,
                    Cast::Boolean if field == DataType::Boolean => DataType::Boolean,
                    _ => DataType::Unknown,
                },
            },
        }
    }
}

/// The tags that dimensions name, sorted.
pub(crate) fn dimensions(dimensions: &[Dimension], schema: &Schema) -> Result<Vec<String>, String> {
    let mut tags = BTreeSet::new();
    for dimension in dimensions {
        match dimension {
            Dimension::Time { .. } => {}
            Dimension::Tag(name) => {
                tags.insert(name.clone());
            }
            Dimension::Wildcard => tags.extend(schema.tags.iter().cloned()),
            Dimension::Pattern(pattern) => {
                let pattern = compile(pattern)?;
                tags.extend(schema.tags.iter().filter(|tag| pattern.is_match(tag)).cloned());
            }
        }
    }
    Ok(tags.into_iter().collect())
}

pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| format!("the pattern /{pattern}/ cannot be read: {error}"))
}

/// Replaces `*` and patterns in fields by what they stand for.
pub(crate) fn expand(fields: &[Field], schema: &Schema, dimensions: &[Dimension]) -> Result<Vec<Field>, String> {
    let mut expanded = Vec::with_capacity(fields.len());
    let candidates = candidates(schema, dimensions);
    for field in fields {
        match &field.expr {
            Expr::Wildcard(cast) => {
                let chosen = candidates.iter().filter(|(_, data_type)| match cast {
                    Some(Cast::Tag) => *data_type == DataType::Tag,
                    Some(_) => *data_type != DataType::Tag,
                    None => true,
                });
                expanded.extend(chosen.map(|(name, data_type)| plain(name, *data_type)));
            }
            Expr::Pattern(pattern) => {
                let pattern = compile(pattern)?;
                let chosen = candidates.iter().filter(|(name, _)| pattern.is_match(name));
                expanded.extend(chosen.map(|(name, data_type)| plain(name, *data_type)));
            }
            Expr::Call { .. } => expanded.extend(calls(field, schema)?),
            _ => expanded.push(field.clone()),
        }
    }
    Ok(expanded)
}

/// The columns that `*` stands for: fields, and tags that rows are not grouped by.
fn candidates(schema: &Schema, dimensions: &[Dimension]) -> Vec<(String, DataType)> {
    let mut all: Vec<(String, DataType)> =
        schema.fields.iter().map(|(name, data_type)| (name.clone(), *data_type)).collect();
    if !dimensions.iter().any(|dimension| matches!(dimension, Dimension::Wildcard | Dimension::Pattern(_))) {
        let grouped = |tag: &&String| dimensions.iter().any(|dimension| *dimension == Dimension::Tag((*tag).clone()));
        all.extend(schema.tags.iter().filter(|tag| !grouped(tag)).map(|tag| (tag.clone(), DataType::Tag)));
    }
    all.sort();
    all
}

fn plain(name: &str, data_type: DataType) -> Field {
    let cast = if data_type == DataType::Tag { Some(Cast::Tag) } else { None };
    Field { expr: Expr::Reference { name: name.to_owned(), cast }, alias: None }
}

/// A call of `*` or a pattern becomes a call of each field that it can take.
fn calls(field: &Field, schema: &Schema) -> Result<Vec<Field>, String> {
    let Some((function, argument)) = innermost(&field.expr) else {
        return Ok(vec![field.clone()]);
    };
    let pattern = match argument {
        Expr::Wildcard(Some(Cast::Tag)) => return Err(format!("unable to use tag as wildcard in {function}()")),
        Expr::Wildcard(_) => None,
        Expr::Pattern(pattern) => Some(compile(pattern)?),
        _ => return Ok(vec![field.clone()]),
    };
    let chosen = schema.fields.iter().filter(|(name, data_type)| {
        takes(function, **data_type) && pattern.as_ref().is_none_or(|pattern| pattern.is_match(name))
    });
    let label = field.alias.clone().unwrap_or_else(|| column_name(&field.expr));
    let each = chosen.map(|(name, _)| Field {
        expr: with_innermost(&field.expr, &Expr::reference(name)),
        alias: Some(format!("{label}_{name}")),
    });
    Ok(each.collect())
}

/// The innermost call's function and first argument.
fn innermost(expr: &Expr) -> Option<(&str, &Expr)> {
    let Expr::Call { name, arguments } = expr else { return None };
    match arguments.first()? {
        inner @ Expr::Call { .. } => innermost(inner),
        argument => Some((name, argument)),
    }
}

fn with_innermost(expr: &Expr, argument: &Expr) -> Expr {
    let Expr::Call { name, arguments } = expr else { return argument.clone() };
    let mut arguments = arguments.clone();
    if let Some(first) = arguments.first_mut() {
        *first = with_innermost(first, argument);
    }
    Expr::Call { name: name.clone(), arguments }
}

/// Returns whether a function takes values of a type.
pub(crate) fn takes(function: &str, data_type: DataType) -> bool {
    match function {
        "count" | "first" | "last" | "distinct" | "elapsed" | "mode" | "sample" => data_type < DataType::Tag,
        sketched::PERCENTILE => data_type.is_number() || data_type == DataType::Text,
        sketched::DISTINCT_OF_SKETCHES => data_type == DataType::Text,
        _ if sketched::DISTINCT.contains(&function) => data_type < DataType::Tag,
        "min" | "max" => data_type.is_number() || data_type == DataType::Boolean,
        _ => data_type.is_number(),
    }
}

/// The name of an expression's column that has no alias.
pub(crate) fn column_name(expr: &Expr) -> String {
    match expr.bare() {
        Expr::Reference { name, .. } | Expr::Call { name, .. } => name.clone(),
        Expr::Binary { .. } => {
            let mut names = Vec::new();
            collect_names(expr, &mut names);
            names.join("_")
        }
        _ => String::new(),
    }
}

fn collect_names(expr: &Expr, names: &mut Vec<String>) {
    match expr {
        Expr::Reference { name, .. } | Expr::Call { name, .. } => names.push(name.clone()),
        other => other.children().into_iter().for_each(|child| collect_names(child, names)),
    }
}

/// Names of columns: given names stay, others that are taken get a number.
pub(crate) fn column_names(fields: &[Field], time: &str) -> Vec<String> {
    let mut taken: BTreeSet<String> = fields.iter().filter_map(|field| field.alias.clone()).collect();
    taken.insert(time.to_owned());
    let mut names = Vec::with_capacity(fields.len());
    for field in fields {
        let name = field.alias.clone().unwrap_or_else(|| {
            let plain = column_name(&field.expr);
            let mut name = plain.clone();
            let mut number = 0;
            while taken.contains(&name) {
                number += 1;
                name = format!("{plain}_{number}");
            }
            taken.insert(name.clone());
            name
        });
        names.push(name);
    }
    names
}

/// The type of what a function gives.
pub(crate) fn type_of_call(function: &str, argument: DataType) -> DataType {
    match function {
        "count" | "elapsed" => DataType::Integer,
        _ if sketched::DISTINCT.contains(&function) => DataType::Integer,
        sketched::PERCENTILE
        | "mean"
        | "median"
        | "stddev"
        | "integral"
        | "derivative"
        | "non_negative_derivative"
        | "moving_average"
        | "holt_winters"
        | "holt_winters_with_fit" => DataType::Float,
        _ => match Math::named(function) {
            Some((math, _)) if !math.keeps_type() => DataType::Float,
            _ => argument,
        },
    }
}
