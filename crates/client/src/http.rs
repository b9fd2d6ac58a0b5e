//! The HTTP API of a running server, for programs that ask now and then; blocking.

use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use serde_json::Value;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::tls::{TlsOptions, provider};

type Response = ureq::http::Response<ureq::Body>;

/// Where a server listens unless told otherwise.
const DEFAULT_PORT: u16 = 7780;

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// How long an answer may take: longer than the server lets a query run.
pub const ANSWER_TIMEOUT: Duration = Duration::from_mins(5);

/// A server's HTTP interface.
#[derive(Clone)]
pub struct HttpClient {
    agent: ureq::Agent,
    url: String,
    timeout: Option<Duration>,
    token: Option<String>,
    tls: TlsConfig,
    on_warning: fn(&str),
}

/// TLS with the authorities of the options, or those of the system.
fn tls_config(options: &TlsOptions) -> Result<TlsConfig, String> {
    let unreadable = |error: ureq::Error| format!("a certificate cannot be read: {error}");
    let certificates = |pem: &[u8]| -> Result<Vec<Certificate<'static>>, String> {
        let items = parse_pem(pem).map(|item| item.map_err(unreadable));
        let certificate = |item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        };
        items.filter_map(certificate).collect()
    };
    let roots = match options.authorities.as_slice() {
        [] => RootCerts::PlatformVerifier,
        pem => RootCerts::new_with_certs(&certificates(pem)?),
    };
    let shown = options.certificate.as_ref().map(|shown| {
        let key = PrivateKey::from_pem(&shown.key).map_err(unreadable)?;
        Ok::<_, String>(ClientCert::new_with_certs(&certificates(&shown.chain)?, key))
    });
    // Always named: without any ureq would end the program.
    let builder = TlsConfig::builder().unversioned_rustls_crypto_provider(provider());
    Ok(builder.root_certs(roots).client_cert(shown.transpose()?).build())
}

/// Sends requests, each with the token if there is one.
fn agent(timeout: Option<Duration>, token: Option<&str>, tls: TlsConfig) -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(timeout).tls_config(tls);
    let Some(token) = token else { return config.build().into() };
    let authorization = format!("Bearer {}", token.trim());
    let sign_in = move |mut request: ureq::http::Request<ureq::SendBody>, next: ureq::middleware::MiddlewareNext| {
        // A text that is no header is not sent: the server says that a token is missing.
        if let Ok(value) = ureq::http::HeaderValue::from_str(&authorization) {
            request.headers_mut().insert(ureq::http::header::AUTHORIZATION, value);
        }
        next.handle(request)
    };
    config.middleware(sign_in).build().into()
}

/// The address with its scheme and port: `localhost` is `http://localhost:7780`.
fn with_scheme(url: &str) -> String {
    if url.contains("://") {
        return url.to_owned();
    }
    // Colons within brackets belong to an address of IPv6.
    let has_port = url.rsplit(']').next().is_some_and(|rest| rest.contains(':')) || url.contains('/');
    if has_port { format!("http://{url}") } else { format!("http://{url}:{DEFAULT_PORT}") }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpClient").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Status and body of an answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body as text; bytes that are no UTF-8 are replaced.
    pub body: String,
}

/// An answer whose body is read as it comes.
pub struct AnswerStream {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Box<dyn Read + Send>,
}

impl fmt::Debug for AnswerStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AnswerStream").field("status", &self.status).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Waits five minutes for an answer.
    pub fn new(url: &str) -> Self {
        Self::with_timeout(url, Some(ANSWER_TIMEOUT))
    }

    /// Waits so long for an answer; without a timeout, as long as it takes.
    pub fn with_timeout(url: &str, timeout: Option<Duration>) -> Self {
        let builder = TlsConfig::builder().unversioned_rustls_crypto_provider(provider());
        let tls = builder.root_certs(RootCerts::PlatformVerifier).build();
        let agent = agent(timeout, None, tls.clone());
        let url = with_scheme(url.trim_end_matches('/'));
        Self { agent, url, timeout, token: None, tls, on_warning: |_| () }
    }

    /// Signs in with a token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        let agent = agent(self.timeout, Some(token), self.tls.clone());
        Self { agent, token: Some(token.to_owned()), ..self }
    }

    /// Trusts the authorities and shows the certificate of these options, where the address begins with `https`.
    ///
    /// # Errors
    ///
    /// A certificate or its key cannot be read.
    pub fn with_tls(self, options: &TlsOptions) -> Result<Self, String> {
        let tls = tls_config(options)?;
        Ok(Self { agent: agent(self.timeout, self.token.as_deref(), tls.clone()), tls, ..self })
    }

    /// Calls this with each warning of an answer.
    #[must_use]
    pub fn on_warning(self, on_warning: fn(&str)) -> Self {
        Self { on_warning, ..self }
    }

    /// `GET`.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or its answer broke off.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Answer, String> {
        let response = self.agent.get(self.address(path, parameters)).call();
        self.read(response)
    }

    /// `POST` of text.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::get`].
    pub fn post(&self, path: &str, parameters: &[(&str, &str)], body: &[u8]) -> Result<Answer, String> {
        self.post_as(&Self::path(path, parameters), &[("content-type", "text/plain; charset=utf-8")], body)
    }

    /// Posts with headers that say what the body is.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::get`].
    pub fn post_as(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, String> {
        self.read(self.posted(path, headers, body))
    }

    /// Posts, and keeps the beginning of the answer; the rest is received and thrown away.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::get`].
    pub fn post_for_beginning(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        kept_bytes_max: u64,
    ) -> Result<Answer, String> {
        self.read_beginning(self.posted(path, headers, body), kept_bytes_max)
    }

    /// Gets, and keeps the beginning of the answer; the rest is received and thrown away.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::get`].
    pub fn get_for_beginning(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        kept_bytes_max: u64,
    ) -> Result<Answer, String> {
        self.read_beginning(self.agent.get(self.address(path, parameters)).call(), kept_bytes_max)
    }

    /// Gets an answer whose body is read as it comes; its client should have no timeout.
    ///
    /// # Errors
    ///
    /// The server cannot be reached.
    pub fn stream(&self, path: &str, parameters: &[(&str, &str)]) -> Result<AnswerStream, String> {
        let response = self.reached(self.agent.get(self.address(path, parameters)).call())?;
        let status = response.status().as_u16();
        Ok(AnswerStream { status, body: Box::new(response.into_body().into_reader()) })
    }

    /// Gets an answer that need not be text.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::api`].
    pub fn download(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Vec<u8>, String> {
        let mut response = self.reached(self.agent.get(self.address(path, parameters)).call())?;
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        let reader = response.body_mut().as_reader();
        reader.take(ANSWER_BYTES_MAX).read_to_end(&mut body).map_err(|error| self.broke_off(&error))?;
        if status == 200 {
            return Ok(body);
        }
        let answer = Answer { status, body: String::from_utf8_lossy(&body).into_owned() };
        Err(self.data(&answer).err().unwrap_or(answer.body))
    }

    fn read_beginning(&self, response: Result<Response, ureq::Error>, kept_bytes_max: u64) -> Result<Answer, String> {
        let mut response = self.reached(response)?;
        let (mut kept, mut reader) = (Vec::new(), response.body_mut().as_reader());
        let read = reader.by_ref().take(kept_bytes_max).read_to_end(&mut kept);
        read.and_then(|_| io::copy(&mut reader, &mut io::sink())).map_err(|error| self.broke_off(&error))?;
        Ok(Answer { status: response.status().as_u16(), body: String::from_utf8_lossy(&kept).into_owned() })
    }

    fn posted(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response, ureq::Error> {
        let request = self.agent.post(format!("{}{path}", self.url));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send(body)
    }

    /// The data of a successful answer of Prometheus's API.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::get`], or the server's own message.
    pub fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let answer = self.get(path, parameters)?;
        self.data(&answer)
    }

    /// Sends a request that changes something: the answer's data, null if it is empty.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::api`].
    pub fn send_api(
        &self,
        method: &str,
        path: &str,
        parameters: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Value, String> {
        let address = self.address(path, parameters);
        let answer = self.read(match method {
            "PUT" => self.agent.put(address).send(body),
            "DELETE" => self.agent.delete(address).call(),
            _ => self.agent.post(address).send(body),
        })?;
        if answer.status == 204 { Ok(Value::Null) } else { self.data(&answer) }
    }

    /// How many series some selectors have.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::api`].
    pub fn series(&self, parameters: &[(&str, &str)]) -> Result<u64, String> {
        let found = self.api("/api/v1/series", parameters)?;
        Ok(found.as_array().map_or(0, |found| found.len() as u64))
    }

    fn data(&self, answer: &Answer) -> Result<Value, String> {
        let mut parsed: Value = serde_json::from_str(&answer.body)
            .map_err(|_| format!("{} answered {}: {}", self.url, answer.status, answer.body.trim()))?;
        if parsed["status"] != "success" {
            return Err(parsed["error"].as_str().unwrap_or(&answer.body).to_owned());
        }
        for warning in parsed["warnings"].as_array().into_iter().flatten() {
            (self.on_warning)(warning.as_str().unwrap_or_default());
        }
        Ok(parsed["data"].take())
    }

    fn address(&self, path: &str, parameters: &[(&str, &str)]) -> String {
        format!("{}{}", self.url, Self::path(path, parameters))
    }

    /// A path with parameters.
    pub fn path(path: &str, parameters: &[(&str, &str)]) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }

    fn reached(&self, response: Result<Response, ureq::Error>) -> Result<Response, String> {
        response.map_err(|error| {
            format!("cannot reach {}: {error}; is `thalweg serve` running there? (--url names another place)", self.url)
        })
    }

    fn broke_off(&self, error: &io::Error) -> String {
        format!("the answer of {} broke off: {error}", self.url)
    }

    fn read(&self, response: Result<Response, ureq::Error>) -> Result<Answer, String> {
        let mut response = self.reached(response)?;
        let mut body = String::new();
        let reader = response.body_mut().as_reader();
        reader.take(ANSWER_BYTES_MAX).read_to_string(&mut body).map_err(|error| self.broke_off(&error))?;
        Ok(Answer { status: response.status().as_u16(), body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_short() {
        for (url, expected) in [
            ("localhost", "http://localhost:7780"),
            ("10.0.0.1:80", "http://10.0.0.1:80"),
            ("[::1]", "http://[::1]:7780"),
            ("[::1]:5", "http://[::1]:5"),
            ("https://db.example", "https://db.example"),
            ("db.example/thalweg", "http://db.example/thalweg"),
        ] {
            assert_eq!(with_scheme(url), expected);
        }
    }
}
