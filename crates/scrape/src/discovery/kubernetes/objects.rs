//! The objects that are known, and the labels that any of them gives.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::watch::Resource;
use crate::discovery::sanitized;
use relabel::Labels;

/// Objects by kind, namespace and name.
#[derive(Default)]
pub(super) struct Objects {
    all: BTreeMap<(Resource, String, String), Value>,
    /// Numbers of the watchers that have listed theirs.
    listed: BTreeSet<usize>,
}

impl Objects {
    pub(super) fn all(&self, resource: Resource) -> impl Iterator<Item = &Value> {
        self.all.iter().filter(move |((kind, _, _), _)| *kind == resource).map(|(_, object)| object)
    }

    pub(super) fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<&Value> {
        self.all.get(&(resource, namespace.to_owned(), name.to_owned()))
    }

    /// How many watchers have listed their objects.
    pub(super) fn listed(&self) -> usize {
        self.listed.len()
    }

    /// Replaces what a watcher knew.
    pub(super) fn replace(&mut self, watcher: usize, resource: Resource, namespace: Option<&str>, objects: Vec<Value>) {
        self.all.retain(|(kind, own, _), _| *kind != resource || namespace.is_some_and(|namespace| namespace != own));
        objects.into_iter().for_each(|object| self.put(resource, object));
        self.listed.insert(watcher);
    }

    pub(super) fn put(&mut self, resource: Resource, mut object: Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            // The largest part of many objects, which no label is made of.
            metadata.remove("managedFields");
        }
        self.all.insert(key(resource, &object), object);
    }

    pub(super) fn remove(&mut self, resource: Resource, object: &Value) {
        self.all.remove(&key(resource, object));
    }
}

fn key(resource: Resource, object: &Value) -> (Resource, String, String) {
    (resource, namespace(object).to_owned(), name(object).to_owned())
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(super) fn namespace(object: &Value) -> &str {
    text(&object["metadata"]["namespace"])
}

/// Sets labels, but for empty ones.
pub(super) fn set<'a>(labels: &mut Labels, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, value) in pairs {
        if !value.is_empty() {
            labels.insert(format!("__meta_kubernetes_{name}"), value.to_owned());
        }
    }
}

/// Adds name, labels and annotations of an object.
pub(super) fn add_metadata(labels: &mut Labels, role: &str, object: &Value) {
    set(labels, [(format!("{role}_name").as_str(), name(object))]);
    let metadata = &object["metadata"];
    for (kind, pairs) in [("label", &metadata["labels"]), ("annotation", &metadata["annotations"])] {
        for (name, value) in pairs.as_object().into_iter().flatten() {
            let name = sanitized(name);
            labels.insert(format!("__meta_kubernetes_{role}_{kind}_{name}"), text(value).to_owned());
            labels.insert(format!("__meta_kubernetes_{role}_{kind}present_{name}"), "true".to_owned());
        }
    }
}
