//! The machine, the store and the oracle, and what happens to them.

use std::collections::BTreeMap;
use std::path::Path;

use model::TimeRange;
use platform::Platform;
use platform::container::ContainerShape;
use platform::sim::Simulation;
use store::{DatabasePolicy, Finding, ObjectTierOptions, Store, StoreError, StoreOptions, Windows};

use crate::Report;
use crate::check::{self, Content};
use crate::epochs::Epochs;
use crate::oracle::{Oracle, Trimmed};
use crate::rows::{Row, Value, batch, histogram_of, in_order_of_blocks, unfolded};
use crate::trash::Trash;

pub(crate) const SECOND_NS: i64 = 1_000_000_000;
pub(crate) const MINUTE_NS: i64 = 60 * SECOND_NS;
pub(crate) const HOUR_NS: i64 = 60 * MINUTE_NS;

/// Keeps everything; rows are late, rewritten, deleted.
pub(crate) const PLAIN: &str = "plain";
/// Keeps rows for some hours.
pub(crate) const SHORT: &str = "short";
/// Folds; rows that come for folded time are refused.
pub(crate) const FOLDED: &str = "folded";

/// Widths of the summaries that `folded` ends up with: windows are multiples of it.
pub(crate) const FOLD_NS: i64 = 4 * MINUTE_NS;

/// Operations between comparisons of everything.
const EVERYTHING_EACH: u64 = 25;

/// The data folder's path; that of the file which holds it, where it is one file.
pub(crate) const DATA: &str = "data";

/// A small directory, so that it grows and its journal begins anew often.
const SHAPE: ContainerShape = ContainerShape { checkpoint_blocks: 1, journal_blocks: 4 };

/// Whether a seed's folder is one file if that is not said: of four one, with an object store and without.
pub(crate) const fn is_one_file(seed: u64) -> bool {
    matches!(seed % 8, 3 | 6)
}

/// Whether a seed trims series. Seeds that diverged before series could be trimmed are not among them: they do what they did.
pub(crate) const fn trims(seed: u64) -> bool {
    seed / 8 % 4 == 1
}

pub(crate) struct World {
    pub(crate) seed: u64,
    /// Whether the data folder is one file.
    pub(crate) is_one_file: bool,
    pub(crate) simulation: Simulation,
    pub(crate) store: Option<Store>,
    pub(crate) oracles: BTreeMap<&'static str, Oracle>,
    step: u64,
    pub(crate) report: Report,
    /// Operations until the disk has room again.
    pub(crate) full_for: u64,
    pub(crate) trash: Trash,
    /// Named documents that must be there.
    pub(crate) documents: BTreeMap<String, Vec<u8>>,
    /// What the regular database must hold.
    pub(crate) epochs: Epochs,
    /// Up to when series of tables went.
    pub(crate) trimmed: Trimmed,
    /// An opening for reading only, from which the next one goes on.
    pub(crate) reader: Option<Store>,
    /// When a wrong wall clock is set right at the latest, in honest time.
    pub(crate) clock_right_at_ns: Option<i64>,
}

/// Small sizes, so that a few hundred rows go through every mechanism.
pub(crate) fn options(seed: u64) -> StoreOptions {
    let objects = ObjectTierOptions {
        cache_memory_bytes: 64 << 10,
        cache_flash_bytes: 256 << 10,
        local_bytes_max: 20 << 10,
        ..ObjectTierOptions::new("sim://settled")
    };
    StoreOptions {
        objects: seed.is_multiple_of(2).then_some(objects),
        head_bytes_max: 8 << 10,
        reserve_bytes: 64 << 10,
        log_segment_bytes: 32 << 10,
        log_bytes_max: 384 << 10,
        partition_ns: MINUTE_NS,
        fast_bytes_max: 64 << 10,
        level0_parts_max: 3,
        join_bytes_max: 40 << 10,
        group_keys_max: 20,
        node_rows_min: 3,
        trash_age_ms_max: [0, 1_800_000, 86_400_000][seed as usize / 2 % 3],
        ..StoreOptions::new(DATA)
    }
}

/// The age from which on rows are folded.
const FOLD_AGE_NS: i64 = HOUR_NS / 2;

/// Late rows of a write without an answer of which any may have been refused.
const FOLDED_ROWS_MAX: usize = 8;

fn policy(database: &str, hours: i64) -> DatabasePolicy {
    match database {
        FOLDED => DatabasePolicy {
            folds: vec![(FOLD_AGE_NS, MINUTE_NS), (2 * HOUR_NS, FOLD_NS)],
            ..DatabasePolicy::default()
        },
        _ => DatabasePolicy { retention_ns: hours * HOUR_NS, ..DatabasePolicy::default() },
    }
}

impl World {
    pub(crate) fn new(seed: u64, is_one_file: bool) -> Result<Self, String> {
        let oracles = [PLAIN, SHORT, FOLDED].map(|database| (database, Oracle::default()));
        let mut world = Self {
            seed,
            is_one_file,
            simulation: Simulation::new(seed),
            store: None,
            oracles: oracles.into_iter().collect(),
            step: 0,
            report: Report::default(),
            full_for: 0,
            trash: Trash::default(),
            documents: BTreeMap::new(),
            epochs: Epochs::new(),
            trimmed: Trimmed::new(),
            reader: None,
            clock_right_at_ns: None,
        };
        // A machine without a clock of its own begins long ago.
        if seed % 5 == 1 {
            world.set_clock_wrong(|world| world.simulation.set_clock_ns(SECOND_NS));
        }
        world.open()?;
        world.set_policy(FOLDED, 0)?;
        world.set_policy(SHORT, 4)?;
        world.define_regular()?;
        if seed.is_multiple_of(4) {
            world.write_wide_row()?;
        }
        Ok(world)
    }

    /// A row with so many members that they fall into two blocks.
    fn write_wide_row(&mut self) -> Result<(), String> {
        let fields = (0..1100).map(|number| (format!("f{number}"), Value::Float(f64::from(number)))).collect();
        let row = Row { measurement: "wide", host: "h0".to_owned(), timestamp_ns: self.now_ns(), fields };
        let written = self.store()?.write(PLAIN, &batch(PLAIN, std::slice::from_ref(&row)));
        written.map_err(|error| format!("writing a wide row: {error}"))?;
        self.apply(PLAIN, &[row]);
        Ok(())
    }

    /// The machine, as the store sees it.
    pub(crate) fn platform(&self) -> Platform {
        self.platform_of(DATA)
    }

    /// The machine, on which a path is a data folder.
    pub(crate) fn platform_of(&self, path: &str) -> Platform {
        let platform = self.simulation.platform();
        if self.is_one_file { platform.with_one_file(Path::new(path), SHAPE) } else { platform }
    }

    pub(crate) fn store(&self) -> Result<&Store, String> {
        self.store.as_ref().ok_or_else(|| "no store is open".to_owned())
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.simulation.below(bound)
    }

    pub(crate) fn close(&mut self) {
        if let Some(store) = self.store.take() {
            let stats = store.stats();
            self.report.flushes += stats.flushes;
            self.report.merges.merge(&stats.merges_by_reason);
        }
    }

    pub(crate) fn open(&mut self) -> Result<(), String> {
        self.close();
        let store = Store::open(self.platform(), options(self.seed)).map_err(|error| format!("opening: {error}"))?;
        let recovery = store.recovery();
        let is_torn = |finding: &Finding| matches!(finding, Finding::TornTail { .. });
        if !recovery.log_findings.iter().all(is_torn)
            || !recovery.parts_set_aside.is_empty()
            || recovery.log_rows_lost > 0
        {
            return Err(format!("opening found damage where there is none: {recovery:?}"));
        }
        self.store = Some(store);
        Ok(())
    }

    /// One operation, and comparisons.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.step += 1;
        self.report.operations += 1;
        if self.full_for > 0 {
            self.full_for -= 1;
            if self.full_for == 0 {
                self.simulation.limit_room(None);
            }
        }
        match self.below(100) {
            0..55 => self.write()?,
            55..60 => self.write_epoch()?,
            60..66 => self.background(Store::flush_all)?,
            66..68 => self.restore_from_trash()?,
            68..78 => self.background(|store| store.maintain().map(|_| ()))?,
            78..81 => self.spoil_uploads()?,
            81..82 => self.disturb_clock(),
            82..83 => self.change_document()?,
            83..87 => self.advance_ns(self.below(HOUR_NS as u64) as i64),
            87..91 if self.is_trim_due() => self.trim()?,
            87..91 => self.delete()?,
            91..92 => self.set_policy(SHORT, [3, 6, 12][self.below(3) as usize])?,
            92..95 => self.reopen()?,
            95..97 => self.crash()?,
            97..98 => self.back_up()?,
            98..99 => self.spoil()?,
            _ => self.fill_disk(),
        }
        self.check_time()?;
        self.watch_trash()?;
        self.compare_some()?;
        if trims(self.seed) && self.below(12) == 0 {
            self.compare_read_only()?;
        }
        if self.step.is_multiple_of(EVERYTHING_EACH) {
            self.check_folder()?;
            self.compare_everything()?;
        }
        Ok(())
    }

    /// Everything settled, compared once more.
    pub(crate) fn finish(mut self) -> Result<Report, String> {
        self.simulation.limit_room(None);
        self.believe_clock()?;
        self.store()?.compact_all().map_err(|error| format!("settling: {error}"))?;
        self.compare_everything()?;
        self.open()?;
        self.compare_everything()?;
        Ok(self.report)
    }

    /// Whether a full disk may have refused an operation: then nothing of it must have happened.
    pub(crate) fn refused(&mut self, error: &StoreError) -> bool {
        let is_full = matches!(error, StoreError::Io { error, .. } if error.kind() == std::io::ErrorKind::StorageFull);
        self.report.refused += u64::from(is_full);
        is_full && self.full_for > 0
    }

    fn background(&mut self, work: impl FnOnce(&Store) -> Result<(), StoreError>) -> Result<(), String> {
        match work(self.store()?) {
            Err(error) if !self.refused(&error) => Err(format!("background work: {error}")),
            _ => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), String> {
        self.advance_ns(self.below(40) as i64 * SECOND_NS);
        let (database, rows) = self.random_rows();
        let kept = self.within_retention(database, &rows);
        let beyond = (rows.len() - kept.len()) as u64;
        match self.store()?.write(database, &batch(database, &rows)) {
            Ok(report) if database == FOLDED => {
                self.apply(FOLDED, &unfolded(&rows, &report)?);
                self.report.folded += report.rejected_total;
                Ok(())
            }
            Ok(report) if report.rejected_total != beyond => {
                Err(format!("{} rows were rejected, {beyond} should be: {:?}", report.rejected_total, report.rejected))
            }
            Ok(_) => {
                self.report.beyond_retention += beyond;
                self.apply(database, &kept);
                Ok(())
            }
            Err(error) if self.refused(&error) => Ok(()),
            Err(error) => Err(format!("writing: {error}")),
        }
    }

    /// The rows that the store must take.
    fn within_retention(&self, database: &str, rows: &[Row]) -> Vec<Row> {
        let kept = self.oracles.get(database).map(|oracle| oracle.retained(&TimeRange::ALL, self.kept_now_ns()));
        rows.iter().filter(|row| kept.is_none_or(|kept| row.timestamp_ns >= kept.start_ns)).cloned().collect()
    }

    fn apply(&mut self, database: &str, rows: &[Row]) {
        if let Some(oracle) = self.oracles.get_mut(database) {
            oracle.write(rows);
        }
    }

    /// A few rows: mostly in order of time, some late, some rewriting what is there, some with other fields or of many members.
    fn random_rows(&self) -> (&'static str, Vec<Row>) {
        let database = [PLAIN, PLAIN, PLAIN, SHORT, SHORT, FOLDED][self.below(6) as usize];
        if self.below(25) == 0 {
            return (database, in_order_of_blocks(self.late_rows()));
        }
        let count = 1 + self.below(12);
        let rows = (0..count).map(|place| self.random_row(database, place)).collect();
        (database, in_order_of_blocks(rows))
    }

    /// Late rows of one host, enough for nodes; some have other fields, some rewrite one before.
    fn late_rows(&self) -> Vec<Row> {
        let (host, count) = (format!("h{}", self.below(5)), 30 + self.below(70));
        let late_ns = self.below(6 * HOUR_NS as u64) as i64;
        let mut second = (self.now_ns() - late_ns).div_euclid(SECOND_NS) - count as i64;
        let mut row = |place: u64| {
            second += i64::from(self.below(20) > 0);
            let number = self.step * 100 + place;
            let timestamp_ns = second * SECOND_NS;
            let names = if self.below(30) == 0 { ["a", "c"] } else { ["a", "b"] };
            let fields = names.map(|name| (name.to_owned(), Value::Float(number as f64))).to_vec();
            Row { measurement: "m", host: host.clone(), timestamp_ns, fields }
        };
        (0..count).map(&mut row).collect()
    }

    fn random_row(&self, database: &str, place: u64) -> Row {
        // Folds are where late rows are rare by themselves and matter most.
        // Of rows that are kept for hours some come too late.
        let late_hours = if database == SHORT { 12 } else { 6 };
        let late_ns = match self.below(if database == FOLDED { 4 } else { 20 }) {
            0 => self.below(late_hours * HOUR_NS as u64) as i64,
            1 => self.below(20 * MINUTE_NS as u64) as i64,
            _ => self.below(10) as i64 * SECOND_NS,
        };
        // Whole seconds, and whole minutes of half the late ones, so that rows meet rows that are there.
        let unit_ns = if late_ns > MINUTE_NS && self.below(2) == 0 { MINUTE_NS } else { SECOND_NS };
        let seconds_ns = (self.now_ns() - late_ns).div_euclid(unit_ns) * unit_ns;
        let timestamp_ns = match (database, self.below(400)) {
            (PLAIN, 0) => i64::MIN + self.step as i64,
            (PLAIN, 1) => i64::MAX - self.step as i64,
            (PLAIN | SHORT, 2) => seconds_ns + 40 * HOUR_NS,
            _ => seconds_ns,
        };
        let value = (self.step * 100 + place) as f64;
        let float = |name: &str, value: f64| (name.to_owned(), Value::Float(value));
        let (measurement, fields) = match self.below(40) {
            0..6 => ("m", vec![float("b", value)]),
            6..10 => ("m", vec![float("a", value), float("c", value / 8.0)]),
            10..14 => ("m", vec![("n".to_owned(), Value::Integer(-(value as i64)))]),
            14..17 => ("m", vec![("s".to_owned(), Value::Text(format!("text {value}"))), float("a", value)]),
            17..27 => ("lone", vec![float("value", value)]),
            27 => ("wide", (0..1200).step_by(97).map(|number| float(&format!("f{number}"), value)).collect()),
            28 => (
                "m",
                vec![("h".to_owned(), Value::Histogram(histogram_of(self.step * 100 + place))), float("a", value)],
            ),
            _ => ("m", vec![float("a", value), float("b", -value)]),
        };
        let host = format!("h{}", self.below(5));
        Row { measurement, host, timestamp_ns, fields }
    }

    fn set_policy(&mut self, database: &'static str, hours: i64) -> Result<(), String> {
        match self.store()?.set_policy(database, &policy(database, hours)) {
            Ok(()) => {
                let now_ns = self.kept_now_ns();
                if let Some(oracle) =
                    self.oracles.get_mut(database).filter(|oracle| oracle.retention_ns != hours * HOUR_NS)
                {
                    oracle.floor_ns = oracle.retained(&TimeRange::ALL, now_ns).start_ns;
                    oracle.retention_ns = hours * HOUR_NS;
                }
                Ok(())
            }
            Err(error) if self.refused(&error) => Ok(()),
            Err(error) => Err(format!("setting a policy: {error}")),
        }
    }

    fn reopen(&mut self) -> Result<(), String> {
        if self.full_for == 0 {
            self.open()?;
            return self.compare_everything();
        }
        self.store = None;
        match Store::open(self.platform(), options(self.seed)) {
            Ok(store) => self.store = Some(store),
            // What is set apart for this was used up before.
            Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => {
                self.simulation.limit_room(None);
                self.full_for = 0;
                self.open()?;
            }
            Err(error) => return Err(format!("opening on a full disk: {error}")),
        }
        self.compare_everything()
    }

    fn fill_disk(&mut self) {
        let room = self.simulation.used_bytes() + self.below(40 << 10) as usize;
        self.simulation.limit_room(Some(room));
        self.full_for = 1 + self.below(30);
    }

    /// Lets syncs fail in the middle of something, cuts the power, and says what the store must hold: everything from before,
    /// and what was under way whole or not at all.
    fn crash(&mut self) -> Result<(), String> {
        self.simulation.limit_room(None);
        self.full_for = 0;
        self.report.crashes += 1;
        self.simulation.fail_syncs_after(self.below(12) as u32);
        match self.below(6) {
            5 => self.crash_with_epoch()?,
            4 => self.crash_with_document()?,
            0 => {
                // How far it gets is the simulation's choice.
                let _ = self.store()?.compact_all();
                self.restart()?;
            }
            1 if self.is_trim_due() => self.crash_with_trim()?,
            1 => {
                let (database, host, metric, range) = self.random_delete();
                let _ = self.delete_from_store(database, &host, metric, &range);
                self.restart()?;
                self.accept_half_deleted(database, &host, metric, &range)?;
            }
            _ => {
                let (database, rows) = self.random_rows();
                let kept = self.within_retention(database, &rows);
                let written = self.store()?.write(database, &batch(database, &rows));
                let kept = match &written {
                    Ok(report) if database == FOLDED => unfolded(&rows, report)?,
                    _ => kept,
                };
                self.restart()?;
                self.accept_written(database, &kept, written.is_ok())?;
            }
        }
        self.compare_everything()
    }

    pub(crate) fn restart(&mut self) -> Result<(), String> {
        // The power goes for readers, too.
        self.reader = None;
        self.simulation.crash();
        self.open()
    }

    fn accept_written(&mut self, database: &'static str, rows: &[Row], must: bool) -> Result<(), String> {
        let before = self.oracles.get(database).cloned().unwrap_or_default();
        self.apply(database, rows);
        if must {
            return Ok(());
        }
        if self.differs(database)?.is_none() {
            self.may_lack_unseen(database, rows);
            return Ok(());
        }
        if database == FOLDED {
            // Without an answer it is not known which of the rows were refused, since their time is folded already.
            let foldable_ns = self.now_ns() - FOLD_AGE_NS;
            let (late, newer): (Vec<Row>, Vec<Row>) =
                rows.iter().cloned().partition(|row| row.timestamp_ns < foldable_ns);
            for refused in 1..1_u32 << late.len().min(FOLDED_ROWS_MAX) {
                let taken = late.iter().enumerate().filter(|(index, _)| refused >> index & 1 == 0);
                let taken: Vec<Row> = taken.map(|(_, row)| row.clone()).chain(newer.iter().cloned()).collect();
                self.oracles.insert(database, before.clone());
                self.apply(database, &in_order_of_blocks(taken));
                if self.differs(database)?.is_none() {
                    return Ok(());
                }
            }
        }
        self.oracles.insert(database, before);
        Ok(())
    }

    /// Of rows without an answer that are past keeping no comparison says whether they are there.
    fn may_lack_unseen(&mut self, database: &str, rows: &[Row]) {
        let now_ns = self.kept_now_ns();
        let Some(oracle) = self.oracles.get(database).filter(|_| database == SHORT) else {
            return;
        };
        let compared = oracle.retained(&oracle.certain(&TimeRange::ALL, now_ns), now_ns);
        let unseen = rows.iter().map(|row| row.timestamp_ns).filter(|timestamp_ns| *timestamp_ns < compared.start_ns);
        if let Some(last_ns) = unseen.max() {
            self.trash.may_lack(last_ns.saturating_add(1));
        }
    }

    /// Compares one database wholly.
    pub(crate) fn differs(&self, database: &str) -> Result<Option<String>, String> {
        self.differs_in(self.store()?, database)
    }

    /// As [`World::differs`], in another store of the folder.
    fn differs_in(&self, store: &Store, database: &str) -> Result<Option<String>, String> {
        let Some(oracle) = self.oracles.get(database) else {
            return Ok(None);
        };
        if database == FOLDED {
            let windows = self.folded_windows(40 * HOUR_NS);
            let groups = check::groups(store, database)?;
            if let Some(missing) = check::missing_series(&groups, oracle) {
                return Ok(Some(missing));
            }
            for group in groups {
                let now_ns = store.trusted_now_ns();
                let compared = check::compare_windows(store, &group, &windows, oracle, now_ns, true);
                if let Err(message) = compared {
                    return Ok(Some(message));
                }
            }
            return Ok(None);
        }
        let now_ns = store.trusted_now_ns();
        let range = oracle.certain(&TimeRange::ALL, now_ns);
        let found: Content = check::read_all(store, database, &range)?;
        let expected = check::expected(oracle, &range, now_ns);
        Ok(check::difference(&found, &expected))
    }

    fn folded_windows(&self, length_ns: i64) -> Windows {
        let width_ns = FOLD_NS * (1 + self.below(3) as i64);
        let end_ns = self.now_ns() + HOUR_NS;
        let start_ns = (end_ns - length_ns).div_euclid(FOLD_NS) * FOLD_NS;
        Windows { start_ns, width_ns, count: (length_ns / width_ns + 1) as usize }
    }

    pub(crate) fn compare_everything(&mut self) -> Result<(), String> {
        self.check_time()?;
        self.report.comparisons += 3;
        self.compare_store(self.store()?)
    }

    /// Compares everything that a store of the folder shows.
    pub(crate) fn compare_store(&self, store: &Store) -> Result<(), String> {
        self.compare_documents_of(store)?;
        self.compare_epochs_of(store)?;
        self.compare_trimmed_of(store)?;
        for database in [PLAIN, SHORT, FOLDED] {
            if let Some(difference) = self.differs_in(store, database)? {
                return Err(format!("{database}: {difference}"));
            }
        }
        Ok(())
    }

    /// Compares a group's samples in some range, and its windows.
    fn compare_some(&mut self) -> Result<(), String> {
        let database = [PLAIN, SHORT, FOLDED][self.below(3) as usize];
        let groups = check::groups(self.store()?, database)?;
        let Some(group) = groups.get(self.below(groups.len() as u64) as usize) else {
            return Ok(());
        };
        let Some(oracle) = self.oracles.get(database) else {
            return Ok(());
        };
        let now_ns = self.kept_now_ns();
        self.report.comparisons += 1;
        if database == FOLDED {
            let windows = self.folded_windows(6 * HOUR_NS);
            check::compare_windows(self.store()?, group, &windows, oracle, now_ns, true)?;
            return Ok(());
        }
        let start_ns = self.now_ns() - self.below(8 * HOUR_NS as u64) as i64;
        let range = TimeRange::new(start_ns, start_ns + self.below(2 * HOUR_NS as u64) as i64);
        let range = oracle.certain(&range, now_ns);
        check::compare_group(self.store()?, group, &range, oracle, now_ns)
            .map_err(|message| format!("{database}: {message}"))?;
        let width_ns = 1 + self.below(HOUR_NS as u64) as i64;
        let windows = Windows { start_ns, width_ns, count: 1 + self.below(20) as usize };
        if oracle.certain(&windows.range(), now_ns) != windows.range() {
            return Ok(());
        }
        let nodes = check::compare_windows(self.store()?, group, &windows, oracle, now_ns, false)
            .map_err(|message| format!("{database}: {message}"))?;
        self.report.nodes += nodes;
        Ok(())
    }
}
