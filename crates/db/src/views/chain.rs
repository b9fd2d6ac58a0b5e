//! Which views may read which: none itself by way of others, and not too many one by way of another.

use std::collections::BTreeSet;
use std::sync::Arc;

use query::QueryError;
use query::views::{DEPTH_MAX, View, ViewDefinition};

/// Refuses a view that would write what another view shows, read itself by way of others, or be too far from the rows that are written.
pub(super) fn check(definition: &ViewDefinition, views: &[Arc<View>]) -> Result<(), QueryError> {
    let ViewDefinition { name, target, .. } = definition;
    let is_taken = |view: &&Arc<View>| {
        target_of(&view.definition) == target_of(definition)
            && (view.definition.is_exposed() || definition.is_exposed())
    };
    if let Some(view) = views.iter().find(is_taken) {
        let other = &view.definition.name;
        return Err(QueryError::Invalid(format!("the view {other:?} writes the table {target:?}: choose another one")));
    }
    if let Some(view) = views.iter().find(|view| joins_target(definition, &view.definition)) {
        return Err(QueryError::Invalid(format!(
            "the view {name:?} joins {:?}, which the view {:?} writes: a joined table is none of a view",
            view.definition.target, view.definition.name
        )));
    }
    if let Some(view) = views.iter().find(|view| joins_target(&view.definition, definition)) {
        let other = &view.definition.name;
        return Err(QueryError::Invalid(format!("the view {other:?} joins the table {target:?}: choose another one")));
    }
    let source = source_of(definition);
    let above = levels(target_of(definition), views, |view| (source_of(view), target_of(view)));
    let below = levels(source, views, |view| (target_of(view), source_of(view)));
    if above.iter().any(|tables| tables.contains(&source)) {
        return Err(QueryError::Invalid(format!(
            "the view {name:?} would read itself: its source {:?} is made of its table {target:?}",
            source.1
        )));
    }
    // The first level of each is the table itself.
    if above.len() + below.len() - 1 > DEPTH_MAX {
        return Err(QueryError::Invalid(format!(
            "views read views at most {DEPTH_MAX} deep: {name:?} would be deeper"
        )));
    }
    Ok(())
}

/// A table by its database and its name.
type Table<'a> = (&'a str, &'a str);

fn source_of(definition: &ViewDefinition) -> Table<'_> {
    (&definition.database, definition.source())
}

fn target_of(definition: &ViewDefinition) -> Table<'_> {
    (definition.target_database(), &definition.target)
}

/// Returns whether a view joins the table that another one writes.
fn joins_target(definition: &ViewDefinition, other: &ViewDefinition) -> bool {
    definition.database == other.target_database() && definition.joins(&other.target)
}

/// Tables by how many views they are away from one: that one first. Each view is a step from one table to another; with too many levels the
/// others are left out.
fn levels<'a>(
    from: Table<'a>,
    views: &'a [Arc<View>],
    step: impl Fn(&'a ViewDefinition) -> (Table<'a>, Table<'a>),
) -> Vec<BTreeSet<Table<'a>>> {
    let mut levels = Vec::new();
    let mut level = BTreeSet::from([from]);
    while !level.is_empty() && levels.len() <= DEPTH_MAX {
        let steps = views.iter().map(|view| step(&view.definition)).filter(|(from, _)| level.contains(from));
        let following = steps.map(|(_, to)| to).collect();
        levels.push(std::mem::replace(&mut level, following));
    }
    levels
}

#[cfg(test)]
mod tests {
    use model::ValueType;
    use query::Interval;
    use query::views::{Dialect, ViewOptions, ViewOutput, ViewState, WindowWidth};

    use super::*;

    fn definition(source: &str, target: &str, dialect: Dialect) -> ViewDefinition {
        let plan =
            format!("(->> (rows-of \"{source}\") (groupby 1m '((sum \"v\")) (by '())) (map \"s\" (column \"sum v\")))");
        ViewDefinition {
            name: format!("to {target}"),
            database: "d".to_owned(),
            target: target.to_owned(),
            time_name: "time".to_owned(),
            plan: query::parse(&plan, 0).unwrap(),
            windows: WindowWidth { width: Interval::of_ns(60_000_000_000), origin_ns: 0, zone: "UTC".to_owned() },
            fields: vec![("s".to_owned(), ValueType::F64)],
            options: ViewOptions::default(),
            maker: String::new(),
            statement: String::new(),
            dialect,
            output: ViewOutput::default(),
            task: None,
        }
    }

    fn views(chain: &[(&str, &str, Dialect)]) -> Vec<Arc<View>> {
        let view = |(source, target, dialect): &(&str, &str, Dialect)| {
            let definition = definition(source, target, *dialect);
            let bins = definition.windows.bins().unwrap();
            Arc::new(View { id: 0, definition, bins, state: ViewState::default() })
        };
        chain.iter().map(view).collect()
    }

    fn refusal(new: &ViewDefinition, views: &[Arc<View>]) -> String {
        check(new, views).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_circle_of_views_is_refused() {
        use Dialect::{InfluxQl, Sql};
        let known = views(&[("a", "b", InfluxQl), ("b", "c", Sql)]);
        assert!(refusal(&definition("c", "a", InfluxQl), &known).contains("would read itself"));
        assert!(refusal(&definition("b", "a", InfluxQl), &known).contains("would read itself"));
        assert_eq!(refusal(&definition("c", "d", Sql), &known), "");
        assert_eq!(refusal(&definition("x", "b", InfluxQl), &known), "", "continuous queries may share a table");
        assert!(refusal(&definition("x", "c", InfluxQl), &known).contains("writes the table"));
        assert!(refusal(&definition("x", "b", Sql), &known).contains("writes the table"));
    }

    #[test]
    fn a_circle_by_way_of_another_database_is_refused() {
        let within = |database: &str, into: &str, source: &str, target: &str| ViewDefinition {
            database: database.to_owned(),
            output: ViewOutput { database: Some(into.to_owned()), ..ViewOutput::default() },
            ..definition(source, target, Dialect::InfluxQl)
        };
        let bins = definition("a", "a", Dialect::InfluxQl).windows.bins().unwrap();
        let view = |definition| Arc::new(View { id: 0, definition, bins: bins.clone(), state: ViewState::default() });
        let known = [view(within("d", "year", "a", "a"))];
        assert!(refusal(&within("year", "d", "a", "a"), &known).contains("would read itself"));
        assert_eq!(refusal(&within("year", "d", "a", "b"), &known), "");
        assert_eq!(refusal(&within("d", "other", "a", "a"), &known), "", "the same names in another database");
        assert_eq!(refusal(&definition("x", "a", Dialect::Sql), &known), "", "its table is another database's");
    }

    #[test]
    fn a_chain_that_is_too_deep_is_refused_at_both_ends() {
        let names: Vec<String> = (0..=DEPTH_MAX).map(|number| format!("t{number}")).collect();
        let chain: Vec<(&str, &str, Dialect)> =
            names.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str(), Dialect::Sql)).collect();
        let known = views(&chain);
        let (last, shorter) = known.split_last().unwrap();
        assert_eq!(refusal(&last.definition, shorter), "", "so deep is right");
        assert!(refusal(&definition(&names[DEPTH_MAX], "last", Dialect::Sql), &known).contains("deep"));
        assert!(refusal(&definition("first", "t0", Dialect::Sql), &known).contains("deep"));
    }
}
