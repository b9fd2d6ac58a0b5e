//! `thalweg db`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::account::QuotaFlags;
use super::show::table;
use crate::http::ServerFlags;
use client::http::HttpClient;

const EXAMPLES: &str = "Examples:
  thalweg db list
  thalweg db create metrics --retention 1y --fold 30d:5m --fold 90d:1h
  thalweg db create dns --interval 5m --retention 1y --overwrite refuse
  thalweg db series dns
  thalweg db alter metrics --retention forever
  thalweg db alter metrics --no-folds
  thalweg db limit metrics --samples-per-s 100000 --new-series-per-hour 50000
  thalweg db drop metrics --yes

--fold AGE:WIDTH replaces samples older than AGE by a summary for each WIDTH; each width is shorter than its age, and a multiple
of the one before. Counts, sums, extremes, means, first and last values stay those of all samples.
--interval makes a regular database: all series have their values at its multiples (docs/guide/epochs.md).
A shorter retention takes effect at once; what it took does not come back with a longer one.";

/// Databases and how long they keep their data
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DatabaseFlags {
    #[command(subcommand)]
    action: Action,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all databases
    List,
    /// Show one
    Show {
        /// Its name
        name: String,
    },
    /// Make one
    Create(PolicyFlags),
    /// Change how one keeps its data; what is not named stays as it is
    Alter(PolicyFlags),
    /// Set the limits of what all accounts together may ask of one; those that are not named do not hold any more
    Limit {
        /// Its name
        name: String,
        #[command(flatten)]
        quota: QuotaFlags,
    },
    /// Show which names of a regular one are valid when
    Series {
        /// Its name
        name: String,
        /// Only names that match this pattern as a whole
        #[arg(long, value_name = "REGEX")]
        pattern: Option<String>,
        /// So many entries at most
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        limit: usize,
    },
    /// Drop one with all its rows; their room is given back
    Drop {
        /// Its name
        name: String,
        /// Yes, all its rows
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct PolicyFlags {
    /// Its name
    name: String,
    /// How long rows are kept: 30d, 1y, forever
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// Replace samples older than an age by summaries of a width; may be repeated
    #[arg(long = "fold", value_name = "AGE:WIDTH")]
    folds: Vec<String>,
    /// Fold nothing any more
    #[arg(long, conflicts_with = "folds")]
    no_folds: bool,
    /// Refuse queries that would answer from what folding left; without it they come with a warning
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    strict_folds: Option<bool>,
    #[command(flatten)]
    regular: RegularFlags,
}

#[derive(Debug, Args)]
struct RegularFlags {
    /// Make it regular: time from one epoch to the next, such as 5m or 1d
    #[arg(long, value_name = "DURATION")]
    interval: Option<String>,
    /// Regular: write nothing before this time
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// Regular: type of all values, int or float
    #[arg(long, value_name = "TYPE")]
    value: Option<String>,
    /// Regular: what reads for a value that was not written: null or a number
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    missing: Option<String>,
    /// Regular: allow or refuse to write a value again
    #[arg(long, value_name = "allow|refuse")]
    overwrite: Option<String>,
}

impl RegularFlags {
    fn add_to(&self, body: &mut Map<String, Value>) {
        let Self { interval, start, value, missing, overwrite } = self;
        let all = [
            ("interval", interval),
            ("start", start),
            ("value", value),
            ("missing", missing),
            ("overwrite", overwrite),
        ];
        for (name, text) in all {
            body.extend(text.as_deref().map(|text| (name.to_owned(), Value::from(text))));
        }
    }
}

pub(crate) fn run(flags: &DatabaseFlags) -> Result<ExitCode, String> {
    let client = flags.server.client()?;
    if let Action::Limit { name, quota } = &flags.action {
        let body = Value::from(quota.body()).to_string();
        let limits = client.send_api("PUT", &limits_path(name), &[], body.as_bytes())?;
        say!("{}", limits["quota"]);
        return Ok(ExitCode::SUCCESS);
    }
    if let Action::Series { name, pattern, limit } = &flags.action {
        return series(
            &client,
            flags.json,
            &[("db", name.as_str()), ("match", pattern.as_deref().unwrap_or_default()), ("limit", &limit.to_string())],
        );
    }
    if let Action::Drop { name, yes } = &flags.action {
        return drop_database(&flags.server, name, *yes);
    }
    let shown = match &flags.action {
        Action::List => client.api("/api/v1/admin/databases", &[])?,
        Action::Show { name } => Value::from(vec![client.api(&path(name), &[])?]),
        Action::Create(policy) => {
            let known = client.api("/api/v1/admin/databases", &[])?;
            let is_known = known.as_array().into_iter().flatten().any(|known| known["name"] == policy.name.as_str());
            if is_known {
                return Err(format!("there is a database {:?} already; `thalweg db alter` changes it", policy.name));
            }
            Value::from(vec![put(&client, policy)?])
        }
        Action::Alter(policy) => {
            client.api(&path(&policy.name), &[]).map_err(|error| format!("{error}; `thalweg db create` makes one"))?;
            Value::from(vec![put(&client, policy)?])
        }
        Action::Drop { .. } | Action::Limit { .. } | Action::Series { .. } => Value::Null,
    };
    if flags.json {
        let one = shown.as_array().and_then(|all| all.first()).filter(|_| !matches!(flags.action, Action::List));
        say!("{}", one.unwrap_or(&shown));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(&["database", "retention", "folds"]);
    for known in shown.as_array().into_iter().flatten() {
        table.add_row(["name", "retention", "folds"].map(|name| known[name].as_str().unwrap_or_default().to_owned()));
    }
    say!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// Shows when names of a regular database are valid.
fn series(client: &HttpClient, is_json: bool, parameters: &[(&str, &str)]) -> Result<ExitCode, String> {
    let shown = client.api("/api/v1/epoch/series", parameters)?;
    if is_json {
        say!("{shown}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(&["name", "index", "valid from", "valid to"]);
    let time =
        |value: &Value| value.as_i64().map_or_else(String::new, |ms| super::show::time(ms.saturating_mul(1_000_000)));
    for entry in shown.as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        table.add_row([name, entry["index"].to_string(), time(&entry["from_ms"]), time(&entry["to_ms"])]);
    }
    say!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn drop_database(server: &ServerFlags, name: &str, yes: bool) -> Result<ExitCode, String> {
    if !yes {
        return Err(format!("all rows of {name:?} would be gone; say --yes if that is meant"));
    }
    // Room is given back before the answer comes.
    server.patient_client()?.send_api("DELETE", &path(name), &[], &[])?;
    say!("dropped {name}");
    Ok(ExitCode::SUCCESS)
}

fn put(client: &HttpClient, policy: &PolicyFlags) -> Result<Value, String> {
    let mut body = Map::new();
    if let Some(retention) = &policy.retention {
        body.insert("retention".to_owned(), Value::from(retention.as_str()));
    }
    if !policy.folds.is_empty() || policy.no_folds {
        body.insert("folds".to_owned(), Value::from(policy.folds.join(",")));
    }
    if let Some(is_strict) = policy.strict_folds {
        body.insert("strict_folds".to_owned(), Value::from(is_strict));
    }
    policy.regular.add_to(&mut body);
    client.send_api("PUT", &path(&policy.name), &[], Value::from(body).to_string().as_bytes())
}

fn path(name: &str) -> String {
    format!("/api/v1/admin/databases/{}", encoded(name))
}

fn limits_path(name: &str) -> String {
    format!("/api/v1/admin/limits/{}", encoded(name))
}

/// A name in a path.
fn encoded(name: &str) -> String {
    // A form's encoding but for the space, which a path writes otherwise.
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}
