//! An S3 server: `s3s-fs` in this process, or one that `THALWEG_TEST_S3_URL` names.

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

static SERVERS: AtomicU32 = AtomicU32::new(0);

/// Whether another server than `s3s-fs` is tested.
pub(crate) fn is_other() -> bool {
    std::env::var(OTHER_SERVER).is_ok()
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
        if let Ok(url) = std::env::var(OTHER_SERVER) {
            let address = url.trim_start_matches("http://").trim_end_matches('/').parse().expect("host:port");
            make_bucket(address, &bucket);
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
    use std::io::{Read, Write};
    let mut connection = std::net::TcpStream::connect(address).expect("the server that the environment names");
    let signature =
        "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
    let request = format!(
        "PUT /{bucket} HTTP/1.1\r\nhost: {address}\r\nauthorization: {signature}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).expect("request");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(root) = &self.root {
            let _ = std::fs::remove_dir_all(root);
        }
    }
}
