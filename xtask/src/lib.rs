//! The workshop: checks of the source that neither the compiler nor clippy makes (`cargo xtask tidy`), the simulation
//! (`cargo xtask sim`), and whether that finds bugs (`cargo xtask plant`).

pub mod capnp;
pub mod plant;
pub mod sim;
pub mod tidy;
