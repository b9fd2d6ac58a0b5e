//! The files of the tree, without what builds leave in it.

use std::fs;
use std::path::Path;

/// Folders that hold no source of ours.
const SKIPPED: [&str; 6] = [".git", "target", "node_modules", "dist", "thalweg-data", "corpus"];

/// Every file below `root`, as sorted paths from it with `/` between their parts.
pub(super) fn list(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_file() {
            found.push(path);
        } else if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), found)?;
        }
    }
    Ok(())
}
