//! From text to a checked [`Expr`](ast::Expr), and back.
//!
//! ```text
//! text ── lex ──► tokens ── parse (modifiers, durations) ──► Expr ── check ──► Expr ── bind_times ──► bound Expr
//!                                                             ├─ print   on one line, or broken into several
//!                                                             └─ tree    as JSON
//! ```
//!
//! `relabelling` reads the steps of an aggregation that relabels series first. `functions` has the names, arguments and results of functions, `result_kind` the types of expressions, `number`, `strings` and `span` the
//! smallest parts of the text.

pub(crate) mod ast;
pub(crate) mod bind_times;
pub(crate) mod check;
mod durations;
pub(crate) mod features;
pub(crate) mod functions;
mod lex;
mod modifiers;
pub(crate) mod number;
pub(crate) mod parse;
pub(crate) mod print;
mod relabelling;
pub(crate) mod result_kind;
pub(crate) mod span;
pub(crate) mod strings;
mod token;
pub(crate) mod tree;
