//! The checked-in C header is the one that its source makes, so that `cargo test` says so too.

use std::path::Path;

#[test]
fn the_header_of_c_is_current() {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let present = std::fs::read_to_string(root.join("bindings/c/include/thalweg.h")).unwrap();
    let made = xtask::header::generated(&root).unwrap();
    assert!(made == present, "bindings/c/include/thalweg.h is not what its source makes: run `cargo xtask header`");
    assert!(made.contains("thalweg_code_t thalweg_open("), "{made}");
}
