//! From settings to a client of a cloud. The clouds' own environment variables are read first, settings win over them.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::counting::{Counting, CountingConnector};
use crate::objects::ObjectOptions;
use crate::objects::opener::Cloud;

/// The builders share no trait, only the names of their methods.
macro_rules! build {
    ($builder:ty, $key:ty, $url:expr, $settings:expr, $options:expr, $counting:expr) => {{
        let mut builder = <$builder>::from_env()
            .with_url($url)
            .with_retry(retries($options))
            .with_http_connector(CountingConnector($counting.clone()));
        for (name, value) in $settings {
            let key: $key = name.parse().map_err(|_| format!("the setting {name} is not known for this store"))?;
            builder = builder.with_config(key, value);
        }
        Box::new(builder.build().map_err(|error| error.to_string())?)
    }};
}

/// An error says what is wrong with the settings.
pub(super) fn connect(
    cloud: Cloud,
    url: &str,
    options: &ObjectOptions,
    counting: &Arc<Counting>,
) -> Result<Box<dyn ObjectStore>, String> {
    // An error means that the program has chosen a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = settings(cloud, options);
    Ok(match cloud {
        Cloud::S3 => build!(AmazonS3Builder, AmazonS3ConfigKey, url, settings, options, counting),
        Cloud::Google => build!(GoogleCloudStorageBuilder, GoogleConfigKey, url, settings, options, counting),
        Cloud::Azure => build!(MicrosoftAzureBuilder, AzureConfigKey, url, settings, options, counting),
    })
}

fn retries(options: &ObjectOptions) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(options.backoff_first_ms.max(1)),
            max_backoff: Duration::from_millis(options.backoff_max_ms.max(options.backoff_first_ms).max(1)),
            base: 2.0,
        },
        max_retries: options.retries_max,
        retry_timeout: Duration::from_millis(options.retry_total_ms),
    }
}

/// All settings by the names that the builders know.
fn settings(cloud: Cloud, options: &ObjectOptions) -> Vec<(String, String)> {
    let milliseconds = |value: u64| format!("{}ms", value.max(1));
    let mut settings: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: String| settings.push((name.to_owned(), value));
    set("connect_timeout", milliseconds(options.connect_timeout_ms));
    set("timeout", milliseconds(options.request_timeout_ms));
    set("read_timeout", milliseconds(options.stall_timeout_ms));
    if options.allow_http {
        set("allow_http", "true".to_owned());
    }
    if let Some(endpoint) = &options.endpoint {
        let name = match cloud {
            Cloud::S3 => "aws_endpoint",
            Cloud::Google => "google_base_url",
            Cloud::Azure => "azure_endpoint",
        };
        set(name, endpoint.clone());
    }
    if let (Cloud::S3, Some(region)) = (cloud, &options.region) {
        set("aws_region", region.clone());
    }
    if cloud == Cloud::S3 {
        // One object, one request: not every S3-compatible server knows deletion in bulk.
        set("aws_disable_bulk_delete", "true".to_owned());
    }
    settings.extend(options.settings.iter().cloned());
    settings
}
