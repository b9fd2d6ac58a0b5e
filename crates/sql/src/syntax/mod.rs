//! Text to the grammar's tree, and what is asked of a text before it runs.

mod access;
pub(crate) mod parse;
pub(crate) mod settings;
