//! Exports as `rrdtool xport` writes them.

use std::fmt::Write;

use super::Exported;
use crate::number::scientific;

/// How an export is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Format {
    /// As JSON, otherwise as XML.
    pub is_json: bool,
    /// With the time of each row.
    pub has_times: bool,
    /// Elements of values are numbered.
    pub is_numbered: bool,
}

/// Writes an export.
pub fn write(exported: &Exported, format: Format) -> String {
    let mut out = String::new();
    let write = if format.is_json { write_json } else { write_xml };
    write(&mut out, exported, format);
    out
}

/// Times and values of the rows.
fn rows(exported: &Exported) -> impl Iterator<Item = (i64, &[f64])> {
    let times = (1..).map(|number| exported.start_s + number * exported.step_s);
    times.zip(exported.values.chunks_exact(exported.legends.len().max(1)))
}

fn count(exported: &Exported) -> i64 {
    (exported.end_s - exported.start_s) / exported.step_s
}

fn write_xml(out: &mut String, exported: &Exported, format: Format) {
    let first_s = exported.start_s + exported.step_s;
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n\n<xport>\n  <meta>\n    <start>{first_s}</start>\n    \
         <end>{}</end>\n    <step>{}</step>\n    <rows>{}</rows>\n    <columns>{}</columns>\n    <legend>\n",
        exported.end_s,
        exported.step_s,
        count(exported),
        exported.legends.len()
    );
    for legend in &exported.legends {
        let _ = writeln!(out, "      <entry>{}</entry>", escaped(legend.trim_start()));
    }
    out.push_str("    </legend>\n  </meta>\n  <data>\n");
    for (time_s, values) in rows(exported) {
        out.push_str("    <row>");
        if format.has_times {
            let _ = write!(out, "<t>{time_s}</t>");
        }
        for (column, value) in values.iter().enumerate() {
            let number = if format.is_numbered { column.to_string() } else { String::new() };
            let _ = write!(out, "<v{number}>{}</v{number}>", scientific(*value, 10));
        }
        out.push_str("</row>\n");
    }
    out.push_str("  </data>\n</xport>\n");
}

/// Text within an element. RRDtool writes legends as they are, which breaks the document.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn write_json(out: &mut String, exported: &Exported, format: Format) {
    let first_s = exported.start_s + exported.step_s;
    let _ = write!(
        out,
        "{{ \"about\": \"RRDtool graph JSON output\",\n  \"meta\": {{\n    \"start\": {first_s},\n    \"end\": {},\n    \
         \"step\": {},\n    \"legend\": [\n",
        exported.end_s, exported.step_s
    );
    for (column, legend) in exported.legends.iter().enumerate() {
        let comma = if column + 1 < exported.legends.len() { "," } else { "" };
        let _ = writeln!(out, "      {}{comma}", serde_json::Value::from(legend.trim_start()));
    }
    out.push_str("          ]\n     },\n  \"data\": [\n");
    for (time_s, values) in rows(exported) {
        out.push_str("    [ ");
        if format.has_times {
            let _ = write!(out, "\"{time_s}\",");
        }
        for (column, value) in values.iter().enumerate() {
            out.push_str(if column == 0 { "" } else { ", " });
            out.push_str(&if value.is_finite() { scientific(*value, 10) } else { "null".to_owned() });
        }
        out.push_str(if time_s < exported.end_s { " ],\n" } else { " ]\n" });
    }
    out.push_str("  ]\n}\n");
}
