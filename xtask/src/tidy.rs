//! `cargo xtask tidy`: each rule is a file below, a pure function from text to findings; this one reads the tree.

mod calls;
mod exceptions;
mod layers;
mod names;
mod paths;
mod reasons;
mod sizes;
mod sources;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use exceptions::Exceptions;

/// The checked-in list of what was over a limit when the limit came.
const EXCEPTIONS: &str = "xtask/exceptions.txt";

/// Ends the names of files that a program wrote.
const GENERATED: &str = "_capnp.rs";

/// One breach of a rule: where, what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// A path from the root, with a line number where there is one.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}\n  {}", self.place, self.what, self.remedy)
    }
}

/// What a look at the whole tree gives.
#[derive(Debug)]
pub struct Report {
    /// Empty if all is well.
    pub findings: Vec<Finding>,
    /// The longest function and file, and how many files there are.
    pub summary: String,
}

/// Holds the tree below `root` against every rule. An error means that it could not be read.
pub fn check(root: &Path) -> Result<Report, String> {
    let paths = sources::list(root)?;
    let mut exceptions = Exceptions::parse(EXCEPTIONS, &read(root, EXCEPTIONS)?)?;
    let mut findings = layers::check(&layers::packages(&cargo_metadata(root)?)?);
    findings.extend(names::check(&paths));
    let mut tally = sizes::Tally::default();
    for path in &paths {
        if has_extension(path, "rs") && !path.ends_with(GENERATED) {
            check_rust(path, &read(root, path)?, &mut exceptions, &mut tally, &mut findings)?;
        } else if path.ends_with("Cargo.toml") {
            findings.extend(reasons::check(path, &read(root, path)?));
        } else if paths::is_checked(path) {
            findings.extend(paths::check(path, &read(root, path)?, &|named| root.join(named).exists()));
        }
    }
    findings.extend(exceptions.unused());
    findings.sort();
    Ok(Report { findings, summary: tally.summary() })
}

fn check_rust(
    path: &str,
    text: &str,
    exceptions: &mut Exceptions,
    tally: &mut sizes::Tally,
    findings: &mut Vec<Finding>,
) -> Result<(), String> {
    let file = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
    findings.extend(sizes::check(path, text, &file, exceptions, tally));
    if calls::is_checked(path) {
        findings.extend(calls::check(path, &file, exceptions));
    }
    Ok(())
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

fn cargo_metadata(root: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let flags = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(flags).current_dir(root).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}
