//! AWS's signature, version 4.

use std::fmt::Write;

use platform::network::HttpRequest;
use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};

/// A key and its name.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) access_key: String,
    pub(super) secret_key: String,
    /// Of keys that end after a while.
    pub(super) session_token: Option<String>,
}

/// What a signature is made with.
pub(super) struct Signing<'a> {
    pub(super) keys: &'a Keys,
    pub(super) region: &'a str,
    /// The service that the request is for.
    pub(super) service: &'a str,
    pub(super) now_ns: i64,
}

impl Signing<'_> {
    /// The request with its signature.
    pub(super) fn sign(&self, request: HttpRequest) -> Result<HttpRequest, String> {
        let now = jiff::Timestamp::from_nanosecond(i128::from(self.now_ns)).map_err(|error| error.to_string())?;
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = time.get(..8).unwrap_or_default();
        let target = Target::parse(&request.url);
        let mut signed = Vec::new();
        signed.extend(request.header("content-type").map(|kind| ("content-type", kind.to_owned())));
        signed.push(("host", target.host));
        signed.push(("x-amz-date", time.clone()));
        signed.extend(self.keys.session_token.iter().map(|token| ("x-amz-security-token", token.clone())));
        let headers: Vec<String> = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let headers = headers.concat();
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let canonical = format!(
            "{}\n{}\n{}\n{headers}\n{names}\n{}",
            request.method,
            target.path,
            target.query,
            hex(digest(&SHA256, &request.body).as_ref())
        );
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let hashed = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
        let signature = hex(&self.signature(day, &text));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.keys.access_key
        );
        let mut request = request.with_header("X-Amz-Date", time).with_header("Authorization", authorization);
        if let Some(token) = &self.keys.session_token {
            request = request.with_header("X-Amz-Security-Token", token.clone());
        }
        Ok(request)
    }

    fn signature(&self, day: &str, text: &str) -> Vec<u8> {
        let secret = format!("AWS4{}", self.keys.secret_key);
        let steps = [day, self.region, self.service, "aws4_request", text];
        steps.iter().fold(secret.into_bytes(), |key, step| {
            hmac::sign(&hmac::Key::new(HMAC_SHA256, &key), step.as_bytes()).as_ref().to_vec()
        })
    }
}

/// The parts of an address as they are signed.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// As the header has it: without the port that the scheme implies.
    host: String,
    /// Encoded once more, as every service but S3 has it.
    path: String,
    /// Parameters by name and value.
    query: String,
}

impl Target {
    fn parse(url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
        let host = host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
        let path = if path.is_empty() { "/".to_owned() } else { encoded(path, "/") };
        let pairs = form_urlencoded::parse(query.as_bytes());
        let mut pairs: Vec<(String, String)> =
            pairs.map(|(name, value)| (encoded(&name, ""), encoded(&value, ""))).collect();
        pairs.sort();
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self { host, path, query: pairs.join("&") }
    }
}

/// A text with all but letters, digits and `-._~` as `%XX`, and but for further characters.
fn encoded(text: &str, stays: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let character = char::from(byte);
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || stays.contains(character) {
            out.push(character);
        } else {
            // Writing into a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing into a string does not fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_derived_as_amazon_documents_it() {
        // The signature was computed by another program (Python's hmac).
        let keys = Keys {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let signing = Signing { keys: &keys, region: "us-east-1", service: "ec2", now_ns: 1_440_938_160_000_000_000 };
        let request = HttpRequest {
            method: "POST",
            url: "https://ec2.us-east-1.amazonaws.com/".to_owned(),
            ..HttpRequest::default()
        };
        let request = request.with_header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8");
        let signed = signing.sign(request).unwrap();
        let authorization = signed.header("Authorization").unwrap();
        let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/ec2/aws4_request, \
                        SignedHeaders=content-type;host;x-amz-date, Signature=1f1ef3b4c6d7d28cc6daa8ad74dbb36e307042f398efec1d015e1991f978e759";
        assert_eq!(authorization, expected);
    }

    #[test]
    fn addresses_are_signed_in_one_form() {
        for (url, host, path, query) in [
            ("https://a.example", "a.example", "/", ""),
            ("https://user:word@A.example:443/b/c%20d?z=1&a=%2F&a=+", "a.example", "/b/c%2520d", "a=%20&a=%2F&z=1"),
            ("http://a.example:443/?x", "a.example:443", "/", "x="),
        ] {
            let expected = Target { host: host.to_owned(), path: path.to_owned(), query: query.to_owned() };
            assert_eq!(Target::parse(url), expected, "{url}");
        }
    }

    #[test]
    fn signatures_are_those_of_curl() {
        // curl 7.88: --aws-sigv4 aws:amz:eu-west-1:aps --user AKIDEXAMPLE:… -H 'X-Amz-Date: 20150830T123600Z' --data-binary abc
        let keys = Keys {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let now_ns = 1_440_938_160_000_000_000;
        let signing = Signing { keys: &keys, region: "eu-west-1", service: "aps", now_ns };
        let url = "https://aps.example/workspaces/ws-1/api/v1/remote_write?b=2&a=1".to_owned();
        let request = HttpRequest { method: "POST", url, headers: Vec::new(), body: b"abc".to_vec() };
        let signed = signing.sign(request.with_header("Content-Type", "application/x-protobuf")).unwrap();
        let expected = "Signature=41f10b503ea4faa1b5e070d13248cdf200f2f6dc886e7f5d6b25e153c52451f6";
        assert!(signed.header("Authorization").unwrap().ends_with(expected));
    }
}
