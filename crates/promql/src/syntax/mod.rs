//! From text to a checked [`Expr`](ast::Expr), and back.
//!
//! ```text
//! text ── lex ──► tokens ── parse (modifiers, durations) ──► Expr ── check ──► Expr
//!                                                             ├─ print   on one line, or broken into several
//!                                                             └─ tree    as JSON
//! ```

pub(crate) mod ast;
mod check;
mod durations;
mod lex;
mod modifiers;
pub(crate) mod number;
mod parse;
pub(crate) mod print;
pub(crate) mod span;
pub(crate) mod strings;
pub(crate) mod tree;

pub(crate) use check::{compile_regex, holds, matches_empty};
pub(crate) use parse::{parse, parse_plain_selector};
