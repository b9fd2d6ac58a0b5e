//! The columns of single tables as they were declared: their order, and the name of the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::manifest::State;
use crate::retention::table_ttl::TableName;
use crate::{Store, StoreError};

/// The kind of the documents that hold the layouts.
const KIND: &str = "table-layout";
/// The first byte of a document.
const VERSION: u8 = 1;
/// Between names; they have none.
const BETWEEN: char = '\0';

/// The columns of a table as they were declared. Others, which came with rows, stand after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    /// The name of the column of the rows' times; `None` if that was not declared.
    pub time_name: Option<String>,
    /// The names of all columns in order, that of the times among them.
    pub columns: Vec<String>,
}

/// The tables whose layouts are known.
pub(crate) type TableLayouts = BTreeMap<TableName, Arc<TableLayout>>;

impl TableLayout {
    fn encode(&self) -> Vec<u8> {
        let time_name = self.time_name.as_deref().unwrap_or_default();
        let names: Vec<&str> = std::iter::once(time_name).chain(self.columns.iter().map(String::as_str)).collect();
        [&[VERSION], names.join(&BETWEEN.to_string()).as_bytes()].concat()
    }

    /// Reads a document; `None` if it is none, or of a later version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, names) = bytes.split_first()?;
        let names = std::str::from_utf8(names).ok().filter(|_| *version == VERSION)?;
        let mut names = names.split(BETWEEN).map(str::to_owned);
        let time_name = names.next().filter(|name| !name.is_empty());
        Some(Self { time_name, columns: names.collect() })
    }
}

/// As the manifest has them.
pub(crate) fn of_state(state: &State) -> TableLayouts {
    let documents = state.documents.iter().filter(|((kind, _), _)| kind == KIND);
    let read = |((_, name), bytes): (&(String, String), &Arc<[u8]>)| {
        Some((TableName::of_document(name)?, Arc::new(TableLayout::decode(bytes)?)))
    };
    documents.filter_map(read).collect()
}

impl Store {
    /// The layout of a table; `None` if it was not declared.
    pub fn table_layout(&self, database: &str, table: &str) -> Option<Arc<TableLayout>> {
        self.retention.table_layouts.read().get(&TableName::new(database, table)).cloned()
    }

    /// Notes the columns of a table as they are declared; on disk when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a name has a zero byte; otherwise as every change of the manifest.
    pub fn set_table_layout(&self, database: &str, table: &str, layout: TableLayout) -> Result<(), StoreError> {
        if let Some(name) = layout.columns.iter().find(|name| name.contains(BETWEEN)) {
            return Err(StoreError::Invalid(format!("the column {name:?} of {table:?} has a zero byte in its name")));
        }
        let name = TableName::new(database, table);
        self.put_document(KIND, &name.document(), &layout.encode())?;
        self.retention.table_layouts.write().insert(name, Arc::new(layout));
        Ok(())
    }

    /// Forgets the layouts of a database's tables, or of one of them.
    pub(crate) fn forget_table_layouts(&self, database: &str, table: Option<&str>) -> Result<(), StoreError> {
        let layouts = self.retention.table_layouts.read().clone();
        for name in layouts.into_keys().filter(|name| name.is_of(database, table)) {
            self.remove_document(KIND, &name.document())?;
            self.retention.table_layouts.write().remove(&name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `docs/formats/table-layout.md`.
    #[test]
    fn layouts_are_stored_as_the_format_has_them() {
        let columns = ["ts", "symbol", "price", "größe"].map(str::to_owned).to_vec();
        let layout = TableLayout { time_name: Some("ts".to_owned()), columns };
        let bytes = b"\x01ts\0ts\0symbol\0price\0gr\xc3\xb6\xc3\x9fe";
        assert_eq!(layout.encode(), bytes);
        assert_eq!(TableLayout::decode(bytes), Some(layout));
        let none = TableLayout { time_name: None, columns: vec!["v".to_owned()] };
        assert_eq!(TableLayout::decode(&none.encode()), Some(none));
        for wrong in [&b""[..], b"\x02ts\0ts", b"\x01\xff"] {
            assert_eq!(TableLayout::decode(wrong), None, "{wrong:?}");
        }
    }
}
