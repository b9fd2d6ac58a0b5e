//! `cargo xtask header`: the C header of `bindings/c`, made of its source. It is checked in, so that programs in C need nothing of Rust to read
//! it; `--check` says whether it is current.

use std::path::{Path, PathBuf};

/// The crate whose header it is.
const CRATE: &str = "bindings/c";
const HEADER: &str = "bindings/c/include/thalweg.h";
/// In the order in which their items stand in the header.
const SOURCES: [&str; 8] =
    ["error.rs", "text.rs", "database.rs", "columns.rs", "epochs.rs", "series.rs", "query.rs", "rrd.rs"];

/// The text that the header should have.
pub fn generated(root: &Path) -> Result<String, String> {
    let folder = root.join(CRATE);
    let config =
        cbindgen::Config::from_file(folder.join("cbindgen.toml")).map_err(|error| format!("{CRATE}: {error}"))?;
    let sources = SOURCES.map(|name| folder.join("src").join(name));
    let known = |path: &PathBuf| sources.contains(path) || path.ends_with("lib.rs");
    let files = std::fs::read_dir(folder.join("src")).map_err(|error| format!("{CRATE}/src: {error}"))?;
    if let Some(unknown) = files.filter_map(Result::ok).map(|entry| entry.path()).find(|path| !known(path)) {
        return Err(format!("{}: name it in xtask/src/header.rs, where its items are to stand", unknown.display()));
    }
    let builder = sources.iter().fold(cbindgen::Builder::new().with_config(config), cbindgen::Builder::with_src);
    let bindings = builder.generate().map_err(|error| format!("{CRATE}: {error}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map_err(|error| format!("{HEADER}: {error}"))
}

/// Writes the header, or with `--check` returns whether it is current.
pub fn command(root: &Path, options: &[String], tell: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let text = generated(root)?;
    let path = root.join(HEADER);
    match options {
        [] => std::fs::write(&path, text).map(|()| true).map_err(|error| format!("{HEADER}: {error}")),
        [option] if option == "--check" => {
            let is_current = std::fs::read_to_string(&path).is_ok_and(|present| present == text);
            tell(if is_current {
                "the header is current"
            } else {
                "bindings/c/include/thalweg.h is not what its source makes: run `cargo xtask header`"
            });
            Ok(is_current)
        }
        _ => Err("cargo xtask header takes --check, or nothing".to_owned()),
    }
}
