//! RRDtool's files over HTTP: who may make and see which.

use crate::access::Guarded;
use crate::graph::RRD;

#[test]
fn accounts_that_are_narrowed_by_labels_make_and_see_their_own_files() {
    let guarded = Guarded::start();
    let narrowed = guarded.token("narrowed", r#"{"grants":["read+write:default{host=\"a\"}"]}"#);
    let import = |path: &str, token: &str, more: &str| {
        let pattern = "pattern=%7Bhost%7D/%7Bmeasurement%7D.rrd";
        guarded.ask("POST", &format!("/api/v1/rrd/import?path={path}&{pattern}{more}"), Some(token), RRD)
    };
    let files = |token: &str| guarded.ask("GET", "/api/v1/rrd/files", Some(token), "").body;
    assert_eq!(import("b/if.rrd", &guarded.admin, "").status, 200);
    let own = import("a/if.rrd", &narrowed, "");
    assert_eq!(own.status, 200, "{}", own.body);
    for (path, more) in [("c/if.rrd", ""), ("c/if.rrd", "&replace=true"), ("b/if.rrd", "&replace=true")] {
        let others = import(path, &narrowed, more);
        assert!(others.status == 400 && others.body.contains("with other labels alone"), "{}", others.body);
    }
    let removed = guarded.ask("POST", "/api/v1/rrd/remove?path=b/if.rrd", Some(&narrowed), "");
    assert!(removed.status >= 400, "{}", removed.body);
    let (all, seen) = (files(&guarded.admin), files(&narrowed));
    assert!(all.contains("a/if.rrd") && all.contains("b/if.rrd") && !all.contains("c/if.rrd"), "{all}");
    assert!(seen.contains("a/if.rrd") && !seen.contains("b/if.rrd"), "{seen}");
}

#[test]
fn files_make_no_database_without_the_right_to() {
    let guarded = Guarded::start();
    let writer = guarded.token("writer", r#"{"grants":["read+write:fresh"]}"#);
    let made = guarded.ask("POST", "/api/v1/rrd/import?path=a.rrd&db=fresh", Some(&writer), RRD);
    assert!(made.status >= 400, "{}", made.body);
    assert!(!guarded.server.db.has_database("fresh"));
}
