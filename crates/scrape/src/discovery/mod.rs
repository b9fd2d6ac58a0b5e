//! Finding targets. A discovery is a task that gives groups of targets again and again, always all of them.
//!
//! * `file`, `http`: lists in files and behind addresses, in one `list` format · `dns`: records of names
//! * `consul`, `docker`, `kubernetes`, `ec2`: services, containers, objects, machines

mod consul;
pub mod dns;
mod docker;
pub mod ec2;
mod file;
mod http;
mod kubernetes;
mod list;

use platform::network::NetworkPlatform;

use crate::config::Discovery;
use relabel::Labels;

/// Targets that a source gives at once, with labels that they have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetGroup {
    /// Tells groups of one discovery apart.
    pub source: String,
    /// The labels of each target, `__address__` among them.
    pub targets: Vec<Labels>,
    /// Labels of all.
    pub labels: Labels,
}

impl TargetGroup {
    /// All labels of each target. Its own win.
    pub fn targets(&self) -> impl Iterator<Item = Labels> {
        self.targets.iter().map(|own| {
            let mut labels = self.labels.clone();
            labels.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
            labels
        })
    }
}

/// What a discovery found, or why it could not look: then what it found last holds.
pub type Found = Result<Vec<TargetGroup>, String>;

/// Takes what a discovery finds.
pub type Sink = dyn Fn(Found) + Send + Sync;

/// Looks for targets until it is dropped.
pub async fn run(discovery: &Discovery, network: &NetworkPlatform, sink: &Sink) {
    match discovery {
        Discovery::Static(groups) => {
            sink(Ok(groups.clone()));
            std::future::pending::<()>().await;
        }
        Discovery::File(config) => file::run(config, network, sink).await,
        Discovery::Http(config) => http::run(config, network, sink).await,
        Discovery::Dns(config) => dns::run(config, network, sink).await,
        Discovery::Consul(config) => consul::run(config, network, sink).await,
        Discovery::Docker(config) => docker::run(config, network, sink).await,
        Discovery::Kubernetes(config) => kubernetes::run(config, network, sink).await,
        Discovery::Ec2(config) => ec2::run(config, network, sink).await,
    }
}

/// Labels from pairs; empty values are left out.
fn labels_of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
    let present = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    present.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A host and a port as an address has them.
fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A text as part of a label's name.
fn sanitized(text: &str) -> String {
    text.chars().map(|symbol| if symbol.is_ascii_alphanumeric() { symbol } else { '_' }).collect()
}
