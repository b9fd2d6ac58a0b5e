//! Examples in `configs/`: each loads, and together they have every field of Prometheus's documentation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};

use platform::Platform;
use thalweg_scrape::config;

/// The fields of the documentation, by section; sections' names are among them.
const FIELDS: [&str; 15] = [
    "global scrape_configs scrape_config_files rule_files alerting remote_write remote_read storage tracing otlp runtime",
    "scrape_interval scrape_timeout scrape_protocols evaluation_interval rule_query_offset external_labels query_log_file \
     scrape_failure_log_file body_size_limit sample_limit label_limit label_name_length_limit label_value_length_limit target_limit \
     keep_dropped_targets metric_name_validation_scheme metric_name_escaping_scheme scrape_native_histograms \
     always_scrape_classic_histograms convert_classic_histograms_to_nhcb extra_scrape_metrics gogc",
    "job_name fallback_scrape_protocol metrics_path honor_labels honor_timestamps track_timestamps_staleness scheme params \
     enable_compression native_histogram_bucket_limit native_histogram_min_bucket_factor relabel_configs metric_relabel_configs",
    "basic_auth username username_file password password_file authorization type credentials credentials_file bearer_token \
     bearer_token_file oauth2 follow_redirects enable_http2 tls_config proxy_url no_proxy proxy_from_environment proxy_connect_header \
     http_headers values secrets files",
    "client_id client_secret client_secret_file grant_type scopes token_url endpoint_params ca ca_file cert cert_file key key_file \
     server_name insecure_skip_verify min_version max_version",
    "static_configs targets labels file_sd_configs refresh_interval http_sd_configs url dns_sd_configs names port",
    "consul_sd_configs server path_prefix token datacenter namespace partition services filter health_filter tags node_meta \
     tag_separator allow_stale docker_sd_configs host host_networking_host match_first_network filters name",
    "ec2_sd_configs region endpoint access_key secret_key profile role_arn external_id",
    "sigv4 use_fips_sts_endpoint session_name tags service_name azuread cloud oauth tenant_id scope managed_identity workload_identity \
     token_file_path sdk certificate certificate_path certificate_key_path certificate_password send_certificate_chain google_iam",
    "client_certificate_key_file client_certificate_key_id signature_algorithm iss audience claims",
    "kubernetes_sd_configs api_server role kubeconfig_file namespaces own_namespace selectors label field attach_metadata node deployment \
     job cronjob",
    "source_labels separator target_label regex modulus replacement action",
    "alert_relabel_configs alertmanagers timeout api_version",
    "remote_timeout headers write_relabel_configs protobuf_message send_exemplars send_native_histograms round_robin_dns queue_config \
     capacity max_shards min_shards max_samples_per_send batch_send_deadline min_backoff max_backoff retry_on_http_429 sample_age_limit \
     metadata_config send send_interval required_matchers read_recent filter_external_labels",
    "tsdb out_of_order_time_window retention time size percentage exemplars max_exemplars client_type sampling_fraction insecure compression \
     translation_strategy promote_resource_attributes promote_all_resource_attributes ignore_resource_attributes \
     keep_identifying_resource_attributes promote_scope_metadata convert_histograms_to_nhcb label_name_underscore_sanitization \
     label_name_preserve_multiple_underscores",
];

fn examples() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn examples_load_and_only_parts_that_are_not_built_in_do_not_run() {
    let files = Platform::real().files;
    for (path, _) in examples() {
        let origin = config::Origin { files: &*files, variable: &|_| None };
        let loaded = config::load(&path, &origin).unwrap_or_else(|problems| panic!("{}: {problems:?}", path.display()));
        for job in &loaded.config.scrape_configs {
            let is_elsewhere = job.job_name.starts_with("elsewhere");
            assert_eq!(
                job.disabled.is_some(),
                is_elsewhere,
                "{}: {}: {:?}",
                path.display(),
                job.job_name,
                job.disabled
            );
        }
        for remote in &loaded.config.remote_write {
            let reason = remote.http.not_built_in();
            assert_eq!(reason.is_some(), remote.url.contains("elsewhere"), "{}: {reason:?}", remote.url);
        }
        assert!(!loaded.config.redacted.contains("secret: secret"), "{}", loaded.config.redacted);
    }
}

/// Returns whether a file has a field: its name, and a colon after it.
fn has_field(text: &str, field: &str) -> bool {
    text.match_indices(field).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + field.len()..].chars().next());
        after == Some(':') && before.is_none_or(|before| matches!(before, ' ' | '\n' | '{'))
    })
}

#[test]
fn every_documented_field_stands_in_an_example() {
    let examples = examples();
    let fields = FIELDS.iter().flat_map(|section| section.split_whitespace());
    let missing: Vec<&str> = fields.filter(|field| !examples.iter().any(|(_, text)| has_field(text, field))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
