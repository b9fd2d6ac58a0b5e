//! Checks of the source that neither the compiler nor clippy makes: `cargo xtask tidy`.

pub mod tidy;
