//! `thalweg cache`: the result cache alone, in front of any database.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cache::server::{Server, ServerOptions, Token};
use cache::{Cache, FILE_MAGIC, Options};
use clap::Args;
use server::log;

use crate::machine::memory;
use crate::settings::log_lines;
use crate::units::sizes::size_bytes;

const EXAMPLES: &str = "Examples:
  thalweg cache --file /var/lib/thalweg/cache --size 16GiB
  thalweg cache --file cache.flash --size 1GiB --listen 127.0.0.1:11211    for clients that know memcached's port
  thalweg cache --listen 0.0.0.0:7785 --tls-cert server.pem --tls-key server-key.pem --token-file token

Answers of queries with their time ranges lie in the file and survive a restart; memcached's ordinary items lie in memory. What to
send: docs/guide/cache.md.";

/// The largest file of a certificate, a key or a token.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// The share of the memory that answers have; pages of the file have the others.
const ANSWERS_SHARE: usize = 4;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheFlags {
    /// The cache's file, best on flash; it is made if it does not exist, and one process may use it at a time
    #[arg(long, env = "THALWEG_CACHE_FILE", default_value = "thalweg-cache.flash")]
    file: PathBuf,
    /// What the file may hold, as 512MiB or 16GiB
    #[arg(long, env = "THALWEG_CACHE_SIZE", default_value = "1GiB", value_parser = size_bytes)]
    size: u64,
    /// Where to listen, for memcached's protocol and for HTTP
    #[arg(long, env = "THALWEG_CACHE_LISTEN", default_value = "127.0.0.1:7785")]
    listen: SocketAddr,
    /// Memory in front of the file: a quarter for answers, the rest for pages of the file, which hold many times the points
    #[arg(long, default_value = "64MiB", value_parser = size_bytes)]
    memory: u64,
    /// Points in memory that are not in the file yet; what is beyond that is written in smaller pieces
    #[arg(long, default_value = "64MiB", value_parser = size_bytes)]
    unwritten: u64,
    /// What the file is written by: a multiple of 4 KiB, at most 1 MiB; a file with other slabs is made anew
    #[arg(long, default_value = "1MiB", value_parser = size_bytes)]
    slab: u64,
    /// Ordinary items kept in memory
    #[arg(long, default_value = "64MiB", value_parser = size_bytes)]
    items: u64,
    /// Connections at a time: for one more the one that was silent for longest is closed; if all are busy it is refused
    #[arg(long, default_value_t = 512, value_parser = connections)]
    connections_max: usize,
    /// Bytes of one body
    #[arg(long, default_value = "64MiB", value_parser = size_bytes)]
    body_max: u64,
    /// Bytes of the bodies and long replies of all connections together
    #[arg(long, default_value = "256MiB", value_parser = size_bytes)]
    bodies_max: u64,
    /// How long a connection may be silent between two requests
    #[arg(long, default_value_t = 600_000)]
    idle_timeout_ms: u64,
    /// How long a request may take to come, once it has begun
    #[arg(long, default_value_t = 60_000)]
    request_timeout_ms: u64,
    /// How long a client may take nothing of a reply
    #[arg(long, default_value_t = 30_000)]
    write_timeout_ms: u64,
    /// File of the server's certificate (PEM), with the ones between it and its authority: TLS is spoken, and nothing else
    #[arg(long, env = "THALWEG_CACHE_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File of its key (PEM)
    #[arg(long, env = "THALWEG_CACHE_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File of a token that clients have to sign in with: by `Authorization: Bearer`, or as memcached's authentication has it
    #[arg(long, env = "THALWEG_CACHE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Answers smaller than this are given whole or not at all
    #[arg(long, default_value = "512KiB", value_parser = size_bytes)]
    partial_min: u64,
    /// Lines on stderr up to this level: error, warn, info or debug
    #[arg(long, env = "THALWEG_CACHE_LOG_LEVEL", default_value = "info")]
    log_level: String,
    /// Their form: text or json
    #[arg(long, env = "THALWEG_CACHE_LOG_FORMAT", default_value = "text")]
    log_format: String,
}

fn connections(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|error| format!("{error}"))?;
    if number == 0 { Err("a cache without connections serves nothing: use 1 or more".to_owned()) } else { Ok(number) }
}

/// Opens the file, made if it does not exist, and locks it for this process. A file that is not a cache's is left as it is.
fn lock_file(path: &Path) -> Result<File, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(format!("{}: another process uses this file", path.display())),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let mut magic = Vec::new();
    file.by_ref().take(FILE_MAGIC.len() as u64).read_to_end(&mut magic).map_err(failed)?;
    // A crash may leave a file that was made and not written yet.
    let is_own = magic == FILE_MAGIC || magic.iter().all(|byte| *byte == 0);
    if is_own {
        Ok(file)
    } else {
        Err(format!("{}: this is not a file of thalweg cache; it was not changed", path.display()))
    }
}

impl CacheFlags {
    /// TLS and the token, from their files.
    fn security(&self) -> Result<ServerOptions, String> {
        let read = |path: &Path| {
            let content = platform::private::read(path, SECRET_BYTES_MAX);
            content.map_err(|error| format!("{}: {error}", path.display()))
        };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(cache::server::tls(&read(certificate)?, &read(key)?)?),
            _ => None,
        };
        let token = self.token_file.as_deref().map(|path| {
            let content = read(path)?;
            let text = std::str::from_utf8(&content).map_err(|error| format!("{}: {error}", path.display()))?;
            Token::new(text).map_err(|why| format!("{}: {why}", path.display()))
        });
        Ok(ServerOptions { tls, token: token.transpose()?, ..ServerOptions::default() })
    }

    /// Refuses sizes that the machine's memory cannot hold.
    fn check_memory(&self, machine_bytes: u64) -> Result<(), String> {
        let sizes = [self.memory, self.unwritten, self.items, self.bodies_max];
        let sum = sizes.into_iter().fold(0u64, u64::saturating_add);
        if self.body_max > machine_bytes {
            return Err(format!("--body-max is {} bytes, the machine has {machine_bytes}", self.body_max));
        }
        if sum > machine_bytes {
            return Err(format!(
                "--memory, --unwritten, --items and --bodies-max are {sum} bytes together, the machine has {machine_bytes}"
            ));
        }
        Ok(())
    }
}

pub(crate) fn run(flags: &CacheFlags) -> Result<ExitCode, String> {
    log_lines::set_up(&flags.log_level, &flags.log_format)?;
    flags.check_memory(memory::of_the_machine())?;
    let security = flags.security()?;
    // Nothing is written before it is clear that this process is the one to serve.
    let listener = TcpListener::bind(flags.listen)
        .map_err(|error| format!("cannot listen on {}: {error}; --listen takes another address", flags.listen))?;
    let _locked = lock_file(&flags.file)?;
    let mut options = Options::new(&flags.file, flags.size);
    options.partial_bytes_min = flags.partial_min as usize;
    options.answer_bytes_max = flags.body_max as usize;
    options.slab_bytes = flags.slab as usize;
    options.open_bytes_max = flags.unwritten as usize;
    let answers_bytes_max = flags.memory as usize / ANSWERS_SHARE;
    options.buffer_bytes_max = flags.memory as usize - answers_bytes_max;
    let platform = platform::Platform::real();
    let cache = Cache::open(&platform, options).map_err(|error| format!("{}: {error}", flags.file.display()))?;
    let stats = cache.stats();
    let bounds = ServerOptions {
        connections_max: flags.connections_max,
        body_bytes_max: flags.body_max as usize,
        bodies_bytes_max: flags.bodies_max as usize,
        idle_timeout_ms: flags.idle_timeout_ms,
        request_timeout_ms: flags.request_timeout_ms,
        write_timeout_ms: flags.write_timeout_ms,
        items_bytes_max: flags.items as usize,
        memory_bytes_max: answers_bytes_max,
        ..security
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot listen for signals: {error}"))?;
    let stop = {
        let _inside = runtime.enter();
        crate::serve::stop_signal()?
    };
    let server = Server::start(Arc::new(cache), listener, bounds).map_err(|error| format!("cannot serve: {error}"))?;
    log::info(&format!(
        "{} has {} keys in {} of {} slabs; the cache listens on {}",
        flags.file.display(),
        stats.keys,
        stats.slabs,
        stats.slabs_max,
        server.address()
    ));
    say!("Thalweg's cache is ready: {}", server.address());
    runtime.block_on(stop);
    log::info("stopping: what is in memory is written to the file");
    server.stop().map_err(|error| format!("stopped, but not all is on {}: {error}", flags.file.display()))?;
    log::info("stopped");
    Ok(ExitCode::SUCCESS)
}
