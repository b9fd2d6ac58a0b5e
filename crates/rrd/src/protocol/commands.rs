//! What each command does.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::create::{changes, creation};
use super::{Answer, Host, answers, help};
use crate::RrdError;
use crate::catalog::{Catalog, Destination, File, Pending, check_path};
use crate::fetch::FetchRequest;
use crate::file::{Consolidation, read};

type Answered = Result<Answer, RrdError>;

/// Seconds before now that a fetch without a start begins.
const DAY_S: i64 = 86_400;

fn usage(name: &str) -> RrdError {
    let syntax = help::find(name).map_or("", |command| command.syntax);
    RrdError::Invalid(format!("Usage: {syntax}"))
}

/// The path of a file as the catalog has it: absolute ones lie below the host's folder.
pub fn relative_path(text: &str, directory: Option<&Path>) -> Result<String, RrdError> {
    let inside = directory.and_then(|directory| Path::new(text).strip_prefix(directory).ok());
    let path = inside.and_then(Path::to_str).unwrap_or(text).trim_start_matches('/');
    check_path(path)?;
    Ok(path.to_owned())
}

/// The file of a command's first argument.
fn file(arguments: &[String], name: &str, host: &dyn Host) -> Result<Arc<File>, RrdError> {
    find_file(arguments.first().ok_or_else(|| usage(name))?, host)
}

/// The file of a path that the client may see. One that the host's folder has alone is imported.
pub fn find_file(text: &str, host: &dyn Host) -> Result<Arc<File>, RrdError> {
    let path = relative_path(text, host.directory())?;
    let found = match host.catalog().file(host.database(), &path) {
        Err(RrdError::NotFound(_)) => match host.load(&path)? {
            Some(bytes) => adopt(&path, &bytes, host),
            None => Err(RrdError::NotFound(text.to_owned())),
        },
        found => found,
    };
    found.and_then(|file| if host.may_see(&file) { Ok(file) } else { Err(RrdError::NotFound(text.to_owned())) })
}

/// Imports a file of the host's folder.
fn adopt(path: &str, bytes: &[u8], host: &dyn Host) -> Result<Arc<File>, RrdError> {
    let identity = host.catalog().patterns().identity(path);
    host.check_change(&identity.labels)?;
    let rrd = read(bytes)?.rrd;
    let to = Destination { database: host.database(), path, identity: Some(identity), replaces: false };
    match host.catalog().import(&rrd, &to, host) {
        Ok((file, _)) => Ok(file),
        // Another client was first.
        Err(error) => host.catalog().file(host.database(), path).map_err(|_| error),
    }
}

/// `UPDATE`: its readings wait to be written.
pub(super) fn update(arguments: &[String], host: &dyn Host, (slot, pending): (u64, &mut Pending)) -> Answered {
    let file = file(arguments, "UPDATE", host)?;
    host.check_change(&file.identity.labels)?;
    let values = arguments.get(1..).unwrap_or_default();
    if values.is_empty() {
        return Err(RrdError::invalid("No values updated."));
    }
    for value in values {
        host.catalog().queue(&file, value, (host.now(), slot), pending)?;
    }
    Ok(Answer::message(format!("errors, enqueued {} value(s).", values.len())))
}

/// All commands but those that a session handles itself.
pub(super) fn run(name: &str, arguments: &[String], host: &dyn Host) -> Answered {
    match name {
        "CREATE" => create(arguments, host),
        "TUNE" => tune(arguments, host),
        "FETCH" | "FETCHBIN" => fetch(name, arguments, host),
        "INFO" => info(arguments, host),
        "FIRST" => first(arguments, host),
        "LAST" => last(arguments, host),
        "LIST" => list(arguments, host),
        "FLUSH" => {
            file(arguments, name, host)?;
            host.catalog().count_flush();
            let path = arguments.first().map_or("", String::as_str);
            Ok(Answer::message(format!("Nothing to flush: {path}.")))
        }
        "FLUSHALL" => {
            host.catalog().count_flush();
            Ok(Answer::message("Started flush."))
        }
        "PENDING" => file(arguments, name, host).map(|_| Answer::message("updates pending")),
        "QUEUE" => Ok(Answer::message("in queue.")),
        "FORGET" => file(arguments, name, host).map(|_| Answer::message("Gone!")),
        "SUSPEND" | "RESUME" => suspend(name, arguments, host),
        "SUSPENDALL" | "RESUMEALL" => Ok(suspend_all(name, host)),
        "STATS" => Ok(stats(host)),
        "PING" => Ok(Answer::message("PONG")),
        "HELP" => {
            let (message, lines) = help::help(arguments.first().map(String::as_str));
            Ok(Answer::Lines { message, lines })
        }
        "WROTE" | "." => Err(RrdError::Invalid(format!("Can't use '{name}' here."))),
        _ => Err(RrdError::Invalid(format!("Unknown command: {name}"))),
    }
}

fn create(arguments: &[String], host: &dyn Host) -> Answered {
    let (path, rest) = arguments.split_first().ok_or_else(|| usage("CREATE"))?;
    let path = relative_path(path, host.directory())?;
    host.check_change(&host.catalog().patterns().identity(&path).labels)?;
    let creation = creation(rest, host.now()).map_err(|error| RrdError::Invalid(format!("RRD Error: {error}")))?;
    if let Ok(known) = host.catalog().file(host.database(), &path)
        && creation.replaces
    {
        host.check_replace(&known.identity.labels)?;
    }
    let how = (creation.begin, creation.replaces);
    let made = host.catalog().create(host.database(), &path, creation.definition, how);
    made.map_err(|error| RrdError::Invalid(format!("RRD Error: {error}")))?;
    Ok(Answer::message("RRD created OK"))
}

fn tune(arguments: &[String], host: &dyn Host) -> Answered {
    let file = file(arguments, "TUNE", host)?;
    host.check_change(&file.identity.labels)?;
    let changes = changes(arguments.get(1..).unwrap_or_default())?;
    host.catalog().tune(&file, &changes, host, &*host.budget()?)?;
    Ok(Answer::message("RRD tuned OK"))
}

fn fetch(name: &str, arguments: &[String], host: &dyn Host) -> Answered {
    let file = file(arguments, name, host)?;
    let function = arguments.get(1).ok_or_else(|| usage(name))?;
    let function = Consolidation::from_name(function)
        .ok_or_else(|| RrdError::Invalid(format!("unknown consolidation function '{function}'")))?;
    let now_s = host.now().seconds;
    let time = |index: usize, what: &str, default_s: i64| match arguments.get(index) {
        None => Ok(default_s),
        Some(text) => match text.parse::<i64>() {
            Ok(value) if value > 0 => Ok(value),
            Ok(value) => Ok(now_s.saturating_add(value)),
            Err(_) => {
                Err(RrdError::Invalid(format!("Cannot parse {what} time `{text}': Only simple integers are allowed.")))
            }
        },
    };
    let (start_s, end_s) = (time(2, "start", now_s - DAY_S)?, time(3, "end", now_s)?);
    let wanted = arguments.get(4..).unwrap_or_default();
    let request = FetchRequest { function, start_s, end_s, step_s: 0 };
    let failed = |error: RrdError| RrdError::Invalid(format!("rrd_fetch_r failed: {error}"));
    let rows = host.catalog().fetch(&file, &request, &*host.budget()?).map_err(failed)?;
    let column = |name: &String| {
        let found = rows.names.iter().position(|known| known == name);
        found.ok_or_else(|| RrdError::Invalid(format!("field {name} not found in {}", file.path)))
    };
    let mut columns = wanted.iter().filter(|name| !name.is_empty()).map(column).collect::<Result<Vec<_>, _>>()?;
    if columns.is_empty() {
        columns = (0..rows.names.len()).collect();
    }
    // A value takes up to 25 characters, a row its time.
    host.hold(rows.values.len() * 25 + rows.rows().count() * 12)?;
    Ok(match name {
        "FETCH" => Answer::Lines { message: "Success".to_owned(), lines: answers::fetched(&rows, &columns) },
        _ => Answer::Whole(answers::fetched_binary(&rows, &columns)),
    })
}

fn info(arguments: &[String], host: &dyn Host) -> Answered {
    let file = file(arguments, "INFO", host)?;
    let path = arguments.first().map_or("", String::as_str);
    let state = host.catalog().state(&file, &*host.budget()?)?;
    Ok(Answer::Lines { message: format!("Info for {path} follows"), lines: answers::info(path, &state) })
}

fn first(arguments: &[String], host: &dyn Host) -> Answered {
    let file = file(arguments, "FIRST", host)?;
    let index = arguments.get(1).map_or("0", String::as_str);
    let archive = index.parse::<usize>().ok().and_then(|index| file.definition.archives.get(index));
    let archive = archive.ok_or_else(|| RrdError::Invalid(format!("Invalid index specified ({index})")))?;
    let width_s = (archive.points * file.definition.step_s) as i64;
    let last_s = host.catalog().last_update(&file)?.seconds;
    let oldest_s = last_s - last_s.rem_euclid(width_s) - (archive.rows as i64 - 1) * width_s;
    Ok(Answer::message(oldest_s.to_string()))
}

fn last(arguments: &[String], host: &dyn Host) -> Answered {
    let file = file(arguments, "LAST", host)?;
    let last_s = host.catalog().last_update(&file)?.seconds;
    Ok(Answer::message((last_s - last_s.rem_euclid(file.definition.step_s as i64)).to_string()))
}

fn list(arguments: &[String], host: &dyn Host) -> Answered {
    let (is_recursive, text) = match arguments {
        [word, path] if word == "RECURSIVE" => (true, path),
        [path] if path.starts_with('/') => (false, path),
        _ => return Err(usage("LIST")),
    };
    let inside = host.directory().and_then(|directory| Path::new(text).strip_prefix(directory).ok());
    let folder = inside.and_then(Path::to_str).unwrap_or(text).trim_matches('/');
    let files = host.catalog().paths(host.database(), folder);
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| host.may_see(file)) {
        let below = file.path.strip_prefix(folder).unwrap_or(&file.path).trim_start_matches('/');
        names.insert(if is_recursive { below } else { below.split('/').next().unwrap_or_default() });
    }
    if names.is_empty() && host.catalog().file(host.database(), folder).is_ok_and(|file| host.may_see(&file)) {
        names.insert(folder.rsplit('/').next().unwrap_or_default());
    }
    let lines = names.iter().fold(String::new(), |lines, name| lines + name + "\n");
    Ok(Answer::Lines { message: "RRDs".to_owned(), lines })
}

fn suspend(name: &str, arguments: &[String], host: &dyn Host) -> Answered {
    let file = file(arguments, name, host)?;
    host.check_change(&file.identity.labels)?;
    let is_suspended = name == "SUSPEND";
    let was_suspended = file.is_suspended.swap(is_suspended, Ordering::Relaxed);
    let what = match (is_suspended, was_suspended) {
        (true, true) => "already suspended",
        (true, false) => "suspended",
        (false, true) => "resumed",
        (false, false) => "not suspended",
    };
    Ok(Answer::message(format!("{} {what}", file.path)))
}

fn suspend_all(name: &str, host: &dyn Host) -> Answer {
    let is_suspended = name == "SUSPENDALL";
    let files = host.catalog().paths(host.database(), "");
    let files = files.iter().filter(|file| host.check_change(&file.identity.labels).is_ok());
    let changed = files.filter(|file| file.is_suspended.swap(is_suspended, Ordering::Relaxed) != is_suspended).count();
    Answer::message(format!("{changed} rrds {}", if is_suspended { "suspend" } else { "resumed" }))
}

fn stats(host: &dyn Host) -> Answer {
    let catalog: &Catalog = host.catalog();
    let counts = catalog.counts();
    let files = catalog.paths(host.database(), "").len();
    let lines = format!(
        "QueueLength: 0\nUpdatesReceived: {}\nFlushesReceived: {}\nUpdatesWritten: {}\nDataSetsWritten: {}\n\
         TreeNodesNumber: {files}\nTreeDepth: 0\nJournalBytes: 0\nJournalRotate: 0\n",
        counts.updates, counts.flushes, counts.updates, counts.updates
    );
    Answer::Lines { message: "Statistics follow".to_owned(), lines }
}
