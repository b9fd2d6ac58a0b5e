//! The language's text: tokens, trees, and trees as text again.
//!
//! `lex` → `parse` (what all statements share), `expression`, `select`, `show`, `manage` → `ast` → `print`.

pub(crate) mod ast;
pub(crate) mod duration;
mod expression;
mod lex;
mod manage;
mod parse;
mod print;
mod select;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use parse::parse;
pub use parse::{Parameter, TEXT_BYTES_MAX};
pub(crate) use print::expr_text;
