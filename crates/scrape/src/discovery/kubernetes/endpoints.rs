//! Targets of endpoints and their slices, with the labels of their services and pods. Ports of pods that no endpoint has are targets, too.

use serde_json::Value;

use super::objects::{add_metadata, list, name, namespace, set, text};
use super::targets::{Source, container_port, containers, pod_labels, protocol, with_address};
use super::watch::Resource;
use crate::discovery::{TargetGroup, join_host_port};
use relabel::Labels;

/// The label that says which service a slice is of.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// An address with a port, and what stands behind it.
struct Endpoint<'a> {
    ip: &'a str,
    port: u64,
    /// The port's protocol.
    protocol: &'a str,
    /// The object that has the address.
    target: &'a Value,
    node: &'a str,
}

/// Pods that were seen, with the ports that endpoints have of them.
type SeenPods<'a> = Vec<(&'a Value, Vec<(u64, String)>)>;

impl<'a> Source<'a> {
    pub(super) fn endpoints(&self, object: &Value) -> TargetGroup {
        let mut group = self.group("endpoints", "endpoints", object, name(object));
        let mut pods = SeenPods::new();
        for subset in list(&object["subsets"]) {
            for port in list(&subset["ports"]) {
                for (addresses, ready) in [("addresses", "true"), ("notReadyAddresses", "false")] {
                    for address in list(&subset[addresses]) {
                        let endpoint = Endpoint {
                            ip: text(&address["ip"]),
                            port: port["port"].as_u64().unwrap_or_default(),
                            protocol: protocol(port),
                            target: &address["targetRef"],
                            node: text(&address["nodeName"]),
                        };
                        let mut labels = Labels::new();
                        set(
                            &mut labels,
                            [
                                ("endpoint_port_name", text(&port["name"])),
                                ("endpoint_port_protocol", protocol(port)),
                                ("endpoint_ready", ready),
                                ("endpoint_address_target_kind", text(&address["targetRef"]["kind"])),
                                ("endpoint_address_target_name", text(&address["targetRef"]["name"])),
                                ("endpoint_node_name", endpoint.node),
                                ("endpoint_hostname", text(&address["hostname"])),
                            ],
                        );
                        group.targets.push(self.target(object, &endpoint, labels, &mut pods));
                    }
                }
            }
        }
        self.add_other_ports(&mut group, &pods);
        group
    }

    pub(super) fn endpoint_slice(&self, object: &Value) -> TargetGroup {
        let service = text(&object["metadata"]["labels"][SERVICE_LABEL]);
        let mut group = self.group("endpointslice", "endpointslice", object, service);
        set(&mut group.labels, [("endpointslice_address_type", text(&object["addressType"]))]);
        let mut pods = SeenPods::new();
        for port in list(&object["ports"]) {
            for found in list(&object["endpoints"]) {
                for ip in list(&found["addresses"]).iter().map(text) {
                    let endpoint = Endpoint {
                        ip,
                        port: port["port"].as_u64().unwrap_or_default(),
                        protocol: protocol(port),
                        target: &found["targetRef"],
                        node: text(&found["nodeName"]),
                    };
                    let labels = slice_labels(found, port, &endpoint);
                    group.targets.push(self.target(object, &endpoint, labels, &mut pods));
                }
            }
        }
        self.add_other_ports(&mut group, &pods);
        group
    }

    fn group(&self, kind: &str, role: &str, object: &Value, service: &str) -> TargetGroup {
        let source = format!("{kind}/{}/{}", namespace(object), name(object));
        let mut group = TargetGroup { source, ..TargetGroup::default() };
        self.add_namespace(&mut group.labels, object);
        add_metadata(&mut group.labels, role, object);
        if let Some(service) = self.objects.get(Resource::Service, namespace(object), service) {
            group.labels.extend(Self::service_labels(service));
        }
        group
    }

    /// An endpoint's target, with the labels of its node and pod.
    fn target(&self, object: &Value, endpoint: &Endpoint<'_>, labels: Labels, pods: &mut SeenPods<'a>) -> Labels {
        let mut target = with_address(join_host_port(endpoint.ip, endpoint.port as u16));
        target.extend(labels);
        let kind = text(&endpoint.target["kind"]);
        let node = if kind == "Node" { text(&endpoint.target["name"]) } else { endpoint.node };
        self.add_node(&mut target, node);
        if kind != "Pod" {
            return target;
        }
        let own = text(&endpoint.target["namespace"]);
        let namespace = if own.is_empty() { namespace(object) } else { own };
        let Some(pod) = self.objects.get(Resource::Pod, namespace, text(&endpoint.target["name"])) else {
            return target;
        };
        target.extend(pod_labels(pod));
        let is_this =
            |port: &&Value| u64::from(container_port(port)) == endpoint.port && protocol(port) == endpoint.protocol;
        for container in containers(pod) {
            if let Some(port) = list(&container.spec["ports"]).iter().find(is_this) {
                container.add(&mut target, Some(port));
                break;
            }
        }
        let covered = (endpoint.port, endpoint.protocol.to_owned());
        match pods.iter_mut().find(|(seen, _)| std::ptr::eq(*seen, pod)) {
            Some((_, ports)) => ports.push(covered),
            None => pods.push((pod, vec![covered])),
        }
        target
    }

    fn add_other_ports(&self, group: &mut TargetGroup, pods: &SeenPods<'_>) {
        for (pod, covered) in pods {
            let ip = text(&pod["status"]["podIP"]);
            if ip.is_empty() {
                continue;
            }
            for container in containers(pod) {
                for port in list(&container.spec["ports"]) {
                    let number = container_port(port);
                    let is_covered = |(seen, by): &(u64, String)| *seen == u64::from(number) && by == protocol(port);
                    if covered.iter().any(is_covered) {
                        continue;
                    }
                    let mut target = with_address(join_host_port(ip, number));
                    target.extend(pod_labels(pod));
                    container.add(&mut target, Some(port));
                    self.add_node(&mut target, text(&pod["spec"]["nodeName"]));
                    group.targets.push(target);
                }
            }
        }
    }
}

fn slice_labels(found: &Value, port: &Value, endpoint: &Endpoint<'_>) -> Labels {
    let mut labels = Labels::new();
    let condition = |name: &str| found["conditions"][name].as_bool().map(|is_so| is_so.to_string()).unwrap_or_default();
    let (ready, serving, terminating) = (condition("ready"), condition("serving"), condition("terminating"));
    let number = endpoint.port.to_string();
    set(
        &mut labels,
        [
            ("endpointslice_port", number.as_str()),
            ("endpointslice_port_name", text(&port["name"])),
            ("endpointslice_port_protocol", endpoint.protocol),
            ("endpointslice_port_app_protocol", text(&port["appProtocol"])),
            ("endpointslice_endpoint_conditions_ready", ready.as_str()),
            ("endpointslice_endpoint_conditions_serving", serving.as_str()),
            ("endpointslice_endpoint_conditions_terminating", terminating.as_str()),
            ("endpointslice_address_target_kind", text(&found["targetRef"]["kind"])),
            ("endpointslice_address_target_name", text(&found["targetRef"]["name"])),
            ("endpointslice_endpoint_hostname", text(&found["hostname"])),
            ("endpointslice_endpoint_node_name", endpoint.node),
            ("endpointslice_endpoint_zone", text(&found["zone"])),
        ],
    );
    labels
}
