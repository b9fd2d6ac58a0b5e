//! `dns_sd_configs`: records of names, asked of the servers in `/etc/resolv.conf`.
//!
//! * `message`: questions and answers on the wire

pub mod message;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use platform::network::{HttpError, NetworkPlatform, Transport};
use platform::read_file;

use super::{Found, Sink, TargetGroup, join_host_port, labels_of};
use crate::config::{DnsDiscovery, DnsType};
use message::{Answer, Record};

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How long a server may take to answer.
const TIMEOUT_MS: u64 = 5_000;

pub(super) async fn run(config: &DnsDiscovery, network: &NetworkPlatform, sink: &Sink) {
    let mut known: Vec<TargetGroup> = Vec::new();
    loop {
        sink(look(config, network, &mut known).await);
        network.tasks.sleep_ms(config.refresh_ms).await;
    }
}

/// Asks for all names. One that cannot be asked for keeps what it had.
async fn look(config: &DnsDiscovery, network: &NetworkPlatform, known: &mut Vec<TargetGroup>) -> Found {
    let resolver = Resolver::read(network);
    let mut errors = Vec::new();
    for name in &config.names {
        match resolver.look_up(name, config.record).await {
            Ok(records) => {
                known.retain(|group| group.source != *name);
                known.push(group(config, name, &records));
            }
            Err(reason) => errors.push(reason),
        }
    }
    if errors.len() == config.names.len() { Err(errors.join("; ")) } else { Ok(known.clone()) }
}

fn group(config: &DnsDiscovery, name: &str, records: &[Record]) -> TargetGroup {
    let port = config.port;
    let rooted = |host: &str| format!("{}.", host.trim_end_matches('.'));
    let targets = records.iter().map(|record| {
        let mut labels = vec![("__meta_dns_name", name.to_owned())];
        let address = match record {
            Record::Address(address) => join_host_port(&address.to_string(), port),
            Record::Service { host, port } => {
                labels.push(("__meta_dns_srv_record_target", rooted(host)));
                labels.push(("__meta_dns_srv_record_port", port.to_string()));
                join_host_port(host, *port)
            }
            Record::Mail(host) => {
                labels.push(("__meta_dns_mx_record_target", rooted(host)));
                join_host_port(host, port)
            }
            Record::NameServer(host) => {
                labels.push(("__meta_dns_ns_record_target", rooted(host)));
                join_host_port(host, port)
            }
        };
        labels.push(("__address__", address));
        labels_of(labels.iter().map(|(name, value)| (*name, value.as_str())))
    });
    TargetGroup { source: name.to_owned(), targets: targets.collect(), ..TargetGroup::default() }
}

/// Servers, and domains that names are completed with.
struct Resolver<'a> {
    network: &'a NetworkPlatform,
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    dots_min: usize,
}

impl<'a> Resolver<'a> {
    fn read(network: &'a NetworkPlatform) -> Self {
        let content = read_file(&*network.platform.files, Path::new(RESOLV_CONF), 1 << 20).unwrap_or_default();
        let mut resolver = Self { network, servers: Vec::new(), search: Vec::new(), dots_min: 1 };
        for line in String::from_utf8_lossy(&content).lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.split('%').next()?.parse::<IpAddr>().ok());
                    resolver.servers.extend(address.map(|address| SocketAddr::new(address, 53)));
                }
                Some("search" | "domain") => resolver.search = words.map(str::to_owned).collect(),
                Some("options") => {
                    let mut dots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    resolver.dots_min = dots.next_back().unwrap_or(1);
                }
                _ => {}
            }
        }
        if resolver.servers.is_empty() {
            resolver.servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
        }
        resolver
    }

    /// The names that stand for one, in the order in which they are tried.
    fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(rooted) = name.strip_suffix('.') {
            return vec![rooted.to_owned()];
        }
        let mut names: Vec<String> =
            self.search.iter().map(|domain| format!("{name}.{}", domain.trim_end_matches('.'))).collect();
        let at = if name.matches('.').count() >= self.dots_min { 0 } else { names.len() };
        names.insert(at, name.to_owned());
        names
    }

    async fn look_up(&self, name: &str, record: DnsType) -> Result<Vec<Record>, String> {
        for candidate in self.candidates(name) {
            match self.ask_any(&candidate, record).await? {
                Answer::Records(records) if !records.is_empty() => return Ok(records),
                Answer::Records(_) | Answer::NoSuchName => {}
            }
        }
        Ok(Vec::new())
    }

    /// Asks the servers one after another, until one knows.
    async fn ask_any(&self, name: &str, record: DnsType) -> Result<Answer, String> {
        let mut errors = Vec::new();
        for server in &self.servers {
            match self.ask(*server, name, record).await {
                Ok(answer) => return Ok(answer),
                Err(reason) => errors.push(reason),
            }
        }
        Err(format!("{name}: {}", errors.join("; ")))
    }

    async fn ask(&self, server: SocketAddr, name: &str, record: DnsType) -> Result<Answer, String> {
        let mut id = [0; 2];
        self.network.platform.random.fill(&mut id).map_err(|error| error.to_string())?;
        let question = message::question(u16::from_be_bytes(id), name, record)?;
        let answer = self.exchange(server, Transport::Udp, question.clone()).await?;
        if !message::is_truncated(&answer) {
            return message::read(&answer, &question, record);
        }
        message::read(&self.exchange(server, Transport::Tcp, question.clone()).await?, &question, record)
    }

    async fn exchange(&self, server: SocketAddr, by: Transport, question: Vec<u8>) -> Result<Vec<u8>, String> {
        tokio::select! {
            answer = self.network.network.exchange(server, by, question) => answer.map_err(|error: HttpError| error.to_string()),
            () = self.network.tasks.sleep_ms(TIMEOUT_MS) => Err(format!("{server} did not answer within {} s", TIMEOUT_MS / 1000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_and_records_become_targets() {
        let simulation = platform::sim::Simulation::new(1);
        let files = simulation.platform().files;
        let text =
            b"# a remark\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nsearch a.example b.example.\noptions ndots:2\n";
        platform::write_file(&*files, Path::new(RESOLV_CONF), text).unwrap();
        let network = platform::network::sim::SimNetwork::new(&simulation, |_| unreachable!()).platform();
        let resolver = Resolver::read(&network);
        assert_eq!(resolver.servers.len(), 2);
        assert_eq!(resolver.candidates("x.y"), ["x.y.a.example", "x.y.b.example", "x.y"]);
        assert_eq!(resolver.candidates("x.y.z")[0], "x.y.z");
        assert_eq!(resolver.candidates("x."), ["x"]);
        let config = DnsDiscovery { names: vec!["n".to_owned()], record: DnsType::Srv, port: 9100, refresh_ms: 1000 };
        let records = [
            Record::Service { host: "h.example".to_owned(), port: 80 },
            Record::Address("::1".parse().unwrap()),
            Record::Mail("m.example".to_owned()),
        ];
        let group = group(&config, "n", &records);
        assert_eq!(group.targets[0]["__address__"], "h.example:80");
        assert_eq!(group.targets[0]["__meta_dns_srv_record_target"], "h.example.");
        assert_eq!(group.targets[1]["__address__"], "[::1]:9100");
        assert_eq!(group.targets[2]["__meta_dns_mx_record_target"], "m.example.");
    }
}
