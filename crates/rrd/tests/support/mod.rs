//! Random files, RRDtool, and a database.
#![allow(clippy::expect_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use db::{Db, DbOptions};
use fastrand::Rng;
use query::Budget;
use thalweg_rrd::RrdError;
use thalweg_rrd::catalog::{Catalog, File, Pending, Refused, Writer};
use thalweg_rrd::fetch::{FetchRequest, Fetched};
use thalweg_rrd::file::{Definition, Moment, Reading, Source, SourceKind};
use thalweg_rrd::pattern::Patterns;
use thalweg_rrd::xport::Fetch;

/// When files begin.
pub(crate) const BEGIN_S: i64 = 1_700_000_000;

/// A folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// `None` if there is no RRDtool.
    pub(crate) fn for_rrdtool(name: &str) -> Option<Self> {
        let is_required = std::env::var_os("THALWEG_RRDTOOL_TEST").is_some_and(|value| value == "required");
        let is_there = Command::new("rrdtool").arg("--version").output().is_ok();
        assert!(is_there || !is_required, "rrdtool is missing");
        if !is_there {
            eprintln!("not tested: rrdtool is missing");
            return None;
        }
        let path = std::env::temp_dir().join(format!("thalweg-rrd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Some(Self(path))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs RRDtool, in UTC.
pub(crate) fn rrdtool(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("rrdtool").args(arguments).env("TZ", "UTC").env("LC_ALL", "C").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Equal to 1e-9, or both unknown.
pub(crate) fn is_close(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
}

/// Texts whose words are equal, numbers to 1e-9.
pub(crate) fn assert_text_is_close(ours: &str, theirs: &str, what: &str) {
    let cut = |text: &str| {
        let symbols = |symbol: char| symbol.is_whitespace() || "<>,:\"[]".contains(symbol);
        text.split(symbols).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let (a, b) = (cut(ours), cut(theirs));
    let number = |word: &str| match word.trim_start_matches('-') {
        "nan" | "NaN" => Some(f64::NAN),
        "inf" => Some(if word.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }),
        _ => word.parse().ok(),
    };
    for (x, y) in a.iter().zip(&b) {
        let is_same = x == y || matches!((number(x), number(y)), (Some(x), Some(y)) if is_close(x, y));
        assert!(is_same, "{what}: {x} instead of {y}\n{ours}\ninstead of\n{theirs}");
    }
    assert_eq!(a.len(), b.len(), "{what}\n{ours}\ninstead of\n{theirs}");
}

/// An update.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    /// As it is sent.
    written: String,
    /// What RRDtool makes of it.
    pub(crate) time: Moment,
    pub(crate) values: Vec<String>,
}

impl Update {
    pub(crate) fn text(&self) -> String {
        let Self { written, values, .. } = self;
        format!("{written}:{}", values.join(":"))
    }

    pub(crate) fn readings(&self, sources: &[Source]) -> Vec<Reading> {
        let mut values = self.values.iter();
        let reading = |source: &Source| match source.kind {
            SourceKind::Compute => Reading::Unknown,
            kind => Reading::parse(kind, values.next().unwrap()).unwrap(),
        };
        sources.iter().map(reading).collect()
    }
}

/// A file and its updates.
#[derive(Debug)]
pub(crate) struct Case {
    step_s: u64,
    arguments: Vec<String>,
    pub(crate) updates: Vec<Update>,
}

impl Case {
    /// Sources of all kinds, archives of all functions; updates in and out of step, gaps, wraps and unknown values.
    pub(crate) fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let step_s = [1, 10, 60, 300][rng.usize(..4)];
        let heartbeat = |rng: &mut Rng| step_s * rng.u64(1..5) + rng.u64(..3);
        let mut arguments: Vec<String> = ["GAUGE", "COUNTER", "DERIVE", "ABSOLUTE", "DCOUNTER", "DDERIVE"]
            .into_iter()
            .enumerate()
            .map(|(number, kind)| {
                let limits = match (kind, rng.u8(..3)) {
                    ("GAUGE", 0) => "5:90",
                    ("COUNTER", 0) => "0:1000000",
                    ("DERIVE", 0) => "0:U",
                    _ => "U:U",
                };
                format!("DS:d{number}:{kind}:{}:{limits}", heartbeat(&mut rng))
            })
            .collect();
        arguments.push("DS:sum:COMPUTE:d0,d3,ADDNAN,2,*".to_owned());
        for function in ["AVERAGE", "MIN", "MAX", "LAST"] {
            for points in [1, 3, 10] {
                let xff = ["0", "0.3", "0.5", "0.9"][rng.usize(..4)];
                arguments.push(format!("RRA:{function}:{xff}:{points}:{}", rng.u64(5..200)));
            }
        }
        let updates = random_updates(&mut rng, step_s);
        Self { step_s, arguments, updates }
    }

    /// Two sources without gaps that are long.
    pub(crate) fn for_exports(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let arguments = [
            "DS:gauge:GAUGE:180:U:U",
            "DS:count:COUNTER:180:0:U",
            "RRA:AVERAGE:0.5:1:400",
            "RRA:AVERAGE:0.5:5:400",
            "RRA:MAX:0.5:5:400",
        ];
        let (mut seconds, mut count, mut updates) = (BEGIN_S, 0_u64, Vec::new());
        while seconds < BEGIN_S + 14_000 {
            seconds += rng.i64(30..100) + if rng.u8(..30) == 0 { 400 } else { 0 };
            count += rng.u64(..100_000);
            let values = vec![format!("{:.3}", rng.f64() * 50.0 - 5.0), count.to_string()];
            updates.push(Update { written: seconds.to_string(), time: Moment::from_seconds(seconds), values });
        }
        Self { step_s: 60, arguments: arguments.map(str::to_owned).to_vec(), updates }
    }

    pub(crate) fn definition(&self) -> Definition {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Definition::parse(self.step_s, &arguments).unwrap()
    }

    pub(crate) fn create(&self, path: &Path) {
        let (begin, step) = (BEGIN_S.to_string(), self.step_s.to_string());
        let mut arguments = vec!["create", path.to_str().unwrap(), "-b", &begin, "-s", &step];
        arguments.extend(self.arguments.iter().map(String::as_str));
        rrdtool(&arguments).unwrap();
    }

    pub(crate) fn update(path: &Path, updates: &[Update]) {
        let texts: Vec<String> = updates.iter().map(Update::text).collect();
        let mut arguments = vec!["update", path.to_str().unwrap()];
        arguments.extend(texts.iter().map(String::as_str));
        rrdtool(&arguments).unwrap();
    }

    pub(crate) fn last_s(&self) -> i64 {
        self.updates.last().unwrap().time.seconds
    }
}

fn random_updates(rng: &mut Rng, step_s: u64) -> Vec<Update> {
    let step_s = step_s as i64;
    let (mut time, mut updates) = (Moment::from_seconds(BEGIN_S), Vec::new());
    // Near the wraps at 32 and 64 bits.
    let mut counter: u64 = [0, u64::from(u32::MAX) - 5_000, u64::MAX - 5_000][rng.usize(..3)];
    let wraps_at_32 = counter < u64::from(u32::MAX);
    let (mut derived, mut floating): (i64, f64) = (rng.i64(-2_000..2_000), 10.0);
    for _ in 0..rng.usize(20..150) {
        time.seconds += match rng.u8(..20) {
            0 => rng.i64(1..40) * step_s,
            1..=4 => rng.i64(1..=3 * step_s),
            5..=9 => rng.i64(1..step_s.max(2)),
            _ => step_s,
        };
        time.micros = if rng.u8(..4) == 0 { rng.u32(..1_000_000) } else { 0 };
        counter = counter.wrapping_add(rng.u64(..3_000));
        if wraps_at_32 {
            counter &= u64::from(u32::MAX);
        }
        derived += rng.i64(-500..900);
        floating = if rng.u8(..15) == 0 { 1.5 } else { floating + rng.f64() * 9.0 };
        let mut values = vec![
            format!("{:.4}", rng.f64() * 100.0),
            counter.to_string(),
            derived.to_string(),
            rng.u32(..900).to_string(),
            format!("{floating:.3}"),
            format!("{:.3}", rng.f64() * 40.0 - 20.0),
        ];
        if rng.u8(..6) == 0 {
            let unknown = rng.usize(..values.len());
            "U".clone_into(&mut values[unknown]);
        }
        if rng.u8(..25) == 0 {
            values.iter_mut().for_each(|value| "U".clone_into(value));
        }
        let written = match time.micros {
            0 => time.seconds.to_string(),
            micros => format!("{}.{micros:06}", time.seconds),
        };
        let parsed = Moment::parse(&written, time).unwrap();
        updates.push(Update { written, time: parsed, values });
    }
    updates
}

/// A database.
pub(crate) struct World {
    pub(crate) db: Arc<Db>,
}

impl World {
    pub(crate) fn open(folder: &Path) -> Self {
        Self { db: Arc::new(Db::open(platform::Platform::real(), DbOptions::new(folder)).unwrap()) }
    }

    pub(crate) fn catalog(&self, patterns: Patterns) -> Catalog {
        Catalog::open(self.db.clone(), patterns)
    }

    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.db.budget(10_000_000)
    }

    pub(crate) fn update(&self, catalog: &Catalog, file: &Arc<File>, updates: &[Update]) {
        for chunk in updates.chunks(40) {
            let mut pending = Pending::default();
            for update in chunk {
                catalog.queue(file, &update.text(), (Moment::default(), 0), &mut pending).unwrap();
            }
            assert!(pending.flush(self).is_empty(), "all updates are stored");
        }
    }
}

impl Writer for World {
    fn write(&self, lines: &[u8]) -> Result<Refused, RrdError> {
        let written = self.db.write_lines("default", lines);
        let (report, errors) = written.map_err(|error| RrdError::Refused(error.to_string()))?;
        assert_eq!((report.rejected_total, errors.total), (0, 0), "{report:?} {errors:?}");
        Ok(Refused::default())
    }
}

/// Rows of a catalog for exports.
pub(crate) struct Files<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) world: &'a World,
}

impl Fetch for Files<'_> {
    fn fetch(&self, path: &str, request: &FetchRequest) -> Result<Fetched, RrdError> {
        self.catalog.fetch(&*self.catalog.file("default", path)?, request, &self.world.budget())
    }

    fn hold(&self, _: usize) -> Result<(), RrdError> {
        Ok(())
    }
}
