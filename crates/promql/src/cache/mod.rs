//! What a result cache needs to know about expressions, and the form of its entries.
//!
//! * `dependencies`: which samples an expression reads, and whether each of its steps can be computed alone
//! * `partial_range`: results of some steps, which can be cut and joined

pub(crate) mod dependencies;
pub(crate) mod partial_range;
