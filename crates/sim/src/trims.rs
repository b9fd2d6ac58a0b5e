//! Series that keep their rows less long than others of their table: what went stays gone, also where parts come back from the trash, and is gone
//! for those who only read the folder.

use index::{CompiledMatcher, compile};
use model::{MatchOp, Matcher, TimeRange};
use store::{Store, StoreError, StoreOptions};

use crate::oracle::Trimmed;
use crate::world::{DATA, FOLD_NS, FOLDED, HOUR_NS, PLAIN, SHORT, World, options, trims};

/// The series of some hosts in a table, and a time.
#[derive(Debug, Clone)]
pub(crate) struct Trim {
    database: &'static str,
    table: &'static str,
    /// Each is a set of matchers; none stands for all hosts.
    hosts: Vec<String>,
    before_ns: i64,
}

impl Trim {
    fn matcher_sets(&self) -> Result<Vec<Vec<CompiledMatcher>>, StoreError> {
        let of_host = |host: &String| compile(&[Matcher::new("host", MatchOp::Equal, host.as_str())]);
        let compiled: Result<Vec<_>, _> =
            if self.hosts.is_empty() { Ok(vec![Vec::new()]) } else { self.hosts.iter().map(of_host).collect() };
        compiled.map_err(|error| StoreError::Invalid(error.to_string()))
    }

    /// Carries it out; `told_ns` is the time that the store names before anything goes.
    fn run(&self, store: &Store, told_ns: &mut Option<i64>) -> Result<i64, StoreError> {
        store.trim_series((self.database, self.table), &self.matcher_sets()?, self.before_ns, &mut |before_ns| {
            *told_ns = Some(before_ns);
            Ok(())
        })
    }
}

impl World {
    /// Whether a trim takes the place of a delete.
    pub(crate) fn is_trim_due(&self) -> bool {
        trims(self.seed) && self.below(2) == 0
    }

    pub(crate) fn trim(&mut self) -> Result<(), String> {
        let trim = self.random_trim(self.full_for == 0);
        let now_ns = self.kept_now_ns();
        let mut told_ns = None;
        match trim.run(self.store()?, &mut told_ns) {
            Ok(before_ns) => {
                self.check_bound(&trim, before_ns, now_ns)?;
                self.report.trims += u64::from(told_ns.is_some());
                if told_ns.is_some_and(|told_ns| told_ns != before_ns) {
                    return Err(format!("{trim:?} named {told_ns:?} and took what is before {before_ns}"));
                }
                self.trim_oracle(&trim, before_ns);
                if told_ns.is_some() {
                    self.note_trimmed(&trim, before_ns);
                }
            }
            Err(error) if self.refused(&error) => self.accept_half_trimmed(&trim, told_ns)?,
            Err(error) => return Err(format!("{trim:?}: {error}")),
        }
        self.compare_trimmed()?;
        if self.below(3) == 0 { self.compare_read_only() } else { Ok(()) }
    }

    /// Trims while syncs fail, and cuts the power.
    pub(crate) fn crash_with_trim(&mut self) -> Result<(), String> {
        let trim = self.random_trim(false);
        let mut told_ns = None;
        let trimmed = trim.run(self.store()?, &mut told_ns);
        self.restart()?;
        match trimmed {
            Ok(before_ns) => {
                self.trim_oracle(&trim, before_ns);
                if told_ns.is_some() {
                    self.note_trimmed(&trim, before_ns);
                }
            }
            Err(_) => self.accept_half_trimmed(&trim, told_ns)?,
        }
        self.compare_trimmed()
    }

    /// One that may be cut off is not of folded rows: half of it could not be told from all of it.
    fn random_trim(&self, is_answered: bool) -> Trim {
        let database = match self.below(3) {
            0 => PLAIN,
            1 if is_answered => FOLDED,
            _ => SHORT,
        };
        let table = ["m", "m", "lone", "wide"][self.below(4) as usize];
        let count = self.below(4);
        let hosts = (0..count).map(|_| format!("h{}", self.below(5))).collect();
        let before_ns = match self.below(10) {
            0 => self.now_ns() + HOUR_NS,
            1 => i64::MIN,
            2..5 => self.now_ns() - self.below(HOUR_NS as u64) as i64,
            _ => self.now_ns() - self.below(8 * HOUR_NS as u64) as i64,
        };
        Trim { database, table, hosts, before_ns }
    }

    /// Nothing after the trusted time goes, and of folds only whole ones.
    fn check_bound(&self, trim: &Trim, before_ns: i64, now_ns: i64) -> Result<(), String> {
        if !self.store()?.has_database(trim.database) {
            return Ok(());
        }
        let most_ns = trim.before_ns.min(now_ns);
        let least_ns =
            if trim.database == FOLDED { most_ns.saturating_sub(most_ns.rem_euclid(FOLD_NS)) } else { most_ns };
        if (least_ns..=most_ns).contains(&before_ns) {
            return Ok(());
        }
        Err(format!("{trim:?} took what is before {before_ns}, which is not from {least_ns} to {most_ns}"))
    }

    fn trim_oracle(&mut self, trim: &Trim, before_ns: i64) {
        if let Some(oracle) = self.oracles.get_mut(trim.database) {
            oracle.trim(trim.table, &trim.hosts, before_ns);
        }
    }

    fn note_trimmed(&mut self, trim: &Trim, before_ns: i64) {
        let noted_ns = self.trimmed.entry((trim.database, trim.table)).or_insert(before_ns);
        *noted_ns = before_ns.max(*noted_ns);
    }

    /// A trim without an answer: each series has gone or not, and the note of it is there before the first one goes.
    fn accept_half_trimmed(&mut self, trim: &Trim, told_ns: Option<i64>) -> Result<(), String> {
        let Some(before_ns) = told_ns else { return Ok(()) };
        let range = TimeRange::new(i64::MIN, before_ns.saturating_sub(1));
        let has_gone =
            self.accept_half_gone(trim.database, &range, &|oracle| oracle.trim(trim.table, &trim.hosts, before_ns))?;
        let key = (trim.database, trim.table);
        let is_noted = trimmed_of(self.store()?).get(&key).is_some_and(|noted_ns| *noted_ns >= before_ns);
        if has_gone && !is_noted {
            return Err(format!("{trim:?} took rows without a note of it"));
        }
        if is_noted {
            self.note_trimmed(trim, before_ns);
        }
        Ok(())
    }

    pub(crate) fn compare_trimmed(&self) -> Result<(), String> {
        self.compare_trimmed_of(self.store()?)
    }

    /// Compares what a store says of tables whose series went.
    pub(crate) fn compare_trimmed_of(&self, store: &Store) -> Result<(), String> {
        let found = trimmed_of(store);
        if found == self.trimmed { Ok(()) } else { Err(format!("trimmed: {found:?}, not {:?}", self.trimmed)) }
    }

    /// What an opening for reading only shows while the store is open.
    pub(crate) fn compare_read_only(&mut self) -> Result<(), String> {
        let options = options(self.seed);
        if options.objects.is_some() {
            return Ok(());
        }
        self.report.read_only += 1;
        let previous = self.reader.take().filter(|_| !self.is_one_file && self.below(8) > 0);
        let options = StoreOptions { directory: DATA.into(), ..options };
        let store = Store::open_read_only_after(&self.platform(), &options, previous.as_ref());
        let store = store.map_err(|error| format!("opening for reading only: {error}"))?;
        self.compare_store(&store).map_err(|message| format!("read only: {message}"))?;
        self.reader = Some(store);
        Ok(())
    }
}

/// What a store says of tables whose series went.
fn trimmed_of(store: &Store) -> Trimmed {
    let of_database = |database: &'static str| {
        let tables = store.trimmed_tables(database).into_iter();
        tables.filter_map(move |(table, before_ns)| {
            let known = ["m", "lone", "wide"].into_iter().find(|known| *known == table)?;
            Some(((database, known), before_ns))
        })
    };
    [PLAIN, SHORT, FOLDED].into_iter().flat_map(of_database).collect()
}
