//! The workshop: checks of the source that neither the compiler nor clippy makes (`cargo xtask tidy`), the C header
//! (`cargo xtask header`), the simulation
//! (`cargo xtask sim`), the tests that the default build leaves out (`cargo xtask full`), whether these and the tests of views find bugs (`cargo xtask plant`), hostile inputs (`cargo xtask fuzz`), and the comparisons with others
//! (`cargo xtask peers`, `cargo xtask differential`).

pub mod capnp;
#[cfg(target_os = "linux")]
pub mod differential;
pub mod full;
pub mod fuzz;
pub mod header;
#[cfg(target_os = "linux")]
pub mod peers;
pub mod plant;
pub mod sim;
pub mod tidy;
