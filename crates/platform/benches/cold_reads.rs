//! What a cold query waits for: batches of small blocks at known places of a file that is not in the page cache, read in several ways.
//!
//! ```text
//! cargo bench -p thalweg-platform --bench cold_reads -- [MIB] [FOLDER]
//! ```
//!
//! Figures and what follows from them: `docs/decisions/0021-cold-reads.md`.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

#[cfg(target_os = "linux")]
#[path = "cold_reads/linux.rs"]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::run();
}
