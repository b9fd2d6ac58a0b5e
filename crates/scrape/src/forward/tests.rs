//! Addresses and names of receivers; everything else is in `tests/forward.rs`.

use std::collections::BTreeMap;

use super::{unique_name, without_credentials};

#[test]
fn credentials_are_not_part_of_a_name() {
    for (url, shown) in [
        ("https://user:pass@host/api/v1/write", "https://host/api/v1/write"),
        ("http://a@b@host:1/x@y", "http://host:1/x@y"),
        ("http://host", "http://host"),
        ("host/x@y", "host/x@y"),
    ] {
        assert_eq!(without_credentials(url), shown);
        assert_eq!(unique_name("", url, &BTreeMap::new()), shown);
    }
    assert_eq!(unique_name("mimir", "http://host", &BTreeMap::new()), "mimir");
}
