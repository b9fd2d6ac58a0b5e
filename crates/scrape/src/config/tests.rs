//! Whole files.

use std::path::Path;

use super::*;
use relabel::NameScheme;

const WHOLE: &str = include_str!("../../tests/configs/whole.yml");
const AGENT: &str = include_str!("../../tests/configs/agent.yml");

fn read_text(text: &str) -> Result<Loaded, Vec<Problem>> {
    parse(Path::new("/etc/p/prometheus.yml"), text, &|name| (name == "ZONE").then(|| "z1".to_owned()))
}

fn problems(text: &str) -> Vec<String> {
    let problems = read_text(text).expect_err(text);
    problems.iter().map(|problem| problem.to_string().replace("/etc/p/prometheus.yml:", "")).collect()
}

#[test]
fn all_sections_are_read() {
    let Loaded { config, warnings } = read_text(WHOLE).unwrap();
    let GlobalConfig { external_labels, defaults, .. } = &config.global;
    assert_eq!((external_labels["zone"].as_str(), external_labels["literal"].as_str()), ("z1", "$5"));
    assert_eq!((config.global.scrape_interval_ms, config.global.scrape_timeout_ms), (15_000, 5_000));
    assert_eq!(defaults.limits.body_bytes_max, 10 << 20);
    assert_eq!(config.rule_files[0], Path::new("/etc/p/rules/*.yml"));
    let names: Vec<&str> = config.scrape_configs.iter().map(|job| job.job_name.as_str()).collect();
    assert_eq!(names, ["itself", "everything", "discovered", "signed_in", "elsewhere"]);
    let itself = &config.scrape_configs[0];
    let Discovery::Static(groups) = &itself.discoveries[0] else { panic!() };
    assert_eq!((groups[0].targets.len(), groups[0].labels["port"].as_str()), (2, "8080"));
    assert_eq!((itself.interval_ms, itself.timeout_ms, itself.honor_timestamps), (15_000, 5_000, true));
    assert_eq!(itself.settings.limits.samples_max, 50_000);
    let everything = &config.scrape_configs[1];
    assert_eq!((everything.interval_ms, everything.timeout_ms), (90_000, 20_000));
    assert_eq!((everything.settings.limits.samples_max, everything.settings.limits.buckets_max), (100, 160));
    assert_eq!(everything.relabel.len(), 5);
    let Credentials::Basic { password: Some(Source::File(path)), .. } = &everything.http.credentials else { panic!() };
    assert_eq!(path, Path::new("/etc/p/secrets/password"));
    assert_eq!(config.scrape_configs[2].discoveries.len(), 8);
    assert_eq!(config.scrape_configs[4].disabled.as_deref(), Some("azure_sd_configs is not built in"));
    assert_eq!((config.alerting.alertmanagers.len(), config.remote_write[0].queue.shards_max), (1, 10));
    let warned: Vec<String> = warnings.iter().map(|warning| warning.message.clone()).collect();
    for name in ["query_log_file", "gogc", "tracing", "remote_read", "out_of_order_time_window", "max_exemplars"] {
        let count = warned.iter().filter(|warning| warning.starts_with(&format!("{name} has no effect"))).count();
        assert_eq!(count, 1, "{name}: {warned:?}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let shown = read_text(WHOLE).unwrap().config.redacted;
    for secret in [
        "hidden",
        "abcdef",
        "consul-token",
        "very-secret",
        "oauth-secret",
        "am-password",
        "tenant-secret",
        "tracing-secret",
    ] {
        assert!(!shown.contains(secret), "{secret}");
    }
    assert_eq!(shown.matches("<secret>").count(), 8);
    // It can be read again.
    let again = read_text(&shown).unwrap().config;
    assert_eq!(again.scrape_configs[1].relabel, read_text(WHOLE).unwrap().config.scrape_configs[1].relabel);
    let shown = format!("{:?}", read_text(WHOLE).unwrap().config.scrape_configs);
    assert!(!shown.contains("oauth-secret"));
}

#[test]
fn the_agents_fields_are_read() {
    let Loaded { config, warnings } = read_text(AGENT).unwrap();
    let job = &config.scrape_configs[0];
    let expected =
        AgentConfig { align_interval_ms: 60_000, offset_ms: Some(5_000), series_max: 10_000, no_stale_markers: true };
    assert_eq!(job.agent, expected);
    assert_eq!(job.settings.limits.body_bytes_max, 16 << 20);
    assert!(!job.enable_compression && !job.http.keep_alive);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(job.metric_relabel.len(), 5);
}

#[test]
fn wrong_files_are_refused() {
    for (text, expected) in [
        ("scrape_config:\n", "1:1: unknown field scrape_config: did you mean scrape_configs?"),
        (
            "global:\n  scrape_interval: 5s\n  scrape_timeout: 10s\n",
            "3:3: scrape_timeout is longer than scrape_interval (5s)",
        ),
        ("scrape_configs:\n- job_name: a\n- job_name: a\n", "1:1: 2 jobs have the name \"a\""),
        ("scrape_configs:\n- scheme: ftp\n  job_name: a\n", "2:11: scheme: expected http or https, found \"ftp\""),
        ("scrape_configs:\n- metrics_path: /\n", "2:3: job_name is missing"),
        ("global: [a]\n", "1:9: expected a map, found a list"),
        ("scrape_configs:\n- job_name: a\n  static_configs:\n  - targets: [a/b]\n", "4:15: \"a/b\" is no address"),
        (
            "scrape_configs:\n- job_name: a\n  bearer_token: x\n  basic_auth: {username: y}\n",
            "at most one of basic_auth, authorization",
        ),
        ("scrape_configs:\n- job_name: a\n  file_sd_configs:\n  - files: ['a*/b.yml']\n", "at most one star"),
        ("scrape_configs:\n- job_name: a\n  kubernetes_sd_configs:\n  - role: pods\n", "4:11: role: expected"),
        ("scrape_configs:\n- job_name: a\n  relabel_configs:\n  - regex: (\n", "4:5: "),
        (
            "remote_write:\n- url: http://x\n  sigv4: {access_key: x}\n",
            "3:10: access_key and secret_key belong together",
        ),
        ("remote_write:\n- url: http://x\n  sigv4: {session_name: x}\n", "role_arn is missing"),
        ("remote_write:\n- url: http://x\n  azuread: {cloud: AzurePublic}\n", "exactly one of oauth"),
        (
            "remote_write:\n- url: http://x\n  sigv4: {region: x}\n  basic_auth: {username: y}\n",
            "at most one of basic_auth",
        ),
        ("scrape_configs:\n- job_name: a\n  sigv4: {region: x}\n", "sigv4"),
        (
            "scrape_configs:\n- job_name: a\n  oauth2: {grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer', client_id: a, token_url: 'http://x'}\n",
            "needs client_certificate_key",
        ),
        (
            "scrape_configs:\n- job_name: a\n  oauth2: {client_id: a, token_url: 'http://x', scopes: [s], endpoint_params: {scope: t}}\n",
            "endpoint_params: scope is set",
        ),
        ("global:\n  scrape_protocols: [PrometheusText0.0.4, PrometheusText0.0.4]\n", "one is there twice"),
        ("a: b: c\n", "1:"),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|problem| problem.contains(expected)), "{text}: {found:?}");
    }
    assert_eq!(
        read_text("").unwrap(),
        Loaded { config: Config { redacted: " \n".to_owned(), ..Config::default() }, warnings: vec![] }
    );
}

#[test]
fn timeouts_follow_intervals() {
    let config = read_text("scrape_configs:\n- job_name: a\n  scrape_interval: 3s\n").unwrap().config;
    assert_eq!((config.scrape_configs[0].interval_ms, config.scrape_configs[0].timeout_ms), (3_000, 3_000));
    let config =
        read_text("global: {metric_name_validation_scheme: legacy}\nscrape_configs: [{job_name: a}]\n").unwrap().config;
    let settings = &config.scrape_configs[0].settings;
    assert_eq!((settings.names, settings.escaping), (NameScheme::Legacy, NameEscaping::Underscores));
}

#[test]
fn further_files_bring_jobs() {
    let simulation = platform::sim::Simulation::new(1);
    let files = simulation.platform().files;
    let write = |path: &str, text: &str| platform::write_file(&*files, Path::new(path), text.as_bytes()).unwrap();
    write("/c/p.yml", "scrape_config_files: ['jobs/*.yml']\nscrape_configs: [{job_name: a}]\n");
    write("/c/jobs/b.yml", "scrape_configs: [{job_name: b}]\n");
    write("/c/jobs/c.yml", "scrape_configs: [{job_name: c, static_configs: [{targets: [x:1]}]}]\n");
    let origin = Origin { files: &*files, variable: &|_| None };
    let loaded = load(Path::new("/c/p.yml"), &origin).unwrap();
    let names: Vec<String> = loaded.config.scrape_configs.into_iter().map(|job| job.job_name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    write("/c/jobs/d.yml", "scrape_configs: [{job_name: a}]\nglobal: {}\n");
    let problems = load(Path::new("/c/p.yml"), &origin).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(load(Path::new("/missing.yml"), &origin).is_err());
}

#[test]
fn damaged_files_are_refused_or_shown_as_they_are_read() {
    let mut state = 7u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let lines: Vec<&str> = WHOLE.lines().chain(AGENT.lines()).collect();
    let mut read = 0;
    for _ in 0..1_500 {
        let mut damaged: Vec<String> = WHOLE.lines().map(str::to_owned).collect();
        for _ in 0..=below(3) {
            let at = below(damaged.len());
            match below(4) {
                0 => drop(damaged.remove(at)),
                1 => damaged.insert(at, lines[below(lines.len())].to_owned()),
                2 => damaged[at] = format!(" {}", damaged[at]),
                _ => {
                    let kept = below(damaged[at].len() + 1);
                    damaged[at].truncate(kept);
                }
            }
        }
        let text = damaged.join("\n");
        if let Ok(loaded) = read_text(&text) {
            read += 1;
            let again = read_text(&loaded.config.redacted).expect(&loaded.config.redacted).config;
            assert_eq!(again.scrape_configs.len(), loaded.config.scrape_configs.len());
            assert_eq!(again.redacted, loaded.config.redacted);
        }
    }
    assert!(read > 100, "{read} of the files can be read");
}
