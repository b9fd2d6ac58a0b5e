//! The machine: its processor and memory, and the allocator.

pub(crate) mod allocator;
pub(crate) mod memory;
pub(crate) mod processor;
