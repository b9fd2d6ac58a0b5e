//! Progress bars and tables of upkeep.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use db::{FolderReport, PartitionReport, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const BAR: &str = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}  {msg}";
const SPINNER: &str = "{spinner} {bytes} {msg}";

/// A bar on stderr; nothing where stderr is no terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template(SPINNER) {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn tell(&self, progress: &Progress) {
        if progress.bytes_total > 0
            && self.0.length().is_none()
            && let Ok(style) = ProgressStyle::with_template(BAR)
        {
            self.0.set_style(style);
        }
        if progress.bytes_total > 0 {
            self.0.set_length(progress.bytes_total.max(progress.bytes));
        }
        self.0.set_position(progress.bytes);
        self.0.set_message(progress.what.clone());
        if progress.bytes_total == 0 {
            self.0.tick();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A table without lines between its rows, as wide as the terminal.
pub(super) fn table(header: &[&str]) -> Table {
    let width = terminal_size::terminal_size().map_or(160, |(width, _)| width.0);
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width).set_header(header);
    table
}

/// The folder's parts, by level and partition.
pub(super) fn partitions(report: &FolderReport) -> String {
    let header = ["level", "class", "from", "to", "parts", "patches", "rows", "bytes", "bytes/row", "fold", "place"];
    let mut table = table(&header);
    for partition in &report.partitions {
        table.add_row([
            format!("L{}", partition.level),
            partition.class.to_string(),
            time(partition.range.start_ns),
            time(partition.range.end_ns.saturating_add(1)),
            partition.parts.to_string(),
            partition.patches.to_string(),
            partition.rows.to_string(),
            super::size(partition.bytes),
            format!("{:.2}", partition.bytes as f64 / partition.rows.max(1) as f64),
            if partition.fold_ns > 0 { duration(partition.fold_ns) } else { "-".to_owned() },
            storage(partition).to_owned(),
        ]);
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        if (4..=8).contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn storage(partition: &PartitionReport) -> &'static str {
    match (partition.local_bytes, partition.object_bytes) {
        (_, 0) => "local",
        (0, _) => "object",
        _ => "local + object",
    }
}

/// The partitions as JSON.
pub(super) fn partitions_json(report: &FolderReport) -> Value {
    let one = |partition: &PartitionReport| {
        json!({
            "level": partition.level,
            "class": partition.class,
            "start_ns": partition.range.start_ns,
            "end_ns": partition.range.end_ns,
            "fold_ns": partition.fold_ns,
            "parts": partition.parts,
            "patches": partition.patches,
            "rows": partition.rows,
            "chunks": partition.chunks,
            "bytes": partition.bytes,
            "local_bytes": partition.local_bytes,
            "object_bytes": partition.object_bytes,
        })
    };
    report.partitions.iter().map(one).collect()
}

/// Sums of rows and bytes over all parts.
pub(super) fn totals(report: &FolderReport) -> (u64, u64, u64) {
    let sum = |of: fn(&PartitionReport) -> u64| report.partitions.iter().map(of).sum();
    (sum(|partition| partition.parts), sum(|partition| partition.rows), sum(|partition| partition.bytes))
}

pub(super) fn time(ns: i64) -> String {
    let seconds = Timestamp::from_second(ns.div_euclid(1_000_000_000));
    seconds.map_or_else(|_| ns.to_string(), |time| time.to_string())
}

pub(super) fn duration(ns: i64) -> String {
    let day_ns = 86_400_000_000_000;
    if ns > 0 && ns % day_ns == 0 {
        format!("{}d", ns / day_ns)
    } else {
        format!("{:#}", SignedDuration::from_nanos(ns))
    }
}
