//! A `prometheus.yml`, typed. Unknown and wrong fields are errors with their positions, what has no meaning here is a warning.
//!
//! * `yaml`: trees with positions · `reader`: from trees to values · `units`: durations and sizes · `glob`: paths with stars
//! * `global`, `job`: scraping · `discovery`: where targets are found · `relabelling`: steps and labels
//! * `http`, `cloud`, `secret`: requests and what they sign in with · `alerting`, `remote`: where alerts and samples go

mod alerting;
mod cloud;
mod discovery;
pub mod glob;
mod global;
mod http;
mod job;
pub mod reader;
mod relabelling;
mod remote;
mod secret;
pub mod units;
pub mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use platform::{Files, read_file};

pub use alerting::{AlertingConfig, AlertmanagerConfig};
pub use cloud::{AwsIdentity, AzureCertificate, AzureConfig, AzureIdentity, GoogleConfig, Sigv4Config};
pub use discovery::{
    ConsulDiscovery, Discovery, DnsDiscovery, DnsType, DockerDiscovery, Ec2Discovery, FileDiscovery, Filter,
    HttpDiscovery, KubernetesDiscovery, KubernetesRole, KubernetesSelector,
};
pub use global::{GlobalConfig, NameEscaping, ScrapeDefaults, ScrapeLimits, ScrapeProtocol};
pub(crate) use http::JWT_BEARER;
pub use http::{
    AssertionAlgorithm, AssertionConfig, Credentials, HeaderConfig, HttpConfig, Oauth2Config, ProxyConfig, TlsConfig,
};
pub use job::{AgentConfig, ScrapeConfig};
pub use relabelling::{read_labels, read_rules, read_selector};
pub use remote::{OtlpConfig, QueueConfig, RemoteWriteConfig};
pub use secret::Source;

use reader::{Fields, Problem, Reading};
use yaml::{Node, Position};

/// Bytes of a file of the configuration.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Defaults.
    pub global: GlobalConfig,
    /// Jobs, those of `scrape_config_files` among them.
    pub scrape_configs: Vec<ScrapeConfig>,
    /// Files of rules: paths, which may have stars.
    pub rule_files: Vec<PathBuf>,
    /// Where alerts are sent.
    pub alerting: AlertingConfig,
    /// Where samples are forwarded.
    pub remote_write: Vec<RemoteWriteConfig>,
    /// How OpenTelemetry's metrics are read, if it is said.
    pub otlp: Option<OtlpConfig>,
    /// The configuration as text, without secrets.
    pub redacted: String,
}

/// A configuration, and what in it has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What has no effect.
    pub warnings: Vec<Problem>,
}

/// Where a configuration is read from.
pub struct Origin<'a> {
    /// Files.
    pub files: &'a dyn Files,
    /// Variables of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Config {
    /// Parts that do not run, and why: jobs, Alertmanagers and receivers whose discovery or way to sign in is not built in.
    pub fn disabled(&self) -> Vec<(String, String)> {
        let jobs = self.scrape_configs.iter().map(|job| (format!("the job {:?}", job.job_name), job.disabled.clone()));
        let managers = self.alerting.alertmanagers.iter();
        let managers = managers.map(|managers| ("a section of alertmanagers".to_owned(), managers.disabled.clone()));
        let receivers = self.remote_write.iter();
        let receivers = receivers.map(|remote| {
            let url = crate::forward::without_credentials(&remote.url);
            (format!("the remote_write to {url}"), remote.http.not_built_in().map(str::to_owned))
        });
        let all = jobs.chain(managers).chain(receivers);
        all.filter_map(|(part, reason)| Some((part, reason?))).collect()
    }

    /// Files that it names alone, without stars: secrets, certificates, rules.
    pub fn named_files(&self) -> Vec<PathBuf> {
        let rules = self.rule_files.iter().filter(|path| !path.to_string_lossy().contains(['*', '?', '[']));
        let jobs = self.scrape_configs.iter().map(|job| &job.http);
        let others = self.alerting.alertmanagers.iter().map(|group| &group.http);
        let https = jobs.chain(others).chain(self.remote_write.iter().map(|remote| &remote.http));
        let secrets = https.flat_map(HttpConfig::sources).filter_map(|source| match source {
            Source::File(path) => Some(path.clone()),
            Source::Inline(_) => None,
        });
        rules.cloned().chain(secrets).collect()
    }
}

/// Reads a file and those that its `scrape_config_files` names. Errors are given all at once.
pub fn load(path: &Path, origin: &Origin<'_>) -> Result<Loaded, Vec<Problem>> {
    let text = read_text(origin.files, path).map_err(|problem| vec![problem])?;
    let (mut loaded, files, mut problems) = read(path, &text, origin.variable);
    for pattern in files {
        for file in glob::expand(origin.files, &pattern) {
            match read_text(origin.files, &file) {
                Ok(text) => problems.extend(read_scrape_config_file(&file, &text, &mut loaded)),
                Err(problem) => problems.push(problem),
            }
        }
    }
    problems.extend(repeated_jobs(path, &loaded.config));
    if problems.is_empty() { Ok(loaded) } else { Err(problems) }
}

/// Reads the text of one file.
pub fn parse(path: &Path, text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Vec<Problem>> {
    let (loaded, _, mut problems) = read(path, text, variable);
    problems.extend(repeated_jobs(path, &loaded.config));
    if problems.is_empty() { Ok(loaded) } else { Err(problems) }
}

fn read_text(files: &dyn Files, path: &Path) -> Result<String, Problem> {
    let problem = |message| Problem { file: path.to_owned(), position: Position::default(), message };
    let content = read_file(files, path, FILE_BYTES_MAX).map_err(|error| problem(error.to_string()))?;
    String::from_utf8(content).map_err(|_| problem("the file is not UTF-8".to_owned()))
}

/// The tree of a text, or its error.
pub fn parse_tree(path: &Path, text: &str) -> Result<Node, Problem> {
    yaml::parse(text).map_err(|error| Problem {
        file: path.to_owned(),
        position: error.position,
        message: error.message,
    })
}

fn read(path: &Path, text: &str, variable: &dyn Fn(&str) -> Option<String>) -> (Loaded, Vec<PathBuf>, Vec<Problem>) {
    let node = match parse_tree(path, text) {
        Ok(node) => node,
        Err(problem) => return (Loaded::default(), Vec::new(), vec![problem]),
    };
    let reading = Reading::new(path);
    let mut loaded = Loaded::default();
    let mut files = Vec::new();
    if let Some(fields) = reading.fields(&node) {
        let patterns = fields.texts("scrape_config_files");
        files = patterns.iter().map(|pattern| reading.path(pattern)).collect();
        loaded.config = read_config(&fields, variable);
        fields.finish();
    }
    loaded.config.redacted = yaml::render(&node);
    let (problems, warnings) = reading.finish();
    loaded.warnings = warnings;
    (loaded, files, problems)
}

fn read_config(fields: &Fields<'_>, variable: &dyn Fn(&str) -> Option<String>) -> Config {
    let global = fields.map("global", |section| GlobalConfig::read(section, variable)).unwrap_or_default();
    let names = global.defaults.names;
    fields.map("storage", remote::read_storage);
    fields.map("tracing", remote::read_tracing);
    fields.without_effect("tracing", "the server has no tracing");
    fields.map("runtime", |runtime| runtime.without_effect("gogc", "there is no garbage collector"));
    fields.maps("remote_read", |section| {
        remote::read_remote_read(section);
        Some(())
    });
    fields.without_effect(
        "remote_read",
        "queries read what is stored here: import the data of others, or query them by themselves",
    );
    let rule_files = fields.texts("rule_files").iter().map(|pattern| fields.reading.path(pattern)).collect();
    Config {
        scrape_configs: fields.maps("scrape_configs", |section| Some(ScrapeConfig::read(section, &global))),
        rule_files,
        alerting: fields.map("alerting", |section| alerting::read(section, names)).unwrap_or_default(),
        remote_write: fields.maps("remote_write", |section| Some(remote::read_remote_write(section, names))),
        otlp: fields.map("otlp", remote::read_otlp),
        global,
        redacted: String::new(),
    }
}

/// Adds the jobs of a file that holds nothing but jobs.
fn read_scrape_config_file(path: &Path, text: &str, loaded: &mut Loaded) -> Vec<Problem> {
    let node = match parse_tree(path, text) {
        Ok(node) => node,
        Err(problem) => return vec![problem],
    };
    let reading = Reading::new(path);
    if let Some(fields) = reading.fields(&node) {
        let global = &loaded.config.global;
        let jobs = fields.maps("scrape_configs", |section| Some(ScrapeConfig::read(section, global)));
        fields.finish();
        loaded.config.scrape_configs.extend(jobs);
    }
    let (problems, warnings) = reading.finish();
    loaded.warnings.extend(warnings);
    problems
}

fn repeated_jobs(path: &Path, config: &Config) -> Vec<Problem> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &config.scrape_configs {
        *counts.entry(&job.job_name).or_default() += 1;
    }
    let repeated = counts.into_iter().filter(|(name, count)| *count > 1 && !name.is_empty());
    let position = Position { line: 1, column: 1 };
    repeated
        .map(|(name, count)| Problem {
            file: path.to_owned(),
            position,
            message: format!("{count} jobs have the name {name:?}"),
        })
        .collect()
}
