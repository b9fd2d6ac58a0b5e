//! Answers for people: tables, and plots of braille characters.

mod axis;
mod canvas;
pub(crate) mod plot;
pub(crate) mod series;
pub(crate) mod table;
