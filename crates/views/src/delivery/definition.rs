//! Triggers and subscriptions as their documents have them (`docs/formats/triggers.md`), and the names of the jobs that they are.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sql::{NewTrigger, NewTriggerAction};

/// The kinds of the documents.
pub(super) const TRIGGER: &str = "trigger";
pub(super) const SUBSCRIPTION: &str = "subscription";

/// The name of a trigger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub(crate) struct TriggerName {
    pub(crate) database: String,
    pub(crate) name: String,
}

/// The name of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(String, String, String)", into = "(String, String, String)")]
pub(crate) struct SubscriptionName {
    pub(crate) database: String,
    pub(crate) policy: String,
    pub(crate) name: String,
}

impl From<(String, String)> for TriggerName {
    fn from((database, name): (String, String)) -> Self {
        Self { database, name }
    }
}

impl From<TriggerName> for (String, String) {
    fn from(name: TriggerName) -> Self {
        (name.database, name.name)
    }
}

impl From<(String, String, String)> for SubscriptionName {
    fn from((database, policy, name): (String, String, String)) -> Self {
        Self { database, policy, name }
    }
}

impl From<SubscriptionName> for (String, String, String) {
    fn from(name: SubscriptionName) -> Self {
        (name.database, name.policy, name.name)
    }
}

/// How rows go together in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batching {
    /// Rows of a request at most.
    pub(crate) batch_rows: u64,
    /// Bytes of a request at most, but for a single larger row.
    pub(crate) batch_bytes: u64,
    /// How long a row waits for others.
    pub(crate) batch_age_ms: u64,
    /// How long a receiver may take to answer.
    pub(crate) timeout_ms: u64,
    /// After how long a request that is not taken is dropped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) retry_for_ms: Option<u64>,
}

/// What a trigger does with rows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TriggerAction {
    /// Writes them to a table.
    Insert {
        table: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        columns: Option<String>,
    },
    /// Posts them.
    Webhook {
        url: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        secret: Option<String>,
    },
}

/// Where a trigger or a subscription comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The account that made it.
    pub(crate) owner: String,
    /// When that account was made: a later one of its name is another. Absent in older documents, and where no client signs in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) owner_created_ns: Option<i64>,
    pub(crate) created_ns: i64,
    /// The number of its database: a later one of its name is another. Absent in older documents.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) database_number: Option<u32>,
}

/// A trigger.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TriggerDefinition {
    pub(crate) table: String,
    pub(crate) condition: String,
    pub(crate) action: TriggerAction,
    pub(crate) batching: Batching,
    #[serde(flatten)]
    pub(crate) origin: Origin,
    pub(crate) is_enabled: bool,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubscriptionDefinition {
    pub(crate) sends_to_all: bool,
    pub(crate) destinations: Vec<String>,
    #[serde(flatten)]
    pub(crate) origin: Origin,
}

impl SubscriptionDefinition {
    /// How many jobs it is.
    pub(super) const fn jobs(&self) -> usize {
        if self.sends_to_all { self.destinations.len() } else { 1 }
    }
}

/// Names a job: a trigger, or some destinations of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobKey {
    Trigger(TriggerName),
    /// With the number of its destination; 0 where they take turns.
    Subscription(SubscriptionName, usize),
}

impl JobKey {
    pub(crate) fn database(&self) -> &str {
        match self {
            Self::Trigger(name) => &name.database,
            Self::Subscription(name, _) => &name.database,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Trigger(name) => &name.name,
            Self::Subscription(name, _) => &name.name,
        }
    }

    /// The name of its cursor.
    pub(crate) fn cursor(&self) -> String {
        match self {
            Self::Trigger(name) => format!("trigger/{}", name_text(name)),
            Self::Subscription(name, number) => format!("subscription/{}/{number}", name_text(name)),
        }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Trigger(_) => "trigger",
            Self::Subscription(..) => "subscription",
        };
        write!(out, "the {kind} {} of the database {}", self.name(), self.database())
    }
}

/// The kind and the name of the document to which a cursor belongs; `None` for cursors of others.
pub(super) fn document_of_cursor(cursor: &str) -> Option<(&'static str, &str)> {
    if let Some(name) = cursor.strip_prefix("trigger/") {
        return Some((TRIGGER, name));
    }
    let (name, _) = cursor.strip_prefix("subscription/")?.rsplit_once('/')?;
    Some((SUBSCRIPTION, name))
}

/// The name of a document.
pub(crate) fn name_text<N: Serialize>(name: &N) -> String {
    serde_json::to_string(name).unwrap_or_default()
}

/// Reads the name and the bytes of a document.
pub(super) fn decode<N: DeserializeOwned, D: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<(N, D), String> {
    let name = serde_json::from_str(name).map_err(|error| error.to_string())?;
    Ok((name, serde_json::from_slice(bytes).map_err(|error| error.to_string())?))
}

impl Batching {
    /// The options of a statement, within bounds; an error says which one is not.
    pub(super) fn new(trigger: &NewTrigger) -> Result<Self, String> {
        let is_webhook = matches!(trigger.action, NewTriggerAction::Webhook { .. });
        let options = &trigger.options;
        let within = |name: &str, value: Option<u64>, default: u64, bounds: std::ops::RangeInclusive<u64>| match value {
            None => Ok(default),
            Some(value) if bounds.contains(&value) => Ok(value),
            Some(value) => {
                Err(format!("{name} is {value}: it is a number from {} to {}", bounds.start(), bounds.end()))
            }
        };
        Ok(Self {
            batch_rows: within("batch_rows", options.batch_rows, 1_000, 1..=100_000)?,
            batch_bytes: within("batch_bytes", options.batch_bytes, 1 << 20, 1..=16 << 20)?,
            batch_age_ms: within(
                "batch_age in ms",
                options.batch_age_ms,
                if is_webhook { 1_000 } else { 100 },
                0..=3_600_000,
            )?,
            timeout_ms: within("timeout in ms", options.timeout_ms, 10_000, 1..=300_000)?,
            retry_for_ms: options.retry_for_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_name_their_documents() {
        let name = SubscriptionName { database: "d/0".into(), policy: "p".into(), name: "n".into() };
        let cursor = JobKey::Subscription(name.clone(), 12).cursor();
        assert_eq!(document_of_cursor(&cursor), Some((SUBSCRIPTION, name_text(&name).as_str())));
        let name = TriggerName { database: "d".into(), name: "t/1".into() };
        let cursor = JobKey::Trigger(name.clone()).cursor();
        assert_eq!(document_of_cursor(&cursor), Some((TRIGGER, name_text(&name).as_str())));
        assert_eq!(document_of_cursor("views:d"), None);
    }

    #[test]
    fn documents_come_back() {
        let name = TriggerName { database: "d \"x".to_owned(), name: "t".to_owned() };
        assert_eq!(name_text(&name), r#"["d \"x","t"]"#);
        let batching =
            Batching { batch_rows: 1, batch_bytes: 2, batch_age_ms: 3, timeout_ms: 4, retry_for_ms: Some(5) };
        let action = TriggerAction::Webhook { url: "http://a".to_owned(), secret: Some("s".to_owned()) };
        let trigger = TriggerDefinition {
            table: "m".to_owned(),
            condition: "a > 1".to_owned(),
            action,
            batching,
            origin: Origin { owner: String::new(), owner_created_ns: None, created_ns: 7, database_number: None },
            is_enabled: true,
        };
        let bytes = serde_json::to_vec(&trigger).unwrap();
        let expected = r#"{"table":"m","condition":"a > 1","action":{"webhook":{"url":"http://a","secret":"s"}},"batching":{"batch_rows":1,"batch_bytes":2,"batch_age_ms":3,"timeout_ms":4,"retry_for_ms":5},"owner":"","created_ns":7,"is_enabled":true}"#;
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        let read: (TriggerName, TriggerDefinition) = decode(&name_text(&name), &bytes).unwrap();
        assert!(read == (name, trigger));
        assert!(decode::<TriggerName, TriggerDefinition>("[\"a\"]", &bytes).is_err());
        let origin =
            Origin { owner: "o".to_owned(), owner_created_ns: Some(-5), created_ns: 7, database_number: Some(9) };
        let subscription = SubscriptionDefinition { sends_to_all: true, destinations: Vec::new(), origin };
        let bytes = serde_json::to_vec(&subscription).unwrap();
        let expected = r#"{"sends_to_all":true,"destinations":[],"owner":"o","owner_created_ns":-5,"created_ns":7,"database_number":9}"#;
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        let read: SubscriptionDefinition = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read, subscription);
    }
}
