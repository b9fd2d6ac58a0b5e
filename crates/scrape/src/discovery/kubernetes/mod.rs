//! `kubernetes_sd_configs`: objects are listed, then watched; each change gives all targets again.
//!
//! * `access`: where the API is and how to sign in · `watch`: lists and streams of changes · `objects`: labels of any object
//! * `targets`: targets of nodes, services, pods and ingresses · `endpoints`: those of endpoints and their slices

mod access;
mod endpoints;
mod objects;
mod targets;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;
use platform::network::NetworkPlatform;
use tokio::sync::Notify;

use super::{Sink, TargetGroup};
use crate::config::{KubernetesDiscovery, KubernetesRole};
use access::Access;
use objects::Objects;
use watch::{Resource, Watcher};

/// Changes that come within this time are given at once.
const SETTLE_MS: u64 = 500;

pub(super) async fn run(config: &KubernetesDiscovery, network: &NetworkPlatform, sink: &Sink) {
    loop {
        match Access::read(config, network) {
            Ok(access) => follow(config, network, &access, sink).await,
            Err(reason) => sink(Err(reason)),
        }
        // What cannot be read now may be later.
        network.tasks.sleep_ms(30_000).await;
    }
}

/// Kinds of objects that targets of a role are made of.
fn resources(config: &KubernetesDiscovery) -> Vec<Resource> {
    let mut resources = match config.role {
        KubernetesRole::Node => vec![Resource::Node],
        KubernetesRole::Service => vec![Resource::Service],
        KubernetesRole::Pod => vec![Resource::Pod],
        KubernetesRole::Endpoints => vec![Resource::Endpoints, Resource::Service, Resource::Pod],
        KubernetesRole::EndpointSlice => vec![Resource::EndpointSlice, Resource::Service, Resource::Pod],
        KubernetesRole::Ingress => vec![Resource::Ingress],
    };
    if config.attach_node && config.role != KubernetesRole::Node {
        resources.push(Resource::Node);
    }
    if config.attach_namespace && config.role != KubernetesRole::Node {
        resources.push(Resource::Namespace);
    }
    resources
}

async fn follow(config: &KubernetesDiscovery, network: &NetworkPlatform, access: &Access, sink: &Sink) {
    let objects: Arc<Mutex<Objects>> = Arc::default();
    let changed = Notify::new();
    let mut watchers = Vec::new();
    for resource in resources(config) {
        let namespaces = if resource.is_namespaced() { access.namespaces.clone() } else { Vec::new() };
        let all = if namespaces.is_empty() { vec![None] } else { namespaces.into_iter().map(Some).collect() };
        for namespace in all {
            let number = watchers.len();
            watchers.push(Watcher {
                resource,
                namespace,
                number,
                config,
                access,
                objects: &objects,
                changed: &changed,
                sink,
            });
        }
    }
    let count = watchers.len();
    let watching = futures_util::future::join_all(watchers.iter().map(|watcher| watcher.run(network)));
    let giving = async {
        let mut given: Option<Vec<TargetGroup>> = None;
        loop {
            changed.notified().await;
            network.tasks.sleep_ms(SETTLE_MS).await;
            let groups = {
                let objects = objects.lock();
                (objects.listed() == count).then(|| groups(config, &objects))
            };
            if groups.is_some() && groups != given {
                groups.iter().for_each(|groups| sink(Ok(groups.clone())));
                given = groups;
            }
        }
    };
    tokio::select! {
        _ = watching => {}
        () = giving => {}
    }
}

fn groups(config: &KubernetesDiscovery, objects: &Objects) -> Vec<TargetGroup> {
    let source =
        targets::Source { objects, attach_node: config.attach_node, attach_namespace: config.attach_namespace };
    match config.role {
        KubernetesRole::Node => objects.all(Resource::Node).map(targets::node).collect(),
        KubernetesRole::Service => objects.all(Resource::Service).map(|object| source.service(object)).collect(),
        KubernetesRole::Pod => objects.all(Resource::Pod).filter_map(|object| source.pod(object)).collect(),
        KubernetesRole::Endpoints => objects.all(Resource::Endpoints).map(|object| source.endpoints(object)).collect(),
        KubernetesRole::EndpointSlice => {
            objects.all(Resource::EndpointSlice).map(|object| source.endpoint_slice(object)).collect()
        }
        KubernetesRole::Ingress => objects.all(Resource::Ingress).map(|object| source.ingress(object)).collect(),
    }
}
