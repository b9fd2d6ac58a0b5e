//! `docker_sd_configs`: containers with their networks and ports.

use std::collections::BTreeMap;

use platform::network::{HttpRequest, NetworkPlatform};
use serde_json::{Map, Value};

use super::http::fetch_json;
use super::{Found, Sink, TargetGroup, join_host_port, labels_of, sanitized};
use crate::client::Client;
use crate::config::DockerDiscovery;
use relabel::Labels;

pub(super) async fn run(config: &DockerDiscovery, network: &NetworkPlatform, sink: &Sink) {
    let client = Client::new(network, &config.http);
    let (client, base) = match config.host.split_once("://") {
        Some(("unix", path)) => (client.over_socket(path.into()), "http://localhost".to_owned()),
        Some(("tcp", address)) => (client, format!("http://{}", address.trim_end_matches('/'))),
        _ => (client, config.host.trim_end_matches('/').to_owned()),
    };
    loop {
        sink(look(config, network, &client, &base).await);
        network.tasks.sleep_ms(config.refresh_ms).await;
    }
}

async fn look(config: &DockerDiscovery, network: &NetworkPlatform, client: &Client, base: &str) -> Found {
    let containers = fetch_json(client, network, HttpRequest::get(containers_url(config, base))).await?;
    let networks = fetch_json(client, network, HttpRequest::get(format!("{base}/networks"))).await?;
    let targets = targets(config, &containers, &networks);
    Ok(vec![TargetGroup { source: "docker".to_owned(), targets, ..TargetGroup::default() }])
}

fn containers_url(config: &DockerDiscovery, base: &str) -> String {
    let filters = config.filters.iter().map(|filter| (filter.name.clone(), filter.values.clone().into()));
    let filters: Map<String, Value> = filters.collect();
    if filters.is_empty() {
        return format!("{base}/containers/json");
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("filters", &Value::Object(filters).to_string());
    format!("{base}/containers/json?{}", query.finish())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The labels of each network, by its id.
fn network_labels(networks: &Value) -> BTreeMap<String, Labels> {
    let labels = |network: &Value| {
        let flag = |name: &str| network[name].as_bool().unwrap_or_default().to_string();
        let (ingress, internal) = (flag("Ingress"), flag("Internal"));
        let mut labels = labels_of([
            ("__meta_docker_network_id", text(&network["Id"])),
            ("__meta_docker_network_name", text(&network["Name"])),
            ("__meta_docker_network_scope", text(&network["Scope"])),
            ("__meta_docker_network_ingress", &ingress),
            ("__meta_docker_network_internal", &internal),
        ]);
        add_labels(&mut labels, "__meta_docker_network_label_", &network["Labels"]);
        labels
    };
    list(networks).iter().map(|network| (text(&network["Id"]).to_owned(), labels(network))).collect()
}

fn add_labels(labels: &mut Labels, prefix: &str, found: &Value) {
    for (name, value) in found.as_object().into_iter().flatten() {
        labels.insert(format!("{prefix}{}", sanitized(name)), text(value).to_owned());
    }
}

fn targets(config: &DockerDiscovery, containers: &Value, networks: &Value) -> Vec<Labels> {
    let by_network = network_labels(networks);
    let mut targets = Vec::new();
    for container in list(containers).iter().filter(|container| !list(&container["Names"]).is_empty()) {
        let mode = text(&container["HostConfig"]["NetworkMode"]);
        let mut common = labels_of([
            ("__meta_docker_container_id", text(&container["Id"])),
            ("__meta_docker_container_name", text(&container["Names"][0])),
            ("__meta_docker_container_network_mode", mode),
        ]);
        add_labels(&mut common, "__meta_docker_container_label_", &container["Labels"]);
        let mut attached: Vec<(&String, &Value)> = attached_networks(container, containers);
        attached.sort_by_key(|(name, _)| *name);
        if config.match_first_network && attached.len() > 1 {
            attached.truncate(1);
        }
        for (_, network) in attached {
            let ip = text(&network["IPAddress"]);
            let mut base = common.clone();
            base.extend(labels_of([("__meta_docker_network_ip", ip)]));
            base.extend(by_network.get(text(&network["NetworkID"])).cloned().unwrap_or_default());
            let of_ports: Vec<Labels> =
                list(&container["Ports"]).iter().filter_map(|port| with_port(&base, ip, port)).collect();
            if of_ports.is_empty() {
                let address = match mode {
                    "host" => config.host_networking_host.clone(),
                    _ => join_host_port(ip, config.port),
                };
                base.insert("__address__".to_owned(), address);
                targets.push(base);
            } else {
                targets.extend(of_ports);
            }
        }
    }
    targets
}

/// The networks of a container; those of another one, if it shares them.
fn attached_networks<'a>(container: &'a Value, containers: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let networks = |container: &'a Value| -> Vec<(&'a String, &'a Value)> {
        container["NetworkSettings"]["Networks"].as_object().into_iter().flatten().collect()
    };
    let own = networks(container);
    let shared = text(&container["HostConfig"]["NetworkMode"]).strip_prefix("container:");
    match (own.is_empty(), shared) {
        (true, Some(id)) => {
            list(containers).iter().find(|other| text(&other["Id"]) == id).map(networks).unwrap_or_default()
        }
        _ => own,
    }
}

fn with_port(base: &Labels, ip: &str, port: &Value) -> Option<Labels> {
    if text(&port["Type"]) != "tcp" {
        return None;
    }
    let private = port["PrivatePort"].as_u64()?;
    let mut labels = base.clone();
    labels.insert("__meta_docker_port_private".to_owned(), private.to_string());
    if let Some(public) = port["PublicPort"].as_u64().filter(|public| *public > 0) {
        labels.insert("__meta_docker_port_public".to_owned(), public.to_string());
        labels.extend(labels_of([("__meta_docker_port_public_ip", text(&port["IP"]))]));
    }
    labels.insert("__address__".to_owned(), join_host_port(ip, private as u16));
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Filter, HttpConfig};

    const CONTAINERS: &str = r#"[{
        "Id": "c1", "Names": ["/web"], "Labels": {"com.example/role": "web"}, "HostConfig": {"NetworkMode": "front"},
        "Ports": [{"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"}, {"PrivatePort": 53, "Type": "udp"}],
        "NetworkSettings": {"Networks": {
            "front": {"IPAddress": "172.1.0.2", "NetworkID": "n1"}, "zback": {"IPAddress": "172.2.0.2", "NetworkID": "n2"}
        }}
    }, {
        "Id": "c2", "Names": ["/host"], "HostConfig": {"NetworkMode": "host"}, "Ports": [],
        "NetworkSettings": {"Networks": {"host": {"IPAddress": "", "NetworkID": "n3"}}}
    }, {
        "Id": "c3", "Names": ["/side"], "HostConfig": {"NetworkMode": "container:c1"}, "Ports": [], "NetworkSettings": {"Networks": {}}
    }]"#;

    const NETWORKS: &str = r#"[{"Id": "n1", "Name": "front", "Scope": "local", "Internal": true, "Ingress": false, "Labels": {"x": "y"}}]"#;

    fn config(match_first_network: bool) -> DockerDiscovery {
        DockerDiscovery {
            host: "unix:///var/run/docker.sock".to_owned(),
            port: 9100,
            host_networking_host: "localhost".to_owned(),
            match_first_network,
            filters: vec![Filter { name: "label".to_owned(), values: vec!["a=b".to_owned()] }],
            refresh_ms: 60_000,
            http: HttpConfig::default(),
        }
    }

    #[test]
    fn containers_become_targets() {
        let (containers, networks) =
            (serde_json::from_str(CONTAINERS).unwrap(), serde_json::from_str(NETWORKS).unwrap());
        let found = targets(&config(true), &containers, &networks);
        let expected = [
            ("__address__", "172.1.0.2:80"),
            ("__meta_docker_container_id", "c1"),
            ("__meta_docker_container_label_com_example_role", "web"),
            ("__meta_docker_container_name", "/web"),
            ("__meta_docker_container_network_mode", "front"),
            ("__meta_docker_network_id", "n1"),
            ("__meta_docker_network_ingress", "false"),
            ("__meta_docker_network_internal", "true"),
            ("__meta_docker_network_ip", "172.1.0.2"),
            ("__meta_docker_network_label_x", "y"),
            ("__meta_docker_network_name", "front"),
            ("__meta_docker_network_scope", "local"),
            ("__meta_docker_port_private", "80"),
            ("__meta_docker_port_public", "8080"),
            ("__meta_docker_port_public_ip", "0.0.0.0"),
        ];
        assert_eq!(found[0], labels_of(expected));
        let addresses: Vec<&str> = found.iter().map(|target| target["__address__"].as_str()).collect();
        assert_eq!(addresses, ["172.1.0.2:80", "localhost", "172.1.0.2:9100"]);
        assert_eq!(targets(&config(false), &containers, &networks).len(), 5);
        let url = containers_url(&config(true), "http://localhost");
        assert_eq!(url, "http://localhost/containers/json?filters=%7B%22label%22%3A%5B%22a%3Db%22%5D%7D");
    }
}
