//! Settings of the session: `SET`, `SHOW`.

use sqlparser::ast::{ContextModifier, Set};

use super::Answer;
use crate::context::Setting;
use crate::error::{SqlError, refused};
use crate::relation::Relation;
use crate::run::Run;
use crate::settings::{SETTINGS, check_changeable, checked, setting_of};

impl Run<'_> {
    /// `SHOW name`
    pub(super) fn variable(&mut self, name: &str) -> Result<Answer, SqlError> {
        if name == "tables" {
            let rows = self.relations()?.into_iter().map(|relation| vec![relation.name]);
            return Ok(Answer::Rows(Relation::of_texts(&["table_name"], rows)));
        }
        if name == "all" {
            let row = |(name, _, description): &(&str, &str, &str)| {
                let value = setting_of(name, &self.environment).unwrap_or_default();
                vec![(*name).to_owned(), value, (*description).to_owned()]
            };
            return Ok(Answer::Rows(Relation::of_texts(&["name", "setting", "description"], SETTINGS.iter().map(row))));
        }
        match setting_of(name, &self.environment) {
            Some(value) => Ok(Answer::Rows(Relation::of_texts(&[name], [vec![value]]))),
            None => refused("42704", format!("unrecognized configuration parameter \"{name}\"")),
        }
    }
}

/// `SET name = value`. Settings that mean nothing here are taken as they are: clients send many.
pub(super) fn setting(set: &Set) -> Result<Answer, SqlError> {
    let (name, value, scope) = match set {
        Set::SetTimeZone { value, local } => {
            let scope = local.then_some(ContextModifier::Local);
            ("timezone".to_owned(), value.to_string(), scope)
        }
        Set::SingleAssignment { variable, values, scope, .. } => {
            let values: Vec<String> = values.iter().map(|value| unquoted(&value.to_string())).collect();
            (variable.to_string().to_lowercase().replace('"', ""), values.join(", "), *scope)
        }
        Set::SetNames { charset_name, .. } => ("client_encoding".to_owned(), charset_name.value.clone(), None),
        _ => return Ok(Answer::Done("SET".to_owned())),
    };
    let value = unquoted(&value);
    let is_default =
        value.eq_ignore_ascii_case("default") || (name == "timezone" && value.eq_ignore_ascii_case("local"));
    check_changeable(&name)?;
    let value = if is_default { None } else { Some(checked(&name, value)?) };
    Ok(Answer::Set(Setting { name, value, is_local: scope == Some(ContextModifier::Local) }))
}

fn unquoted(value: &str) -> String {
    value.trim_matches(['\'', '"']).to_owned()
}
