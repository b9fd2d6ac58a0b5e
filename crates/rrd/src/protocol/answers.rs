//! Long answers.

use std::fmt::Write;

use crate::fetch::Fetched;
use crate::file::{Rrd, SourceKind, head_bytes};
use crate::number::{printed, scientific};

/// The lines of `FETCH`, for some of the sources.
pub(super) fn fetched(fetched: &Fetched, columns: &[usize]) -> String {
    let mut out = head(fetched, columns);
    // Writing to a string cannot fail.
    let names: Vec<&str> = columns.iter().filter_map(|column| fetched.names.get(*column)).map(String::as_str).collect();
    let _ = writeln!(out, "DSName: {}", names.join(" "));
    for (time_s, values) in fetched.rows() {
        let _ = write!(out, "{time_s:>10}:");
        for column in columns {
            let _ = write!(out, " {}", printed(values.get(*column).copied().unwrap_or(f64::NAN), 17));
        }
        out.push('\n');
    }
    out
}

fn head(fetched: &Fetched, columns: &[usize]) -> String {
    format!(
        "FlushVersion: 1\nStart: {}\nEnd: {}\nStep: {}\nDSCount: {}\n",
        fetched.start_s,
        fetched.end_s,
        fetched.step_s,
        columns.len()
    )
}

/// The whole answer of `FETCHBIN`.
pub(super) fn fetched_binary(fetched: &Fetched, columns: &[usize]) -> Vec<u8> {
    let mut out = format!("{} Success\n{}", columns.len() + 5, head(fetched, columns)).into_bytes();
    for column in columns {
        let values = fetched.column(*column);
        let name = fetched.names.get(*column).map_or("", String::as_str);
        out.extend_from_slice(format!("DSName-{name}: BinaryData {} 8 LITTLE\n", values.len()).as_bytes());
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        out.push(b'\n');
    }
    out
}

/// A value of `INFO`.
enum Item<'a> {
    Float(f64),
    Count(u64),
    Text(&'a str),
}

fn push(out: &mut String, key: &str, item: &Item<'_>) {
    let _ = match item {
        Item::Float(value) => writeln!(out, "{key} 0 {}", scientific(*value, 10)),
        Item::Count(count) => writeln!(out, "{key} 1 {count}"),
        Item::Text(text) => writeln!(out, "{key} 2 {text}"),
    };
}

/// The lines of `INFO`.
pub(super) fn info(path: &str, rrd: &Rrd) -> String {
    let mut out = String::new();
    push(&mut out, "filename", &Item::Text(path));
    push(&mut out, "rrd_version", &Item::Text(&format!("{:04}", rrd.version)));
    push(&mut out, "step", &Item::Count(rrd.step_s));
    push(&mut out, "last_update", &Item::Count(rrd.last_update.seconds as u64));
    push(&mut out, "header_size", &Item::Count(head_bytes(rrd) as u64));
    for (number, (source, state)) in rrd.sources.iter().zip(&rrd.states).enumerate() {
        let key = |name: &str| format!("ds[{}].{name}", source.name);
        push(&mut out, &key("index"), &Item::Count(number as u64));
        push(&mut out, &key("type"), &Item::Text(source.kind.name()));
        if source.kind == SourceKind::Compute {
            push(&mut out, &key("cdef"), &Item::Text(&source.expression));
        } else {
            push(&mut out, &key("minimal_heartbeat"), &Item::Count(source.heartbeat_s));
            push(&mut out, &key("min"), &Item::Float(source.min));
            push(&mut out, &key("max"), &Item::Float(source.max));
        }
        push(&mut out, &key("last_ds"), &Item::Text(&state.last.spelled()));
        push(&mut out, &key("value"), &Item::Float(state.value));
        push(&mut out, &key("unknown_sec"), &Item::Count(state.unknown_s));
    }
    for (number, archive) in rrd.archives.iter().enumerate() {
        let key = |name: &str| format!("rra[{number}].{name}");
        let definition = &archive.definition;
        push(&mut out, &key("cf"), &Item::Text(definition.function.name()));
        push(&mut out, &key("rows"), &Item::Count(definition.rows));
        push(&mut out, &key("cur_row"), &Item::Count(archive.newest as u64));
        push(&mut out, &key("pdp_per_row"), &Item::Count(definition.points));
        push(&mut out, &key("xff"), &Item::Float(definition.xff));
        for (source, state) in archive.states.iter().enumerate() {
            push(&mut out, &key(&format!("cdp_prep[{source}].value")), &Item::Float(state.value));
            let unknown = Item::Count(state.unknown_points);
            push(&mut out, &key(&format!("cdp_prep[{source}].unknown_datapoints")), &unknown);
        }
    }
    out
}
