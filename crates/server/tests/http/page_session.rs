//! The page's sign-in: its cookie, what it is worth without the page's header, and the headers of answers.

use crate::certificates::{Authority, Files, TlsClient};
use crate::harness::{Answer, Running};
use thalweg_server::{Network, Pem, TlsSettings};

const PAGE: (&str, &str) = ("x-thalweg-page", "1");

fn start() -> (Running, String) {
    let server = Running::start_with(|settings| settings.sign_in_required = true);
    let token = std::fs::read_to_string(server.db.directory().join("admin-token")).unwrap();
    (server, token.trim().to_owned())
}

fn sign_in(server: &Running, headers: &[(&str, &str)], password: &str) -> Answer {
    let body = format!(r#"{{"user":"any","password":"{password}"}}"#);
    server.send("POST", "/api/v1/session", headers, body)
}

/// The cookie as a browser sends it back.
fn cookie(answer: &Answer) -> String {
    answer.header("set-cookie").split(';').next().unwrap().to_owned()
}

#[test]
fn a_cookie_signs_the_page_in_until_it_signs_out() {
    let (server, token) = start();
    assert_eq!(sign_in(&server, &[PAGE], "wrong").status, 401);
    assert_eq!(sign_in(&server, &[], &token).status, 400, "only the page begins sessions");
    let begun = sign_in(&server, &[PAGE], &token);
    assert_eq!((begun.status, begun.header("cache-control")), (200, "no-store"), "{}", begun.body);
    let attributes = begun.header("set-cookie").to_owned();
    assert!(attributes.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"), "{attributes}");
    let cookie = cookie(&begun);
    let ask = |path: &str, headers: &[(&str, &str)]| {
        let all: Vec<(&str, &str)> = headers.iter().copied().chain([("cookie", cookie.as_str())]).collect();
        server.send("GET", path, &all, b"")
    };
    assert_eq!(ask("/metrics", &[PAGE]).status, 200);
    let shown = ask("/api/v1/session", &[PAGE]).body;
    assert!(shown.contains(r#""account":"admin""#) && shown.contains(r#""required":true"#), "{shown}");
    let write = |headers: &[(&str, &str)]| server.send("POST", "/write", headers, "m v=1 1000000000").status;
    assert_eq!(write(&[PAGE, ("cookie", &cookie)]), 204);
    // What another page has a browser send.
    assert_eq!(write(&[("cookie", &cookie)]), 401);
    assert_eq!(ask("/metrics", &[]).status, 401);
    assert_eq!(write(&[PAGE, ("cookie", &cookie), ("origin", "https://evil.example")]), 403);
    let refused = ask("/metrics", &[]);
    assert!(!refused.header("www-authenticate").is_empty());
    assert_eq!(server.send("GET", "/metrics", &[PAGE], b"").header("www-authenticate"), "", "the page has its form");
    let ended = server.send("DELETE", "/api/v1/session", &[PAGE, ("cookie", &cookie)], b"");
    assert!(ended.status == 204 && ended.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(ask("/metrics", &[PAGE]).status, 401);
}

#[test]
fn a_session_ends_with_the_secret_it_began_with() {
    let (server, token) = start();
    let bearer = format!("Bearer {token}");
    let put = |body: &str| {
        let headers = [("authorization", bearer.as_str())];
        assert_eq!(server.send("PUT", "/api/v1/admin/accounts/alice", &headers, body).status, 200);
    };
    put(r#"{"password":"one","server_admin":true}"#);
    let body = r#"{"user":"alice","password":"one"}"#;
    let cookie = cookie(&server.send("POST", "/api/v1/session", &[PAGE], body));
    let status = || server.send("GET", "/metrics", &[PAGE, ("cookie", &cookie)], b"").status;
    assert_eq!(status(), 200);
    put(r#"{"server_admin":false}"#);
    assert_eq!(status(), 403, "rights are those of now");
    put(r#"{"password":"two","server_admin":true}"#);
    assert_eq!(status(), 401);
}

#[test]
fn bodies_before_sign_in_are_bounded() {
    let (server, _) = start();
    assert_eq!(server.send("POST", "/api/v1/session", &[PAGE], vec![b' '; 100_000]).status, 413);
    assert_eq!(server.send("POST", "/api/v1/session", &[PAGE], "{}").status, 400);
}

#[test]
fn answers_have_headers_for_browsers() {
    let (authority, files) = (Authority::new(), Files::new());
    let certificate = authority.server();
    let tls = TlsSettings::new(
        Pem::File(files.write("server.pem", &certificate.chain)),
        Pem::File(files.write("server-key.pem", &certificate.key)),
    );
    let server = Running::start_with(|settings| {
        settings.tls = Some(tls);
        settings.hsts_max_age_s = Some(31_536_000);
        settings.sign_in_required = true;
        settings.response_headers = vec![
            ("X-Frame-Options".to_owned(), "DENY".to_owned()),
            ("Content-Security-Policy".to_owned(), "frame-ancestors 'none'".to_owned()),
        ];
    });
    let client = TlsClient::new(&authority, None);
    for path in ["/", "/api/v1/labels", "/-/healthy"] {
        let answer = client.get(server.address, path, "").unwrap().to_ascii_lowercase();
        for header in [
            "x-content-type-options: nosniff",
            "referrer-policy: same-origin",
            "strict-transport-security: max-age=31536000",
            "x-frame-options: deny",
        ] {
            assert!(answer.contains(header), "{path} {answer}");
        }
    }
    let page = client.get(server.address, "/", "").unwrap();
    assert_eq!(
        page.matches("Content-Security-Policy").count(),
        1,
        "that of the settings in place of the page's: {page}"
    );
    assert!(page.contains("frame-ancestors 'none'") && !page.contains("unsafe-inline"), "{page}");
    let token = std::fs::read_to_string(server.db.directory().join("admin-token")).unwrap();
    let body = format!(r#"{{"user":"","password":"{}"}}"#, token.trim());
    let request = format!(
        "POST /api/v1/session HTTP/1.1\r\nhost: localhost\r\nx-thalweg-page: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let begun = client.exchange(server.address, request.as_bytes()).unwrap();
    assert!(
        begun.contains("Set-Cookie: __Host-thalweg-session=") && begun.contains("SameSite=Strict; Secure"),
        "{begun}"
    );
    let value = begun.split("__Host-thalweg-session=").nth(1).unwrap().split(';').next().unwrap();
    let ask = |name: &str| {
        client.get(server.address, "/metrics", &format!("x-thalweg-page: 1\r\ncookie: {name}={value}\r\n")).unwrap()
    };
    assert!(ask("__Host-thalweg-session").starts_with("HTTP/1.1 200"));
    assert!(ask("thalweg-session").starts_with("HTTP/1.1 401"), "another host could have set that one");
}

#[test]
fn trusted_proxies_name_accounts_and_tenants_are_databases() {
    let proxied = Running::start_with(|settings| {
        settings.sign_in_required = true;
        settings.trusted_proxies = vec![Network::parse("127.0.0.1").unwrap()];
    });
    let user = |server: &Running, name: &str| server.send("GET", "/metrics", &[("x-webauth-user", name)], b"").status;
    assert_eq!((user(&proxied, "admin"), user(&proxied, "nobody")), (200, 401));
    // Sign-ins of the page that fail hold up their client, not all clients of the proxy.
    let own = std::fs::read_to_string(proxied.db.directory().join("admin-token")).unwrap();
    let from =
        |address: &str, password: &str| sign_in(&proxied, &[PAGE, ("x-forwarded-for", address)], password).status;
    assert!((0..9).map(|_| from("203.0.113.7", "wrong")).any(|status| status == 429));
    assert_eq!((from("203.0.113.7", own.trim()), from("203.0.113.8", own.trim())), (429, 200));
    let (server, token) = start();
    assert_eq!(user(&server, "admin"), 401, "not a proxy");
    let bearer = format!("Bearer {token}");
    let admin = [("authorization", bearer.as_str()), ("x-scope-orgid", "tenant")];
    let lines = "up{job=\"a\"} 1 1000\n";
    assert_eq!(server.send("POST", "/api/v1/import/prometheus", &admin, lines).status, 204);
    let made = server.send("PUT", "/api/v1/admin/accounts/t", &admin, r#"{"grants":["read:tenant"]}"#).body;
    let parsed: serde_json::Value = serde_json::from_str(&made).unwrap();
    let bearer = format!("Bearer {}", parsed["data"]["token"].as_str().unwrap());
    let labels = |tenant: &str| {
        let headers = [("authorization", bearer.as_str()), ("x-scope-orgid", tenant)];
        server.send("GET", "/api/v1/labels", &headers, b"").body
    };
    assert!(labels("tenant").contains("job"), "{}", labels("tenant"));
    assert!(!labels("default").contains("job") && !labels("tenant|default").contains("job"));
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_for_the_server_s_owner() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let path = files.0.join("thalweg.sock");
    let socket = path.clone();
    let mut server = Running::start_with(|settings| {
        settings.sign_in_required = true;
        settings.http_socket = Some(socket);
        settings.park_after_ms = 20;
    });
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    for round in 0..2 {
        let close = if round == 1 { "connection: close\r\n" } else { "" };
        write!(stream, "GET /api/v1/admin/accounts HTTP/1.1\r\nhost: localhost\r\n{close}\r\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
    server.stop();
    assert!(!path.exists());
}
