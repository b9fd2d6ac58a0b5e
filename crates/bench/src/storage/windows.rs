//! `thalweg bench storage windows`: aggregates over long times, from summaries and from samples.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use model::{MatchOp, SampleColumn, TimeRange};
use platform::objects::ObjectOptions;
use store::{ObjectTierOptions, SelectedGroup, Store, StoreOptions, Windows};

use super::data::{DAY_S, SECOND_NS, START_NS, Walks};
use super::fill::{REQUEST_CELLS, Target};
use super::late::select;
use super::location::{DataLocation, Folder, bar, files, keep_up, open};
use super::report::{Case, Report, quantile};
use crate::measure::process::{folder_bytes, thread_cpu_seconds};

const EXAMPLES: &str = "Examples:
  thalweg bench storage windows                                          a year at 10 s beside 1,000 series at 10 min
  thalweg bench storage windows --others-interval-s 10                   3 thousand million values: an hour, 3 GB
  thalweg bench storage windows --objects file:///tmp/objects            also from an object store, its blocks not cached
  thalweg bench storage windows --objects s3://bucket/bench --endpoint http://127.0.0.1:9000

Asks for one series' maxima by day: from summaries, and from all samples. An S3 server is reached by the usual variables of the
environment (AWS_ACCESS_KEY_ID and so on); objects stay where they were put.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WindowsFlags {
    /// Days
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Series beside the one that is asked for
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    others: u32,
    /// Seconds between two samples of theirs; the asked one has one every 10 s
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    others_interval_s: u32,
    /// Queries of each kind
    #[arg(long, default_value_t = 51, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queries: u32,
    /// Also ask with level 2 in an object store: a folder, `s3://bucket/prefix`, `gs://…`, `az://…`
    #[arg(long, value_name = "URL")]
    objects: Option<String>,
    /// Where the object store's server listens, if it is not the cloud's own
    #[arg(long, value_name = "URL", requires = "objects")]
    endpoint: Option<String>,
    #[command(flatten)]
    location: DataLocation,
}

/// Openings of the store with an empty block cache.
const COLD_OPENINGS: usize = 5;

/// Seconds between two samples of the series that is asked for.
const INTERVAL_S: usize = 10;

pub(super) fn run(flags: &WindowsFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let path = folder.case("windows");
    let mut report = Report::new("windows");
    {
        let store = open(StoreOptions::new(&path))?;
        let mut case = Case::new("fast tier");
        let cpu_before = thread_cpu_seconds();
        let values = write(flags, &store)?;
        store.compact_all().map_err(|error| error.to_string())?;
        case.count("values", values).add("write_cpu_seconds", thread_cpu_seconds() - cpu_before);
        warm(flags, &store, &mut case)?;
        count_files(&store, &path, &mut case);
        report.cases.push(case);
    }
    if let Some(url) = &flags.objects {
        report.cases.push(on_objects(flags, &path, url)?);
    }
    report.print(flags.location.json)
}

/// The asked series and the others, in order of time.
fn write(flags: &WindowsFlags, store: &Store) -> Result<u64, String> {
    let target = Target::series(store, flags.others as usize + 1, 1, 9)?;
    let steps = (u64::from(flags.days) * DAY_S) as usize / INTERVAL_S;
    let others_every = (flags.others_interval_s as usize / INTERVAL_S).max(1);
    let progress = bar((steps + steps / others_every * flags.others as usize) as u64, "windows");
    let written = write_steps(store, &target, steps, others_every, &progress);
    progress.finish_and_clear();
    written
}

fn write_steps(
    store: &Store,
    target: &Target,
    steps: usize,
    others_every: usize,
    progress: &ProgressBar,
) -> Result<u64, String> {
    let walks = Walks::integers(1);
    let (mut appender, mut waiting, mut written) = (store.appender(), 0, 0);
    for step in 0..steps {
        let series = if step % others_every == 0 { target.rows() } else { 1 };
        let timestamp_ns = START_NS + (step * INTERVAL_S) as i64 * SECOND_NS;
        for row in 0..series {
            target.add(&mut appender, row, timestamp_ns, &[walks.value(row, step).to_bits()])?;
        }
        waiting += series;
        if waiting >= REQUEST_CELLS || step + 1 == steps {
            let full = std::mem::replace(&mut appender, store.appender());
            full.commit().map_err(|error| error.to_string())?;
            keep_up(store)?;
            written += waiting as u64;
            progress.inc(waiting as u64);
            waiting = 0;
        }
    }
    Ok(written)
}

fn days(flags: &WindowsFlags) -> Windows {
    Windows { start_ns: START_NS, width_ns: DAY_S as i64 * SECOND_NS, count: flags.days as usize }
}

/// The series that is asked for: the first.
fn first_series(store: &Store) -> Result<SelectedGroup, String> {
    let instance = "10.0.0.0:9100";
    let found = select(store, "instance", MatchOp::Equal, instance)?;
    let first = super::data::metric(0);
    let is_first = |group: &SelectedGroup| group.columns.iter().any(|column| column.metric == first);
    found.into_iter().find(is_first).ok_or_else(|| format!("no series {first} of {instance}"))
}

/// Maxima by day from summaries, and what it took.
fn maxima(store: &Store, group: &SelectedGroup, windows: &Windows) -> Result<(Vec<f64>, store::ReadCounts), String> {
    let (columns, counts) = store.aggregate(group, windows).map_err(|error| error.to_string())?;
    let column = columns.first().ok_or("a series without a column")?;
    Ok((column.windows.iter().map(|window| window.number(window.max)).collect(), counts))
}

/// The maxima computed from samples.
fn maxima_of_samples(store: &Store, group: &SelectedGroup, windows: &Windows) -> Result<Vec<f64>, String> {
    let range: TimeRange = windows.range();
    let columns = store.read(group, &range).map_err(|error| error.to_string())?;
    let mut most = vec![f64::NEG_INFINITY; windows.count];
    if let Some(SampleColumn::F64(timestamps, values)) = columns.first() {
        for (timestamp, value) in timestamps.iter().zip(values) {
            let day = (timestamp - windows.start_ns) / windows.width_ns;
            if let Some(most) = most.get_mut(day as usize) {
                *most = most.max(*value);
            }
        }
    }
    Ok(most)
}

fn warm(flags: &WindowsFlags, store: &Store, case: &mut Case) -> Result<(), String> {
    let (group, windows) = (first_series(store)?, days(flags));
    let (mut from_nodes, mut from_samples) = (Vec::new(), Vec::new());
    let (expected, counts) = maxima(store, &group, &windows)?;
    for _ in 0..flags.queries {
        let begun = Instant::now();
        maxima(store, &group, &windows)?;
        from_nodes.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let decoded = maxima_of_samples(store, &group, &windows)?;
        from_samples.push(begun.elapsed().as_secs_f64() * 1e3);
        if decoded != expected {
            return Err("the maxima from summaries are not those of the samples".to_owned());
        }
    }
    let (nodes, samples) = (quantile(&mut from_nodes, 0.5), quantile(&mut from_samples, 0.5));
    case.add("warm_ms", nodes)
        .add("warm_p99_ms", quantile(&mut from_nodes, 0.99))
        .add("decode_everything_ms", samples)
        .add("ratio", samples / nodes)
        .count("nodes_used", counts.nodes)
        .count("rows_decoded", counts.rows)
        .count("chunks_read", counts.chunks);
    Ok(())
}

fn count_files(store: &Store, path: &Path, case: &mut Case) {
    let stats = store.stats();
    let manifests = std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_manifest = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("MANIFEST");
    let manifest_bytes =
        manifests.filter(is_manifest).filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum();
    let part_bytes: u64 = stats.levels.iter().map(|level| level.bytes).sum();
    case.count("parts", stats.levels.iter().map(|level| level.parts).sum())
        .count("level2_parts", stats.levels[2].parts)
        .count("part_bytes", part_bytes)
        .count("manifest_bytes", manifest_bytes)
        .count("files", files(path))
        .count("folder_bytes", folder_bytes(path))
        .count("part_index_bytes", stats.memory.parts);
}

/// Level 2 goes to the object store, and is asked with nothing of it in the block cache.
fn on_objects(flags: &WindowsFlags, path: &Path, url: &str) -> Result<Case, String> {
    let objects = ObjectOptions {
        endpoint: flags.endpoint.clone(),
        allow_http: flags.endpoint.is_some(),
        ..ObjectOptions::default()
    };
    let tier = ObjectTierOptions { objects, local_bytes_max: 0, cache_flash_bytes: 0, ..ObjectTierOptions::new(url) };
    let options = StoreOptions { objects: Some(tier), ..StoreOptions::new(path) };
    let mut case = Case::new("object store");
    let begun = Instant::now();
    let store = open(options.clone())?;
    store.compact_all().map_err(|error| error.to_string())?;
    case.add("upload_seconds", begun.elapsed().as_secs_f64());
    drop(store);
    let (mut cold, mut cold_samples) = (Vec::new(), Vec::new());
    for opening in 0..COLD_OPENINGS * 2 {
        let store = open(options.clone())?;
        let (group, windows) = (first_series(&store)?, days(flags));
        let begun = Instant::now();
        if opening % 2 == 0 {
            maxima(&store, &group, &windows)?;
            cold.push(begun.elapsed().as_secs_f64() * 1e3);
        } else {
            maxima_of_samples(&store, &group, &windows)?;
            cold_samples.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let (nodes, samples) = (quantile(&mut cold, 0.5), quantile(&mut cold_samples, 0.5));
    case.add("cold_ms", nodes).add("cold_decode_everything_ms", samples).add("cold_ratio", samples / nodes);
    let store = open(options)?;
    warm(flags, &store, &mut case)?;
    count_files(&store, path, &mut case);
    Ok(case)
}
