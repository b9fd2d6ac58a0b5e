//! Every planted bug still fits the source that it is planted into.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use xtask::plant::{BUGS, Options};

#[test]
fn every_bug_can_be_planted() {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("..");
    for bug in BUGS {
        let text = std::fs::read_to_string(root.join(bug.file)).unwrap();
        let planted = bug.plant(&text).unwrap();
        assert_ne!(planted, text, "{}", bug.name);
    }
}

#[test]
fn options() {
    let read = |text: &str| Options::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let options = read("--seeds 5 --only log").unwrap();
    assert_eq!((options.seeds, options.operations, options.only.as_str()), (5, 300, "log"));
    for bad in ["--seeds", "--seeds many", "--speed 3"] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
