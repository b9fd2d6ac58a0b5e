//! The layer table of the architecture, held against what the crates really depend on.

use serde_json::Value;

use super::Finding;

/// Layers from the ground up. A crate may use what stands in a lower line, never what stands in its own or above.
const LAYERS: [&[&str]; 11] = [
    &["crates/model", "crates/codec", "crates/platform"],
    &[
        "crates/index",
        "crates/ingest",
        "crates/cache",
        "crates/wire",
        "crates/access",
        "crates/similarity",
        "crates/plot",
    ],
    &["crates/store", "crates/relabel"],
    &["crates/query"],
    &["crates/promql", "crates/sql", "crates/influxql", "crates/flux", "crates/sql-datafusion"],
    &["crates/db", "crates/client"],
    &["crates/scrape", "crates/views", "crates/redis", "crates/rrd"],
    &["crates/rules"],
    &["crates/server", "bindings/embedded"],
    &["crates/sim", "crates/bench", "bindings/c", "bindings/python"],
    &["crates/cli"],
];

/// The workshop stands beside the diagram and uses none of it.
const WORKSHOP: &str = "xtask";

/// Arrows that point down and are wrong all the same: languages end at the plan.
const FORBIDDEN: [(&str, &str); 5] = [
    ("crates/promql", "crates/store"),
    ("crates/sql", "crates/store"),
    ("crates/influxql", "crates/store"),
    ("crates/flux", "crates/store"),
    ("crates/sql-datafusion", "crates/store"),
];

/// A workspace member: its folder and the folders of the members it depends on, in whatever way.
#[derive(Debug)]
pub(super) struct Package {
    folder: String,
    uses: Vec<String>,
}

/// Reads the output of `cargo metadata --no-deps`.
pub(super) fn packages(metadata: &str) -> Result<Vec<Package>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let root = text(&metadata, "workspace_root")?;
    let folder_of = |path: &str| {
        let path = path.strip_prefix(root).unwrap_or(path).replace('\\', "/");
        path.trim_start_matches('/').trim_end_matches("/Cargo.toml").to_owned()
    };
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut found = Vec::new();
    for package in list(&metadata, "packages") {
        let dependencies = list(&package, "dependencies");
        let uses = dependencies.iter().filter_map(|dependency| dependency.get("path")?.as_str()).map(folder_of);
        found.push(Package { folder: folder_of(text(&package, "manifest_path")?), uses: uses.collect() });
    }
    Ok(found)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| format!("cargo metadata: no text {key:?}"))
}

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

/// Every member stands in the table, and every arrow points down.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Package { folder, uses } in packages {
        let place = format!("{folder}/Cargo.toml");
        if folder == WORKSHOP {
            findings.extend(uses.iter().map(|used| arrow(&place, used, "the workshop uses no crate of the diagram")));
            continue;
        }
        let Some(own) = layer(folder) else {
            let remedy = "Give it a layer in xtask/src/tidy/layers.rs and in ARCHITECTURE.md, or fold it into a crate.";
            findings.push(Finding::new(place, "this crate is not in the layer table", remedy));
            continue;
        };
        for used in uses {
            if let Some(why) = wrong(folder, own, used) {
                findings.push(arrow(&place, used, why));
            }
        }
    }
    findings
}

fn wrong(folder: &str, own: usize, used: &str) -> Option<&'static str> {
    if FORBIDDEN.contains(&(folder, used)) {
        return Some("a query language ends at the plan and never sees the store");
    }
    match layer(used) {
        Some(layer) if layer < own => None,
        Some(layer) if layer == own => Some("that points sideways within a layer"),
        Some(_) => Some("that points up"),
        None => Some("that is no crate of the diagram"),
    }
}

fn arrow(place: &str, used: &str, why: &str) -> Finding {
    let remedy = "Move what is needed into a lower crate, or let the caller pass it in as a trait of yours.";
    Finding::new(place, format!("depends on {used}: {why}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_arrows(folder: &str, uses: &[&str]) -> Vec<String> {
        let uses = uses.iter().map(ToString::to_string).collect();
        check(&[Package { folder: folder.to_owned(), uses }]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn arrows_point_down_only() {
        let cases: [(&str, &[&str], &str); 8] = [
            ("crates/store", &["crates/model", "crates/index", "crates/codec"], ""),
            ("crates/store", &["crates/db"], "points up"),
            ("crates/index", &["crates/ingest"], "sideways"),
            ("crates/model", &["crates/codec"], "sideways"),
            ("crates/promql", &["crates/store"], "ends at the plan"),
            ("crates/helpers", &[], "not in the layer table"),
            ("crates/db", &["crates/helpers"], "no crate of the diagram"),
            ("xtask", &["crates/model"], "workshop"),
        ];
        for (folder, uses, expected) in cases {
            let found = wrong_arrows(folder, uses).join("; ");
            assert_eq!(found.is_empty(), expected.is_empty(), "{folder}: {found}");
            assert!(found.contains(expected), "{folder}: {found}");
        }
    }

    #[test]
    fn metadata_gives_folders() {
        let metadata = r#"{"workspace_root": "/w", "packages": [{"manifest_path": "/w/crates/db/Cargo.toml",
            "dependencies": [{"name": "x", "path": "/w/crates/store"}, {"name": "syn", "path": null}]}]}"#;
        let found = packages(metadata).expect("valid");
        assert_eq!(found[0].folder, "crates/db");
        assert_eq!(found[0].uses, ["crates/store"]);
    }
}
