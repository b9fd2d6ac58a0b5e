//! Requests of tokens, and statements whose signatures are verified. The keys and the certificate in `tests/keys` were made for these
//! tests by openssl: `openssl genrsa -traditional`, `openssl pkcs8 -topk8 -nocrypt`, `openssl req -x509 -subj /CN=thalweg-test`.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use platform::sim::Simulation;
use platform::{Files, write_file};
use ring::signature::{self, UnparsedPublicKey};
use serde_json::{Value, json};

use super::request::{TokenRequest, of_client};
use super::{assertion, azure, google, reason_in, token_in};
use crate::config::{
    AssertionAlgorithm, AssertionConfig, AzureCertificate, AzureConfig, AzureIdentity, GoogleConfig, Oauth2Config,
    Origin, ProxyConfig, Source, TlsConfig,
};

const RSA_PEM: &str = include_str!("../../tests/keys/rsa.pem");
const PKCS8_PEM: &str = include_str!("../../tests/keys/pkcs8.pem");
const CERTIFICATE_PEM: &str = include_str!("../../tests/keys/certificate.pem");

/// `openssl x509 -fingerprint -sha256` of the certificate.
const FINGERPRINT: &str = "2718933BBA0601FA7E666E55C42722A524A7FAE3F9DCB970A93F910FF3A57A4C";

/// The seconds of the machine's clock.
const NOW_S: i64 = 1_700_000_000;

/// Method, address, headers but the agent's, and the form's pairs of a request.
#[derive(Debug, PartialEq)]
struct Shape {
    method: &'static str,
    url: String,
    headers: Vec<(String, String)>,
    form: Vec<(String, String)>,
}

fn shape(request: &TokenRequest) -> Shape {
    let machine = Simulation::new(1).platform();
    let built = request.build(NOW_S * 1_000_000_000, &*machine.random).unwrap();
    let headers = built.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("user-agent"));
    Shape {
        method: built.method,
        url: built.url,
        headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
        form: form_urlencoded::parse(&built.body).into_owned().collect(),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The header and the claims of a statement, once its signature was found good.
fn verified(statement: &str, parameters: &'static signature::RsaParameters) -> (Value, Value) {
    let parts: Vec<&str> = statement.split('.').collect();
    let [header, claims, signed] = parts[..] else { panic!("{statement}") };
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let key = assertion::read_key(RSA_PEM).unwrap();
    let public = UnparsedPublicKey::new(parameters, key.public());
    public.verify(format!("{header}.{claims}").as_bytes(), &decode(signed)).unwrap();
    assert!(public.verify(format!("{header}.{claims}x").as_bytes(), &decode(signed)).is_err());
    (serde_json::from_slice(&decode(header)).unwrap(), serde_json::from_slice(&decode(claims)).unwrap())
}

fn client(assertion: Option<AssertionConfig>) -> Oauth2Config {
    Oauth2Config {
        client_id: "the client".to_owned(),
        client_secret: Some(Source::Inline("a:b".to_owned())),
        assertion: assertion.map(Box::new),
        scopes: vec!["one".to_owned(), "two".to_owned()],
        token_url: "https://login.example/token".to_owned(),
        endpoint_params: pairs(&[("audience", "x y")]),
        tls: TlsConfig::default(),
        proxy: ProxyConfig::default(),
    }
}

#[test]
fn clients_show_a_secret() {
    let machine = Simulation::new(1).platform();
    let request = of_client(&client(None), &*machine.files).unwrap();
    let expected = Shape {
        method: "POST",
        url: "https://login.example/token".to_owned(),
        headers: pairs(&[
            ("Authorization", "Basic dGhlK2NsaWVudDphJTNBYg=="),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ]),
        form: pairs(&[("grant_type", "client_credentials"), ("scope", "one two"), ("audience", "x y")]),
    };
    let mut found = shape(&request);
    found.headers.sort();
    assert_eq!(found, expected);
}

#[test]
fn clients_sign_statements() {
    let machine = Simulation::new(1).platform();
    for (algorithm, parameters) in [
        (AssertionAlgorithm::Rs256, &signature::RSA_PKCS1_2048_8192_SHA256),
        (AssertionAlgorithm::Rs384, &signature::RSA_PKCS1_2048_8192_SHA384),
        (AssertionAlgorithm::Rs512, &signature::RSA_PKCS1_2048_8192_SHA512),
        (AssertionAlgorithm::Ps256, &signature::RSA_PSS_2048_8192_SHA256),
    ] {
        for (key, issuer, claims) in [
            (RSA_PEM, "", json!({})),
            (PKCS8_PEM, "someone", json!({"sub": "other", "exp": 5, "deep": {"a": [1, true]}})),
        ] {
            let assertion = AssertionConfig {
                key: Some(Source::Inline(key.to_owned())),
                key_id: "k1".to_owned(),
                algorithm,
                issuer: issuer.to_owned(),
                audience: String::new(),
                claims: claims.as_object().unwrap().clone(),
            };
            let request = of_client(&client(Some(assertion)), &*machine.files).unwrap();
            let found = shape(&request);
            let names: Vec<&str> = found.form.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, ["grant_type", "scope", "audience", "assertion"]);
            let (header, mut stated) = verified(&found.form[3].1, parameters);
            assert_eq!(header, json!({"alg": algorithm.name(), "kid": "k1", "typ": "JWT"}));
            assert_eq!(stated["jti"].as_str().unwrap().len(), 36);
            stated.as_object_mut().unwrap().remove("jti");
            let mut expected = json!({
                "aud": "https://login.example/token", "exp": NOW_S + 600, "iat": NOW_S, "scope": "one two", "sub": "the client",
                "iss": if issuer.is_empty() { "the client" } else { issuer },
            });
            expected.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
            assert_eq!(stated, expected);
        }
    }
}

#[test]
fn keys_that_cannot_sign_are_refused() {
    let machine = Simulation::new(1).platform();
    for (key, expected) in [
        ("", "no PEM"),
        (CERTIFICATE_PEM, "no PEM"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no good key"),
    ] {
        let assertion = AssertionConfig {
            key: Some(Source::Inline(key.to_owned())),
            key_id: String::new(),
            algorithm: AssertionAlgorithm::Rs256,
            issuer: String::new(),
            audience: String::new(),
            claims: serde_json::Map::new(),
        };
        let request = of_client(&client(Some(assertion)), &*machine.files).unwrap();
        let error = request.build(0, &*machine.random).err().unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

/// The request of an identity in an environment, beside files that are there.
fn in_environment<T>(environment: &[(&str, &str)], request: impl FnOnce(&Origin<'_>) -> T) -> T {
    let machine = Simulation::new(1).platform();
    let files: &dyn Files = &*machine.files;
    let account = json!({
        "type": "service_account", "client_email": "a@b.example", "private_key": PKCS8_PEM, "private_key_id": "k2",
        "token_uri": "https://token.example/",
    });
    let user = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"});
    for (path, content) in [
        ("/pod/token", "pod-token\n"),
        ("/pod/other", "other-token"),
        ("/certificate.pem", CERTIFICATE_PEM),
        ("/both.pem", &format!("{RSA_PEM}{CERTIFICATE_PEM}")),
        ("/key.pem", RSA_PEM),
        ("/account.json", &account.to_string()),
        ("/home/.config/gcloud/application_default_credentials.json", &user.to_string()),
        ("/other.json", "{\"type\": \"external_account\"}"),
    ] {
        write_file(files, Path::new(path), content.as_bytes()).unwrap();
    }
    let variables: HashMap<&str, &str> = environment.iter().copied().collect();
    request(&Origin { files, variable: &|name: &str| variables.get(name).map(|value| (*value).to_owned()) })
}

fn azure_request(identity: AzureIdentity, environment: &[(&str, &str)]) -> Result<Shape, String> {
    let (login_url, scope) = ("https://login.example", "https://monitor.example/.default".to_owned());
    let config = AzureConfig { login_url, scope, identity };
    in_environment(environment, |origin| azure::request(&config, origin)).map(|request| shape(&request))
}

#[test]
fn machines_of_azure_ask_their_own_service() {
    let query = "resource=https%3A%2F%2Fmonitor.example";
    let own = azure_request(AzureIdentity::Managed { client_id: String::new() }, &[]).unwrap();
    let url = format!("http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&{query}");
    assert_eq!(own, Shape { method: "GET", url, headers: pairs(&[("Metadata", "true")]), form: Vec::new() });
    let environment = [("IDENTITY_ENDPOINT", "http://127.0.0.1:41/token"), ("IDENTITY_HEADER", "secret")];
    let service = azure_request(AzureIdentity::Managed { client_id: "a b".to_owned() }, &environment).unwrap();
    let url = format!("http://127.0.0.1:41/token?api-version=2019-08-01&{query}&client_id=a+b");
    assert_eq!(
        service,
        Shape { method: "GET", url, headers: pairs(&[("X-IDENTITY-HEADER", "secret")]), form: Vec::new() }
    );
}

#[test]
fn pods_and_applications_of_azure_show_who_they_are() {
    let workload = |token_file: Option<&str>| AzureIdentity::Workload {
        client_id: "app".to_owned(),
        tenant_id: "tenant".to_owned(),
        token_file: token_file.map(Into::into),
    };
    let of_environment = || AzureIdentity::Environment { tenant_id: String::new() };
    let account = [("AZURE_CLIENT_ID", "app"), ("AZURE_TENANT_ID", "tenant")];
    let with = |pair: (&'static str, &'static str)| [&account[..], &[pair]].concat();
    let assertion_type = ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let token_file = ("AZURE_FEDERATED_TOKEN_FILE", "/pod/other");
    for (identity, environment, further) in [
        (workload(Some("/pod/token")), vec![], vec![assertion_type, ("client_assertion", "pod-token")]),
        (workload(None), vec![token_file], vec![assertion_type, ("client_assertion", "other-token")]),
        (of_environment(), with(token_file), vec![assertion_type, ("client_assertion", "other-token")]),
        (of_environment(), with(("AZURE_CLIENT_SECRET", "s")), vec![("client_secret", "s")]),
    ] {
        let found = azure_request(identity, &environment).unwrap();
        assert_eq!(found.url, "https://login.example/tenant/oauth2/v2.0/token");
        let first =
            [("grant_type", "client_credentials"), ("client_id", "app"), ("scope", "https://monitor.example/.default")];
        assert_eq!(found.form, pairs(&[&first[..], &further].concat()));
    }
    let error = azure_request(workload(Some("/none")), &[]).err().unwrap();
    assert!(error.contains("/none"), "{error}");
    let machine = azure_request(of_environment(), &account).unwrap();
    assert!(
        machine.url.starts_with("http://169.254.169.254/") && machine.url.ends_with("client_id=app"),
        "{machine:?}"
    );
}

#[test]
fn applications_of_azure_sign_with_certificates() {
    let certificate = |path: &str, key_path: Option<&str>, sends_chain: bool| AzureCertificate {
        client_id: "app".to_owned(),
        tenant_id: "tenant".to_owned(),
        path: path.into(),
        key_path: key_path.map(Into::into),
        sends_chain,
    };
    for (path, key_path, sends_chain) in [("/both.pem", None, false), ("/certificate.pem", Some("/key.pem"), true)] {
        let identity = AzureIdentity::Certificate(certificate(path, key_path, sends_chain));
        let found = azure_request(identity, &[]).unwrap();
        assert_eq!(found.form[4].0, "client_assertion");
        let (header, claims) = verified(&found.form[4].1, &signature::RSA_PSS_2048_8192_SHA256);
        let print = URL_SAFE_NO_PAD.decode(header["x5t#S256"].as_str().unwrap()).unwrap();
        let print: Vec<String> = print.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(print.concat(), FINGERPRINT);
        assert_eq!(header["x5c"].as_array().map(Vec::len), sends_chain.then_some(1));
        let url = "https://login.example/tenant/oauth2/v2.0/token";
        assert_eq!((&claims["iss"], &claims["sub"], &claims["aud"]), (&json!("app"), &json!("app"), &json!(url)));
    }
    let error = azure_request(AzureIdentity::Certificate(certificate("/key.pem", None, false)), &[]).err().unwrap();
    assert!(error.contains("openssl pkcs12"), "{error}");
}

fn google_request(file: Option<&str>, environment: &[(&str, &str)]) -> Result<Shape, String> {
    let config = GoogleConfig { credentials_file: file.map(Into::into) };
    in_environment(environment, |origin| google::request(&config, origin)).map(|request| shape(&request))
}

#[test]
fn identities_of_google_come_from_files_or_the_machine() {
    for found in [
        google_request(Some("/account.json"), &[]),
        google_request(None, &[("GOOGLE_APPLICATION_CREDENTIALS", "/account.json"), ("HOME", "/home")]),
    ] {
        let found = found.unwrap();
        assert_eq!(found.url, "https://token.example/");
        assert_eq!(found.form[0], ("grant_type".to_owned(), "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned()));
        let (header, mut claims) = verified(&found.form[1].1, &signature::RSA_PKCS1_2048_8192_SHA256);
        assert_eq!(header, json!({"alg": "RS256", "kid": "k2", "typ": "JWT"}));
        claims.as_object_mut().unwrap().remove("jti");
        let scope = "https://www.googleapis.com/auth/monitoring.write";
        let expected = json!({
            "iss": "a@b.example", "aud": "https://token.example/", "scope": scope, "iat": NOW_S, "exp": NOW_S + 3600
        });
        assert_eq!(claims, expected);
    }
    let user = google_request(None, &[("HOME", "/home")]).unwrap();
    assert_eq!(user.url, "https://oauth2.googleapis.com/token");
    let expected =
        [("grant_type", "refresh_token"), ("client_id", "c"), ("client_secret", "s"), ("refresh_token", "r")];
    assert_eq!(user.form, pairs(&expected));
    let machine = google_request(None, &[("GCE_METADATA_HOST", "127.0.0.1:42")]).unwrap();
    assert!(machine.url.starts_with("http://127.0.0.1:42/computeMetadata/v1/"), "{machine:?}");
    assert_eq!(machine.headers, pairs(&[("Metadata-Flavor", "Google")]));
    for (file, expected) in [("/other.json", "external_account"), ("/none", "/none")] {
        let error = google_request(Some(file), &[]).err().unwrap();
        assert!(error.contains(expected), "{error}");
    }
    let path = "/home/.config/gcloud/application_default_credentials.json";
    assert!(google_request(Some(path), &[]).err().unwrap().contains("authorized_user"));
}

#[test]
fn answers_have_tokens_and_lifetimes_or_reasons() {
    let token = |answer: Value| token_in(&answer);
    assert_eq!(token(json!({"access_token": "a", "expires_in": 60})), Ok(("a".to_owned(), 60_000_000_000)));
    assert_eq!(token(json!({"access_token": "a", "expires_in": "60"})), Ok(("a".to_owned(), 60_000_000_000)));
    assert_eq!(token(json!({"access_token": "a"})), Ok(("a".to_owned(), i64::MAX)));
    assert!(token(json!({"id_token": "a"})).is_err());
    assert_eq!(reason_in(&json!({"error": "invalid_grant", "error_description": "unknown key"})), "unknown key");
    assert_eq!(reason_in(&json!({"error": "invalid_grant"})), "invalid_grant");
    assert_eq!(reason_in(&json!(["x"])), "");
}
