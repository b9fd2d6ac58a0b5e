//! Text to the grammar's tree, and checks of statements before they run.

mod access;
pub(crate) mod accounts;
mod cursor;
pub(crate) mod parse;
pub(crate) mod questdb;
pub(crate) mod settings;
mod spelling;
pub(crate) mod table_options;
pub(crate) mod triggers;
pub(crate) mod view_columns;
mod view_options;
pub(crate) mod view_texts;
pub(crate) mod views;
