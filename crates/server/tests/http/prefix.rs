//! HTTP at a prefix, the lifecycle of the server, and what it says of both.

use thalweg_server::RoutePrefix;

use crate::harness::Running;

#[test]
fn every_route_is_after_the_prefix_and_nothing_is_before_it() {
    let server = Running::start_with(|settings| {
        settings.web.route_prefix = RoutePrefix::parse("/a/b/").unwrap();
        settings.web.external_url = "https://metrics.example/a/b/".to_owned();
        settings.response_headers = vec![("x-of-settings".to_owned(), "1".to_owned())];
    });
    assert_eq!(server.post("/a/b/write", "m v=1 1000000000").status, 204);
    for (path, status) in [
        ("/a/b/api/v1/query?query=m_v&time=1", 200),
        ("/a/b//api//v1/query?query=m_v&time=1", 200),
        ("/a/b/-/healthy", 200),
        ("/a/b/", 200),
        ("/a/b/metrics", 200),
        ("/a/b/nowhere", 404),
        ("/a/bc/api/v1/query?query=1", 404),
        ("/api/v1/query?query=1", 404),
        ("/-/healthy", 404),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.header("x-of-settings")), (status, "1"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
    // ureq follows the redirects.
    for path in ["/", "/a/b"] {
        let answer = server.get(path);
        assert!(answer.status == 200 && answer.header("content-type").starts_with("text/html"), "{path}");
    }
    let counted = server.get("/a/b/metrics").body;
    assert!(counted.contains(r#"thalweg_http_requests_total{route="/api/v1/query",status="200"} 2"#), "{counted}");
    let flags: serde_json::Value = serde_json::from_str(&server.get("/a/b/api/v1/status/flags").body).unwrap();
    let flag = |name: &str| flags["data"][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        ["web.external-url", "web.route-prefix", "web.enable-lifecycle"].map(flag),
        ["https://metrics.example/a/b/", "/a/b", "false"]
    );
    let info = server.get("/a/b/api/v1/status/runtimeinfo").body;
    assert!(info.contains(r#""hostname":""#) && info.contains(r#""GOMEMLIMIT":0"#), "{info}");
}

#[test]
fn a_client_ends_the_server_where_that_is_allowed() {
    let mut server = Running::start();
    assert_eq!(server.post("/-/quit", "").status, 403);
    assert_eq!(server.get("/-/quit").status, 405);
    server.stop();
    let mut server = Running::start_with(|settings| settings.web.is_lifecycle_enabled = true);
    let answer = server.post("/-/quit", "");
    assert_eq!((answer.status, answer.body.as_str()), (200, "Requesting termination... Goodbye!"));
    server.wait();
}
