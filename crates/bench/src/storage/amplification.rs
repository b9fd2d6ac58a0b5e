//! `thalweg bench storage amplification`: what a stored byte costs, against TimeUnion's equations 7 to 10.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use model::ValueType;
use platform::Platform;
use platform::objects::{ObjectCounters, ObjectError, ObjectOptions, ObjectStores, Objects};
use store::{ObjectTierOptions, Store, StoreOptions};

use super::data::{SECOND_NS, START_NS, Walks};
use super::fill::{Target, fill};
use super::location::{DataLocation, Folder, bar};
use super::report::{Case, Report};

const EXAMPLES: &str = "Examples:
  thalweg bench storage amplification                              objects in a folder
  thalweg bench storage amplification --hours 240 --fast-mib 16
  thalweg bench storage amplification --objects s3://bucket/bench --endpoint http://127.0.0.1:9000

Equation 9 says what one level on the slow tier writes there: all data but what the fast tier holds. Equation 8 says what levels that
grow by a multiplier would write, equation 10 the difference. They know nothing of joined partitions and patches, which write level 2
again. All are in bytes of parts, so that compression is not counted twice.";

const GIB: f64 = (1_u64 << 30) as f64;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AmplificationFlags {
    /// Groups of ten members
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    groups: u32,
    /// Hours of data at 10 s
    #[arg(long, default_value_t = 72, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    hours: u32,
    /// Bytes of the fast tier, in MiB
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    fast_mib: u64,
    /// Bytes of all heads together, in MiB: the topmost level of the equations
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    head_mib: u32,
    /// How much larger each level of the equations is
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=100))]
    multiplier: u32,
    /// Percent of rows that come up to a day late
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    late: u64,
    /// Where parts settle [default: a folder]
    #[arg(long, value_name = "URL")]
    objects: Option<String>,
    /// Where the object store's server listens, if it is not the cloud's own
    #[arg(long, value_name = "URL", requires = "objects")]
    endpoint: Option<String>,
    #[command(flatten)]
    location: DataLocation,
}

/// Object stores that remember what was opened, for its counters.
struct Counted {
    inner: Arc<dyn ObjectStores>,
    opened: Mutex<Vec<Arc<dyn Objects>>>,
}

impl Counted {
    fn counters(&self) -> ObjectCounters {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().fold(ObjectCounters::default(), |sum, objects| {
            let one = objects.counters();
            ObjectCounters {
                requests: sum.requests + one.requests,
                requests_failed: sum.requests_failed + one.requests_failed,
                sent_bytes: sum.sent_bytes + one.sent_bytes,
                received_bytes: sum.received_bytes + one.received_bytes,
            }
        })
    }
}

impl ObjectStores for Counted {
    fn open(&self, url: &str, options: &ObjectOptions) -> Result<Arc<dyn Objects>, ObjectError> {
        let objects = self.inner.open(url, options)?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(objects.clone());
        Ok(objects)
    }
}

/// What the equations say, in bytes.
#[derive(Debug, PartialEq)]
struct Predicted {
    levels: f64,
    fast_levels: f64,
    /// Equation 8: written to the slow tier by levels that grow.
    growing_bytes: f64,
    /// Equation 9: written to the slow tier by one level there.
    one_level_bytes: f64,
    /// Equation 10: what one level saves.
    saved_bytes: f64,
}

/// Equations 7 to 10 for so much data, of which so much is on the fast tier; the number of slow levels is rounded down, as the
/// paper does.
fn predict(data_bytes: f64, fast_bytes: f64, top_bytes: f64, multiplier: f64) -> Predicted {
    let levels = |bytes: f64| (bytes * (multiplier - 1.0) / top_bytes + 1.0).ln() / multiplier.ln();
    let (all, fast) = (levels(data_bytes), levels(fast_bytes));
    let slow = (all.floor() - fast.floor()).max(0.0) as i32;
    let size = |level: i32| top_bytes * multiplier.powi(fast.floor() as i32 + level - 1);
    Predicted {
        levels: all,
        fast_levels: fast,
        growing_bytes: (1..=slow).map(|level| size(level) * f64::from(level)).sum(),
        one_level_bytes: (data_bytes - fast_bytes).max(0.0),
        saved_bytes: (1..=slow).map(|level| size(level) * f64::from(level - 1)).sum(),
    }
}

pub(super) fn run(flags: &AmplificationFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let platform = Platform::real();
    let counted = Arc::new(Counted { inner: platform.objects.clone(), opened: Mutex::default() });
    let platform = Platform { objects: counted.clone(), ..platform };
    let url = flags.objects.clone().unwrap_or_else(|| format!("file://{}", folder.case("objects").display()));
    let objects = ObjectOptions {
        endpoint: flags.endpoint.clone(),
        allow_http: flags.endpoint.is_some(),
        ..ObjectOptions::default()
    };
    let tier = ObjectTierOptions { objects, local_bytes_max: 0, cache_flash_bytes: 0, ..ObjectTierOptions::new(url) };
    let options = StoreOptions {
        fast_bytes_max: flags.fast_mib << 20,
        head_bytes_max: (flags.head_mib as usize) << 20,
        objects: Some(tier),
        ..StoreOptions::new(folder.case("amplification"))
    };
    let store = Store::open(platform, options).map_err(|error| error.to_string())?;
    let values = write(flags, &store)?;
    let mut report = Report::new("amplification");
    report.cases.push(judge(flags, &store, values, &counted.counters()));
    report.print(flags.location.json)
}

fn write(flags: &AmplificationFlags, store: &Store) -> Result<u64, String> {
    let target = Target::groups(store, flags.groups as usize, 10, ValueType::F64)?;
    let steps = flags.hours as usize * 360;
    let walks = Walks::integers(1);
    let progress = bar((steps * target.rows() * 10) as u64, "amplification");
    let written = fill(store, &target, 0..steps, &progress, |step, row, cells| {
        for (place, cell) in cells.iter_mut().enumerate() {
            *cell = walks.value(row * 10 + place, step).to_bits();
        }
        let bits = super::data::mix((step as u64) << 32 | row as u64);
        let late_s = if bits % 100 < flags.late { (bits >> 8) as i64 % 86_400 } else { 0 };
        START_NS + (step as i64 * 10 - late_s) * SECOND_NS
    });
    progress.finish_and_clear();
    written
}

fn judge(flags: &AmplificationFlags, store: &Store, values: u64, objects: &ObjectCounters) -> Case {
    let stats = store.stats();
    let bytes = stats.levels.map(|level| level.bytes as f64);
    let data_bytes: f64 = bytes.iter().sum();
    let fast_bytes = bytes[0] + bytes[1];
    let predicted =
        predict(data_bytes, fast_bytes, f64::from(flags.head_mib) * 1_048_576.0, f64::from(flags.multiplier));
    // What a user counts as ingested: a timestamp and a value of eight bytes each.
    let raw_gib = values as f64 * 16.0 / GIB;
    let mut case = Case::new("measured");
    case.count("values", values)
        .add("data_bytes", data_bytes)
        .add("fast_bytes", fast_bytes)
        .count("part_bytes_written", stats.part_bytes_written)
        .add("write_amplification", stats.part_bytes_written as f64 / data_bytes)
        .add("levels_equation_7", predicted.levels)
        .add("fast_levels_equation_7", predicted.fast_levels)
        .add("growing_levels_equation_8_bytes", predicted.growing_bytes)
        .add("one_level_equation_9_bytes", predicted.one_level_bytes)
        .add("saved_equation_10_bytes", predicted.saved_bytes)
        .count("sent_bytes", objects.sent_bytes)
        .add("sent_per_equation_9", objects.sent_bytes as f64 / predicted.one_level_bytes)
        .count("received_bytes", objects.received_bytes)
        .count("requests", objects.requests)
        .add("requests_per_raw_gib", objects.requests as f64 / raw_gib)
        .add("requests_per_sent_gib", objects.requests as f64 / (objects.sent_bytes as f64 / GIB));
    for (reason, merges) in stats.merges_by_reason.by_reason() {
        case.count(format!("merges_{}", reason.name()), merges);
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own example: 64 MB on top, times 10, 1 GB fast, 100 GB in all.
    #[test]
    fn the_papers_example_comes_out() {
        let predicted = predict(100e9, 1e9, 64e6, 10.0);
        assert!((predicted.fast_levels - 2.2).abs() < 0.1 && (predicted.levels - 4.2).abs() < 0.1, "{predicted:?}");
        assert!((predicted.growing_bytes - (6.4e9 + 2.0 * 64e9)).abs() < 1e6, "{predicted:?}");
        assert_eq!((predicted.one_level_bytes, predicted.saved_bytes), (99e9, 64e9));
    }
}
