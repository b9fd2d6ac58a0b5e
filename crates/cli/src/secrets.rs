//! Secret settings are never shown. Their definitions have `hide_env_values`, which also keeps them out of `--help`.

use clap::Args;

use crate::settings::ServeFlags;

/// What stands for a secret.
const HIDDEN: &str = "<secret>";

/// Whether a setting is a secret, by its name in files.
fn is_secret(name: &str) -> bool {
    let command = ServeFlags::augment_args(clap::Command::new("serve"));
    command.get_arguments().any(|argument| argument.get_id() == name && argument.is_hide_env_values_set())
}

/// A setting's value as it may be shown: secrets not at all, and addresses without user and password.
pub(crate) fn printable(name: &str, value: &str) -> String {
    if is_secret(name) {
        return HIDDEN.to_owned();
    }
    let items: Vec<String> = value.split(',').map(without_password).collect();
    items.join(",")
}

fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => format!("{scheme}://{HIDDEN}{}", rest.get(user.len()..).unwrap_or_default()),
        None => address.to_owned(),
    }
}

/// Explains the error in a settings file without quoting the line, which may hold a secret.
pub(crate) fn explain(error: &toml::de::Error, text: &str) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = text.get(..at).unwrap_or_default();
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default();
    let name = line.split('=').next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    let what = if is_secret(name) { "its value cannot be read" } else { error.message() };
    let place = if error.span().is_some() { format!("line {}: ", number + 1) } else { String::new() };
    let name = if is_secret(name) { format!("{name}: ") } else { String::new() };
    format!("{place}{name}{what}")
}
