//! AWS's signature, version 4, of a request without a query.

use std::fmt::Write;

use platform::network::HttpRequest;
use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};

const SERVICE: &str = "ec2";

/// A key and its name.
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
    pub(super) now_ns: i64,
}

impl Signing<'_> {
    /// The request with its signature.
    pub(super) fn sign(&self, request: HttpRequest) -> Result<HttpRequest, String> {
        let now = jiff::Timestamp::from_nanosecond(i128::from(self.now_ns)).map_err(|error| error.to_string())?;
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = time.get(..8).unwrap_or_default();
        let rest = request.url.split_once("://").map_or("", |(_, rest)| rest);
        let host = rest.split('/').next().unwrap_or_default().to_owned();
        let path = rest.strip_prefix(host.as_str()).filter(|path| !path.is_empty()).unwrap_or("/").to_owned();
        let mut signed = vec![("content-type", request.header("content-type").unwrap_or_default().to_owned())];
        signed.push(("host", host));
        signed.push(("x-amz-date", time.clone()));
        signed.extend(self.keys.session_token.iter().map(|token| ("x-amz-security-token", token.clone())));
        let headers: Vec<String> = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let headers = headers.concat();
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let canonical = format!(
            "{}\n{path}\n\n{headers}\n{names}\n{}",
            request.method,
            hex(digest(&SHA256, &request.body).as_ref())
        );
        let scope = format!("{day}/{}/{SERVICE}/aws4_request", self.region);
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
        let steps = [day, self.region, SERVICE, "aws4_request", text];
        steps.iter().fold(secret.into_bytes(), |key, step| {
            hmac::sign(&hmac::Key::new(HMAC_SHA256, &key), step.as_bytes()).as_ref().to_vec()
        })
    }
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
        let signing = Signing { keys: &keys, region: "us-east-1", now_ns: 1_440_938_160_000_000_000 };
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
}
