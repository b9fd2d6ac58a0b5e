//! TLS of the listeners: one configuration for all, made of files that are read again when they change.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use access::certificate::CertificateNames;
use access::web_config::{ClientCertificates, TlsVersion};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::socket::{Peer, Socket, Transport};
use crate::notice;
use crate::settings::{Pem, TlsSettings};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Handshakes that are under way at the same time; each holds up to 64 KiB of what its client sends. Others wait.
const HANDSHAKES_MAX: usize = 4096;

/// The largest file of certificates that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The protocol within TLS, on which clients and server agree in the handshake (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inner {
    Http,
    Grpc,
    Postgres,
    /// A protocol that has no name there.
    Other,
}

impl Inner {
    const ALL: [Self; 4] = [Self::Http, Self::Grpc, Self::Postgres, Self::Other];

    fn names(self, http2: bool) -> &'static [&'static str] {
        match self {
            Self::Http if http2 => &["h2", "http/1.1"],
            Self::Http => &["http/1.1"],
            Self::Grpc => &["h2"],
            Self::Postgres => &["postgresql"],
            Self::Other => &[],
        }
    }
}

/// The configuration that new connections get.
struct Loaded {
    /// The files that it was made from.
    files: Files,
    /// By [`Inner::ALL`].
    configs: [Arc<ServerConfig>; 4],
    /// When the server's certificate ends, seconds since the Unix epoch.
    not_after_s: i64,
}

/// The content of the files, to see whether it has changed.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
    client_revocations: Option<Vec<u8>>,
}

/// TLS of the listeners.
pub(crate) struct Tls {
    settings: TlsSettings,
    loaded: RwLock<Arc<Loaded>>,
    /// Why the newest files are not used.
    problem: Mutex<Option<String>>,
    reloads: AtomicU64,
    reloads_failed: AtomicU64,
    handshakes_failed: AtomicU64,
    /// Those that are under way.
    handshakes: Semaphore,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files; an error names the one that cannot be used.
    pub(crate) fn load(settings: TlsSettings) -> Result<Self, String> {
        let loaded = Loaded::make(&settings, Files::read(&settings)?)?;
        Ok(Self {
            settings,
            loaded: RwLock::new(Arc::new(loaded)),
            problem: Mutex::default(),
            reloads: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            handshakes: Semaphore::new(HANDSHAKES_MAX),
        })
    }

    /// Returns whether the listener of a flag speaks TLS.
    pub(crate) fn covers(&self, flag: &str) -> bool {
        self.settings.covers(flag)
    }

    fn loaded(&self) -> Arc<Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The handshake of a client, which gets so long for it. An error ends the connection; the client was told why as TLS tells it.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        handshake: Handshake,
    ) -> io::Result<(Socket, Peer)> {
        let accept = async {
            // One that waits for its turn holds no memory of TLS.
            let _turn = self.handshakes.acquire().await;
            let config = self.loaded().config(handshake.inner);
            TlsAcceptor::from(config).accept(stream).await
        };
        let accepted = timeout(handshake.patience, accept).await;
        let accepted = accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let checked = accepted.and_then(|stream| {
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate =
                certificate.map(|der| CertificateNames::parse(der)).transpose().map_err(io::Error::other)?;
            self.check_names(certificate.as_ref())?;
            let peer = Peer { address, certificate: certificate.map(Arc::new), transport: Transport::Tls };
            Ok((Socket::Tls(Box::new(stream)), peer))
        });
        checked.inspect_err(|_| {
            self.handshakes_failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn check_names(&self, certificate: Option<&CertificateNames>) -> io::Result<()> {
        let allowed = &self.settings.client_allowed_sans;
        if allowed.is_empty() || certificate.is_some_and(|names| names.has_alternative(allowed)) {
            return Ok(());
        }
        Err(io::Error::other("the client's certificate has none of the names in client_allowed_sans"))
    }

    /// Reads the files again, and uses them from the next connection on if they have changed and can be used; else the old ones stay.
    pub(crate) fn reload(&self) {
        let read = Files::read(&self.settings);
        if read.as_ref().is_ok_and(|files| *files == self.loaded().files) {
            self.note(None);
            return;
        }
        match read.and_then(|files| Loaded::make(&self.settings, files)) {
            Ok(loaded) => {
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                self.reloads.fetch_add(1, Ordering::Relaxed);
                self.note(None);
                notice::write("TLS: the changed certificates are used from now on");
            }
            Err(why) => self.note(Some(why)),
        }
    }

    /// Takes note of why the newest files are not used, and logs it once.
    fn note(&self, problem: Option<String>) {
        let mut known = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = problem.as_ref().filter(|why| Some(*why) != known.as_ref()) {
            self.reloads_failed.fetch_add(1, Ordering::Relaxed);
            notice::write(&format!("TLS: the changed certificates cannot be used, the old ones are: {why}"));
        }
        *known = problem;
    }

    /// Why the newest files are not used, if they are not.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the server's certificate ends, seconds since the Unix epoch.
    pub(crate) fn not_after_s(&self) -> i64 {
        self.loaded().not_after_s
    }

    /// Metrics with their names, kinds, descriptions and values.
    pub(crate) fn metrics(&self) -> [(&'static str, &'static str, &'static str, i64); 4] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as i64;
        [
            (
                "thalweg_tls_certificate_not_after_seconds",
                "gauge",
                "When the server's certificate ends, as a Unix time.",
                self.not_after_s(),
            ),
            ("thalweg_tls_reloads_total", "counter", "Changed certificates that were taken.", count(&self.reloads)),
            (
                "thalweg_tls_reloads_failed_total",
                "counter",
                "Changed certificates that could not be used.",
                count(&self.reloads_failed),
            ),
            (
                "thalweg_tls_handshakes_failed_total",
                "counter",
                "Connections that ended before their handshake was done.",
                count(&self.handshakes_failed),
            ),
        ]
    }
}

/// How a handshake is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handshake {
    pub(crate) inner: Inner,
    /// How long a client may take for it.
    pub(crate) patience: Duration,
}

/// Looks for changed files every few seconds and at each SIGHUP, as long as it is not dropped.
pub(crate) async fn watch(tls: Arc<Tls>) {
    #[cfg(unix)]
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    loop {
        #[cfg(unix)]
        match &mut hangup {
            Some(hangup) => tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                _ = hangup.recv() => {}
            },
            None => sleep(LOOK_EVERY).await,
        }
        #[cfg(not(unix))]
        sleep(LOOK_EVERY).await;
        let tls = tls.clone();
        let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
    }
}

fn read(pem: &Pem) -> Result<Vec<u8>, String> {
    match pem {
        Pem::Text(text) => Ok(text.clone().into_bytes()),
        Pem::File(path) => {
            platform::private::read(path, FILE_BYTES_MAX).map_err(|error| format!("{}: {error}", path.display()))
        }
    }
}

impl Files {
    fn read(settings: &TlsSettings) -> Result<Self, String> {
        Ok(Self {
            certificate: read(&settings.certificate)?,
            key: read(&settings.key)?,
            client_authorities: settings.client_authorities.as_ref().map(read).transpose()?,
            client_revocations: settings.client_revocations.as_ref().map(read).transpose()?,
        })
    }
}

impl Loaded {
    fn config(&self, inner: Inner) -> Arc<ServerConfig> {
        let [http, grpc, postgres, other] = &self.configs;
        match inner {
            Inner::Http => http.clone(),
            Inner::Grpc => grpc.clone(),
            Inner::Postgres => postgres.clone(),
            Inner::Other => other.clone(),
        }
    }

    fn make(settings: &TlsSettings, files: Files) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(&files.certificate, &settings.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&files.key)
            .map_err(|error| format!("{}: there is no private key in it: {error}", settings.key))?;
        let names = chain.first().map(|der| CertificateNames::parse(der)).transpose()?.unwrap_or_default();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions(settings))
            .map_err(|error| error.to_string())?;
        let builder = match (settings.client_certificates, &files.client_authorities, &settings.client_authorities) {
            (ClientCertificates::Ignored, _, _) | (_, None, _) | (_, _, None) => builder.with_no_client_auth(),
            (wanted, Some(bytes), Some(place)) => {
                let roots = authorities(&certificates(bytes, place)?, place)?;
                let revoked = files.client_revocations.as_deref().zip(settings.client_revocations.as_ref());
                let revoked = revoked.map(|(bytes, place)| revocations(bytes, place)).transpose()?.unwrap_or_default();
                let trust = Trust { roots, revoked, wanted };
                builder.with_client_cert_verifier(verifier(trust, provider)?)
            }
        };
        let config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("{} and {}: {error}", settings.certificate, settings.key))?;
        let configs = Inner::ALL.map(|inner| {
            let mut config = config.clone();
            config.alpn_protocols = inner.names(settings.http2).iter().map(|name| name.as_bytes().to_vec()).collect();
            Arc::new(config)
        });
        Ok(Self { files, configs, not_after_s: names.not_after_s })
    }
}

fn versions(settings: &TlsSettings) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(TlsVersion::Tls12, &TLS12), (TlsVersion::Tls13, &TLS13)];
    let is_spoken = |version: TlsVersion| (settings.min_version..=settings.max_version).contains(&version);
    all.into_iter().filter(|(version, _)| is_spoken(*version)).map(|(_, version)| version).collect()
}

fn certificates(pem: &[u8], place: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| format!("{place}: {error}"))?;
    if read.is_empty() { Err(format!("{place}: there is no certificate in it")) } else { Ok(read) }
}

fn authorities(certificates: &[CertificateDer<'static>], place: &Pem) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|error| format!("{place}: {error}"))?;
    }
    Ok(roots)
}

fn revocations(pem: &[u8], place: &Pem) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| format!("{place}: {error}"))?;
    if read.is_empty() { Err(format!("{place}: there is no list of revoked certificates in it")) } else { Ok(read) }
}

type Verifier = Arc<dyn tokio_rustls::rustls::server::danger::ClientCertVerifier>;

/// Which client certificates are taken.
struct Trust {
    roots: RootCertStore,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    wanted: ClientCertificates,
}

fn verifier(Trust { roots, revoked, wanted }: Trust, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    // An authority without a list has revoked nothing.
    let builder = builder.with_crls(revoked).allow_unknown_revocation_status();
    let builder = if wanted == ClientCertificates::Required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| error.to_string())
}
