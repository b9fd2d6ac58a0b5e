//! The tree as it is keeps the house rules, so that `cargo test` says so too.

use std::path::Path;

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let report = xtask::tidy::check(&root).expect("the tree can be read");
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n\n"));
}
