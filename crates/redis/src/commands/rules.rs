//! Compaction rules: the buckets of a key, written to another one when they are over.

use super::arguments::Arguments;
use super::error::NO_KEY;
use super::reader::{aggregators, bucket_width};
use super::{CommandError, Executor};
use crate::series::settings::Rule;

type Done = Result<(), CommandError>;

/// Rules of one key.
const RULES_MAX: usize = 1_000;

/// `TS.CREATERULE source destination AGGREGATION aggregator width [align]`
pub(super) fn create_rule(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let (source, to) = (arguments.key()?, arguments.key()?);
    if !arguments.take("AGGREGATION") {
        return Err(CommandError::Arity(String::new()));
    }
    let aggregator = match aggregators(arguments.text()?)?.as_slice() {
        [one] => *one,
        _ => return Err(CommandError::series("TSDB: a rule has one aggregator")),
    };
    let width_ms = bucket_width(arguments)?;
    let align_ms: i64 = if arguments.len() > 0 { arguments.number("TSDB: Couldn't parse alignTimestamp")? } else { 0 };
    if arguments.len() > 0 {
        return Err(CommandError::Arity(String::new()));
    }
    if source == to {
        return Err(CommandError::series("TSDB: the source key and destination key should be different"));
    }
    executor.with_rows(|work| {
        work.write(|writer| {
            let catalog = &writer.state.catalog;
            let (of_source, of_destination) = (catalog.get(source).ok_or(NO_KEY)?, catalog.get(to).ok_or(NO_KEY)?);
            if of_source.settings.source.is_some() {
                return Err(CommandError::series("TSDB: the source key already has a source rule"));
            }
            if of_destination.settings.source.is_some() {
                return Err(CommandError::series("TSDB: the destination key already has a src rule"));
            }
            if !of_destination.settings.rules.is_empty() {
                return Err(CommandError::series("TSDB: the destination key already has a dst rule"));
            }
            if of_source.settings.rules.len() >= RULES_MAX {
                return Err(CommandError::other(format!("TSDB: a key has at most {RULES_MAX} rules")));
            }
            let last = writer.state.last(writer.rows, source)?;
            let rule = Rule::new(to.into(), aggregator, (width_ms, align_ms), last.map(|(last_ms, _)| last_ms));
            writer.change(source, |settings| settings.rules.push(rule))?;
            writer.change(to, |settings| settings.source = Some(source.into()))
        })
    })?;
    executor.out.ok();
    Ok(())
}

pub(super) fn delete_rule(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let (source, to) = (arguments.key()?, arguments.key()?);
    executor.with_rows(|work| {
        work.write(|writer| {
            let catalog = &writer.state.catalog;
            let of_source = catalog.get(source).ok_or(NO_KEY)?;
            catalog.get(to).ok_or(NO_KEY)?;
            if !of_source.settings.rules.iter().any(|rule| *rule.to == *to) {
                return Err(CommandError::series("TSDB: compaction rule does not exist"));
            }
            writer.change(source, |settings| settings.rules.retain(|rule| *rule.to != *to))?;
            writer.change(to, |settings| settings.source = None)
        })
    })?;
    executor.out.ok();
    Ok(())
}
