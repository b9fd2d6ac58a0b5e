//! Lists of targets: `[{"targets": ["host:port"], "labels": {…}}]`, as JSON or YAML.

use std::path::Path;

use serde_json::Value;

use super::TargetGroup;
use crate::config::parse_tree;
use crate::config::reader::Reading;
use relabel::Labels;

/// Reads JSON.
pub(super) fn from_json(body: &[u8], source: &str) -> Result<Vec<TargetGroup>, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let Value::Array(groups) = value else { return Err("expected a list of groups of targets".to_owned()) };
    groups.iter().enumerate().map(|(number, group)| group_from_json(group, format!("{source}:{number}"))).collect()
}

fn group_from_json(group: &Value, source: String) -> Result<TargetGroup, String> {
    let Value::Object(fields) = group else { return Err("expected a group of targets: a JSON object".to_owned()) };
    let mut made = TargetGroup { source, ..TargetGroup::default() };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("targets", Value::Array(targets)) => {
                for target in targets {
                    let address = target.as_str().ok_or("targets must be texts")?;
                    made.targets.push(Labels::from([("__address__".to_owned(), address.to_owned())]));
                }
            }
            ("labels", Value::Object(labels)) => {
                for (name, value) in labels {
                    let value = value.as_str().ok_or_else(|| format!("the label {name:?} must be a text"))?;
                    made.labels.insert(name.clone(), value.to_owned());
                }
            }
            ("targets" | "labels", Value::Null) => {}
            _ => return Err(format!("a group of targets has targets and labels, not {name:?}")),
        }
    }
    Ok(made)
}

/// Reads YAML.
pub(super) fn from_yaml(text: &str, path: &Path) -> Result<Vec<TargetGroup>, String> {
    let node = parse_tree(path, text).map_err(|problem| problem.to_string())?;
    let reading = Reading::new(path);
    let mut groups = Vec::new();
    for (number, item) in reading.items(&node).iter().enumerate() {
        let Some(fields) = reading.fields(item) else { continue };
        let targets = fields.texts("targets").into_iter();
        groups.push(TargetGroup {
            source: format!("{}:{number}", path.display()),
            targets: targets.map(|address| Labels::from([("__address__".to_owned(), address)])).collect(),
            labels: fields.text_pairs("labels").into_iter().collect(),
        });
        fields.finish();
    }
    let (problems, _) = reading.finish();
    match problems.first() {
        Some(problem) => Err(problem.to_string()),
        None => Ok(groups),
    }
}
