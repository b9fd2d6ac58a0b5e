//! Lists of objects, and the stream of what changes in them.

use parking_lot::Mutex;
use platform::network::{HttpRequest, HttpResponse, NetworkPlatform};
use serde_json::Value;
use tokio::sync::Notify;

use super::access::Access;
use super::objects::{Objects, text};
use crate::config::{KubernetesDiscovery, KubernetesRole};
use crate::discovery::Sink;
use crate::discovery::http::fetch_json;

/// Objects of one page of a list.
const PAGE_OBJECTS: usize = 500;

/// How long the server is asked to keep a stream open.
const WATCH_S: u64 = 300;

/// A stream that is silent for longer is broken.
const SILENCE_MS: u64 = (WATCH_S + 30) * 1_000;

/// Bytes of one change.
const LINE_BYTES_MAX: usize = 16 << 20;

/// The pause after a failure.
const PAUSE_MS: u64 = 5_000;

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    Node,
    Namespace,
    Service,
    Pod,
    Endpoints,
    EndpointSlice,
    Ingress,
}

impl Resource {
    /// The API's path and the name in it.
    const fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::Node => ("/api/v1", "nodes"),
            Self::Namespace => ("/api/v1", "namespaces"),
            Self::Service => ("/api/v1", "services"),
            Self::Pod => ("/api/v1", "pods"),
            Self::Endpoints => ("/api/v1", "endpoints"),
            Self::EndpointSlice => ("/apis/discovery.k8s.io/v1", "endpointslices"),
            Self::Ingress => ("/apis/networking.k8s.io/v1", "ingresses"),
        }
    }

    pub(super) const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::Namespace)
    }

    const fn role(self) -> Option<KubernetesRole> {
        match self {
            Self::Node => Some(KubernetesRole::Node),
            Self::Namespace => None,
            Self::Service => Some(KubernetesRole::Service),
            Self::Pod => Some(KubernetesRole::Pod),
            Self::Endpoints => Some(KubernetesRole::Endpoints),
            Self::EndpointSlice => Some(KubernetesRole::EndpointSlice),
            Self::Ingress => Some(KubernetesRole::Ingress),
        }
    }
}

/// Follows the objects of a kind, in one namespace or all.
pub(super) struct Watcher<'a> {
    pub(super) resource: Resource,
    pub(super) namespace: Option<String>,
    pub(super) number: usize,
    pub(super) config: &'a KubernetesDiscovery,
    pub(super) access: &'a Access,
    pub(super) objects: &'a Mutex<Objects>,
    pub(super) changed: &'a Notify,
    pub(super) sink: &'a Sink,
}

impl Watcher<'_> {
    /// Lists and watches, again and again.
    pub(super) async fn run(&self, network: &NetworkPlatform) {
        loop {
            let failed = match self.list(network).await {
                Ok(version) => self.watch(network, version).await,
                Err(reason) => Err(reason),
            };
            if let Err(reason) = failed {
                (self.sink)(Err(format!("{}: {reason}", self.resource.path().1)));
                network.tasks.sleep_ms(PAUSE_MS).await;
            }
        }
    }

    fn url(&self, parameters: &[(&str, String)]) -> String {
        let (path, name) = self.resource.path();
        let scope = self.namespace.as_ref().map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
        let mut query = form_urlencoded::Serializer::new(String::new());
        for selector in self.config.selectors.iter().filter(|selector| Some(selector.role) == self.resource.role()) {
            for (name, value) in [("labelSelector", &selector.label), ("fieldSelector", &selector.field)] {
                if !value.is_empty() {
                    query.append_pair(name, value);
                }
            }
        }
        query.extend_pairs(parameters);
        format!("{}{path}{scope}/{name}?{}", self.access.base_url, query.finish())
    }

    /// Lists all objects; the version of the list.
    async fn list(&self, network: &NetworkPlatform) -> Result<String, String> {
        let mut found = Vec::new();
        let mut next = String::new();
        loop {
            let mut parameters = vec![("limit", PAGE_OBJECTS.to_string())];
            if !next.is_empty() {
                parameters.push(("continue", next.clone()));
            }
            let request = HttpRequest::get(self.url(&parameters));
            let mut page = fetch_json(&self.access.client, network, request).await?;
            if let Value::Array(items) = page["items"].take() {
                found.extend(items);
            }
            text(&page["metadata"]["continue"]).clone_into(&mut next);
            if next.is_empty() {
                self.objects.lock().replace(self.number, self.resource, self.namespace.as_deref(), found);
                self.changed.notify_one();
                return Ok(text(&page["metadata"]["resourceVersion"]).to_owned());
            }
        }
    }

    /// Takes changes since a version, until the list is too old to go on from.
    async fn watch(&self, network: &NetworkPlatform, mut version: String) -> Result<(), String> {
        loop {
            let url = self.url(&[
                ("watch", "1".to_owned()),
                ("allowWatchBookmarks", "true".to_owned()),
                ("resourceVersion", version.clone()),
                ("timeoutSeconds", WATCH_S.to_string()),
            ]);
            let response = self.access.client.send(HttpRequest::get(url)).await.map_err(|error| error.to_string())?;
            match response.status {
                200 => {}
                // Gone: the version is too old.
                410 => return Ok(()),
                status => return Err(format!("watching: status {status}")),
            }
            if !self.take_changes(network, response, &mut version).await? {
                return Ok(());
            }
        }
    }

    /// Takes a stream's changes; returns whether it may be gone on from.
    async fn take_changes(
        &self,
        network: &NetworkPlatform,
        mut response: HttpResponse,
        version: &mut String,
    ) -> Result<bool, String> {
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let chunk = tokio::select! {
                chunk = response.body.chunk() => chunk.map_err(|error| error.to_string())?,
                () = network.tasks.sleep_ms(SILENCE_MS) => None,
            };
            let Some(chunk) = chunk else { return Ok(true) };
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                if !line.trim_ascii().is_empty() && !self.take_change(&line, version)? {
                    return Ok(false);
                }
            }
            if buffer.len() > LINE_BYTES_MAX {
                return Err("watching: a change is too large".to_owned());
            }
        }
    }

    fn take_change(&self, line: &[u8], version: &mut String) -> Result<bool, String> {
        let mut change: Value = serde_json::from_slice(line).map_err(|error| format!("watching: {error}"))?;
        let object = change["object"].take();
        let found = text(&object["metadata"]["resourceVersion"]);
        if !found.is_empty() {
            found.clone_into(version);
        }
        let mut objects = self.objects.lock();
        match text(&change["type"]) {
            "ADDED" | "MODIFIED" => objects.put(self.resource, object),
            "DELETED" => objects.remove(self.resource, &object),
            "ERROR" => return Ok(false),
            _ => return Ok(true),
        }
        drop(objects);
        self.changed.notify_one();
        Ok(true)
    }
}
