//! Settings that are handed on as they are: of the store, of queries, of patience; and what of them is shown.

use db::{DbOptions, ObjectTierOptions};
use server::ServerSettings;

use super::{ServeFlags, set};
use crate::objects::ObjectAccess;
use crate::secrets;

/// Bytes of the file behind kept answers, unless told otherwise.
const RESULT_CACHE_FLASH_BYTES: u64 = 512 << 20;

impl ServeFlags {
    pub(super) fn set_result_cache(&self, db: &mut DbOptions) {
        let sixteenth = usize::try_from(db.store.memory_bytes_max / 16).unwrap_or(usize::MAX);
        db.result_cache_memory_bytes_max = self.result_cache_memory_bytes_max.unwrap_or(sixteenth);
        db.result_cache_flash_bytes_max = self.result_cache_flash_bytes_max.unwrap_or(RESULT_CACHE_FLASH_BYTES);
        db.result_cache_file.clone_from(&self.result_cache_file);
    }

    pub(super) fn set_store(&self, db: &mut DbOptions) {
        set(&mut db.store.fast_bytes_max, self.fast_bytes_max);
        set(&mut db.store.trash_age_ms_max, self.trash_age_ms_max);
        set(&mut db.store.trash_bytes_max, self.trash_bytes_max);
        set(&mut db.store.scrub_period_ms, self.scrub_period_ms);
        set(&mut db.store.scrub_bytes_per_second_max, self.scrub_bytes_per_second_max);
        set(&mut db.store.merge_bytes_per_second_max, self.merge_bytes_per_second_max);
        set(&mut db.store.series_per_database_max, self.series_per_database_max);
        set(&mut db.store.new_series_per_second_max, self.new_series_per_second_max);
    }

    pub(super) fn set_durability(&self, db: &mut DbOptions) {
        db.store.accept_loss = self.accept_loss;
        set(&mut db.store.lost_found_bytes_max, self.lost_found_bytes_max);
        set(&mut db.store.log_bytes_max, self.log_bytes_max);
        set(&mut db.store.log_retained_bytes_max, self.log_retained_bytes_max);
        set(&mut db.store.log_is_direct, self.log_direct);
    }

    /// The settings that were set, by the flags' names.
    pub(super) fn set_flags(&self) -> Result<Vec<(String, String)>, String> {
        let given = serde_json::to_value(self).map_err(|error| error.to_string())?;
        let text = |name: &str, value: &serde_json::Value| {
            secrets::printable(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let pairs = given.as_object().into_iter().flatten();
        Ok(pairs.map(|(name, value)| (name.replace('_', "-"), text(name, value))).collect())
    }

    pub(super) fn object_tier(&self, url: &str) -> Result<ObjectTierOptions, String> {
        let access = ObjectAccess {
            objects_endpoint: self.objects_endpoint.clone(),
            objects_settings: self.objects_settings.clone(),
        };
        let mut tier = access.tier(url)?;
        set(&mut tier.local_bytes_max, self.objects_local_bytes_max);
        Ok(tier)
    }

    /// How many clients there may be, and how long they may be silent or slow.
    pub(super) fn set_timeouts(&self, server: &mut ServerSettings) {
        set(&mut server.connections_max, self.connections_max);
        set(&mut server.http_idle_timeout_ms, self.http_idle_timeout_ms);
        set(&mut server.write_timeout_ms, self.write_timeout_ms);
        set(&mut server.postgres_idle_timeout_ms, self.postgres_idle_timeout_ms);
        set(&mut server.streams.idle_timeout_ms, self.stream_idle_timeout_ms);
        set(&mut server.streams.line_timeout_ms, self.stream_line_timeout_ms);
    }

    /// What queries may take.
    pub(super) fn set_queries(&self, server: &mut ServerSettings) {
        set(&mut server.query_timeout_ms, self.query_timeout_ms);
        set(&mut server.query_samples_max, self.query_samples_max);
        set(&mut server.query_concurrency_max, self.query_concurrency_max);
        set(&mut server.query_queue_max, self.query_queue_max);
        set(&mut server.query_queue_timeout_ms, self.query_queue_timeout_ms);
        set(&mut server.query_slow_ms, self.query_slow_ms);
    }
}
