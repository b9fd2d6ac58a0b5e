//! Objects of each kind, and a server that lists and streams them.

use std::sync::Mutex;

use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use serde_json::{Value, json};

use super::*;
use crate::config::HttpConfig;
use relabel::Labels;

fn config(role: KubernetesRole) -> KubernetesDiscovery {
    KubernetesDiscovery {
        api_server: Some("http://api".to_owned()),
        role,
        kubeconfig_file: None,
        own_namespace: false,
        namespaces: Vec::new(),
        selectors: Vec::new(),
        attach_node: true,
        attach_namespace: true,
        http: HttpConfig::default(),
    }
}

fn pod() -> Value {
    json!({
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "u1", "labels": {"app.kubernetes.io/name": "web"},
            "annotations": {"note": "x"}, "managedFields": [1],
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": "main", "image": "web:1", "ports": [{"name": "http", "containerPort": 8080}, {"containerPort": 9100, "protocol": "TCP"}]},
                {"name": "side", "image": "side:1"},
            ],
            "initContainers": [{"name": "init", "image": "init:1"}],
        },
        "status": {
            "podIP": "10.0.0.1", "hostIP": "192.168.0.1", "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "main", "containerID": "docker://1"}],
        },
    })
}

fn objects() -> Objects {
    let mut objects = Objects::default();
    objects.put(Resource::Pod, pod());
    objects.put(
        Resource::Node,
        json!({
            "metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {"providerID": "cloud://n1"},
            "status": {
                "addresses": [{"type": "Hostname", "address": "n1.local"}, {"type": "InternalIP", "address": "192.168.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            },
        }),
    );
    objects.put(Resource::Namespace, json!({"metadata": {"name": "shop", "labels": {"team": "t"}}}));
    objects.put(
        Resource::Service,
        json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"tier": "front"}},
            "spec": {"type": "ClusterIP", "clusterIP": "10.1.0.1", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
        }),
    );
    let target = json!({"kind": "Pod", "name": "web-1", "namespace": "shop"});
    objects.put(
        Resource::Endpoints,
        json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "subsets": [{
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "addresses": [{"ip": "10.0.0.1", "nodeName": "n1", "targetRef": target}],
                "notReadyAddresses": [{"ip": "10.0.0.9"}],
            }],
        }),
    );
    objects.put(
        Resource::EndpointSlice,
        json!({
            "metadata": {"name": "web-abc", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}],
            "endpoints": [{
                "addresses": ["10.0.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "n1", "zone": "a", "targetRef": target,
            }],
        }),
    );
    objects.put(
        Resource::Ingress,
        json!({
            "metadata": {"name": "front", "namespace": "shop"},
            "spec": {
                "ingressClassName": "nginx", "tls": [{"hosts": ["*.example.com"]}],
                "rules": [{"host": "a.example.com", "http": {"paths": [{"path": "/x"}, {"path": ""}]}}, {}],
            },
        }),
    );
    objects
}

fn targets_of(role: KubernetesRole) -> Vec<Labels> {
    groups(&config(role), &objects()).iter().flat_map(|group| group.targets().collect::<Vec<_>>()).collect()
}

#[track_caller]
fn check(target: &Labels, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let name = if name.starts_with("__") || *name == "instance" {
            (*name).to_owned()
        } else {
            format!("__meta_kubernetes_{name}")
        };
        assert_eq!(target.get(&name).map(String::as_str), Some(*value), "{name} of {target:#?}");
    }
}

#[test]
fn nodes_services_and_ingresses() {
    let nodes = targets_of(KubernetesRole::Node);
    check(
        &nodes[0],
        &[
            ("__address__", "192.168.0.1:10250"),
            ("instance", "n1"),
            ("node_name", "n1"),
            ("node_provider_id", "cloud://n1"),
            ("node_label_zone", "a"),
            ("node_labelpresent_zone", "true"),
            ("node_address_Hostname", "n1.local"),
        ],
    );
    let services = targets_of(KubernetesRole::Service);
    check(
        &services[0],
        &[
            ("__address__", "web.shop.svc:80"),
            ("namespace", "shop"),
            ("namespace_label_team", "t"),
            ("service_name", "web"),
            ("service_label_tier", "front"),
            ("service_cluster_ip", "10.1.0.1"),
            ("service_port_name", "http"),
            ("service_port_number", "80"),
            ("service_type", "ClusterIP"),
        ],
    );
    let ingresses = targets_of(KubernetesRole::Ingress);
    assert_eq!(ingresses.len(), 3);
    check(&ingresses[0], &[("__address__", "a.example.com"), ("ingress_scheme", "https"), ("ingress_path", "/x")]);
    check(&ingresses[1], &[("ingress_path", "/"), ("ingress_class_name", "nginx"), ("ingress_name", "front")]);
    check(&ingresses[2], &[("__address__", "*"), ("ingress_scheme", "http"), ("ingress_host", "*")]);
}

#[test]
fn pods_have_a_target_for_each_port() {
    let pods = targets_of(KubernetesRole::Pod);
    let addresses: Vec<&str> = pods.iter().map(|pod| pod["__address__"].as_str()).collect();
    assert_eq!(addresses, ["10.0.0.1:8080", "10.0.0.1:9100", "10.0.0.1", "10.0.0.1"]);
    check(
        &pods[0],
        &[
            ("namespace", "shop"),
            ("pod_name", "web-1"),
            ("pod_ip", "10.0.0.1"),
            ("pod_label_app_kubernetes_io_name", "web"),
            ("pod_annotationpresent_note", "true"),
            ("pod_container_name", "main"),
            ("pod_container_id", "docker://1"),
            ("pod_container_image", "web:1"),
            ("pod_container_init", "false"),
            ("pod_container_port_name", "http"),
            ("pod_container_port_number", "8080"),
            ("pod_container_port_protocol", "TCP"),
            ("pod_ready", "true"),
            ("pod_phase", "Running"),
            ("pod_node_name", "n1"),
            ("pod_host_ip", "192.168.0.1"),
            ("pod_uid", "u1"),
            ("pod_controller_kind", "ReplicaSet"),
            ("pod_controller_name", "web"),
            ("node_label_zone", "a"),
        ],
    );
    check(&pods[3], &[("pod_container_init", "true"), ("pod_container_name", "init")]);
}

#[test]
fn endpoints_have_the_labels_of_services_and_pods() {
    let endpoints = targets_of(KubernetesRole::Endpoints);
    let addresses: Vec<&str> = endpoints.iter().map(|target| target["__address__"].as_str()).collect();
    assert_eq!(addresses, ["10.0.0.1:8080", "10.0.0.9:8080", "10.0.0.1:9100"]);
    check(
        &endpoints[0],
        &[
            ("endpoints_name", "web"),
            ("endpoint_port_name", "http"),
            ("endpoint_ready", "true"),
            ("endpoint_address_target_kind", "Pod"),
            ("endpoint_address_target_name", "web-1"),
            ("endpoint_node_name", "n1"),
            ("service_label_tier", "front"),
            ("pod_container_name", "main"),
            ("node_label_zone", "a"),
        ],
    );
    check(&endpoints[1], &[("endpoint_ready", "false")]);
    let slices = targets_of(KubernetesRole::EndpointSlice);
    assert_eq!(slices.len(), 2);
    check(
        &slices[0],
        &[
            ("__address__", "10.0.0.1:8080"),
            ("endpointslice_name", "web-abc"),
            ("endpointslice_address_type", "IPv4"),
            ("endpointslice_port", "8080"),
            ("endpointslice_port_app_protocol", "http"),
            ("endpointslice_endpoint_conditions_terminating", "false"),
            ("endpointslice_endpoint_zone", "a"),
            ("service_name", "web"),
            ("pod_name", "web-1"),
        ],
    );
    check(&slices[1], &[("__address__", "10.0.0.1:9100"), ("pod_container_name", "main")]);
}

#[test]
fn changes_follow_the_list() {
    let simulation = platform::sim::Simulation::new(1);
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = requests.clone();
    let network = SimNetwork::new(&simulation, move |request| {
        log.lock().unwrap().push(request.url.clone());
        let json = |value: &Value| SimResponse::ok("application/json", value.to_string());
        let is_first = log.lock().unwrap().iter().filter(|url| url.contains("watch=1")).count() == 1;
        let (delay_ms, response) = match request.url.as_str() {
            url if url.contains("watch=1") && is_first => {
                let mut second = pod();
                second["metadata"]["name"] = "web-2".into();
                second["status"]["podIP"] = "10.0.0.2".into();
                second["metadata"]["resourceVersion"] = "8".into();
                let lines = [json!({"type": "ADDED", "object": second}), json!({"type": "DELETED", "object": pod()})];
                (1_000, SimResponse::ok("application/json", lines.map(|line| line.to_string() + "\n").concat()))
            }
            url if url.contains("watch=1") => (u64::MAX, SimResponse::default()),
            url if url.contains("continue=more") => {
                (1, json(&json!({"items": [], "metadata": {"resourceVersion": "7"}})))
            }
            _ => (1, json(&json!({"items": [pod()], "metadata": {"continue": "more"}}))),
        };
        SimAnswer { delay_ms, result: Ok(response) }
    });
    let platform = network.platform();
    let found: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let (sink_found, own) = (found.clone(), platform.clone());
    platform.tasks.spawn(Box::pin(async move {
        let mut config = config(KubernetesRole::Pod);
        (config.attach_node, config.attach_namespace) = (false, false);
        config.namespaces = vec!["shop".to_owned()];
        let sink = move |groups: super::super::Found| {
            let sources = groups.unwrap().into_iter().map(|group| group.source).collect();
            sink_found.lock().unwrap().push(sources);
        };
        run(&config, &own, &sink).await;
    }));
    network.run_ms(5_000);
    assert_eq!(*found.lock().unwrap(), [["pod/shop/web-1"], ["pod/shop/web-2"]]);
    let requests = requests.lock().unwrap();
    assert!(requests[0].starts_with("http://api/api/v1/namespaces/shop/pods?limit=500"), "{requests:?}");
    assert!(requests[3].contains("resourceVersion=8"), "{requests:?}");
}
