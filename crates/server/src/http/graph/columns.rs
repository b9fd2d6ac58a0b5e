//! Series on one axis of times as JSON: `{"times":[…],"series":[{"name":…,"labels":{…},"values":[…],…}],…}`.

use std::fmt::Write;

use plot::chart::{Chart, Downsampling};
use plot::columns::{Columns, Statistics};

use crate::http::json;

const NS_PER_S: i64 = 1_000_000_000;

/// The answer. Not a number and infinite values are null.
pub(super) fn json(chart: &Chart, columns: &Columns, (warnings, infos): (&[String], &[String])) -> String {
    let mut out = json::begin();
    out.push_str(r#"{"times":["#);
    for (place, time_ns) in columns.times_ns.iter().enumerate() {
        out.push_str(if place == 0 { "" } else { "," });
        push_seconds(&mut out, *time_ns);
    }
    out.push_str(r#"],"series":["#);
    let mut infinite = 0usize;
    for (place, (series, values)) in chart.series.iter().zip(&columns.values).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // Writing to memory does not fail.
        let _ = write!(out, r#"{comma}{{"name":{},"labels":{{"#, json::text(&series.name));
        for (place, (name, value)) in series.labels.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            let _ = write!(out, "{}:{}", json::text(name), json::text(value));
        }
        let statistics = Statistics::of_series(series, chart.start_ns, chart.end_ns);
        let Statistics { last, least, greatest, mean } = statistics;
        for (name, value) in
            [(r#"},"last":"#, last), (r#","min":"#, least), (r#","max":"#, greatest), (r#","avg":"#, mean)]
        {
            out.push_str(name);
            push_number(&mut out, value);
        }
        out.push_str(r#","values":["#);
        for (place, value) in values.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            infinite += usize::from(value.is_infinite());
            push_number(&mut out, *value);
        }
        out.push_str("]}");
    }
    out.push_str("],");
    push_range(&mut out, chart, columns);
    let mut warnings = warnings.to_vec();
    if infinite > 0 {
        warnings.push(format!("{infinite} infinite values are null"));
    }
    json::end(out, &warnings, infos)
}

/// The range, and how points became fewer.
fn push_range(out: &mut String, chart: &Chart, columns: &Columns) {
    out.push_str(r#""start":"#);
    push_seconds(out, chart.start_ns);
    out.push_str(r#","end":"#);
    push_seconds(out, chart.end_ns);
    let method = match columns.downsampling {
        Downsampling::MinMax => "minmax",
        Downsampling::Lttb => "lttb",
        Downsampling::None => "none",
    };
    let _ = write!(out, r#","downsample":{{"method":"{method}","points":{}"#, columns.points_found);
    if let Some(interval_ns) = columns.interval_ns {
        out.push_str(r#","interval":"#);
        push_seconds(out, interval_ns);
    }
    out.push_str("}}");
}

fn push_number(out: &mut String, value: f64) {
    let size = value.abs();
    let _ = if !value.is_finite() {
        write!(out, "null")
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        write!(out, "{value:e}")
    } else {
        write!(out, "{value}")
    };
}

/// Seconds with as many digits as a time has.
fn push_seconds(out: &mut String, time_ns: i64) {
    let size = time_ns.unsigned_abs();
    let (seconds, rest) = (size / NS_PER_S.unsigned_abs(), size % NS_PER_S.unsigned_abs());
    let _ = write!(out, "{}{seconds}", if time_ns < 0 { "-" } else { "" });
    if rest > 0 {
        let digits = format!("{rest:09}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}
