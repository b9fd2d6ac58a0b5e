//! An S3 server: `s3s-fs` in this process, or one that `THALWEG_TEST_S3_URL` names; or an Azure one that `THALWEG_TEST_AZURE_URL` names.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::runtime::Runtime;

/// Names the address of another server, for example `127.0.0.1:5000`; it must take these keys, or any.
const OTHER_SERVER: &str = "THALWEG_TEST_S3_URL";
pub(crate) const ACCESS_KEY: &str = "test";
pub(crate) const SECRET_KEY: &str = "not-so-secret";

/// Names the address of Azurite, Azure's emulator, which has one account whose key is no secret.
const AZURE_SERVER: &str = "THALWEG_TEST_AZURE_URL";
pub(crate) const AZURE_ACCOUNT: &str = "devstoreaccount1";
pub(crate) const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

static SERVERS: AtomicU32 = AtomicU32::new(0);

/// Returns whether another server than `s3s-fs` is tested.
pub(crate) fn is_other() -> bool {
    std::env::var(OTHER_SERVER).is_ok() || is_azure()
}

/// Returns whether an Azure server is tested.
pub(crate) fn is_azure() -> bool {
    std::env::var(AZURE_SERVER).is_ok()
}

pub(crate) struct Server {
    pub(crate) runtime: Runtime,
    pub(crate) address: SocketAddr,
    pub(crate) bucket: String,
    root: Option<PathBuf>,
}

impl Server {
    /// A server with one empty bucket of its own.
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let bucket = format!("thalweg-{}-{number}", std::process::id());
        if let Ok(url) = std::env::var(OTHER_SERVER).or_else(|_| std::env::var(AZURE_SERVER)) {
            let address = url.trim_start_matches("http://").trim_end_matches('/').parse().expect("host:port");
            if is_azure() {
                make_container(address, &bucket);
            } else {
                make_bucket(address, &bucket);
            }
            return Self { runtime, address, bucket, root: None };
        }
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&bucket);
        std::fs::create_dir_all(root.join(&bucket)).expect("the bucket's folder");
        let address = serve(&runtime, FileSystem::new(&root).expect("the server's folder"));
        Self { runtime, address, bucket, root: Some(root) }
    }
}

fn serve(runtime: &Runtime, files: FileSystem) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    listener.set_nonblocking(true).expect("a listener for tokio");
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener for tokio");
        while let Ok((connection, _)) = listener.accept().await {
            // Without it small answers wait for the client's acknowledgement.
            connection.set_nodelay(true).expect("nodelay");
            let service = service.clone();
            tokio::spawn(async move {
                // Cut connections are what the tests are about.
                let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(connection), service).await;
            });
        }
    });
    address
}

fn make_bucket(address: SocketAddr, bucket: &str) {
    let signature =
        "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
    let answer = put(address, &format!("/{bucket}"), &[("authorization", signature)]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Signed with the account's key, as Azure's REST API has it for requests of the kind `SharedKey`.
fn make_container(address: SocketAddr, container: &str) {
    use base64::Engine;
    let base64 = base64::engine::general_purpose::STANDARD;
    // Azurite does not look at how old a request is.
    let (date, version) = ("Thu, 01 Jan 2026 00:00:00 GMT", "2021-08-06");
    let no_headers = "\n".repeat(11);
    let signed = format!(
        "PUT\n{no_headers}x-ms-date:{date}\nx-ms-version:{version}\n/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{container}\nrestype:container"
    );
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &base64.decode(AZURE_KEY).expect("base64"));
    let signature = base64.encode(ring::hmac::sign(&key, signed.as_bytes()));
    let authorization = format!("SharedKey {AZURE_ACCOUNT}:{signature}");
    let headers = [("x-ms-date", date), ("x-ms-version", version), ("authorization", &authorization)];
    let answer = put(address, &format!("/{AZURE_ACCOUNT}/{container}?restype=container"), &headers);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// Sends a request without a body; the answer.
fn put(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> String {
    use std::io::{Read, Write};
    let mut connection = std::net::TcpStream::connect(address).expect("the server that the environment names");
    let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = headers.concat();
    let request =
        format!("PUT {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("request");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("answer");
    answer
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(root) = &self.root {
            let _ = std::fs::remove_dir_all(root);
        }
    }
}
