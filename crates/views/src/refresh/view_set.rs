//! The views of a database as passes know them: listed again when one of them has changed, sorted again when there are others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use db::Db;
use query::plan::AsOf;
use query::views::View;

/// The views of a database, by name.
#[derive(Default)]
pub(super) struct ViewSet {
    /// [`Db::view_generation`] when they were listed; `None`: they were not.
    generation: Option<u64>,
    pub(super) views: Vec<Arc<View>>,
    shape: Arc<Shape>,
}

/// How views read one another, which is so as long as they are the same, whatever their states.
#[derive(Default)]
pub(super) struct Shape {
    ids: Vec<u64>,
    /// The numbers of views, those that others read before them.
    order: Vec<usize>,
    /// The numbers of views by the table whose rows they are made of in the end.
    pub(super) by_table: HashMap<String, Vec<usize>>,
    /// The numbers of views by each table that they, or some below them, join as of a time.
    pub(super) by_as_of: HashMap<String, Vec<usize>>,
    /// The numbers of views that join tables.
    joined: Vec<usize>,
}

impl ViewSet {
    /// Lists the views of a database as they are now; returns whether there are others than before.
    pub(super) fn list(&mut self, db: &Db, database: &str) -> bool {
        let generation = db.view_generation();
        if self.generation == Some(generation) {
            return false;
        }
        self.generation = Some(generation);
        self.views = db.views(database);
        if self.views.iter().map(|view| view.id).eq(self.shape.ids.iter().copied()) {
            return false;
        }
        self.shape = Arc::new(Shape::new(db, &self.views));
        true
    }

    pub(super) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The views, those that others read before them.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Arc<View>> {
        self.shape.order.iter().filter_map(|number| self.views.get(*number))
    }

    /// The views that join tables.
    pub(super) fn joined(&self) -> impl Iterator<Item = &Arc<View>> {
        self.shape.joined.iter().filter_map(|number| self.views.get(*number))
    }
}

impl Shape {
    fn new(db: &Db, views: &[Arc<View>]) -> Self {
        let mut shape = Self { ids: views.iter().map(|view| view.id).collect(), ..Self::default() };
        let mut depths = Vec::with_capacity(views.len());
        for (number, view) in views.iter().enumerate() {
            let (table, chain) = db.views_below(view);
            depths.push((chain.len(), number));
            shape.by_table.entry(table).or_default().push(number);
            let as_of = chain.iter().flat_map(|view| view.definition.as_ofs());
            let as_of: BTreeSet<&str> = as_of.map(AsOf::table_name).collect();
            as_of.into_iter().for_each(|table| shape.by_as_of.entry(table.to_owned()).or_default().push(number));
            if view.definition.has_joins() {
                shape.joined.push(number);
            }
        }
        depths.sort_unstable();
        shape.order = depths.into_iter().map(|(_, number)| number).collect();
        shape
    }
}
