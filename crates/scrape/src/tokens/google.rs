//! Identities at Google Cloud: of a file with a service account's key or a user's token, or of the machine.

use platform::read_file;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

use super::assertion::Assertion;
use super::request::TokenRequest;
use crate::config::{AssertionAlgorithm, GoogleConfig, JWT_BEARER, Origin};

/// What tokens are for: writing to Cloud Monitoring.
const SCOPE: &str = "https://www.googleapis.com/auth/monitoring.write";

/// Where tokens are fetched, unless a file says otherwise.
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";

/// The machines' own service.
const MACHINE_HOST: &str = "169.254.169.254";

/// Bytes of a file with a key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Seconds for which a statement of a service account is good.
const ASSERTION_LIFETIME_S: i64 = 3_600;

/// The request of a token: of the file that is configured, else of the one that the environment names, of the one that Google's tools
/// write, or of the machine.
pub(super) fn request(config: &GoogleConfig, origin: &Origin<'_>) -> Result<TokenRequest, String> {
    if let Some(path) = &config.credentials_file {
        return of_file(path, origin, false);
    }
    if let Some(path) = (origin.variable)("GOOGLE_APPLICATION_CREDENTIALS") {
        return of_file(Path::new(&path), origin, true);
    }
    let home = (origin.variable)("CLOUDSDK_CONFIG").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&(origin.variable)("HOME")?).join(".config/gcloud")));
    let known = home.map(|folder| folder.join("application_default_credentials.json"));
    match known.filter(|path| matches!(origin.files.kind(path), Ok(Some(_)))) {
        Some(path) => of_file(&path, origin, true),
        None => Ok(of_machine(origin)),
    }
}

fn of_machine(origin: &Origin<'_>) -> TokenRequest {
    let host = (origin.variable)("GCE_METADATA_HOST").unwrap_or_else(|| MACHINE_HOST.to_owned());
    let scope: String = form_urlencoded::byte_serialize(SCOPE.as_bytes()).collect();
    let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token?scopes={scope}");
    TokenRequest { url, headers: vec![("Metadata-Flavor", "Google".to_owned())], form: None, assertion: None }
}

fn of_file(path: &Path, origin: &Origin<'_>, takes_users: bool) -> Result<TokenRequest, String> {
    let named = |reason: String| format!("{}: {reason}", path.display());
    let content = read_file(origin.files, path, FILE_BYTES_MAX).map_err(|error| named(error.to_string()))?;
    let file: Value = serde_json::from_slice(&content).map_err(|error| named(error.to_string()))?;
    let text = |name: &str| {
        let found = file[name].as_str().filter(|text| !text.is_empty());
        found.ok_or_else(|| named(format!("{name} is missing")))
    };
    match text("type")? {
        "service_account" => {
            let token_url = text("token_uri").unwrap_or(TOKEN_URL);
            let assertion =
                assertion_of(text("client_email")?, text("private_key")?, (token_url, text("private_key_id").ok()));
            let mut request = TokenRequest::of_form(token_url.to_owned(), [("grant_type", JWT_BEARER)]);
            request.assertion = Some(("assertion", assertion));
            Ok(request)
        }
        "authorized_user" if takes_users => Ok(TokenRequest::of_form(
            text("token_uri").unwrap_or(TOKEN_URL).to_owned(),
            [
                ("grant_type", "refresh_token"),
                ("client_id", text("client_id")?),
                ("client_secret", text("client_secret")?),
                ("refresh_token", text("refresh_token")?),
            ],
        )),
        kind => Err(named(format!("credentials of type {kind:?} are not taken here: those of service_account are"))),
    }
}

fn assertion_of(email: &str, key: &str, (token_url, key_id): (&str, Option<&str>)) -> Assertion {
    let pairs = |pairs: &[(&str, &str)]| -> Map<String, Value> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), Value::from(value))).collect()
    };
    let header = key_id.map_or_else(Map::new, |id| pairs(&[("kid", id)]));
    let claims = pairs(&[("iss", email), ("scope", SCOPE), ("aud", token_url)]);
    let (key, algorithm) = (key.to_owned(), AssertionAlgorithm::Rs256);
    Assertion { key, algorithm, header, claims, lifetime_s: ASSERTION_LIFETIME_S }
}
