//! A data folder in simulated time, and what keeps its views right.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::{Db, DbOptions};
use platform::sim::Simulation;
use query::{Budget, ViewUse};
use sql::{ClientContext, Manner, Value};
use thalweg_views::{RefreshLimits, Refresher};

pub(crate) const SECOND_NS: i64 = 1_000_000_000;

pub(crate) struct World {
    pub(crate) simulation: Simulation,
    pub(crate) db: Arc<Db>,
    pub(crate) refresher: Refresher,
}

impl World {
    /// An empty folder; the seed is that of the simulation.
    pub(crate) fn empty(seed: u64) -> Self {
        Self::of(Simulation::new(seed))
    }

    fn of(simulation: Simulation) -> Self {
        let db = Arc::new(Db::open(simulation.platform(), DbOptions::new("/data")).unwrap());
        let refresher = Refresher::new(db.clone(), RefreshLimits::default());
        Self { simulation, db, refresher }
    }

    /// Opens the folder again, after a change to the simulated machine.
    pub(crate) fn reopened(self, meanwhile: impl FnOnce(&Simulation)) -> Self {
        let Self { simulation, db, refresher } = self;
        drop((refresher, db));
        meanwhile(&simulation);
        Self::of(simulation)
    }

    pub(crate) fn budget() -> Budget {
        Budget::new(50_000_000)
    }

    pub(crate) fn write(&self, database: &str, lines: &str) {
        let (report, errors) = self.db.write_lines(database, lines.as_bytes()).unwrap();
        assert!(errors.is_empty() && report.rejected_total == 0, "{errors:?}");
    }

    /// The rows of the last of some statements.
    pub(crate) fn ask_as(&self, manner: Manner, text: &str) -> Result<Vec<Vec<Value>>, String> {
        self.ask_of("default", manner, text)
    }

    /// As [`Self::ask_as`], of another database.
    pub(crate) fn ask_of(&self, database: &str, manner: Manner, text: &str) -> Result<Vec<Vec<Value>>, String> {
        let mut client = ClientContext::new(database, self.db.now_ns());
        client.manner = manner;
        self.ask_with(&client, ViewUse::All, text)
    }

    /// As [`Self::ask`], of tables without the views that would answer.
    pub(crate) fn ask_tables(&self, text: &str) -> Vec<Vec<Value>> {
        self.ask_with(&ClientContext::new("default", self.db.now_ns()), ViewUse::Named, text).unwrap()
    }

    fn ask_with(&self, client: &ClientContext, view_use: ViewUse, text: &str) -> Result<Vec<Vec<Value>>, String> {
        let parsed = sql::parse(text).map_err(|error| error.to_string())?;
        let budget = Arc::new(Self::budget());
        budget.use_views(view_use);
        let mut rows = Vec::new();
        for place in 0..parsed.statements.len() {
            let answer = self.db.sql(&parsed, place, client, &budget).map_err(|error| format!("{text}: {error}"))?;
            rows = answer.relation().map(|relation| relation.rows).unwrap_or_default();
        }
        Ok(rows)
    }

    pub(crate) fn ask(&self, text: &str) -> Vec<Vec<Value>> {
        self.ask_as(Manner::Postgres, text).unwrap()
    }

    /// The plan of the first view, as its document has it, before and after the folder is opened again.
    pub(crate) fn stored_plans(self) -> [String; 2] {
        let plan = |world: &Self| {
            let (_, document) = world.db.documents("view").remove(0);
            let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
            assert_eq!(document["version"], 1);
            document["plan"].as_str().unwrap().to_owned()
        };
        let before = plan(&self);
        let world = self.reopened(|_| {});
        assert!(world.db.unreadable_views().is_empty());
        [before, plan(&world)]
    }

    pub(crate) fn influxql(&self, database: &str, text: &str) -> Result<influxql::Answer, String> {
        let query = influxql::Query::parse(text, &BTreeMap::new()).unwrap();
        let request = influxql::RequestContext { database: Some(database), read_only: false };
        self.db.run_influxql(&query, 0, &request, &Self::budget()).map_err(|error| error.to_string())
    }

    pub(crate) fn settle(&mut self) {
        let passes = (0..100).take_while(|_| self.refresher.pass().unwrap()).count();
        assert!(passes < 100, "refreshing does not end");
        self.refresher.pass().unwrap();
    }

    /// What `EXPLAIN` says of a query.
    pub(crate) fn explained(&self, query: &str) -> String {
        let rows = self.ask(&format!("EXPLAIN {query}"));
        rows.iter().map(|row| row[0].to_string()).collect::<Vec<_>>().join("\n")
    }
}

/// Rows in order of what their first columns say.
pub(crate) fn sorted(mut rows: Vec<Vec<Value>>, columns: usize) -> Vec<Vec<Value>> {
    rows.sort_by_key(|row| row.iter().take(columns).map(ToString::to_string).collect::<Vec<_>>());
    rows
}

/// Returns whether values are equal but for what rounding makes of them.
pub(crate) fn is_close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => (a - b).abs() <= 1e-9 * (1.0 + b.abs()),
        (a, b) => a == b,
    }
}
