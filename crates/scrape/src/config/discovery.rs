//! Where targets are found. Jobs and Alertmanagers have these fields in common.

use std::path::PathBuf;

use super::cloud::AwsIdentity;
use super::http::HttpConfig;
use super::reader::Fields;
use super::relabelling::read_labels;
use super::secret::Source;
use crate::discovery::TargetGroup;
use relabel::{Labels, NameScheme};

/// A way to find targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovery {
    /// They stand in the configuration.
    Static(Vec<TargetGroup>),
    /// Files list them.
    File(FileDiscovery),
    /// An address lists them.
    Http(HttpDiscovery),
    /// Names of DNS.
    Dns(DnsDiscovery),
    /// Consul's catalog.
    Consul(ConsulDiscovery),
    /// Containers of Docker.
    Docker(DockerDiscovery),
    /// Objects of Kubernetes.
    Kubernetes(Box<KubernetesDiscovery>),
    /// Machines of EC2.
    Ec2(Ec2Discovery),
}

/// `file_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiscovery {
    /// Paths, whose last part may have a star.
    pub files: Vec<PathBuf>,
    /// How often they are read even if they seem not to have changed.
    pub refresh_ms: u64,
}

/// `http_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpDiscovery {
    /// The address.
    pub url: String,
    /// How often it is asked.
    pub refresh_ms: u64,
    /// How it is asked.
    pub http: HttpConfig,
}

/// A kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Services.
    Srv,
    /// Mail servers.
    Mx,
    /// Name servers.
    Ns,
}

/// `dns_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsDiscovery {
    /// Names.
    pub names: Vec<String>,
    /// The kind of record.
    pub record: DnsType,
    /// The port, where records have none.
    pub port: u16,
    /// How often they are asked for.
    pub refresh_ms: u64,
}

/// `consul_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulDiscovery {
    /// `host:port`.
    pub server: String,
    /// `http` or `https`.
    pub scheme: String,
    /// What stands before the API's paths.
    pub path_prefix: String,
    /// The token.
    pub token: Option<Source>,
    /// The data centre, namespace and partition; empty: the server's own.
    pub datacenter: String,
    /// As `datacenter`.
    pub namespace: String,
    /// As `datacenter`.
    pub partition: String,
    /// Services; empty: all.
    pub services: Vec<String>,
    /// Tags that a service must have.
    pub tags: Vec<String>,
    /// Metadata that a node must have.
    pub node_meta: Vec<(String, String)>,
    /// A filter of the catalog.
    pub filter: String,
    /// A filter of health checks.
    pub health_filter: String,
    /// What stands between tags.
    pub tag_separator: String,
    /// Whether followers may answer.
    pub allow_stale: bool,
    /// How often it is asked.
    pub refresh_ms: u64,
    /// How it is asked.
    pub http: HttpConfig,
}

/// A filter with values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

/// `docker_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerDiscovery {
    /// The daemon's address: `unix://`, `tcp://`, `http://`, `https://`.
    pub host: String,
    /// The port of containers that have none.
    pub port: u16,
    /// The host of containers in the host's network.
    pub host_networking_host: String,
    /// Whether a container is found in its first network alone.
    pub match_first_network: bool,
    /// Filters of containers.
    pub filters: Vec<Filter>,
    /// How often it is asked.
    pub refresh_ms: u64,
    /// How it is asked.
    pub http: HttpConfig,
}

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubernetesRole {
    /// Nodes.
    Node,
    /// Services.
    Service,
    /// Pods.
    Pod,
    /// Endpoints.
    Endpoints,
    /// Slices of endpoints.
    EndpointSlice,
    /// Ingresses.
    Ingress,
}

/// A selector of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesSelector {
    /// Of which kind.
    pub role: KubernetesRole,
    /// By labels.
    pub label: String,
    /// By fields.
    pub field: String,
}

/// `kubernetes_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesDiscovery {
    /// The API's address; `None`: that of the cluster around the server.
    pub api_server: Option<String>,
    /// The kind of objects.
    pub role: KubernetesRole,
    /// A client's configuration, in place of the address.
    pub kubeconfig_file: Option<PathBuf>,
    /// Whether objects of the server's own namespace are found.
    pub own_namespace: bool,
    /// Namespaces; empty: all.
    pub namespaces: Vec<String>,
    /// Selectors.
    pub selectors: Vec<KubernetesSelector>,
    /// Whether targets get the labels of their nodes.
    pub attach_node: bool,
    /// Whether targets get the labels of their namespaces.
    pub attach_namespace: bool,
    /// How it is asked.
    pub http: HttpConfig,
}

/// `ec2_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ec2Discovery {
    /// The region, and the keys that it is asked with.
    pub identity: AwsIdentity,
    /// The API's address, if it is not the region's.
    pub endpoint: String,
    /// The port of targets.
    pub port: u16,
    /// Filters of machines.
    pub filters: Vec<Filter>,
    /// How often it is asked.
    pub refresh_ms: u64,
    /// How it is asked.
    pub http: HttpConfig,
}

/// What Prometheus and VictoriaMetrics's agent have and is not here.
const NOT_BUILT_IN: [&str; 31] = [
    "aws_sd_configs",
    "azure_sd_configs",
    "digitalocean_sd_configs",
    "dockerswarm_sd_configs",
    "ecs_sd_configs",
    "elasticache_sd_configs",
    "eureka_sd_configs",
    "gce_sd_configs",
    "hetzner_sd_configs",
    "ionos_sd_configs",
    "kuma_sd_configs",
    "lightsail_sd_configs",
    "linode_sd_configs",
    "marathon_sd_configs",
    "msk_sd_configs",
    "nerve_sd_configs",
    "nomad_sd_configs",
    "oci_sd_configs",
    "openstack_sd_configs",
    "outscale_sd_configs",
    "ovhcloud_sd_configs",
    "puppetdb_sd_configs",
    "rds_sd_configs",
    "scaleway_sd_configs",
    "serverset_sd_configs",
    "stackit_sd_configs",
    "triton_sd_configs",
    "uyuni_sd_configs",
    "vultr_sd_configs",
    "yandexcloud_sd_configs",
    "consulagent_sd_configs",
];

/// Takes the fields of all discoveries out of those of a section; also why it cannot run.
pub(super) fn read(fields: &Fields<'_>, names: NameScheme) -> (Vec<Discovery>, Option<String>) {
    let mut found = Vec::new();
    let groups = read_static(fields, names);
    if !groups.is_empty() {
        found.push(Discovery::Static(groups));
    }
    found.extend(fields.maps("file_sd_configs", read_file).into_iter().map(Discovery::File));
    found.extend(fields.maps("http_sd_configs", read_http).into_iter().map(Discovery::Http));
    found.extend(fields.maps("dns_sd_configs", read_dns).into_iter().map(Discovery::Dns));
    found.extend(fields.maps("consul_sd_configs", read_consul).into_iter().map(Discovery::Consul));
    found.extend(fields.maps("docker_sd_configs", read_docker).into_iter().map(Discovery::Docker));
    let kubernetes = fields.maps("kubernetes_sd_configs", read_kubernetes);
    found.extend(kubernetes.into_iter().map(|found| Discovery::Kubernetes(Box::new(found))));
    found.extend(fields.maps("ec2_sd_configs", read_ec2).into_iter().map(Discovery::Ec2));
    let missing: Vec<&str> = NOT_BUILT_IN.into_iter().filter(|name| fields.has(name)).collect();
    for name in &missing {
        fields.skip(name);
    }
    let disabled = (!missing.is_empty()).then(|| format!("{} is not built in", missing.join(", ")));
    (found, disabled)
}

fn read_static(fields: &Fields<'_>, names: NameScheme) -> Vec<TargetGroup> {
    let mut number = 0;
    fields.maps("static_configs", |group| {
        let target = |node| {
            let address = fields.reading.parse(node, |text| {
                if text.contains('/') && !text.contains("://") {
                    return Err(format!("{text:?} is no address: host and port, without a path"));
                }
                Ok(text.to_owned())
            });
            Some(Labels::from([("__address__".to_owned(), address?)]))
        };
        let targets = group.list("targets", target);
        number += 1;
        Some(TargetGroup { source: (number - 1).to_string(), targets, labels: read_labels(group, "labels", names) })
    })
}

fn refresh_ms(fields: &Fields<'_>, default_ms: u64) -> u64 {
    match fields.duration_ms("refresh_interval") {
        Some(0) => {
            fields.reading.error(fields.position_of("refresh_interval"), "refresh_interval must be above 0");
            default_ms
        }
        found => found.unwrap_or(default_ms),
    }
}

fn port(fields: &Fields<'_>, default: u16) -> u16 {
    let port = fields.parsed("port", |text| text.parse().map_err(|_| format!("port: {text:?} is no port")));
    port.unwrap_or(default)
}

fn filters(fields: &Fields<'_>) -> Vec<Filter> {
    fields.maps("filters", |filter| Some(Filter { name: filter.required("name"), values: filter.texts("values") }))
}

#[allow(clippy::unnecessary_wraps, reason = "the form of readers of maps")]
fn read_file(fields: &Fields<'_>) -> Option<FileDiscovery> {
    let files = fields.list("files", |node| {
        fields.reading.parse(node, |text| {
            let name = text.rsplit('/').next().unwrap_or_default();
            let is_known = [".json", ".yml", ".yaml"].iter().any(|ending| name.ends_with(ending));
            let folder = text.strip_suffix(name).unwrap_or_default();
            if !is_known || name.matches('*').count() > 1 || folder.contains('*') {
                return Err(format!(
                    "{text:?}: expected a file that ends in .json, .yml or .yaml, with at most one star in its last part"
                ));
            }
            Ok(fields.reading.path(text))
        })
    });
    if files.is_empty() {
        fields.reading.error(fields.position, "files is missing");
    }
    Some(FileDiscovery { files, refresh_ms: refresh_ms(fields, 300_000) })
}

#[allow(clippy::unnecessary_wraps, reason = "the form of readers of maps")]
fn read_http(fields: &Fields<'_>) -> Option<HttpDiscovery> {
    let url = fields.required("url");
    if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
        fields.reading.error(fields.position_of("url"), "url must begin with http:// or https://");
    }
    Some(HttpDiscovery { url, refresh_ms: refresh_ms(fields, 60_000), http: HttpConfig::read(fields) })
}

#[allow(clippy::unnecessary_wraps, reason = "the form of readers of maps")]
fn read_dns(fields: &Fields<'_>) -> Option<DnsDiscovery> {
    let record = fields.parsed("type", |text| match text.to_ascii_uppercase().as_str() {
        "A" => Ok(DnsType::A),
        "AAAA" => Ok(DnsType::Aaaa),
        "SRV" | "" => Ok(DnsType::Srv),
        "MX" => Ok(DnsType::Mx),
        "NS" => Ok(DnsType::Ns),
        _ => Err(format!("type: expected SRV, A, AAAA, MX or NS, found {text:?}")),
    });
    let record = record.unwrap_or(DnsType::Srv);
    let (names, port_number) = (fields.texts("names"), port(fields, 0));
    if names.is_empty() {
        fields.reading.error(fields.position, "names is missing");
    }
    if port_number == 0 && record != DnsType::Srv {
        fields.reading.error(fields.position, "port is missing: only records of type SRV have one");
    }
    Some(DnsDiscovery { names, record, port: port_number, refresh_ms: refresh_ms(fields, 30_000) })
}

#[allow(clippy::unnecessary_wraps, reason = "the form of readers of maps")]
fn read_consul(fields: &Fields<'_>) -> Option<ConsulDiscovery> {
    Some(ConsulDiscovery {
        server: fields.text_or("server", "localhost:8500"),
        scheme: super::job::read_scheme(fields),
        path_prefix: fields.text_or("path_prefix", ""),
        token: {
            if let Some(node) = fields.node("token") {
                node.is_secret.set(true);
            }
            fields.text("token").filter(|token| !token.is_empty()).map(Source::Inline)
        },
        datacenter: fields.text_or("datacenter", ""),
        namespace: fields.text_or("namespace", ""),
        partition: fields.text_or("partition", ""),
        services: fields.texts("services"),
        tags: fields.texts("tags"),
        node_meta: fields.text_pairs("node_meta"),
        filter: fields.text_or("filter", ""),
        health_filter: fields.text_or("health_filter", ""),
        tag_separator: fields.text_or("tag_separator", ","),
        allow_stale: fields.flag_or("allow_stale", true),
        refresh_ms: refresh_ms(fields, 30_000),
        http: {
            fields.without_effect("username", "use basic_auth");
            if let Some(node) = fields.node("password") {
                node.is_secret.set(true);
            }
            fields.without_effect("password", "use basic_auth");
            HttpConfig::read(fields)
        },
    })
}

#[allow(clippy::unnecessary_wraps, reason = "the form of readers of maps")]
fn read_docker(fields: &Fields<'_>) -> Option<DockerDiscovery> {
    Some(DockerDiscovery {
        host: fields.required("host"),
        port: port(fields, 80),
        host_networking_host: fields.text_or("host_networking_host", "localhost"),
        match_first_network: fields.flag_or("match_first_network", true),
        filters: filters(fields),
        refresh_ms: refresh_ms(fields, 60_000),
        http: HttpConfig::read(fields),
    })
}

fn kubernetes_role(text: &str) -> Result<KubernetesRole, String> {
    match text.to_ascii_lowercase().as_str() {
        "node" => Ok(KubernetesRole::Node),
        "service" => Ok(KubernetesRole::Service),
        "pod" => Ok(KubernetesRole::Pod),
        "endpoints" => Ok(KubernetesRole::Endpoints),
        "endpointslice" => Ok(KubernetesRole::EndpointSlice),
        "ingress" => Ok(KubernetesRole::Ingress),
        _ => Err(format!("role: expected node, service, pod, endpoints, endpointslice or ingress, found {text:?}")),
    }
}

fn read_kubernetes(fields: &Fields<'_>) -> Option<KubernetesDiscovery> {
    let role = fields.parsed("role", kubernetes_role);
    if !fields.has("role") {
        fields
            .reading
            .error(fields.position, "role is missing: node, service, pod, endpoints, endpointslice or ingress");
    }
    let namespaces =
        fields.map("namespaces", |section| (section.flag_or("own_namespace", false), section.texts("names")));
    let (own_namespace, namespaces) = namespaces.unwrap_or_default();
    let selectors = fields.maps("selectors", |selector| {
        Some(KubernetesSelector {
            role: selector.parsed("role", kubernetes_role)?,
            label: selector.text_or("label", ""),
            field: selector.text_or("field", ""),
        })
    });
    let attached = fields.map("attach_metadata", |section| {
        section.without_effect("deployment", "pods have the labels of their controllers' kind and name");
        section.without_effect("job", "pods have the labels of their controllers' kind and name");
        section.without_effect("cronjob", "pods have the labels of their controllers' kind and name");
        (section.flag_or("node", false), section.flag_or("namespace", false))
    });
    let (attach_node, attach_namespace) = attached.unwrap_or_default();
    let api_server = fields.text("api_server").filter(|url| !url.is_empty());
    let kubeconfig = fields.text("kubeconfig_file").filter(|path| !path.is_empty());
    if api_server.is_some() && kubeconfig.is_some() {
        fields
            .reading
            .error(fields.position_of("kubeconfig_file"), "kubeconfig_file and api_server exclude each other");
    }
    let kubeconfig_file = kubeconfig.map(|path| fields.reading.path(&path));
    let http = HttpConfig::read(fields);
    Some(KubernetesDiscovery {
        api_server,
        role: role?,
        kubeconfig_file,
        own_namespace,
        namespaces,
        selectors,
        attach_node,
        attach_namespace,
        http,
    })
}

#[allow(clippy::unnecessary_wraps, reason = "the form of readers of maps")]
fn read_ec2(fields: &Fields<'_>) -> Option<Ec2Discovery> {
    Some(Ec2Discovery {
        identity: AwsIdentity::read(fields),
        endpoint: fields.text_or("endpoint", ""),
        port: port(fields, 80),
        filters: filters(fields),
        refresh_ms: refresh_ms(fields, 60_000),
        http: HttpConfig::read(fields),
    })
}
