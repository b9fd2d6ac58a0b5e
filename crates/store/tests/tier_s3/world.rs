//! A server, a proxy before it, and ways to ask them.

use std::path::PathBuf;
use std::sync::Arc;

use platform::Platform;
use platform::objects::{ObjectErrorKind, ObjectOptions, Objects};
use thalweg_store::tier::{Tier, TierOptions};

use crate::proxy::Proxy;
use crate::server::{ACCESS_KEY, AZURE_ACCOUNT, AZURE_KEY, SECRET_KEY, Server, is_azure};

pub(crate) const PART_BYTES: usize = 5 << 20;

/// A server, a proxy before it, and a folder for local files.
pub(crate) struct World {
    pub(crate) proxy: Proxy,
    pub(crate) server: Server,
    folder: PathBuf,
}

impl World {
    pub(crate) fn start() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(&server.runtime, server.address);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-files", server.bucket));
        std::fs::create_dir_all(&folder).unwrap();
        Self { proxy, server, folder }
    }

    /// Through the proxy.
    pub(crate) fn options(&self) -> ObjectOptions {
        ObjectOptions {
            stall_timeout_ms: 10_000,
            request_timeout_ms: 10_000,
            connect_timeout_ms: 2_000,
            retries_max: 3,
            retry_total_ms: 20_000,
            backoff_first_ms: 2,
            backoff_max_ms: 10,
            part_bytes: PART_BYTES,
            ..Self::options_at(&format!("http://{}", self.proxy.address))
        }
    }

    fn options_at(endpoint: &str) -> ObjectOptions {
        let (endpoint, settings) = if is_azure() {
            let account = [("azure_storage_account_name", AZURE_ACCOUNT), ("azure_storage_account_key", AZURE_KEY)];
            (format!("{endpoint}/{AZURE_ACCOUNT}"), account)
        } else {
            (endpoint.to_owned(), [("aws_access_key_id", ACCESS_KEY), ("aws_secret_access_key", SECRET_KEY)])
        };
        ObjectOptions {
            endpoint: Some(endpoint),
            allow_http: true,
            region: Some("us-east-1".into()),
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            ..ObjectOptions::default()
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_of(&format!("{}/prefix", self.server.bucket))
    }

    pub(crate) fn url_of(&self, place: &str) -> String {
        let _ = self;
        format!("{}://{place}", if is_azure() { "az" } else { "s3" })
    }

    pub(crate) fn open(&self, options: &ObjectOptions) -> Arc<dyn Objects> {
        Platform::real().objects.open(&self.url(), options).unwrap()
    }

    /// Past the proxy: what is really there.
    pub(crate) fn direct(&self) -> Arc<dyn Objects> {
        self.open(&Self::options_at(&format!("http://{}", self.server.address)))
    }

    pub(crate) fn tier(&self) -> Tier {
        self.tier_over(self.open(&self.options()))
    }

    /// With little patience, for faults in which nothing comes.
    pub(crate) fn impatient_tier(&self) -> Tier {
        self.tier_over(self.open(&ObjectOptions { stall_timeout_ms: 500, ..self.options() }))
    }

    pub(crate) fn tier_over(&self, objects: Arc<dyn Objects>) -> Tier {
        let _ = self;
        // No cache, so that each read asks the store.
        let options = TierOptions { memory_bytes: 0, gap_bytes_max: 0, ..TierOptions::default() };
        Tier::open(Platform::real(), objects, options).unwrap()
    }

    pub(crate) fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.join("local.part");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// What the server holds under a key.
    pub(crate) fn object(&self, key: &str) -> Option<Vec<u8>> {
        let direct = self.direct();
        match direct.head(key) {
            Ok(info) if info.size_bytes == 0 => Some(Vec::new()),
            Ok(info) => Some(direct.read(key, std::slice::from_ref(&(0..info.size_bytes))).unwrap().concat()),
            Err(error) if error.kind == ObjectErrorKind::Missing => None,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn content(seed: u64, size_bytes: usize) -> Vec<u8> {
    (0..size_bytes as u64).map(|place| ((place * 31) ^ (place >> 8) ^ (seed * 77)) as u8).collect()
}

/// Bit by bit, as the standard has it: another way than the one that is tested.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg()))
    })
}
