//! Addresses and names of receivers; everything else is in `tests/forward.rs`.

use std::collections::BTreeSet;
use std::path::Path;

use super::{receivers, user_of, without_credentials};
use crate::config;

#[test]
fn credentials_are_not_part_of_a_name() {
    for (url, shown, user) in [
        ("https://user:pass@host/api/v1/write", "https://host/api/v1/write", "user"),
        ("http://a@b@host:1/x@y", "http://host:1/x@y", "a@b"),
        ("http://host", "http://host", ""),
        ("host/x@y", "host/x@y", ""),
    ] {
        assert_eq!((without_credentials(url), user_of(url)), (shown.to_owned(), user));
    }
}

/// The name of a receiver with these fields.
fn name(fields: &str) -> String {
    let text = format!("remote_write:\n- {{{fields}}}\n");
    let config = config::parse(Path::new("/p.yml"), &text, &|_| None).unwrap().config;
    receivers(&config).remove(0)
}

#[test]
fn receivers_at_one_address_have_names_that_do_not_depend_on_the_others() {
    assert_eq!(name("name: mimir, url: http://host"), "mimir");
    let others = [
        "url: http://host",
        "url: http://other",
        "url: http://a:b@host",
        "url: http://host, headers: {X-Scope-OrgID: one}",
        "url: http://host, headers: {X-Scope-OrgID: two}",
        "url: http://host, basic_auth: {username: one, password: x}",
        "url: http://host, write_relabel_configs: [{action: keep, source_labels: [a], regex: b}]",
        "url: http://host, write_relabel_configs: [{action: keep, source_labels: [a], regex: c}]",
    ];
    let names: BTreeSet<String> = others.iter().map(|fields| name(fields)).collect();
    assert_eq!(names.len(), others.len(), "{names:?}");
    // Neither a password nor how it is sent makes it another.
    assert_eq!(name("url: http://a:b@host"), name("url: http://a:c@host, remote_timeout: 3s"));
    // Cursors of releases have this name.
    assert_eq!(name("url: http://host"), "http://host#85af750c");
}
