//! Settings of OpenTelemetry.

use ingest::otlp::{DeltaPolicy, Settings, Translation};

use super::{ServeFlags, list, set};

impl ServeFlags {
    /// How its metrics are named and stored.
    pub(super) fn otlp(&self) -> Result<Settings, String> {
        let mut otlp = Settings::default();
        if let Some(name) = &self.otlp_translation {
            let names = Translation::ALL.map(Translation::name).join(", ");
            otlp.translation = Translation::from_name(name)
                .ok_or_else(|| format!("--otlp-translation {name:?} is none of {names}"))?;
        }
        set(&mut otlp.scope_labels, self.otlp_scope_labels);
        if let Some(word) = &self.otlp_delta {
            otlp.delta = DeltaPolicy::from_name(word)
                .ok_or_else(|| format!("--otlp-delta {word:?} is none of cumulate, keep, reject"))?;
        }
        set(&mut otlp.delta_limits.series_max, self.otlp_delta_series_max);
        set(&mut otlp.delta_limits.size_bytes_max, self.otlp_delta_bytes_max);
        set(&mut otlp.delta_limits.stale_ms, self.otlp_delta_stale_ms);
        otlp.promoted_attributes = list(self.otlp_promoted_attributes.as_deref());
        Ok(otlp)
    }
}
