//! Authorities and certificates of the tests, and clients that speak TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority that signs what it is told to.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// One for a server on loopback.
    pub(crate) fn server(&self) -> Certificate {
        self.sign(&["localhost", "127.0.0.1"], "server", 2100)
    }

    /// The list of the certificates that it has revoked, by their numbers.
    pub(crate) fn revoke(&self, numbers: &[u64]) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// One with a name and a number.
    pub(crate) fn sign_numbered(&self, name: &str, number: u64) -> Certificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(number));
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certificate { chain, key: key.serialize_pem() }
    }

    /// One with a name, valid until a year.
    pub(crate) fn sign(&self, alternative: &[&str], common: &str, until: i32) -> Certificate {
        let alternative: Vec<String> = alternative.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(alternative).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certificate { chain, key: key.serialize_pem() }
    }
}

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder with files of certificates.
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    pub(crate) fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("thalweg-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client of TLS.
#[derive(Clone)]
pub(crate) struct TlsClient(pub(crate) ClientConfig);

/// How long a test waits for a server.
const PATIENCE: Duration = Duration::from_secs(20);

impl TlsClient {
    /// One that trusts an authority, and shows a certificate if it has one.
    pub(crate) fn new(authority: &Authority, shown: Option<&Certificate>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        Self(match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let chain = CertificateDer::pem_slice_iter(shown.chain.as_bytes()).map(Result::unwrap).collect();
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap())
                    .unwrap()
            }
        })
    }

    pub(crate) fn speaking(mut self, protocol: &str) -> Self {
        self.0.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        self
    }

    pub(crate) async fn shake_hands(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(self.0.clone())).connect(name, stream).await
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        self.shake_hands(TcpStream::connect(address).await?).await
    }

    /// Sends bytes, and reads until the server closes.
    pub(crate) fn exchange(&self, address: SocketAddr, bytes: &[u8]) -> std::io::Result<String> {
        let exchange = || async {
            let mut stream = self.connect(address).await?;
            stream.write_all(bytes).await?;
            stream.flush().await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        // On a thread of its own: the test may be within a runtime.
        std::thread::scope(|scope| scope.spawn(|| block_on(exchange())).join().unwrap())
    }

    /// The answer to a request of HTTP/1.1, closed after it.
    pub(crate) fn get(&self, address: SocketAddr, path: &str, headers: &str) -> std::io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        self.exchange(address, request.as_bytes())
    }
}

/// Runs a client, but not for ever.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("it takes too long") })
}
