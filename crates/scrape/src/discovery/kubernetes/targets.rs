//! Targets of nodes, services, pods and ingresses.

use serde_json::Value;

use super::objects::{Objects, add_metadata, list, name, namespace, set, text};
use super::watch::Resource;
use crate::discovery::{TargetGroup, join_host_port, sanitized};
use relabel::Labels;

/// Objects, and which of them lend labels to others.
pub(super) struct Source<'a> {
    pub(super) objects: &'a Objects,
    pub(super) attach_node: bool,
    pub(super) attach_namespace: bool,
}

/// Addresses of a node, the preferred first.
const NODE_ADDRESSES: [&str; 6] =
    ["InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "LegacyHostIP", "Hostname"];

pub(super) fn with_address(address: String) -> Labels {
    Labels::from([("__address__".to_owned(), address)])
}

fn group_source(kind: &str, object: &Value) -> String {
    match namespace(object) {
        "" => format!("{kind}/{}", name(object)),
        namespace => format!("{kind}/{namespace}/{}", name(object)),
    }
}

fn number(value: &Value) -> u16 {
    value.as_u64().and_then(|number| u16::try_from(number).ok()).unwrap_or_default()
}

pub(super) fn node(object: &Value) -> TargetGroup {
    let mut group = TargetGroup { source: group_source("node", object), ..TargetGroup::default() };
    add_metadata(&mut group.labels, "node", object);
    set(&mut group.labels, [("node_provider_id", text(&object["spec"]["providerID"]))]);
    let addresses = list(&object["status"]["addresses"]);
    let first = |kind: &str| addresses.iter().find(|address| text(&address["type"]) == kind);
    let Some(address) = NODE_ADDRESSES.into_iter().find_map(first) else { return group };
    let port = number(&object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]);
    let mut target = with_address(join_host_port(text(&address["address"]), port));
    target.insert("instance".to_owned(), name(object).to_owned());
    for address in addresses {
        let label = format!("__meta_kubernetes_node_address_{}", sanitized(text(&address["type"])));
        target.entry(label).or_insert_with(|| text(&address["address"]).to_owned());
    }
    group.targets.push(target);
    group
}

/// The controller that owns a pod.
fn controller(object: &Value) -> Option<&Value> {
    list(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true)
}

fn is_ready(pod: &Value) -> String {
    let conditions = list(&pod["status"]["conditions"]);
    let ready = conditions.iter().find(|condition| text(&condition["type"]) == "Ready");
    ready.map_or_else(|| "unknown".to_owned(), |condition| text(&condition["status"]).to_lowercase())
}

/// The labels of a pod itself.
pub(super) fn pod_labels(pod: &Value) -> Labels {
    let mut labels = Labels::new();
    add_metadata(&mut labels, "pod", pod);
    let status = &pod["status"];
    let ready = is_ready(pod);
    set(
        &mut labels,
        [
            ("pod_ip", text(&status["podIP"])),
            ("pod_ready", ready.as_str()),
            ("pod_phase", text(&status["phase"])),
            ("pod_node_name", text(&pod["spec"]["nodeName"])),
            ("pod_host_ip", text(&status["hostIP"])),
            ("pod_uid", text(&pod["metadata"]["uid"])),
        ],
    );
    if let Some(owner) = controller(pod) {
        set(
            &mut labels,
            [("pod_controller_kind", text(&owner["kind"])), ("pod_controller_name", text(&owner["name"]))],
        );
    }
    labels
}

/// A container of a pod.
pub(super) struct Container<'a> {
    pub(super) spec: &'a Value,
    pub(super) is_init: bool,
    id: &'a str,
}

/// All containers of a pod, those that run first last.
pub(super) fn containers(pod: &Value) -> Vec<Container<'_>> {
    let mut found = Vec::new();
    for (specs, statuses, is_init) in
        [("containers", "containerStatuses", false), ("initContainers", "initContainerStatuses", true)]
    {
        for spec in list(&pod["spec"][specs]) {
            let mut all = list(&pod["status"][statuses]).iter();
            let status = all.find(|status| text(&status["name"]) == text(&spec["name"]));
            let id = status.map_or("", |status| text(&status["containerID"]));
            found.push(Container { spec, is_init, id });
        }
    }
    found
}

impl Container<'_> {
    /// Adds the container's labels, and those of one of its ports.
    pub(super) fn add(&self, labels: &mut Labels, port: Option<&Value>) {
        set(
            labels,
            [
                ("pod_container_name", text(&self.spec["name"])),
                ("pod_container_id", self.id),
                ("pod_container_image", text(&self.spec["image"])),
                ("pod_container_init", if self.is_init { "true" } else { "false" }),
            ],
        );
        if let Some(port) = port {
            let number = number(&port["containerPort"]).to_string();
            set(
                labels,
                [
                    ("pod_container_port_name", text(&port["name"])),
                    ("pod_container_port_number", number.as_str()),
                    ("pod_container_port_protocol", protocol(port)),
                ],
            );
        }
    }
}

pub(super) fn protocol(port: &Value) -> &str {
    Some(text(&port["protocol"])).filter(|protocol| !protocol.is_empty()).unwrap_or("TCP")
}

pub(super) fn container_port(port: &Value) -> u16 {
    number(&port["containerPort"])
}

impl Source<'_> {
    /// Adds labels of the namespace, and those of the object's namespace that were asked for.
    pub(super) fn add_namespace(&self, labels: &mut Labels, object: &Value) {
        let namespace = namespace(object);
        set(labels, [("namespace", namespace)]);
        if self.attach_namespace
            && let Some(found) = self.objects.get(Resource::Namespace, "", namespace)
        {
            let mut own = Labels::new();
            add_metadata(&mut own, "namespace", found);
            own.remove("__meta_kubernetes_namespace_name");
            labels.extend(own);
        }
    }

    pub(super) fn add_node(&self, labels: &mut Labels, name: &str) {
        if self.attach_node
            && let Some(node) = self.objects.get(Resource::Node, "", name)
        {
            add_metadata(labels, "node", node);
        }
    }

    /// The labels of a service, without its ports.
    pub(super) fn service_labels(service: &Value) -> Labels {
        let mut labels = Labels::new();
        add_metadata(&mut labels, "service", service);
        labels
    }

    pub(super) fn service(&self, service: &Value) -> TargetGroup {
        let mut group = TargetGroup {
            source: group_source("svc", service),
            labels: Self::service_labels(service),
            ..TargetGroup::default()
        };
        self.add_namespace(&mut group.labels, service);
        let spec = &service["spec"];
        let kind = text(&spec["type"]);
        for port in list(&spec["ports"]) {
            let number = number(&port["port"]);
            let mut target =
                with_address(join_host_port(&format!("{}.{}.svc", name(service), namespace(service)), number));
            let number = number.to_string();
            set(
                &mut target,
                [
                    ("service_port_name", text(&port["name"])),
                    ("service_port_number", number.as_str()),
                    ("service_port_protocol", protocol(port)),
                    ("service_type", kind),
                ],
            );
            match kind {
                "ExternalName" => set(&mut target, [("service_external_name", text(&spec["externalName"]))]),
                _ => set(&mut target, [("service_cluster_ip", text(&spec["clusterIP"]))]),
            }
            if kind == "LoadBalancer" {
                set(&mut target, [("service_loadbalancer_ip", text(&spec["loadBalancerIP"]))]);
            }
            group.targets.push(target);
        }
        group
    }

    /// `None` for a pod that has no address yet.
    pub(super) fn pod(&self, pod: &Value) -> Option<TargetGroup> {
        let ip = Some(text(&pod["status"]["podIP"])).filter(|ip| !ip.is_empty())?;
        let mut group =
            TargetGroup { source: group_source("pod", pod), labels: pod_labels(pod), ..TargetGroup::default() };
        self.add_namespace(&mut group.labels, pod);
        self.add_node(&mut group.labels, text(&pod["spec"]["nodeName"]));
        for container in containers(pod) {
            let ports = list(&container.spec["ports"]);
            if ports.is_empty() {
                // Without a port: relabelling may add one.
                let mut target = with_address(ip.to_owned());
                container.add(&mut target, None);
                group.targets.push(target);
            }
            for port in ports {
                let mut target = with_address(join_host_port(ip, container_port(port)));
                container.add(&mut target, Some(port));
                group.targets.push(target);
            }
        }
        Some(group)
    }

    pub(super) fn ingress(&self, ingress: &Value) -> TargetGroup {
        let mut group = TargetGroup { source: group_source("ingress", ingress), ..TargetGroup::default() };
        add_metadata(&mut group.labels, "ingress", ingress);
        self.add_namespace(&mut group.labels, ingress);
        let spec = &ingress["spec"];
        set(&mut group.labels, [("ingress_class_name", text(&spec["ingressClassName"]))]);
        let secure: Vec<&str> = list(&spec["tls"]).iter().flat_map(|tls| list(&tls["hosts"])).map(text).collect();
        for rule in list(&spec["rules"]) {
            let host = Some(text(&rule["host"])).filter(|host| !host.is_empty()).unwrap_or("*");
            let is_secure = secure.iter().any(|pattern| covers(pattern, host));
            let mut paths: Vec<&str> = list(&rule["http"]["paths"]).iter().map(|path| text(&path["path"])).collect();
            if paths.is_empty() {
                paths.push("/");
            }
            for path in paths {
                let mut target = with_address(host.to_owned());
                set(
                    &mut target,
                    [
                        ("ingress_scheme", if is_secure { "https" } else { "http" }),
                        ("ingress_host", host),
                        ("ingress_path", if path.is_empty() { "/" } else { path }),
                    ],
                );
                group.targets.push(target);
            }
        }
        group
    }
}

/// Returns whether a certificate's host is this one, or a star in place of its first part.
fn covers(pattern: &str, host: &str) -> bool {
    let below = pattern.strip_prefix("*.").zip(host.split_once('.')).is_some_and(|(domain, (_, rest))| domain == rest);
    pattern == host || below
}
