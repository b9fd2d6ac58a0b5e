//! Commands that read samples.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arguments::Arguments;
use super::reader::{KeyOptions, KeyRead, OptionsParser, RangeOptions, ShownLabels};
use super::{CommandError, Executor, Work};
use crate::aggregate::{Aggregator, Row, Sample, reduce};
use crate::protocol::ReplyWriter;

type Done = Result<(), CommandError>;
type KeyLabels = BTreeMap<Arc<str>, Arc<str>>;

pub(super) fn write_rows(out: &mut ReplyWriter, rows: &[Row]) {
    out.array(rows.len());
    for row in rows {
        out.array(1 + row.values.len());
        out.integer(row.time_ms);
        row.values.iter().for_each(|value| out.float(*value));
    }
}

fn write_sample(out: &mut ReplyWriter, sample: Option<Sample>) {
    match sample {
        None => out.array(0),
        Some((time_ms, value)) => {
            out.array(2);
            out.integer(time_ms);
            out.float(value);
        }
    }
}

/// Labels of a key that are shown: pairs in RESP2, a map in RESP3.
fn write_labels(out: &mut ReplyWriter, shown: &ShownLabels, labels: &KeyLabels) {
    let pairs: Vec<(&str, Option<&str>)> = match shown {
        ShownLabels::None => Vec::new(),
        ShownLabels::All => labels.iter().map(|(name, value)| (&**name, Some(&**value))).collect(),
        ShownLabels::These(names) => {
            names.iter().map(|name| (name.as_str(), labels.get(name.as_str()).map(|value| &**value))).collect()
        }
    };
    write_pairs(out, &pairs);
}

fn write_pairs(out: &mut ReplyWriter, pairs: &[(&str, Option<&str>)]) {
    if out.is_resp3() {
        out.map(pairs.len());
    } else {
        out.array(pairs.len());
    }
    for (name, value) in pairs {
        if !out.is_resp3() {
            out.array(2);
        }
        out.text(name);
        match value {
            Some(value) => out.text(value),
            None => out.null(),
        }
    }
}

fn read_range(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>, is_reversed: bool) -> Done {
    let key = arguments.key()?;
    let options = OptionsParser::new(arguments, is_reversed, false)?.range;
    let rows = executor.with_rows(|work| {
        let mut state = work.open()?;
        state.look_around(work.rows);
        let key = KeyRead::new(work.rows, &mut state, key, options.with_latest)?;
        drop(state);
        key.rows(work, &options)
    })?;
    write_rows(executor.out, &rows);
    Ok(())
}

pub(super) fn range(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    read_range(executor, arguments, false)
}

pub(super) fn revrange(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    read_range(executor, arguments, true)
}

/// Several keys with their rows; in groups of a label's value if asked for.
struct KeyRows {
    name: String,
    labels: KeyLabels,
    /// The keys of a group.
    sources: Vec<Arc<str>>,
    rows: Vec<Row>,
}

fn read_keys(work: &Work<'_>, options: &RangeOptions, keys: &KeyOptions) -> Result<Vec<KeyRows>, CommandError> {
    let chosen = {
        let mut state = work.open()?;
        let names = state.catalog.select(&keys.filters);
        let is_timed = |name: &&Arc<str>| {
            let settings = state.catalog.get(name).map(|key| &key.settings);
            settings
                .is_some_and(|settings| settings.retention_ms > 0 || options.with_latest && settings.source.is_some())
        };
        let timed: Vec<Arc<str>> = names.iter().filter(is_timed).cloned().collect();
        state.look_up(work.rows, &timed)?;
        let read = names.iter().map(|name| KeyRead::new(work.rows, &mut state, name, options.with_latest));
        read.collect::<Result<Vec<_>, _>>()?
    };
    let Some((label, reducer)) = &keys.group_by else {
        let mut found = Vec::with_capacity(chosen.len());
        for key in chosen {
            work.rows.budget.hold_bytes(keys.labels.reply_bytes(&key.labels))?;
            let rows = key.rows(work, options)?;
            if !(rows.is_empty() && keys.leaves_out_empty) {
                found.push(KeyRows { name: key.name.to_string(), labels: key.labels, sources: Vec::new(), rows });
            }
        }
        return Ok(found);
    };
    let mut groups: BTreeMap<Arc<str>, Vec<KeyRead>> = BTreeMap::new();
    for key in chosen {
        if let Some(value) = key.labels.get(label.as_str()).cloned() {
            groups.entry(value).or_default().push(key);
        }
    }
    groups.into_iter().map(|(value, group)| reduced(work, options, (label, value), (*reducer, group))).collect()
}

fn reduced(
    work: &Work<'_>,
    options: &RangeOptions,
    (label, value): (&str, Arc<str>),
    (reducer, group): (Aggregator, Vec<KeyRead>),
) -> Result<KeyRows, CommandError> {
    // The count is of what comes out.
    let all = RangeOptions { count: None, ..options.clone() };
    let series = group.iter().map(|key| key.rows(work, &all)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = reduce(&series, reducer);
    if options.is_reversed {
        rows.reverse();
    }
    rows.truncate(options.count.unwrap_or(usize::MAX));
    let labels = [(Arc::from(label), value.clone())].into();
    let sources = group.into_iter().map(|key| key.name).collect();
    Ok(KeyRows { name: format!("{label}={value}"), labels, sources, rows })
}

fn write_found(out: &mut ReplyWriter, found: &KeyRows, options: &RangeOptions, keys: &KeyOptions) {
    let reducer = keys.group_by.as_ref().map(|(_, reducer)| reducer.name());
    if !out.is_resp3() {
        out.array(3);
        out.text(&found.name);
        match reducer {
            Some(reducer) if keys.labels == ShownLabels::All => {
                let sources = found.sources.join(",");
                let own = found.labels.iter().map(|(name, value)| (&**name, Some(&**value)));
                let added = [("__reducer__", Some(reducer)), ("__source__", Some(&*sources))];
                write_pairs(out, &own.chain(added).collect::<Vec<_>>());
            }
            _ => write_labels(out, &keys.labels, &found.labels),
        }
        return write_rows(out, &found.rows);
    }
    out.text(&found.name);
    out.array(if reducer.is_some() { 4 } else { 3 });
    write_labels(out, &keys.labels, &found.labels);
    out.map(1);
    if let Some(reducer) = reducer {
        out.text("reducers");
        out.array(1);
        out.text(reducer);
        out.map(1);
        out.text("sources");
        out.array(found.sources.len());
        found.sources.iter().for_each(|source| out.text(source));
    } else {
        out.text("aggregators");
        let aggregators = options.buckets.as_ref().map_or(&[][..], |buckets| &buckets.aggregators);
        out.array(aggregators.len());
        aggregators.iter().for_each(|aggregator| out.text(aggregator.name()));
    }
    write_rows(out, &found.rows);
}

fn read_ranges(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>, is_reversed: bool) -> Done {
    let OptionsParser { range, keys, .. } = OptionsParser::new(arguments, is_reversed, true)?;
    let keys = keys.unwrap_or_default();
    let found = executor.with_rows(|work| read_keys(work, &range, &keys))?;
    let out = &mut *executor.out;
    begin_keys(out, found.len());
    found.iter().for_each(|found| write_found(out, found, &range, &keys));
    Ok(())
}

/// Keys are a map in RESP3, a list of arrays in RESP2.
fn begin_keys(out: &mut ReplyWriter, keys: usize) {
    if out.is_resp3() { out.map(keys) } else { out.array(keys) }
}

pub(super) fn mrange(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    read_ranges(executor, arguments, false)
}

pub(super) fn mrevrange(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    read_ranges(executor, arguments, true)
}

pub(super) fn get(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let key = arguments.key()?;
    let with_latest = arguments.take("LATEST");
    if arguments.len() > 0 {
        return Err(CommandError::Arity(String::new()));
    }
    let sample = executor.with_rows(|work| {
        let mut state = work.open()?;
        state.look_around(work.rows);
        let last = state.newest(work.rows, key)?;
        let key = KeyRead::new(work.rows, &mut state, key, with_latest)?;
        drop(state);
        key.newest(work.rows, last)
    })?;
    write_sample(executor.out, sample);
    Ok(())
}

pub(super) fn mget(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let (mut keys, mut with_latest) = (KeyOptions::default(), false);
    while arguments.len() > 0 {
        if arguments.take("LATEST") {
            with_latest = true;
        } else {
            keys.parse_one(arguments)?;
        }
    }
    keys.check()?;
    if keys.group_by.is_some() {
        return Err(CommandError::Syntax);
    }
    let found = executor.with_rows(|work| {
        let mut state = work.open()?;
        let names = state.catalog.select(&keys.filters);
        state.look_up(work.rows, &names)?;
        let mut chosen = Vec::new();
        for name in names {
            let last = state.newest(work.rows, &name)?;
            let key = KeyRead::new(work.rows, &mut state, &name, with_latest)?;
            work.rows.budget.hold_bytes(keys.labels.reply_bytes(&key.labels))?;
            chosen.push((key, last));
        }
        drop(state);
        let newest = chosen.into_iter().map(|(key, last)| {
            let sample = key.newest(work.rows, last)?;
            Ok((key, sample))
        });
        newest.collect::<Result<Vec<_>, CommandError>>()
    })?;
    let out = &mut *executor.out;
    begin_keys(out, found.len());
    for (key, sample) in &found {
        if out.is_resp3() {
            out.text(&key.name);
            out.array(2);
        } else {
            out.array(3);
            out.text(&key.name);
        }
        write_labels(out, &keys.labels, &key.labels);
        write_sample(out, *sample);
    }
    Ok(())
}
