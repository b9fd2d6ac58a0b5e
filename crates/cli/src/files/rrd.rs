//! `thalweg import rrd` and `thalweg export rrd`: RRDtool's files to a running server and back.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use client::http::HttpClient;

use crate::http::ServerFlags;

const IMPORT_EXAMPLES: &str = "Examples:
  thalweg import rrd /var/lib/collectd/rrd --pattern '{host}/{plugin}[-{plugin_instance}]/{measurement}[-{type_instance}].rrd'
  thalweg import rrd router.rrd --pattern '{host}.rrd'
  rrdtool dump old.rrd > old.xml; thalweg import rrd old.xml

A name in braces stands for characters other than /, with a star ({path*}) for any; what is in brackets may be missing. {measurement} is
the measurement, every other name a label. Without a pattern that matches, files are of the measurement rrd, with the label path.";

const EXPORT_EXAMPLES: &str = "Examples:
  thalweg export rrd --to ./rrd                              every file that was imported or made by rrdtool create --daemon
  thalweg export rrd web1/load/load.rrd --to ./rrd --format xml
  thalweg export rrd --series 'cpu_usage{host=\"a\"}' --step 10 --ds DS:usage:GAUGE:60:0:100 \\
    --rra RRA:AVERAGE:0.5:1:8640 --rra RRA:MAX:0.5:360:8760 --to usage.rrd";

/// RRDtool's files, or whole trees of them, `.rrd` or the XML of `rrdtool dump`
#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct RrdImportFlags {
    /// Files, and folders whose files ending with .rrd and .xml are imported
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// How paths become measurements and labels; may be repeated, the first that matches counts [default: those of the server]
    #[arg(long = "pattern", value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Replace files that are there already, with their data
    #[arg(long)]
    replace: bool,
    /// Database
    #[arg(long, default_value = "default")]
    db: String,
    #[command(flatten)]
    server: ServerFlags,
}

/// RRDtool's files, as `.rrd` or the XML of `rrdtool dump`
#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct RrdExportFlags {
    /// Paths of files in the database [default: all]
    paths: Vec<String>,
    /// Folder that files are written to; with --series a file
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
    /// Form: rrd or xml
    #[arg(long, default_value = "rrd", value_parser = ["rrd", "xml"])]
    format: String,
    /// A series that was not written as a file, in PromQL: its samples become readings
    #[arg(long, value_name = "SELECTOR", requires_all = ["ds", "rras"], conflicts_with = "paths")]
    series: Option<String>,
    /// Its data source, as `rrdtool create` has it
    #[arg(long, value_name = "DS:…")]
    ds: Option<String>,
    /// An archive, as `rrdtool create` has it; may be repeated
    #[arg(long = "rra", value_name = "RRA:…")]
    rras: Vec<String>,
    /// Seconds of a primary data point of it
    #[arg(long, default_value_t = 300)]
    step: u64,
    /// Database
    #[arg(long, default_value = "default")]
    db: String,
    #[command(flatten)]
    server: ServerFlags,
}

/// A file on its way to the server.
struct RrdFile {
    file: PathBuf,
    /// Its path in the database.
    path: String,
}

/// The files of a folder, sorted.
fn walk(folder: &Path, prefix: &str, found: &mut Vec<RrdFile>) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", folder.display());
    let mut entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            eprintln!("{}: left out: its name is not UTF-8", entry.path().display());
            continue;
        };
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if entry.path().is_dir() {
            walk(&entry.path(), &path, found)?;
        } else if let Some(path) = rrd_path(&path) {
            found.push(RrdFile { file: entry.path(), path });
        }
    }
    Ok(())
}

/// The path in the database of a file that ends with `.rrd` or `.xml`.
fn rrd_path(path: &str) -> Option<String> {
    if Path::new(path).extension().is_some_and(|extension| extension == "rrd") {
        return Some(path.to_owned());
    }
    path.strip_suffix(".xml").map(|stem| format!("{}.rrd", stem.strip_suffix(".rrd").unwrap_or(stem)))
}

pub(crate) fn import(flags: &RrdImportFlags) -> Result<ExitCode, String> {
    let mut found = Vec::new();
    for path in &flags.paths {
        if path.is_dir() {
            walk(path, "", &mut found)?;
        } else {
            let name = path.file_name().and_then(|name| name.to_str()).ok_or("a file without a name")?;
            let stored = rrd_path(name).unwrap_or_else(|| name.to_owned());
            found.push(RrdFile { file: path.clone(), path: stored });
        }
    }
    if found.is_empty() {
        return Err("no files that end with .rrd or .xml".to_owned());
    }
    let client = flags.server.client()?;
    let (mut rows, mut failed) = (0, 0);
    for one in &found {
        match import_file(flags, &client, one) {
            Ok(stored) => rows += stored,
            Err(error) => {
                failed += 1;
                eprintln!("{}: {error}", one.file.display());
            }
        }
    }
    eprintln!("{} of {} files imported, {rows} rows", found.len() - failed, found.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Returns how many rows were stored.
fn import_file(flags: &RrdImportFlags, client: &HttpClient, one: &RrdFile) -> Result<u64, String> {
    let body = fs::read(&one.file).map_err(|error| format!("cannot read it: {error}"))?;
    let mut parameters = vec![("db", flags.db.as_str()), ("path", one.path.as_str())];
    parameters.extend(flags.patterns.iter().map(|pattern| ("pattern", pattern.as_str())));
    if flags.replace {
        parameters.push(("replace", "true"));
    }
    let path = HttpClient::path("/api/v1/rrd/import", &parameters);
    let answer = client.post_as(&path, &[("content-type", "application/octet-stream")], &body)?;
    let parsed: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
    if answer.status != 200 {
        let error = parsed["error"].as_str().unwrap_or(&answer.body);
        return Err(format!("{error} (status {})", answer.status));
    }
    let data = &parsed["data"];
    for note in data["notes"].as_array().into_iter().flatten().filter_map(|note| note.as_str()) {
        eprintln!("{}: {note}", one.file.display());
    }
    if let Some(refused) = data["refused"].as_u64().filter(|refused| *refused > 0) {
        let reason = data["reason"].as_str().unwrap_or_default();
        eprintln!("{}: {refused} rows were refused: {reason}", one.file.display());
    }
    Ok(data["rows"].as_u64().unwrap_or_default())
}

pub(crate) fn export(flags: &RrdExportFlags) -> Result<ExitCode, String> {
    let client = flags.server.client()?;
    let step = flags.step.to_string();
    let mut parameters = vec![("db", flags.db.as_str()), ("format", flags.format.as_str())];
    if let Some(series) = &flags.series {
        parameters.extend([("match[]", series.as_str()), ("step", step.as_str())]);
        parameters.extend(flags.ds.iter().chain(&flags.rras).map(|argument| ("arg", argument.as_str())));
        save(&client, &parameters, &flags.to)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paths = if flags.paths.is_empty() { all_paths(&client, &flags.db)? } else { flags.paths.clone() };
    for path in &paths {
        let mut to = flags.to.join(path);
        if flags.format == "xml" {
            to.set_extension("xml");
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        }
        let of_file = [parameters.as_slice(), &[("path", path.as_str())]].concat();
        save(&client, &of_file, &to).map_err(|error| format!("{path}: {error}"))?;
    }
    eprintln!("{} files exported", paths.len());
    Ok(ExitCode::SUCCESS)
}

fn all_paths(client: &HttpClient, db: &str) -> Result<Vec<String>, String> {
    let files = client.api("/api/v1/rrd/files", &[("db", db)])?;
    let paths = files.as_array().into_iter().flatten().filter_map(|file| file["path"].as_str());
    let paths: Vec<String> = paths.map(str::to_owned).collect();
    // What the server sends becomes names of files.
    let is_inside = |path: &&String| !path.starts_with('/') && !path.split('/').any(|part| part == "..");
    if paths.is_empty() {
        return Err("there are no files of RRDtool in the database".to_owned());
    }
    Ok(paths.iter().filter(is_inside).cloned().collect())
}

fn save(client: &HttpClient, parameters: &[(&str, &str)], to: &Path) -> Result<(), String> {
    let mut answer = client.stream("/api/v1/rrd/export", parameters)?;
    let mut bytes = Vec::new();
    answer.body.read_to_end(&mut bytes).map_err(|error| format!("the answer broke off: {error}"))?;
    if answer.status != 200 {
        let parsed: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let error =
            parsed["error"].as_str().map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), str::to_owned);
        return Err(format!("{error} (status {})", answer.status));
    }
    fs::write(to, bytes).map_err(|error| format!("cannot write {}: {error}", to.display()))
}
