//! `file_sd_configs`: files are read every few seconds, and their targets are given when they differ.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use platform::network::NetworkPlatform;
use platform::{Files, read_file};

use super::{Found, Sink, TargetGroup, list};
use crate::config::FileDiscovery;
use crate::config::glob;

/// How often files are read.
const POLL_MS: u64 = 5_000;

/// Bytes of a list.
const FILE_BYTES_MAX: u64 = 64 << 20;

pub(super) async fn run(config: &FileDiscovery, network: &NetworkPlatform, sink: &Sink) {
    let mut known: BTreeMap<PathBuf, Vec<TargetGroup>> = BTreeMap::new();
    let mut given: Option<Found> = None;
    loop {
        let found = look(config, &*network.platform.files, &mut known);
        if given.as_ref() != Some(&found) {
            sink(found.clone());
            given = Some(found);
        }
        network.tasks.sleep_ms(POLL_MS.min(config.refresh_ms)).await;
    }
}

/// Reads all files. One that cannot be read keeps what it had; one that is gone has no targets.
fn look(config: &FileDiscovery, files: &dyn Files, known: &mut BTreeMap<PathBuf, Vec<TargetGroup>>) -> Found {
    let paths: Vec<PathBuf> = config.files.iter().flat_map(|pattern| glob::expand(files, pattern)).collect();
    known.retain(|path, _| paths.contains(path));
    let mut errors = Vec::new();
    for path in paths {
        match read_list(files, &path) {
            Ok(groups) => drop(known.insert(path, groups)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() || !known.is_empty() {
        return Ok(known.values().flatten().cloned().collect());
    }
    Err(errors.join("; "))
}

fn read_list(files: &dyn Files, path: &Path) -> Found {
    let shown = path.display().to_string();
    let failed = |reason: String| format!("{shown}: {reason}");
    let content = read_file(files, path, FILE_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let mut groups = if is_json {
        list::from_json(&content, &shown).map_err(failed)?
    } else {
        let text = std::str::from_utf8(&content).map_err(|_| failed("not UTF-8".to_owned()))?;
        list::from_yaml(text, path)?
    };
    for group in &mut groups {
        group.labels.insert("__meta_filepath".to_owned(), shown.clone());
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_kept_while_they_are_broken() {
        let simulation = platform::sim::Simulation::new(1);
        let files = simulation.platform().files;
        let write = |path: &str, text: &str| platform::write_file(&*files, Path::new(path), text.as_bytes()).unwrap();
        let config = FileDiscovery { files: vec!["/sd/*.json".into(), "/sd/a.yml".into()], refresh_ms: 1000 };
        let mut known = BTreeMap::new();
        let mut look = || look(&config, &*files, &mut known);
        assert!(look().unwrap_err().contains("a.yml"));
        write("/sd/a.yml", "- targets: [a:1, 'b:2']\n  labels: {x: 1}\n");
        write("/sd/b.json", r#"[{"targets": ["c:3"]}, {"targets": [], "labels": {"y": "z"}}]"#);
        let groups = look().unwrap();
        assert_eq!(groups.len(), 3);
        let all: Vec<_> = groups.iter().flat_map(TargetGroup::targets).collect();
        assert_eq!(all[0]["__meta_filepath"], "/sd/a.yml");
        assert_eq!((all[1]["__address__"].as_str(), all[1]["x"].as_str()), ("b:2", "1"));
        assert_eq!(groups[1].source, "/sd/b.json:0");
        write("/sd/b.json", "[{");
        assert_eq!(look().unwrap(), groups);
        files.remove(Path::new("/sd/b.json")).unwrap();
        assert_eq!(look().unwrap().len(), 1);
        write("/sd/a.yml", "- target: [a:1]\n");
        assert_eq!(look().unwrap().len(), 1, "what was known holds");
    }
}
