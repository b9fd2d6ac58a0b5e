//! Triggers that would feed themselves without end. Pure.

use std::collections::BTreeSet;

/// A table by its database and its name.
pub(crate) type Table<'a> = (&'a str, &'a str);

/// A table whose rows a trigger, or a continuous query, writes to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge<'a> {
    pub(crate) from: Table<'a>,
    pub(crate) to: Table<'a>,
}

impl<'a> Edge<'a> {
    /// One between tables of a database.
    pub(crate) const fn within(database: &'a str, from: &'a str, to: &'a str) -> Self {
        Self { from: (database, from), to: (database, to) }
    }
}

/// The way from a new trigger's target back to its table, if there is one: its tables in order, the first one again at the end.
pub(crate) fn cycle<'a>(new: Edge<'a>, others: &[Edge<'a>]) -> Option<Vec<Table<'a>>> {
    let mut ways = vec![vec![new.from, new.to]];
    let mut visited = BTreeSet::from([new.to]);
    while let Some(way) = ways.pop() {
        let at = way.last().copied()?;
        if at == new.from {
            return Some(way);
        }
        for edge in others.iter().filter(|edge| edge.from == at) {
            if edge.to == new.from || visited.insert(edge.to) {
                let mut longer = way.clone();
                longer.push(edge.to);
                ways.push(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_and_chains_are_none() {
        let edge = |(from, to)| Edge { from: ("d", from), to: ("d", to) };
        let names =
            |way: Option<Vec<Table<'static>>>| way.map(|way| way.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
        let others: Vec<Edge<'_>> = [("b", "c"), ("c", "d"), ("b", "e"), ("e", "b")].map(edge).to_vec();
        assert_eq!(names(cycle(edge(("a", "a")), &[])), Some(vec!["a", "a"]));
        assert_eq!(names(cycle(edge(("d", "b")), &others)), Some(vec!["d", "b", "c", "d"]));
        assert_eq!(cycle(edge(("a", "b")), &others), None, "a cycle of others is not this one's");
        assert_eq!(cycle(edge(("x", "a")), &others), None);
        let into = Edge { from: ("d", "d"), to: ("e", "b") };
        assert_eq!(cycle(into, &others), None, "the same name in another database");
    }
}
