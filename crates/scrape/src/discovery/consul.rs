//! `consul_sd_configs`: the instances of services.

use platform::network::{HttpRequest, NetworkPlatform};
use serde_json::Value;

use super::http::fetch_json;
use super::{Found, Sink, TargetGroup, join_host_port, labels_of, sanitized};
use crate::client::Client;
use crate::config::ConsulDiscovery;
use relabel::Labels;

pub(super) async fn run(config: &ConsulDiscovery, network: &NetworkPlatform, sink: &Sink) {
    let client = Client::new(network, &config.http);
    loop {
        sink(look(config, network, &client).await);
        network.tasks.sleep_ms(config.refresh_ms).await;
    }
}

async fn look(config: &ConsulDiscovery, network: &NetworkPlatform, client: &Client) -> Found {
    let mut groups = Vec::new();
    for service in services(config, network, client).await? {
        let mut extra: Vec<(&str, &str)> = config.tags.iter().map(|tag| ("tag", tag.as_str())).collect();
        extra.push(("filter", &config.health_filter));
        let encoded: String = form_urlencoded::byte_serialize(service.as_bytes()).collect();
        let path = format!("/v1/health/service/{}", encoded.replace('+', "%20"));
        let answer = fetch_json(client, network, request(config, network, &path, &extra)?).await?;
        let targets = answer.as_array().into_iter().flatten().map(|entry| target(config, entry)).collect();
        groups.push(TargetGroup { source: service, targets, ..TargetGroup::default() });
    }
    Ok(groups)
}

/// The names of services: those of the configuration, or those of the catalog that have all tags.
async fn services(config: &ConsulDiscovery, network: &NetworkPlatform, client: &Client) -> Result<Vec<String>, String> {
    if !config.services.is_empty() && config.tags.is_empty() {
        return Ok(config.services.clone());
    }
    let request = request(config, network, "/v1/catalog/services", &[("filter", &config.filter)])?;
    let answer = fetch_json(client, network, request).await?;
    let has_all_tags = |tags: &Value| {
        let has = |tag: &String| tags.as_array().is_some_and(|tags| tags.iter().any(|found| found == tag.as_str()));
        config.tags.iter().all(has)
    };
    let is_wanted = |name: &String| config.services.is_empty() || config.services.contains(name);
    let services =
        answer.as_object().into_iter().flatten().filter(|(name, tags)| is_wanted(name) && has_all_tags(tags));
    Ok(services.map(|(name, _)| name.clone()).collect())
}

fn request(
    config: &ConsulDiscovery,
    network: &NetworkPlatform,
    path: &str,
    extra: &[(&str, &str)],
) -> Result<HttpRequest, String> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let own = [("dc", &config.datacenter), ("ns", &config.namespace), ("partition", &config.partition)];
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    for (name, value) in own.chain(extra.iter().copied()).filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    for (name, value) in &config.node_meta {
        query.append_pair("node-meta", &format!("{name}:{value}"));
    }
    if config.allow_stale {
        query.append_key_only("stale");
    }
    let prefix = config.path_prefix.trim_matches('/');
    let slash = if prefix.is_empty() { "" } else { "/" };
    let url = format!("{}://{}{slash}{prefix}{path}?{}", config.scheme, config.server, query.finish());
    let request = HttpRequest::get(url.trim_end_matches('?'));
    match &config.token {
        Some(token) => Ok(request.with_header("X-Consul-Token", token.read(&*network.platform.files)?)),
        None => Ok(request),
    }
}

fn target(config: &ConsulDiscovery, entry: &Value) -> Labels {
    let (node, service) = (&entry["Node"], &entry["Service"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let port = service["Port"].as_u64().unwrap_or_default();
    let own_address = text(&service["Address"]);
    let host = if own_address.is_empty() { text(&node["Address"]) } else { own_address.clone() };
    let separator = &config.tag_separator;
    let tags: Vec<&str> = service["Tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let pairs = [
        ("__address__", join_host_port(&host, port as u16)),
        ("__meta_consul_address", text(&node["Address"])),
        ("__meta_consul_dc", text(&node["Datacenter"])),
        ("__meta_consul_health", health(&entry["Checks"]).to_owned()),
        ("__meta_consul_namespace", text(&service["Namespace"])),
        ("__meta_consul_partition", text(&service["Partition"])),
        ("__meta_consul_node", text(&node["Node"])),
        ("__meta_consul_service", text(&service["Service"])),
        ("__meta_consul_service_address", own_address),
        ("__meta_consul_service_id", text(&service["ID"])),
        ("__meta_consul_service_port", port.to_string()),
        // Separators stand around them too, so that expressions need not know whether a tag is the first.
        ("__meta_consul_tags", format!("{separator}{}{separator}", tags.join(separator))),
    ];
    let mut labels = labels_of(pairs.iter().map(|(name, value)| (*name, value.as_str())));
    let tagged = &node["TaggedAddresses"];
    for (prefix, map) in [
        ("__meta_consul_metadata_", &node["Meta"]),
        ("__meta_consul_service_metadata_", &service["Meta"]),
        ("__meta_consul_tagged_address_", tagged),
    ] {
        for (name, value) in map.as_object().into_iter().flatten() {
            labels.insert(format!("{prefix}{}", sanitized(name)), text(value));
        }
    }
    labels
}

/// The worst state of some checks.
fn health(checks: &Value) -> &'static str {
    let statuses: Vec<&str> =
        checks.as_array().into_iter().flatten().filter_map(|check| check["Status"].as_str()).collect();
    let in_maintenance = checks.as_array().into_iter().flatten().any(|check| {
        let id = check["CheckID"].as_str().unwrap_or_default();
        id == "_node_maintenance" || id.starts_with("_service_maintenance:")
    });
    match () {
        () if in_maintenance => "maintenance",
        () if statuses.contains(&"critical") => "critical",
        () if statuses.contains(&"warning") => "warning",
        () => "passing",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};

    use super::*;
    use crate::config::{HttpConfig, Source};

    const INSTANCES: &str = r#"[{
        "Node": {"Node": "n1", "Address": "10.0.0.1", "Datacenter": "dc1", "TaggedAddresses": {"wan": "1.2.3.4"}, "Meta": {"rack-no": "7"}},
        "Service": {"ID": "web-1", "Service": "web", "Tags": ["production", "v2"], "Address": "", "Port": 8080, "Meta": {"team": "a"}},
        "Checks": [{"CheckID": "serfHealth", "Status": "passing"}, {"CheckID": "c", "Status": "warning"}]
    }, {
        "Node": {"Node": "n2", "Address": "10.0.0.2"}, "Service": {"ID": "web-2", "Service": "web", "Address": "fd00::2", "Port": 81},
        "Checks": []
    }]"#;

    #[test]
    fn instances_become_targets() {
        let simulation = platform::sim::Simulation::new(1);
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = requests.clone();
        let network = SimNetwork::new(&simulation, move |request| {
            assert_eq!(request.header("X-Consul-Token"), Some("t"));
            log.lock().unwrap().push(request.url.clone());
            let body = match request.url.split(['?']).next().unwrap().rsplit("/v1/").next().unwrap() {
                "catalog/services" => r#"{"web": ["production", "v2"], "api": ["test"], "other": ["production"]}"#,
                "health/service/web" => INSTANCES,
                path => panic!("{path}"),
            };
            SimAnswer { delay_ms: 1, result: Ok(SimResponse::ok("application/json", body)) }
        });
        let config = ConsulDiscovery {
            server: "c:8500".to_owned(),
            scheme: "http".to_owned(),
            path_prefix: "/consul".to_owned(),
            token: Some(Source::Inline("t".to_owned())),
            datacenter: "dc1".to_owned(),
            namespace: String::new(),
            partition: String::new(),
            services: vec!["web".to_owned(), "api".to_owned()],
            tags: vec!["production".to_owned()],
            node_meta: vec![("rack".to_owned(), "7".to_owned())],
            filter: String::new(),
            health_filter: "x".to_owned(),
            tag_separator: ",".to_owned(),
            allow_stale: true,
            refresh_ms: 30_000,
            http: HttpConfig::default(),
        };
        let found: Arc<Mutex<Vec<Found>>> = Arc::default();
        let (sink_found, own) = (found.clone(), network.platform());
        network.platform().tasks.spawn(Box::pin(async move {
            run(&config, &own, &move |groups| sink_found.lock().unwrap().push(groups)).await;
        }));
        network.run_ms(1_000);
        let groups = found.lock().unwrap()[0].clone().unwrap();
        let expected = [
            ("__address__", "10.0.0.1:8080"),
            ("__meta_consul_address", "10.0.0.1"),
            ("__meta_consul_dc", "dc1"),
            ("__meta_consul_health", "warning"),
            ("__meta_consul_metadata_rack_no", "7"),
            ("__meta_consul_node", "n1"),
            ("__meta_consul_service", "web"),
            ("__meta_consul_service_id", "web-1"),
            ("__meta_consul_service_metadata_team", "a"),
            ("__meta_consul_service_port", "8080"),
            ("__meta_consul_tagged_address_wan", "1.2.3.4"),
            ("__meta_consul_tags", ",production,v2,"),
        ];
        assert_eq!(groups[0].targets[0], labels_of(expected));
        assert_eq!(groups[0].targets[1]["__address__"], "[fd00::2]:81");
        let requests = requests.lock().unwrap();
        assert_eq!(requests[0], "http://c:8500/consul/v1/catalog/services?dc=dc1&node-meta=rack%3A7&stale");
        assert!(requests[1].ends_with("web?dc=dc1&tag=production&filter=x&node-meta=rack%3A7&stale"), "{requests:?}");
    }
}
