//! Commands that tell of keys: their settings, and which there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::arguments::Arguments;
use super::reader::filters;
use super::{CommandError, Executor};
use crate::protocol::ReplyWriter;
use crate::series::catalog::Catalog;
use crate::series::rows::TIME_MS_MAX;
use crate::series::settings::{CHUNK_BYTES, Settings};

type Done = Result<(), CommandError>;

/// Bytes of a sample as it is in memory, and about as it is stored.
const SAMPLE_BYTES: (i64, i64) = (16, 4);

/// What `TS.INFO` tells of a key.
struct Information {
    settings: Settings,
    samples: i64,
    first_ms: i64,
    last_ms: i64,
    memory_bytes: i64,
}

pub(super) fn info(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let key = arguments.key()?;
    let is_detailed = arguments.take("DEBUG");
    if arguments.len() > 0 {
        return Err(CommandError::Arity(String::new()));
    }
    let information = executor.with_rows(|work| {
        let mut state = work.open()?;
        state.look_around(work.rows);
        let last = state.newest(work.rows, key)?;
        let settings = state.catalog.get(key).ok_or(super::error::NO_KEY)?.settings.clone();
        drop(state);
        let oldest_ms = last.map_or(0, |(last_ms, _)| settings.oldest_ms(last_ms)).max(0);
        let (count, first_ms) = work.rows.count(key, (oldest_ms, TIME_MS_MAX))?;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let per_sample = if settings.is_uncompressed { SAMPLE_BYTES.0 } else { SAMPLE_BYTES.1 };
        Ok(Information {
            memory_bytes: i64::try_from(Catalog::bytes_of(key, &settings)).unwrap_or(0) + count * per_sample,
            samples: count,
            first_ms: first_ms.unwrap_or(0),
            last_ms: last.map_or(0, |(time_ms, _)| time_ms),
            settings,
        })
    })?;
    write_information(executor.out, &information, is_detailed.then_some(key));
    Ok(())
}

fn write_information(out: &mut ReplyWriter, information: &Information, detailed: Option<&str>) {
    let Information { settings, samples, first_ms, last_ms, memory_bytes } = information;
    let chunk_bytes = settings.chunk_bytes.unwrap_or(CHUNK_BYTES);
    out.map(if detailed.is_some() { 16 } else { 14 });
    let numbers = [
        ("totalSamples", *samples),
        ("memoryUsage", *memory_bytes),
        ("firstTimestamp", *first_ms),
        ("lastTimestamp", *last_ms),
        ("retentionTime", settings.retention_ms),
        // The store's chunks are not the key's alone: as many as Redis would have.
        ("chunkCount", (*samples * SAMPLE_BYTES.1 / chunk_bytes).max(0) + 1),
        ("chunkSize", chunk_bytes),
    ];
    for (name, number) in numbers {
        out.text(name);
        out.integer(number);
    }
    out.text("chunkType");
    out.text(if settings.is_uncompressed { "uncompressed" } else { "compressed" });
    out.text("duplicatePolicy");
    out.text(settings.policy().name());
    out.text("labels");
    write_label_pairs(out, settings);
    out.text("sourceKey");
    match &settings.source {
        Some(source) => out.text(source),
        None => out.null(),
    }
    out.text("rules");
    write_rules(out, settings);
    out.text("ignoreMaxTimeDiff");
    out.integer(settings.ignore.time_ms);
    out.text("ignoreMaxValDiff");
    out.float(settings.ignore.value);
    if let Some(key) = detailed {
        out.text("keySelfName");
        out.text(key);
        out.text("Chunks");
        out.array(0);
    }
}

fn write_label_pairs(out: &mut ReplyWriter, settings: &Settings) {
    if out.is_resp3() {
        out.map(settings.labels.len());
    } else {
        out.array(settings.labels.len());
    }
    for (name, value) in &settings.labels {
        if !out.is_resp3() {
            out.array(2);
        }
        out.text(name);
        out.text(value);
    }
}

fn write_rules(out: &mut ReplyWriter, settings: &Settings) {
    if out.is_resp3() {
        out.map(settings.rules.len());
    } else {
        out.array(settings.rules.len());
    }
    for rule in &settings.rules {
        if out.is_resp3() {
            out.text(&rule.to);
            out.array(3);
        } else {
            out.array(4);
            out.text(&rule.to);
        }
        out.integer(rule.bucket_ms);
        out.text(&rule.aggregator().name().to_ascii_uppercase());
        out.integer(rule.align_ms);
    }
}

fn texts(arguments: &mut Arguments<'_>) -> Result<Vec<String>, CommandError> {
    Ok(arguments.rest()?.into_iter().map(str::to_owned).collect())
}

pub(super) fn query_index(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let filters = filters(&texts(arguments)?)?;
    let names = executor.with_rows(|work| Ok(work.open()?.catalog.select(&filters)))?;
    executor.out.set(names.len());
    names.iter().for_each(|name| executor.out.text(name));
    Ok(())
}

/// `TS.QUERYLABELS LABELS | VALUES label [FILTER filter…]`
pub(super) fn query_labels(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let label = if arguments.take("LABELS") {
        None
    } else if arguments.take("VALUES") {
        Some(arguments.text()?)
    } else {
        return Err(CommandError::Syntax);
    };
    let filters = match arguments.len() {
        0 => None,
        _ if arguments.take("FILTER") => Some(filters(&texts(arguments)?)?),
        _ => return Err(CommandError::Syntax),
    };
    let found = executor.with_rows(|work| {
        let state = work.open()?;
        let names = filters.map_or_else(|| state.catalog.names(), |filters| state.catalog.select(&filters));
        let labels = names.iter().filter_map(|name| Some(&state.catalog.get(name)?.settings.labels));
        let texts = labels.flat_map(|labels| {
            labels.iter().filter(|(name, _)| label.is_none_or(|label| ***name == *label)).map(|(name, value)| {
                match label {
                    None => name.clone(),
                    Some(_) => value.clone(),
                }
            })
        });
        Ok(texts.collect::<BTreeSet<Arc<str>>>())
    })?;
    executor.out.set(found.len());
    found.iter().for_each(|text| executor.out.text(text));
    Ok(())
}
