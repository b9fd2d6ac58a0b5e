//! The arguments of a call.

use std::sync::Arc;

use query::{Interval, Value};

use crate::evaluate::Item;
use crate::syntax::{FluxError, Position};

/// The arguments of a call, by name; those that were asked for are taken out.
#[derive(Debug, Clone)]
pub(crate) struct Arguments {
    pub(crate) function: String,
    pub(crate) at: Position,
    values: Vec<(String, Item)>,
}

impl Arguments {
    pub(crate) fn new(function: &str, at: Position, values: Vec<(String, Item)>) -> Self {
        Self { function: function.to_owned(), at, values }
    }

    /// An argument that has to be what it is: fails with the function's name.
    pub(crate) fn error<T>(&self, message: impl std::fmt::Display) -> Result<T, FluxError> {
        Err(FluxError::new(self.at, format!("{}(): {message}", self.function)))
    }

    /// An argument, if it is given.
    pub(crate) fn take(&mut self, name: &str) -> Option<Item> {
        let index = self.values.iter().position(|(known, _)| known == name)?;
        Some(self.values.remove(index).1)
    }

    fn read<T>(
        &mut self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&Item) -> Option<T>,
    ) -> Result<Option<T>, FluxError> {
        let Some(item) = self.take(name) else { return Ok(None) };
        match read(&item) {
            Some(value) => Ok(Some(value)),
            None => self.error(format_args!("{name} is {kind}, not {}", item.kind())),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, FluxError> {
        self.read(name, "a string", |item| match item {
            Item::Value(Value::Text(text)) => Some(text.to_string()),
            _ => None,
        })
    }

    pub(crate) fn flag(&mut self, name: &str, otherwise: bool) -> Result<bool, FluxError> {
        let flag = self.read(name, "a bool", |item| match item {
            Item::Value(Value::Bool(value)) => Some(*value),
            _ => None,
        })?;
        Ok(flag.unwrap_or(otherwise))
    }

    pub(crate) fn count(&mut self, name: &str) -> Result<Option<usize>, FluxError> {
        self.read(name, "an int from 0 up", |item| match item {
            Item::Value(Value::Int(value)) => usize::try_from(*value).ok(),
            _ => None,
        })
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, FluxError> {
        self.read(name, "a float", |item| match item {
            Item::Value(value) => crate::row::number_of(value),
            _ => None,
        })
    }

    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Interval>, FluxError> {
        self.read(name, "a duration", |item| match item {
            Item::Duration(duration) => Some(*duration),
            _ => None,
        })
    }

    pub(crate) fn names(&mut self, name: &str) -> Result<Option<Vec<Arc<str>>>, FluxError> {
        self.read(name, "an array of strings", |item| match item {
            Item::Array(items) => items
                .iter()
                .map(|item| match item {
                    Item::Value(Value::Text(text)) => Some(text.clone()),
                    _ => None,
                })
                .collect(),
            _ => None,
        })
    }

    /// A time, a duration from now, or seconds since the Unix epoch, as nanoseconds since then.
    pub(crate) fn time(&mut self, name: &str, now_ns: i64) -> Result<Option<i64>, FluxError> {
        self.read(name, "a time or a duration", |item| match item {
            Item::Value(Value::Timestamp(ns)) => Some(*ns),
            Item::Value(Value::Int(seconds)) => seconds.checked_mul(1_000_000_000),
            Item::Duration(duration) => query::time::add(now_ns, *duration, &jiff::tz::TimeZone::UTC),
            _ => None,
        })
    }

    /// An argument that has to be given.
    pub(crate) fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, FluxError> {
        match value {
            Some(value) => Ok(value),
            None => self.error(format_args!("the argument {name} is missing")),
        }
    }

    /// Fails if there are arguments that the function does not have.
    pub(crate) fn finish(&self) -> Result<(), FluxError> {
        match self.values.first() {
            None => Ok(()),
            Some((name, _)) => self.error(format_args!("the argument {name} is not supported")),
        }
    }
}
