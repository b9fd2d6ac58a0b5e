//! What the machine has.

pub(crate) mod memory;
pub(crate) mod processor;
