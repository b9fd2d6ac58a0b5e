//! The memory of a response's body, packed and unpacked, out of the pool that all requests on their way in share.

use std::sync::Arc;

use db::TenantMemory;
use platform::network::{HttpError, HttpResponse};

/// Bytes of the pool that one body has.
pub(super) struct BodyMemory {
    memory: Arc<TenantMemory>,
    bytes: u64,
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

impl BodyMemory {
    pub(super) const fn new(memory: Arc<TenantMemory>) -> Self {
        Self { memory, bytes: 0 }
    }

    /// Takes so many bytes more.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), HttpError> {
        if !self.memory.take(bytes, self.bytes) {
            return Err(HttpError::Failed(self.refusal()));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back bytes that it has.
    pub(super) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.give_back(bytes);
    }

    /// Why there are no more bytes.
    pub(super) fn refusal(&self) -> String {
        let pool = self.memory.pool();
        format!(
            "memory for bodies of scrapes and requests is used up: they hold {} bytes of the {} that they may (a quarter of memory_bytes_max); \
             raise memory_bytes_max, or scrape fewer samples at a time",
            pool.used_bytes(),
            pool.bytes_max
        )
    }

    /// Reads a body as it arrives; each chunk is accounted for before it is kept.
    pub(super) async fn read(
        &mut self,
        response: &mut HttpResponse,
        size_bytes_max: usize,
    ) -> Result<Vec<u8>, HttpError> {
        let mut content = Vec::new();
        while let Some(chunk) = response.body.chunk().await? {
            if content.len() + chunk.len() > size_bytes_max {
                return Err(HttpError::TooLarge);
            }
            self.take(chunk.len() as u64)?;
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }
}
