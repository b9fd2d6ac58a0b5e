//! `OpenID` Connect, by an identity provider that the test serves on loopback: its document, its keys, its answers to codes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use access::oidc::{OidcRules, Role};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use platform::network::NetworkPlatform;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use thalweg_server::{Oidc, OidcClient};

use crate::harness::{Answer, Running};

/// A key of the provider, by its name.
struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self { id, pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap() }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "x": x, "y": y})
    }

    fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.id});
        let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// What the provider answers with.
struct Served {
    keys: Vec<Value>,
    /// The token for a code, and the challenge that its verifier has to answer.
    codes: HashMap<String, (String, String)>,
    paths: Vec<String>,
    /// Its document cannot be had.
    is_broken: bool,
}

struct Provider {
    issuer: String,
    served: Arc<Mutex<Served>>,
    /// The provider does not answer while it is held.
    gate: Arc<Mutex<()>>,
}

impl Provider {
    fn start(keys: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::new(Mutex::new(Served { keys, codes: HashMap::new(), paths: Vec::new(), is_broken: false }));
        let gate = Arc::new(Mutex::new(()));
        let (shared, own, door) = (served.clone(), issuer.clone(), gate.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = answer(stream.unwrap(), &own, &shared, &door);
            }
        });
        Self { issuer, served, gate }
    }

    fn requests(&self, path: &str) -> usize {
        self.served.lock().unwrap().paths.iter().filter(|known| *known == path).count()
    }
}

/// Answers one request of a connection.
fn answer(mut stream: TcpStream, issuer: &str, served: &Mutex<Served>, gate: &Mutex<()>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length, mut authorization) = (String::new(), 0, String::new());
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => value.clone_into(&mut authorization),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    served.lock().unwrap().paths.push(path.clone());
    drop(gate.lock().unwrap());
    let mut served = served.lock().unwrap();
    let (status, document) = match path.as_str() {
        "/.well-known/openid-configuration" if served.is_broken => (500, json!({})),
        "/.well-known/openid-configuration" => (
            200,
            json!({
                "issuer": issuer, "jwks_uri": format!("{issuer}/keys"), "token_endpoint": format!("{issuer}/token"),
                "authorization_endpoint": format!("{issuer}/authorize?theme=dark"),
            }),
        ),
        "/keys" => (200, json!({ "keys": served.keys })),
        "/token" => token(&mut served, &String::from_utf8(body).unwrap(), &authorization),
        _ => (404, json!({})),
    };
    let document = document.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{document}",
        document.len()
    )
}

/// Exchanges a code, as a provider does: for its client, once, and for the right verifier.
fn token(served: &mut Served, form: &str, authorization: &str) -> (u16, Value) {
    let form: HashMap<String, String> = form_urlencoded::parse(form.as_bytes()).into_owned().collect();
    let client = format!("Basic {}", STANDARD.encode("thalweg:s%26cret"));
    let Some((token, challenge)) = served.codes.remove(&form["code"]).filter(|_| authorization == client) else {
        return (400, json!({"error": "invalid_grant"}));
    };
    let verifier = ring::digest::digest(&ring::digest::SHA256, form["code_verifier"].as_bytes());
    if URL_SAFE_NO_PAD.encode(verifier) != challenge || form["grant_type"] != "authorization_code" {
        return (400, json!({"error": "invalid_grant"}));
    }
    (200, json!({"access_token": "opaque", "id_token": token, "token_type": "Bearer"}))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

const REDIRECT: &str = "http://localhost/api/v1/session/oidc/callback";

fn start(provider: &Provider) -> Running {
    let texts = ["engineers=read:metrics", "admins=server-admin", "writers=write+create:metrics"];
    let rules = OidcRules {
        issuer: provider.issuer.clone(),
        audiences: vec!["thalweg".to_owned()],
        name_claim: "email".to_owned(),
        groups_claim: "groups".to_owned(),
        roles: texts.iter().map(|role| Role::parse(role).unwrap()).collect(),
    };
    let client = OidcClient {
        id: "thalweg".to_owned(),
        secret: Some("s&cret".to_owned().into()),
        redirect_url: REDIRECT.to_owned(),
    };
    let network = NetworkPlatform::real(platform::Platform::real());
    let oidc = Arc::new(Oidc::new(&network, rules, Some(client), None).unwrap());
    Running::start_with(|settings| {
        settings.sign_in_required = true;
        settings.line =
            Some(thalweg_server::Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true });
        "metrics".clone_into(&mut settings.line_database);
        settings.web.oidc = Some(oidc);
    })
}

fn claims(provider: &Provider, groups: &[&str]) -> Value {
    json!({
        "iss": provider.issuer, "aud": "thalweg", "sub": "1", "email": "alice@example", "groups": groups, "exp": now_s() + 300,
        "iat": now_s(),
    })
}

fn bearer(server: &Running, path: &str, token: &str) -> Answer {
    server.send("GET", path, &[("authorization", &format!("Bearer {token}"))], b"")
}

#[test]
fn tokens_of_the_provider_sign_in_with_the_rights_of_their_groups() {
    let (key, next) = (Key::new("k1"), Key::new("k2"));
    let provider = Provider::start(vec![key.jwk()]);
    let server = start(&provider);
    let of = |groups: &[&str]| key.sign(&claims(&provider, groups));
    let write = server.send(
        "POST",
        "/write?db=metrics",
        &[("authorization", &format!("Bearer {}", of(&["writers"])))],
        "m v=1 1000000000",
    );
    assert_eq!(write.status, 204, "{}", write.body);
    let query = "/api/v1/query?db=metrics&query=m_v&time=1";
    assert!(bearer(&server, query, &of(&["engineers"])).body.contains(r#""1""#));
    assert!(!bearer(&server, query, &of(&["guests"])).body.contains("m_v"));
    assert_eq!(bearer(&server, "/metrics", &of(&["engineers"])).status, 403);
    assert_eq!(bearer(&server, "/metrics", &of(&["engineers", "admins"])).status, 200);
    // Also in the place of a password, as Grafana sends it.
    let basic = STANDARD.encode(format!("any:{}", of(&["engineers"])));
    assert_eq!(server.send("GET", query, &[("authorization", &format!("Basic {basic}"))], b"").status, 200);
    let mut others = claims(&provider, &["admins"]);
    others["aud"] = json!("someone-else");
    for wrong in [key.sign(&others), next.sign(&claims(&provider, &["admins"])), format!("{}x", of(&["admins"]))] {
        let refused = bearer(&server, "/metrics", &wrong);
        assert!(refused.status == 401 && !refused.body.contains("audience"), "{}", refused.body);
    }
    // A key that is not known is asked for, not too often; the provider has it by now, and will not be asked again so soon.
    assert_eq!((provider.requests("/keys"), provider.requests("/.well-known/openid-configuration")), (1, 1));
}

#[test]
fn a_client_that_leaves_does_not_break_off_what_others_wait_for() {
    let key = Key::new("k1");
    let provider = Provider::start(vec![key.jwk()]);
    let server = start(&provider);
    let token = key.sign(&claims(&provider, &["admins"]));
    let closed = provider.gate.lock().unwrap();
    let mut leaving = TcpStream::connect(server.address).unwrap();
    write!(leaving, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n").unwrap();
    let started = std::time::Instant::now();
    while provider.requests("/.well-known/openid-configuration") == 0 {
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
        std::thread::yield_now();
    }
    drop(leaving);
    // The server takes note of it.
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(closed);
    assert_eq!(bearer(&server, "/metrics", &token).status, 200);
    assert_eq!(provider.requests("/keys"), 1);
}

#[test]
fn only_tokens_that_are_wrong_make_an_address_wait() {
    let (key, stranger) = (Key::new("k1"), Key::new("k1"));
    let provider = Provider::start(vec![key.jwk()]);
    let server = start(&provider);
    let right = key.sign(&claims(&provider, &["admins"]));
    let mut old = claims(&provider, &["admins"]);
    old["exp"] = json!(now_s() - 100);
    let old = key.sign(&old);
    assert!((0..10).all(|_| bearer(&server, "/metrics", &old).status == 401), "it was right once");
    assert_eq!(bearer(&server, "/metrics", &right).status, 200);
    let wrong = stranger.sign(&claims(&provider, &["admins"]));
    assert!((0..10).any(|_| bearer(&server, "/metrics", &wrong).status == 429));
    // Nor does a provider that does not answer.
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = Provider { issuer: format!("http://{nowhere}"), ..provider };
    let server = start(&gone);
    for _ in 0..10 {
        let refused = bearer(&server, "/metrics", &right);
        assert!(refused.status == 503 && !refused.header("retry-after").is_empty(), "{}", refused.body);
    }
}

/// A server whose clock can be set ahead.
fn start_with_clock(provider: &Provider) -> (Running, Arc<Ahead>) {
    let mut platform = platform::Platform::real();
    let clock = Arc::new(Ahead::default());
    platform.clock = clock.clone();
    let rules = OidcRules {
        issuer: provider.issuer.clone(),
        audiences: vec!["thalweg".to_owned()],
        name_claim: "sub".to_owned(),
        groups_claim: "groups".to_owned(),
        roles: vec![Role::parse("admins=server-admin").unwrap()],
    };
    let network = NetworkPlatform::real(platform::Platform::real());
    let oidc = Arc::new(Oidc::new(&network, rules, None, None).unwrap());
    let options = db::DbOptions::new(Running::new_folder());
    let server = Running::start_with_platform(platform, options, |settings| {
        settings.sign_in_required = true;
        settings.web.oidc = Some(oidc);
    });
    (server, clock)
}

/// A token of an administrator that lasts while the clock is so far ahead.
fn lasting_token(provider: &Provider, key: &Key, ahead_s: u64) -> String {
    let mut claims = claims(provider, &["admins"]);
    claims["exp"] = json!(now_s() + ahead_s + 300);
    key.sign(&claims)
}

/// A provider that is broken is asked every half minute, however many clients come, and soon after it works they are let in.
#[test]
fn a_provider_that_is_broken_is_not_asked_by_every_client() {
    let key = Key::new("k1");
    let provider = Provider::start(vec![key.jwk()]);
    provider.served.lock().unwrap().is_broken = true;
    let (server, clock) = start_with_clock(&provider);
    let asked = || provider.requests("/.well-known/openid-configuration");
    let status = |ahead_s| bearer(&server, "/metrics", &lasting_token(&provider, &key, ahead_s)).status;
    assert!((0..5).all(|ahead_s| status(ahead_s) == 503));
    assert_eq!(asked(), 1);
    clock.go_s(20);
    assert_eq!((status(20), asked()), (503, 1), "half a minute has not passed");
    clock.go_s(11);
    assert!((31..36).all(|ahead_s| status(ahead_s) == 503));
    assert_eq!(asked(), 2);
    provider.served.lock().unwrap().is_broken = false;
    assert_eq!((status(40), asked()), (503, 2), "it is not asked at once");
    clock.go_s(31);
    assert_eq!((status(62), asked()), (200, 3));
}

#[test]
fn keys_are_rotated() {
    let (key, next) = (Key::new("k1"), Key::new("k2"));
    let provider = Provider::start(vec![key.jwk()]);
    let (server, clock) = start_with_clock(&provider);
    let token = |key: &Key, ahead_s: u64| lasting_token(&provider, key, ahead_s);
    assert_eq!(bearer(&server, "/metrics", &token(&key, 0)).status, 200);
    provider.served.lock().unwrap().keys = vec![next.jwk()];
    assert_eq!(bearer(&server, "/metrics", &token(&next, 0)).status, 401, "the provider was asked a moment ago");
    clock.go_s(31);
    assert_eq!(bearer(&server, "/metrics", &token(&next, 31)).status, 200);
    assert_eq!(bearer(&server, "/metrics", &token(&key, 32)).status, 401, "the old key is gone");
    assert_eq!(provider.requests("/keys"), 2);
}

/// The machine's clock, some seconds ahead.
#[derive(Default)]
struct Ahead(std::sync::atomic::AtomicI64);

impl Ahead {
    fn go_s(&self, seconds: i64) {
        self.0.fetch_add(seconds, std::sync::atomic::Ordering::Relaxed);
    }
}

impl platform::Clock for Ahead {
    fn now_ns(&self) -> i64 {
        let ahead_s = self.0.load(std::sync::atomic::Ordering::Relaxed);
        platform::Platform::real().clock.now_ns() + ahead_s * 1_000_000_000
    }

    fn monotonic_ns(&self) -> u64 {
        platform::Platform::real().clock.monotonic_ns()
    }
}

/// The value of a parameter of an address.
fn parameter(address: &str, name: &str) -> String {
    let query = address.split_once('?').unwrap().1;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(found, _)| found == name).unwrap().1.into_owned()
}

/// Begins a sign-in of the page: where the browser is sent, and its cookie.
fn begin(server: &Running) -> (String, String) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(stream, "GET /api/v1/session/oidc HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let header = |name: &str| {
        let line = answer.lines().find(|line| line.to_ascii_lowercase().starts_with(name)).unwrap_or_default();
        line.split_once(": ").unwrap_or_default().1.to_owned()
    };
    assert!(answer.starts_with("HTTP/1.1 302"), "{answer}");
    (header("location"), header("set-cookie").split(';').next().unwrap().to_owned())
}

#[test]
fn the_page_signs_in_by_a_code() {
    let key = Key::new("k1");
    let provider = Provider::start(vec![key.jwk()]);
    let server = start(&provider);
    assert!(server.get("/api/v1/session").body.contains(r#""oidc":true"#));
    let (location, cookie) = begin(&server);
    assert!(
        location.starts_with(&format!("{}/authorize?theme=dark&response_type=code", provider.issuer)),
        "{location}"
    );
    assert_eq!(
        (parameter(&location, "redirect_uri").as_str(), parameter(&location, "code_challenge_method").as_str()),
        (REDIRECT, "S256")
    );
    let state = parameter(&location, "state");
    let offer = |code: &str, nonce: &str, challenge: &str| {
        let mut claims = claims(&provider, &["admins"]);
        claims["nonce"] = json!(nonce);
        let offered = (key.sign(&claims), challenge.to_owned());
        provider.served.lock().unwrap().codes.insert(code.to_owned(), offered);
    };
    let (nonce, challenge) = (parameter(&location, "nonce"), parameter(&location, "code_challenge"));
    offer("right", &nonce, &challenge);
    let back = |code: &str, state: &str, cookie: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(
            stream,
            "GET /api/v1/session/oidc/callback?code={code}&state={state} HTTP/1.1\r\nhost: localhost\r\ncookie: {cookie}\r\n\
             sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    // Another browser, and a state that was made up.
    assert!(back("right", &state, "thalweg-oidc=other").starts_with("HTTP/1.1 401"));
    assert!(back("right", "other", "thalweg-oidc=other").starts_with("HTTP/1.1 401"));
    let signed_in = back("right", &state, &cookie);
    assert!(
        signed_in.starts_with("HTTP/1.1 303") && signed_in.contains("Location: http://localhost/\r\n"),
        "{signed_in}"
    );
    let session = signed_in.lines().find_map(|line| line.strip_prefix("Set-Cookie: thalweg-session=")).unwrap();
    assert!(session.ends_with("HttpOnly; SameSite=Strict"), "{session}");
    // As long as the provider's token.
    let age_s: u64 = session.split("Max-Age=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!((1..=300).contains(&age_s), "{session}");
    let session = format!("thalweg-session={}", session.split(';').next().unwrap());
    let ask = |headers: &[(&str, &str)]| server.send("GET", "/metrics", headers, b"").status;
    assert_eq!(ask(&[("x-thalweg-page", "1"), ("cookie", &session)]), 200);
    assert_eq!(ask(&[("cookie", &session)]), 401, "what another page has a browser send");
    let shown = server.send("GET", "/api/v1/session", &[("x-thalweg-page", "1"), ("cookie", &session)], b"").body;
    assert!(shown.contains(r#""account":"oidc:alice@example""#), "{shown}");
    // A state comes back once; a token for another request, and a code with another challenge, are none.
    assert!(back("right", &state, &cookie).starts_with("HTTP/1.1 401"));
    for (nonce_is_right, challenge_is_right) in [(false, true), (true, false)] {
        let (location, cookie) = begin(&server);
        let nonce = if nonce_is_right { parameter(&location, "nonce") } else { "other".to_owned() };
        let challenge = if challenge_is_right { parameter(&location, "code_challenge") } else { "other".to_owned() };
        offer("wrong", &nonce, &challenge);
        assert!(back("wrong", &parameter(&location, "state"), &cookie).starts_with("HTTP/1.1 401"));
    }
}
