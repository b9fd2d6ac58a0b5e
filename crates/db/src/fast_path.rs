//! The fast path: what is registered once is written by token, without labels or names.

use model::{Field, Labels};
use store::{
    Appended, Appender, GroupLayout, GroupsToRegister, ReadCounts, SelectedGroup, SeriesGate, StoreError, Token,
    WindowColumn, Windows,
};

use crate::Db;

impl Db {
    /// Registers lone series of floats, each by its metric name and labels; their tokens, in the same order.
    pub fn register_series(&self, database: &str, series: &[(&str, Labels)]) -> Result<Vec<Token>, StoreError> {
        self.store.register_series(database, series)
    }

    /// As [`Db::register_series`]; series that are new have to pass a gate.
    pub fn register_series_gated(
        &self,
        database: &str,
        series: &[(&str, Labels)],
        gate: Option<SeriesGate<'_>>,
    ) -> Result<Vec<Token>, StoreError> {
        self.store.register_series_gated(database, series, gate)
    }

    /// Registers groups of a measurement that share a list of members; their tokens, in the same order, and the layout of
    /// their rows.
    pub fn register_groups(
        &self,
        database: &str,
        measurement: &str,
        groups: &[Labels],
        members: &[(Field, Labels)],
    ) -> Result<(Vec<Token>, GroupLayout), StoreError> {
        self.store.register_groups(database, measurement, groups, members)
    }

    /// As [`Db::register_groups`]; groups that are new have to pass a gate.
    pub fn register_groups_gated(
        &self,
        database: &str,
        groups: &GroupsToRegister<'_>,
        gate: Option<SeriesGate<'_>>,
    ) -> Result<(Vec<Token>, GroupLayout), StoreError> {
        self.store.register_groups_gated(database, groups, gate)
    }

    /// Begins a request: rows by token, written together.
    pub fn appender(&self) -> Appender<'_> {
        self.store.appender()
    }

    /// The layout that a measurement's number, slots and types stand for, as [`GroupLayout`] says them.
    pub fn group_layout(
        &self,
        measurement: u32,
        slots: &[u32],
        types: &[model::ValueType],
    ) -> Result<GroupLayout, StoreError> {
        self.store.group_layout(measurement, slots, types)
    }

    /// Returns when what was appended is on disk; many appends can share one wait.
    pub fn commit(&self, appended: &Appended) -> Result<(), StoreError> {
        let committed = self.store.commit(appended);
        self.watch.note(committed.as_ref().err());
        committed
    }

    /// The sequence of a producer's last batch that was applied; `None` if the producer is not known, or was forgotten.
    pub fn last_sent(&self, producer: u64) -> Option<u64> {
        self.store.last_sent(producer)
    }

    /// Identifies the making of the data folder: tokens of another one mean nothing.
    pub fn incarnation(&self) -> u64 {
        self.store.incarnation()
    }

    /// The summaries of windows of a selected group's columns.
    pub fn aggregate(
        &self,
        selected: &SelectedGroup,
        windows: &Windows,
    ) -> Result<(Vec<WindowColumn>, ReadCounts), StoreError> {
        self.store.aggregate(selected, windows)
    }
}

#[cfg(test)]
mod tests {
    use model::Labels;

    use crate::{Db, DbOptions, InstantQuery};

    #[test]
    fn samples_by_token_are_found_by_name() {
        let folder = std::env::temp_dir().join(format!("thalweg-fast-path-{}", std::process::id()));
        let db = Db::open(platform::Platform::real(), DbOptions::new(&folder)).unwrap();
        let north = Labels::from_pairs([("station", "north")]).unwrap();
        let tokens = db.register_series("default", &[("level", north)]).unwrap();
        let mut appender = db.appender();
        appender.sample(tokens[0], 60_000_000_000, 21.5).unwrap();
        assert!(appender.commit().unwrap().is_empty(), "the token is known");
        let answer = db.instant("default", &InstantQuery::new("level", 60_000)).unwrap();
        assert!(format!("{answer:?}").contains("21.5"), "{answer:?}");
        db.close().unwrap();
        drop(db);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
