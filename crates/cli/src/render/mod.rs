//! Answers for people: tables, and plots of braille characters.

pub(crate) mod plot;
pub(crate) mod series;
pub(crate) mod table;
