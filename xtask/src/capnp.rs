//! `cargo xtask capnp`: Rust code of the binary protocol's schema. It is checked in, so that building needs no compiler of
//! Cap'n Proto; this command does (`capnp`, in the package `capnproto` of Debian and others).

use std::path::Path;

/// Where schema and code are.
const FOLDER: &str = "crates/wire/src";

/// Makes the code anew.
pub fn run(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let mut compiler = capnpc::CompilerCommand::new();
    compiler.src_prefix(&folder).file(folder.join("wire.capnp")).output_path(&folder);
    compiler.run().map_err(|error| format!("the package capnproto must be installed: {error}"))
}
