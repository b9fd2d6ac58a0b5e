//! What Thalweg listens with: the embedded page.

pub mod page;
